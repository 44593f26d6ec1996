"""Not in the paper: is lam="auto" safe without tuning? One rule with one setting, for every model and data set.

The rule of `wtawp.core.auto` was chosen on `DEVELOPMENT` alone. `CONFIRMATION` was named before the choice and trained
once after it.
"""

from wtawp.core import AwpConfig
from wtawp.experiments.spec import Cell, Plan, Setting

MODELS = ("GCN", "GAT", "GraphSAGE", "PPNP", "GIN")
METHODS = {"": None, "+WT-AWP": AwpConfig(rho=1.0, lam=0.7), "+WT-AWP auto": AwpConfig(rho=1.0, lam="auto")}
DEVELOPMENT = ("cora", "polblogs", "digits", "amazon-computers")
CONFIRMATION = (
    "citeseer", "citation", "wine", "breast-cancer", "toy-linear", "toy-moons", "toy-rings", "toy-gaussians",
    "planetoid-pubmed", "coauthor-physics",
)  # fmt: skip
LARGE = ("amazon-computers", "planetoid-pubmed", "coauthor-physics")


def auto_plans() -> tuple[Plan, ...]:
    """Build the plans, with the default hyper-parameters of the package, 20 splits and one initialisation of each.

    Returns:
        The plan of the small graphs, and that of `LARGE`.
    """
    pairs = tuple((model, f"{model}{suffix}") for model in MODELS for suffix in METHODS if suffix)
    groups = {
        "extra:auto": ("Safe without tuning", [d for d in (*DEVELOPMENT, *CONFIRMATION) if d not in LARGE]),
        "extra:auto-large": ("Safe without tuning, on larger graphs", list(LARGE)),
    }
    return tuple(
        Plan(name, title, tuple(cell for dataset in datasets for cell in _cells(dataset)), pairs, ("gains_by_column",))
        for name, (title, datasets) in groups.items()
    )


def _cells(dataset: str) -> list[Cell]:
    """The cells of a data set: every model plainly, with the paper's setting for Cora, and with lam="auto"."""
    return [
        Cell(f"{model}{suffix}", dataset, Setting(dataset=dataset, model=model, awp=awp), 20, 1, judged=False)
        for model in MODELS
        for suffix, awp in METHODS.items()
    ]
