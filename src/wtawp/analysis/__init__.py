"""Looking at trained models: sharpness and loss landscapes. Pure functions of a model, a loss and a seed."""

from wtawp.analysis.landscape import loss_along_random_directions
from wtawp.analysis.sharpness import sharpness

__all__ = ["loss_along_random_directions", "sharpness"]
