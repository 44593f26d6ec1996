"""The method: adversarial weight perturbation for any PyTorch model. It needs torch alone and knows nothing of graphs.

Names are imported when they are first used, so that `wtawp.core.config` can be imported without torch.
"""

from typing import TYPE_CHECKING

from wtawp.base import lazy_exports

if TYPE_CHECKING:
    from wtawp.core.algorithm import compute_delta, compute_gradient
    from wtawp.core.awp import WTAWP
    from wtawp.core.config import LAYER_WORDS, AwpConfig, Layers, Projection, Radius
    from wtawp.core.observation import StepStatistics
    from wtawp.core.perturb import ascend, clip_relative_norm, copy_into, global_norm, mix, project, radii
    from wtawp.core.selection import select
    from wtawp.core.vanishing import VanishingGradientMonitor, VanishingMembersMonitor
    from wtawp.core.variants import ASAM, AWP, SAM, TAWP, WAWP

__all__ = [
    "ASAM",
    "AWP",
    "LAYER_WORDS",
    "SAM",
    "TAWP",
    "WAWP",
    "WTAWP",
    "AwpConfig",
    "Layers",
    "Projection",
    "Radius",
    "StepStatistics",
    "VanishingGradientMonitor",
    "VanishingMembersMonitor",
    "ascend",
    "clip_relative_norm",
    "compute_delta",
    "compute_gradient",
    "copy_into",
    "global_norm",
    "mix",
    "project",
    "radii",
    "select",
]

_HOMES = {
    "WTAWP": "awp",
    **dict.fromkeys(("ASAM", "AWP", "SAM", "TAWP", "WAWP"), "variants"),
    **dict.fromkeys(("AwpConfig", "LAYER_WORDS", "Layers", "Projection", "Radius"), "config"),
    **dict.fromkeys(("compute_delta", "compute_gradient"), "algorithm"),
    "StepStatistics": "observation",
    **dict.fromkeys(("VanishingGradientMonitor", "VanishingMembersMonitor"), "vanishing"),
    **dict.fromkeys(("ascend", "clip_relative_norm", "copy_into", "global_norm", "mix", "project", "radii"), "perturb"),
    "select": "selection",
}

__getattr__ = lazy_exports(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
