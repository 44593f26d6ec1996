"""Inspection: train a few models or read their weights, measure them, and show a table and a figure for a command.

This room may import every other room of `experiments` except `audit`, `demo` and `tuning`.
"""

from typing import TYPE_CHECKING

from wtawp.base import lazy_exports

if TYPE_CHECKING:
    from wtawp.experiments.inspection.checkpoints import load_weights, read_state_dict
    from wtawp.experiments.inspection.models import (
        InspectedModels,
        load_or_train,
        refuse_collections,
        refuse_distributions,
    )
    from wtawp.experiments.inspection.soundness import check_soundness

__all__ = [
    "InspectedModels", "check_soundness", "load_or_train", "load_weights",
    "read_state_dict", "refuse_collections", "refuse_distributions",
]  # fmt: skip
_HOMES = {
    **dict.fromkeys(("load_weights", "read_state_dict"), "checkpoints"),
    **dict.fromkeys(("InspectedModels", "load_or_train", "refuse_collections", "refuse_distributions"), "models"),
    "check_soundness": "soundness",
}
__getattr__ = lazy_exports(__name__, _HOMES)


def __dir__() -> list[str]:
    """The public names, also those that are not imported yet."""
    return sorted({*globals(), *__all__})
