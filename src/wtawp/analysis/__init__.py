"""Looking at trained models: how flat in their weights, how smooth in their inputs, and what the bounds say.

Pure functions of a model, data or a loss, and a seed.
"""

from wtawp.analysis.bounds import (
    Bound,
    BoundAt,
    bound_over_rho,
    gaussian_kl,
    graph_level_bound,
    lemma_1,
    refuse_bound,
    theorem_1,
    total_radius,
)
from wtawp.analysis.landscape import (
    adversarial_direction,
    direction_between,
    loss_along,
    loss_along_random_directions,
    losses_at,
    losses_on_plane,
    num_gaps,
    random_direction,
)
from wtawp.analysis.losses import LossOn
from wtawp.analysis.sharpness import SharpnessMonitor, sharpness, sharpness_over
from wtawp.analysis.smoothness import input_gradient_norms
from wtawp.analysis.spectrum import Hessian, SpectralDensity, Trace, hessian_trace, spectral_density, top_eigenvalues
from wtawp.analysis.vanishing import SaturationMonitor

__all__ = ["Bound", "BoundAt", "Hessian", "LossOn", "SaturationMonitor", "SharpnessMonitor", "SpectralDensity"]
__all__ += [
    "adversarial_direction",
    "bound_over_rho",
    "direction_between",
    "gaussian_kl",
    "graph_level_bound",
    "hessian_trace",
]
__all__ += ["input_gradient_norms", "lemma_1", "loss_along", "loss_along_random_directions", "losses_at"]
__all__ += ["losses_on_plane", "num_gaps", "random_direction", "sharpness", "sharpness_over", "spectral_density"]
__all__ += ["Trace", "refuse_bound", "theorem_1", "top_eigenvalues", "total_radius"]
