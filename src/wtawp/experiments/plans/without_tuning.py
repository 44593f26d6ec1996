"""Not in the paper: is lam="auto" safe without tuning? One rule with one setting, for every model and data set.

The rule of `wtawp.core.auto` was chosen on cora, polblogs, digits and amazon-computers. The other data sets here took
no part in the choice.
"""

from wtawp.core import AwpConfig
from wtawp.experiments.spec import Cell, Plan, Setting

MODELS = ("GCN", "GAT", "GraphSAGE", "PPNP", "GIN")
METHODS = {"": None, "+WT-AWP": AwpConfig(rho=1.0, lam=0.7), "+WT-AWP auto": AwpConfig(rho=1.0, lam="auto")}
LARGE = ("amazon-computers", "planetoid-pubmed", "coauthor-physics")
SMALL = (
    "cora", "citeseer", "polblogs", "planetoid-cora", "planetoid-citeseer", "digits", "wine", "breast-cancer",
    "citation", "toy-moons", "toy-rings",
)  # fmt: skip
BEST_OF = (("GCN", "cora"), ("GCN", "citeseer"), ("GAT", "cora"), ("PPNP", "cora"))
LAMS, RHOS = (0.3, 0.5, 0.7, 0.9), (0.5, 1.0, 2.0)


def auto_plans() -> tuple[Plan, ...]:
    """Build the plans, with the default hyper-parameters of the package and 20 splits.

    Returns:
        A plan for larger graphs, with one initialisation of each split, and one for small ones, with three: each model
        on each data set plainly, with the paper's setting for Cora, and with lam="auto". And one that compares
        lam="auto" with the best of twelve fixed settings where the paper's method gains most.
    """
    pairs = tuple((model, f"{model}{suffix}") for model in MODELS for suffix in METHODS if suffix)
    title, figures = "Safe without tuning", ("gains_by_column", "gains_over_overfitting")
    return (
        Plan("extra:auto", f"{title}, larger graphs", _cells(LARGE, inits=1), pairs, figures),
        Plan("extra:auto-small", f"{title}, small graphs", _cells(SMALL, inits=3), pairs, figures),
        _best_fixed(),
    )


def _cells(datasets: tuple[str, ...], inits: int) -> tuple[Cell, ...]:
    """The cells of some data sets."""
    return tuple(
        Cell(f"{model}{suffix}", dataset, Setting(dataset=dataset, model=model, awp=awp), 20, inits, judged=False)
        for dataset in datasets
        for model in MODELS
        for suffix, awp in METHODS.items()
    )


def _best_fixed() -> Plan:
    """The plan that asks how much of the best fixed setting's gain lam="auto" keeps."""
    fixed = {f"lam={lam}, rho={rho}": AwpConfig(rho=rho, lam=lam) for lam in LAMS for rho in RHOS}
    rows: dict[str, AwpConfig | None] = {"plain": None, "auto": METHODS["+WT-AWP auto"], **fixed}
    cells = tuple(
        Cell(row, f"{model} on {dataset}", Setting(dataset=dataset, model=model, awp=awp), 20, 3, judged=False)
        for model, dataset in BEST_OF
        for row, awp in rows.items()
    )
    pairs = tuple(("plain", row) for row in rows if row != "plain")
    return Plan("extra:auto-best", 'lam="auto" beside twelve fixed settings', cells, pairs, ("gains_over_lam",))
