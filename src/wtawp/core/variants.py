"""The named variants of the method: AWP, T-AWP, W-AWP, SAM and ASAM, as settings of `WTAWP`."""

from typing import TypedDict, Unpack

from torch import nn

from wtawp.core.awp import WTAWP
from wtawp.core.config import Balance, Lam, Layers, Projection, Radius


class Options(TypedDict, total=False):
    """The options that every named variant shares with `WTAWP`; `AwpConfig` explains them."""

    projection: Projection
    steps: int
    step_size: float | None
    balance: Balance
    exact: bool
    every: int
    start: int


def AWP(model: nn.Module, *, rho: float, radius: Radius = "layer", **options: Unpack[Options]) -> WTAWP:
    """Build adversarial weight perturbation, Eq. 6 (eq:awpest): every layer, and the perturbed loss alone.

    Args:
        model: The module that is trained.
        rho: Radius of the perturbation, relative to the norm of each tensor when `radius` is "layer".
        radius: "layer" (the paper), "global" or "adaptive".
        **options: `projection`, `steps`, `step_size`, `balance`, `exact`, `every` and `start` of `WTAWP`.

    Returns:
        A `WTAWP` with lam=1 and layers="all".

    Example:
        >>> AWP(nn.Linear(4, 3), rho=0.5).config.lam
        1.0
    """
    return WTAWP(model, rho=rho, lam=1.0, layers="all", radius=radius, **options)


def TAWP(
    model: nn.Module,
    *,
    rho: float,
    layers: Layers = "all-but-last",
    radius: Radius = "layer",
    **options: Unpack[Options],
) -> WTAWP:
    """Build truncated AWP, Eq. 9: some layers, and the perturbed loss alone.

    Args:
        model: The module that is trained.
        rho: Radius of the perturbation, relative to the norm of each tensor when `radius` is "layer".
        layers: The perturbed parameters: "all", "all-but-last", "first" or "last", or globs over parameter names.
        radius: "layer" (the paper), "global" or "adaptive".
        **options: `projection`, `steps`, `step_size`, `balance`, `exact`, `every` and `start` of `WTAWP`.

    Returns:
        A `WTAWP` with lam=1.

    Example:
        >>> list(TAWP(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3)), rho=0.5).perturbed)
        ['0.weight']
    """
    return WTAWP(model, rho=rho, lam=1.0, layers=layers, radius=radius, **options)


def WAWP(model: nn.Module, *, rho: float, lam: Lam, radius: Radius = "layer", **options: Unpack[Options]) -> WTAWP:
    """Build weighted AWP, Eq. 10 (eq:weighted_awp): every layer, and both losses.

    Args:
        model: The module that is trained.
        rho: Radius of the perturbation, relative to the norm of each tensor when `radius` is "layer".
        lam: Weight of the perturbed loss, between 0 and 1.
        radius: "layer" (the paper), "global" or "adaptive".
        **options: `projection`, `steps`, `step_size`, `balance`, `exact`, `every` and `start` of `WTAWP`.

    Returns:
        A `WTAWP` with layers="all".

    Example:
        >>> list(WAWP(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3)), rho=0.5, lam=0.5).perturbed)
        ['0.weight', '1.weight']
    """
    return WTAWP(model, rho=rho, lam=lam, layers="all", radius=radius, **options)


def SAM(model: nn.Module, *, rho: float = 0.05, **options: Unpack[Options]) -> WTAWP:
    """Build sharpness-aware minimization (Foret et al. 2021): all parameters, with one absolute radius together.

    Args:
        model: The module that is trained.
        rho: Radius over all parameters together; the default is that of the authors.
        **options: `projection`, `steps`, `step_size`, `balance`, `exact`, `every` and `start` of `WTAWP`.

    Returns:
        A `WTAWP` with lam=1, layers="*" and radius="global".

    Example:
        >>> list(SAM(nn.Linear(4, 3)).perturbed)
        ['weight', 'bias']
    """
    return WTAWP(model, rho=rho, lam=1.0, layers="*", radius="global", **options)


def ASAM(model: nn.Module, *, rho: float = 0.5, **options: Unpack[Options]) -> WTAWP:
    """Build adaptive SAM (Kwon et al. 2021): all parameters, with each step measured relative to the weight it changes.

    Biases are measured so, too, as the formulas of that paper say; its authors' code does it for weights alone.

    Args:
        model: The module that is trained.
        rho: Radius over all parameters together, in units of the weights; the default is that of the authors.
        **options: `projection`, `steps`, `step_size`, `balance`, `exact`, `every` and `start` of `WTAWP`.

    Returns:
        A `WTAWP` with lam=1, layers="*" and radius="adaptive".

    Example:
        >>> ASAM(nn.Linear(4, 3)).config.radius
        'adaptive'
    """
    return WTAWP(model, rho=rho, lam=1.0, layers="*", radius="adaptive", **options)
