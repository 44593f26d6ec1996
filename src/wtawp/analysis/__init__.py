"""Measures of trained models: how flat the loss is in the weights, how smooth in the inputs, and what the bounds say.

Every measure is a pure function of a model, data or a loss, and a seed. Names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from wtawp.base import lazy_exports

if TYPE_CHECKING:
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
        num_non_finite,
        random_direction,
    )
    from wtawp.analysis.losses import LossOn
    from wtawp.analysis.saturation import SaturationMonitor
    from wtawp.analysis.smoothness import input_gradient_norms
    from wtawp.analysis.spectrum import (
        Hessian,
        SpectralDensity,
        Trace,
        hessian_trace,
        spectral_density,
        top_eigenvalues,
    )
    from wtawp.analysis.weight_sharpness import SharpnessMonitor, sharpness, sharpness_over

_HOMES = {
    "Bound": "bounds",
    "BoundAt": "bounds",
    "Hessian": "spectrum",
    "LossOn": "losses",
    "SaturationMonitor": "saturation",
    "SharpnessMonitor": "weight_sharpness",
    "SpectralDensity": "spectrum",
    "Trace": "spectrum",
    "adversarial_direction": "landscape",
    "bound_over_rho": "bounds",
    "direction_between": "landscape",
    "gaussian_kl": "bounds",
    "graph_level_bound": "bounds",
    "hessian_trace": "spectrum",
    "input_gradient_norms": "smoothness",
    "lemma_1": "bounds",
    "loss_along": "landscape",
    "loss_along_random_directions": "landscape",
    "losses_at": "landscape",
    "losses_on_plane": "landscape",
    "num_non_finite": "landscape",
    "random_direction": "landscape",
    "refuse_bound": "bounds",
    "sharpness": "weight_sharpness",
    "sharpness_over": "weight_sharpness",
    "spectral_density": "spectrum",
    "theorem_1": "bounds",
    "top_eigenvalues": "spectrum",
    "total_radius": "bounds",
}
__all__ = [
    "Bound",
    "BoundAt",
    "Hessian",
    "LossOn",
    "SaturationMonitor",
    "SharpnessMonitor",
    "SpectralDensity",
    "Trace",
    "adversarial_direction",
    "bound_over_rho",
    "direction_between",
    "gaussian_kl",
    "graph_level_bound",
    "hessian_trace",
    "input_gradient_norms",
    "lemma_1",
    "loss_along",
    "loss_along_random_directions",
    "losses_at",
    "losses_on_plane",
    "num_non_finite",
    "random_direction",
    "refuse_bound",
    "sharpness",
    "sharpness_over",
    "spectral_density",
    "theorem_1",
    "top_eigenvalues",
    "total_radius",
]

__getattr__ = lazy_exports(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
