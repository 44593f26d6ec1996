"""The training loops: the only place where models meet optimizers and the method.

Names are imported when they are first used, so that `wtawp.training.options` can be imported without torch.
"""

from typing import TYPE_CHECKING

from wtawp.base import lazy_exports

if TYPE_CHECKING:
    from wtawp.training.batches import fit_batches
    from wtawp.training.evaluation import evaluate
    from wtawp.training.inference import compute_logits
    from wtawp.training.learned_structure import learn_structure
    from wtawp.training.loop import Fit, fit, fit_many
    from wtawp.training.options import SelectOn
    from wtawp.training.subsets import dot_product

__all__ = [
    "Fit",
    "SelectOn",
    "compute_logits",
    "dot_product",
    "evaluate",
    "fit",
    "fit_batches",
    "fit_many",
    "learn_structure",
]

_HOMES = {
    "Fit": "loop",
    "SelectOn": "options",
    "compute_logits": "inference",
    "dot_product": "subsets",
    "evaluate": "evaluation",
    "fit": "loop",
    "fit_batches": "batches",
    "fit_many": "loop",
    "learn_structure": "learned_structure",
}

__getattr__ = lazy_exports(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
