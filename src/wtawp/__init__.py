"""Weighted truncated adversarial weight perturbation (WT-AWP, AAAI 2023) for any PyTorch model.

These are the names that most programs need; the packages below this one have the others. A name is imported when it is
first used, so that `import wtawp` is fast and `from wtawp import WTAWP` loads torch alone.
"""

from typing import TYPE_CHECKING

from wtawp.base import lazy_exports

if TYPE_CHECKING:
    from wtawp.attacks import attack
    from wtawp.base import rng
    from wtawp.certificates import Noise, certify
    from wtawp.core import ASAM, AWP, SAM, TAWP, WAWP, WTAWP, AwpConfig
    from wtawp.experiments.audit.runner import audit
    from wtawp.graphs import Split, load, stratified
    from wtawp.training import evaluate, fit, fit_many

__version__ = "0.2.0"
__all__ = [  # noqa: RUF022, grouped by what they are for
    # The method, for a training loop of one's own
    "WTAWP",
    "AWP",
    "TAWP",
    "WAWP",
    "SAM",
    "ASAM",
    # Data
    "load",
    "Split",
    "stratified",
    # Training
    "AwpConfig",
    "fit",
    "fit_many",
    "evaluate",
    "rng",
    # Robustness
    "attack",
    "audit",
    "certify",
    "Noise",
]

_HOMES = {
    **dict.fromkeys(("WTAWP", "AWP", "TAWP", "WAWP", "SAM", "ASAM", "AwpConfig"), "core"),
    **dict.fromkeys(("load", "Split", "stratified"), "graphs"),
    **dict.fromkeys(("fit", "fit_many", "evaluate"), "training"),
    **dict.fromkeys(("certify", "Noise"), "certificates"),
    "attack": "attacks",
    "audit": "experiments.audit.runner",
    "rng": "base",
}

__getattr__ = lazy_exports(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
