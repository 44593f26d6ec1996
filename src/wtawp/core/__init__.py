"""The method: adversarial weight perturbation for any PyTorch model. Needs torch alone and knows nothing of graphs."""

from wtawp.core.awp import ASAM, AWP, SAM, TAWP, WAWP, WTAWP, AwpConfig
from wtawp.core.perturb import (
    Projection,
    Radius,
    ascend,
    clip_relative_norm,
    copy_into,
    length,
    mix,
    project,
    radii,
    select,
)

__all__ = ["ASAM", "AWP", "SAM", "TAWP", "WAWP", "WTAWP", "AwpConfig", "Projection", "Radius"]
__all__ += ["ascend", "clip_relative_norm", "copy_into", "length", "mix", "project", "radii", "select"]
