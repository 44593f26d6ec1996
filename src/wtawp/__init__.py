"""Weighted truncated adversarial weight perturbation (WT-AWP, AAAI 2023) for any PyTorch model.

The front door. Names are resolved when first used, so `import wtawp.core` loads torch and nothing else.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wtawp.attacks import attack
    from wtawp.certificates import certify
    from wtawp.core import ASAM, AWP, SAM, TAWP, WAWP, WTAWP
    from wtawp.graphs import load
    from wtawp.training import fit, fit_many

__version__ = "0.1.0"
__all__ = ["ASAM", "AWP", "SAM", "TAWP", "WAWP", "WTAWP", "attack", "certify", "fit", "fit_many", "load"]

_HOME = {
    **dict.fromkeys(("ASAM", "AWP", "SAM", "TAWP", "WAWP", "WTAWP"), "wtawp.core"),
    "attack": "wtawp.attacks",
    "certify": "wtawp.certificates",
    "load": "wtawp.graphs",
    "fit": "wtawp.training",
    "fit_many": "wtawp.training",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'wtawp' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
