"""Not in the paper: is lam="auto" safe without tuning? One rule with one setting, for every model and data set.

The rule of `wtawp.core.auto` was chosen on cora, polblogs, digits and amazon-computers. The other data sets here took
no part in the choice.
"""

from wtawp.core import AwpConfig
from wtawp.experiments.spec import Cell, Plan, Setting

MODELS = ("GCN", "GAT", "GraphSAGE", "PPNP", "GIN")
METHODS = {"": None, "+WT-AWP": AwpConfig(rho=1.0, lam=0.7), "+WT-AWP auto": AwpConfig(rho=1.0, lam="auto")}
DATASETS = {
    "extra:auto": ("amazon-computers", "planetoid-pubmed", "coauthor-physics"),
    "extra:auto-small": ("cora", "citeseer"),
}


def auto_plans() -> tuple[Plan, ...]:
    """Build the plans, with the default hyper-parameters of the package, 20 splits and one initialisation of each.

    Returns:
        A plan for larger graphs and one for small ones: each model on each data set plainly, with the paper's setting
        for Cora, and with lam="auto".
    """
    pairs = tuple((model, f"{model}{suffix}") for model in MODELS for suffix in METHODS if suffix)
    return tuple(
        Plan(name, "Safe without tuning", _cells(datasets), pairs, ("gains_by_column",))
        for name, datasets in DATASETS.items()
    )


def _cells(datasets: tuple[str, ...]) -> tuple[Cell, ...]:
    """The cells of some data sets."""
    return tuple(
        Cell(f"{model}{suffix}", dataset, Setting(dataset=dataset, model=model, awp=awp), 20, 1, judged=False)
        for dataset in datasets
        for model in MODELS
        for suffix, awp in METHODS.items()
    )
