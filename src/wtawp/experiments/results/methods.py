"""Which of the paper's methods a configuration of the perturbation is.

Figures choose colours by this, so that a method looks the same in every figure, whatever its row is called.
"""

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wtawp.core import AwpConfig


class MethodKind(Enum):
    """Plain training, or one of the variants of adversarial weight perturbation."""

    PLAIN = "plain"
    WT_AWP = "WT-AWP"
    W_AWP = "W-AWP"
    T_AWP = "T-AWP"
    AWP = "AWP"
    SAM = "SAM"
    ASAM = "ASAM"


def method_of(awp: "AwpConfig | None") -> MethodKind:
    """The method that a configuration describes.

    The paper's names follow from two properties: "W" for weighted (lam < 1, or "auto"), "T" for truncated (some layers
    are left out). AWP with one radius for the whole model is SAM; with a radius relative to each weight it is adaptive
    SAM.

    Args:
        awp: Options of the perturbation; None for training without one.

    Returns:
        The method; plain training also where `lam` or `rho` is 0.

    Example:
        >>> from wtawp.core import AwpConfig
        >>> method_of(AwpConfig(rho=1.0, lam=0.7)), method_of(None)
        (<MethodKind.WT_AWP: 'WT-AWP'>, <MethodKind.PLAIN: 'plain'>)
    """
    if awp is None or awp.is_plain:
        return MethodKind.PLAIN
    is_weighted, is_truncated = awp.is_auto or awp.fixed_lam < 1, awp.layers not in ("all", "*")
    if is_truncated:
        return MethodKind.WT_AWP if is_weighted else MethodKind.T_AWP
    if is_weighted:
        return MethodKind.W_AWP
    return {"layer": MethodKind.AWP, "global": MethodKind.SAM, "adaptive": MethodKind.ASAM}[awp.radius]
