"""Thin bridges to other people's tools. Each needs the extra of its name, and is imported when it is first used."""

from typing import TYPE_CHECKING

from wtawp.base import lazy_exports

if TYPE_CHECKING:
    from wtawp.integrations.lightning import PerturbationCallback, gradient_scale
    from wtawp.integrations.tensorboard import ScalarLogger

__all__ = ["PerturbationCallback", "ScalarLogger", "gradient_scale"]

_HOMES = {
    **dict.fromkeys(("PerturbationCallback", "gradient_scale"), "lightning"),
    "ScalarLogger": "tensorboard",
}

__getattr__ = lazy_exports(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
