"""The method: adversarial weight perturbation for any PyTorch model. Needs torch alone and knows nothing of graphs."""

from wtawp.core.awp import ASAM, AWP, SAM, TAWP, WAWP, WTAWP, AwpConfig
from wtawp.core.perturb import ascend, mix, project, radii, select

__all__ = ["ASAM", "AWP", "SAM", "TAWP", "WAWP", "WTAWP", "AwpConfig", "ascend", "mix", "project", "radii", "select"]
