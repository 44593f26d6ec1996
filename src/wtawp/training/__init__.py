"""The training loops: the only place where models meet optimisers and the method."""

from wtawp.training.batches import fit_batches
from wtawp.training.engine import SelectOn
from wtawp.training.fit import Fit, evaluate, fit, fit_many

__all__ = ["Fit", "SelectOn", "evaluate", "fit", "fit_batches", "fit_many"]
