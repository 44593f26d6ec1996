"""What commands train where the user says nothing: the perturbation that belongs to a model and a data set."""

from wtawp.core import AwpConfig
from wtawp.core.config import Layers
from wtawp.experiments.plans.paper import GRAPHS
from wtawp.models.registry import model_spec

LAM, RHO = 0.7, 1.0  # the paper's for Cora


def default_awp(
    model: str,
    dataset: str,
    *,
    rho: float | None = None,
    lam: float | None = None,
    layers: Layers | None = None,
    default_lam: float = LAM,
) -> AwpConfig | None:
    """How WT-AWP perturbs a model on a data set, unless the user says otherwise.

    Args:
        model: The name of a model.
        dataset: The name of a data set.
        rho: The radius. If neither it nor `lam` is given, classifiers of the paper's graph data sets get the pair that
            the paper uses there.
        lam: The weight of the perturbed loss.
        layers: The layers that are perturbed; by default those of the model in the registry.
        default_lam: The weight where nothing else decides.

    Returns:
        The perturbation; None for a model that cannot be perturbed.
    """
    spec = model_spec(model)
    if not spec.is_perturbable:
        return None
    if rho is None and lam is None and spec.level == "graph" and dataset in GRAPHS:
        lam, rho = GRAPHS[dataset]
    return AwpConfig(
        rho=RHO if rho is None else rho,
        lam=default_lam if lam is None else lam,
        layers=spec.layers if layers is None else layers,
    )
