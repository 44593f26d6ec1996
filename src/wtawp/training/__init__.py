"""The training loops: the only place where models meet optimisers and the method."""

from wtawp.training.fit import Fit, evaluate, fit, fit_many

__all__ = ["Fit", "evaluate", "fit", "fit_many"]
