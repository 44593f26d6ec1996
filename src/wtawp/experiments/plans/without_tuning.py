"""Not in the paper: is lam="auto" safe without tuning? One rule with one setting, for every model and data set.

The rule of `wtawp.core.auto` was chosen on cora, polblogs, digits and amazon-computers alone, with
`benchmarks/auto_rules.py`. The other data sets of the plan were named before the choice and trained once after it.
"""

from wtawp.core import AwpConfig
from wtawp.experiments.spec import Cell, Plan, Setting

MODELS = ("GCN", "GAT", "GraphSAGE", "PPNP", "GIN")
METHODS = {"": None, "+WT-AWP": AwpConfig(rho=1.0, lam=0.7), "+WT-AWP auto": AwpConfig(rho=1.0, lam="auto")}
DATASETS = ("amazon-computers", "planetoid-pubmed", "coauthor-physics")


def auto_plan() -> Plan:
    """Build the plan, with the default hyper-parameters of the package, 20 splits and one initialisation of each.

    Returns:
        The plan: each model on each data set plainly, with the paper's setting for Cora, and with lam="auto".
    """
    cells = tuple(
        Cell(f"{model}{suffix}", dataset, Setting(dataset=dataset, model=model, awp=awp), 20, 1, judged=False)
        for dataset in DATASETS
        for model in MODELS
        for suffix, awp in METHODS.items()
    )
    pairs = tuple((model, f"{model}{suffix}") for model in MODELS for suffix in METHODS if suffix)
    return Plan("extra:auto", "Safe without tuning", cells, pairs, ("gains_by_column",))
