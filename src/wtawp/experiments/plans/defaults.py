"""The default perturbation of a model on a data set, which all commands share."""

from wtawp.base import matching_name
from wtawp.core import AwpConfig
from wtawp.core.config import Lam, Layers
from wtawp.experiments.plans.graph_level import GRAPHS
from wtawp.models.registry import model_spec

LAM, RHO = 0.7, 1.0  # the paper's for Cora


def default_awp(
    model: str,
    dataset: str,
    *,
    rho: float | None = None,
    lam: Lam | None = None,
    layers: Layers | None = None,
    default_lam: Lam = LAM,
) -> AwpConfig | None:
    """Choose how WT-AWP perturbs a model on a data set; values that the user gave take precedence.

    Args:
        model: The name of a model.
        dataset: The name of a data set.
        rho: The radius; None uses 1. If neither `rho` nor `lam` is given, models for whole graphs on the paper's graph
            data sets use the paper's pair for that data set instead.
        lam: The weight of the perturbed loss; None uses `default_lam`.
        layers: The layers that are perturbed; None uses those in the registry of models.
        default_lam: The default of `lam`. It is 0.7, as in the paper on Cora; the certificates use another.

    Returns:
        The perturbation; None for a model that cannot be perturbed.

    Example:
        >>> default_awp("GCN", "cora", lam=0.5)
        AwpConfig(rho=1.0, lam=0.5, ...)
    """
    spec = model_spec(model)
    if not spec.is_perturbable:
        return None
    of_the_paper = matching_name(dataset, GRAPHS) if spec.level == "graph" else None
    if rho is None and lam is None and of_the_paper is not None:
        lam, rho = GRAPHS[of_the_paper]
    return AwpConfig(
        rho=RHO if rho is None else rho,
        lam=default_lam if lam is None else lam,
        layers=spec.layers if layers is None else layers,
    )
