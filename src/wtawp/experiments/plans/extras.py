"""Further plans beyond the paper: the strength of attacks, larger graphs, and perturbing at some steps only."""

from wtawp.attacks.registry import attack_spec
from wtawp.core import AwpConfig
from wtawp.experiments.plans.paper import ROBUST
from wtawp.experiments.plans.robustness import evading, poisoning
from wtawp.experiments.spec import Cell, Option, Plan, Setting


def strength_plan() -> Plan:
    """Build extra:attacks: every attack against as many random flips, on a GCN on Cora with 5 % of edges, 20 splits.

    Returns:
        The plan.
    """
    order = ("random", "dice", "pgd", "prbcd", "grbcd", "minmax", "metattack")
    names = {name: attack_spec(name).label for name in order}
    evasion_attacks = tuple(name for name in names if "evasion" in attack_spec(name).stages)
    few: dict[str, Option] = {
        "steps": 40,
        "block_size": 50_000,
    }  # a tenth of the cost of the defaults, and strong enough
    steps: dict[str, dict[str, Option]] = {"pgd": {"steps": 200}, "prbcd": few, "grbcd": few}
    measures = tuple(evading(name, 0.05, **steps.get(name, {})) for name in evasion_attacks)
    evaded = Setting(dataset="cora", measures=measures)
    cells = [Cell(names[name], "evasion, cora", evaded, 20, 1, judged=False, measure=index)
             for index, name in enumerate(evasion_attacks)]  # fmt: skip
    for name in ("random", "dice", "pgd", "minmax", "metattack"):
        poisoned = Setting(dataset="cora", options=ROBUST["GCN"], poison=poisoning(name, 0.05))
        cells.append(Cell(names[name], "poisoning, cora", poisoned, 20, 1, judged=False))
    pairs = tuple(("random", label) for label in list(names.values())[1:])
    return Plan("extra:attacks", "Attacks against as many random flips", tuple(cells), pairs)


def midsize_plan() -> Plan:
    """Build extra:midsize: a GCN on larger graphs with the setting of Cora, untuned, alone and with a limited gradient.

    Returns:
        The plan.
    """
    methods = {
        "GCN": None,
        "GCN+WT-AWP": AwpConfig(lam=0.7, rho=1.0),
        "GCN+WT-AWP, balance=1": AwpConfig(lam=0.7, rho=1.0, balance=1.0),
    }
    datasets = ("planetoid-pubmed", "amazon-computers", "coauthor-physics")
    cells = [Cell(row, dataset, Setting(dataset=dataset, awp=awp), 20, 1, judged=False)
             for dataset in datasets for row, awp in methods.items()]  # fmt: skip
    pairs = tuple(("GCN", row) for row in tuple(methods)[1:])
    return Plan("extra:midsize", "Larger graphs with the setting of Cora", tuple(cells), pairs)


def every_k_steps_plan() -> Plan:
    """Build extra:every: the perturbation at every k-th step alone, with plain training between.

    Returns:
        The plan.
    """
    methods = {"GCN": None, "every step": AwpConfig(lam=0.7, rho=1.0)}
    methods |= {f"every {k} steps": AwpConfig(lam=0.7, rho=1.0, every=k) for k in (2, 5, 10)}
    cells = [Cell(row, dataset, Setting(dataset=dataset, awp=awp), 20, 1, judged=False)
             for dataset in ("cora", "citeseer") for row, awp in methods.items()]  # fmt: skip
    pairs = tuple(("GCN", row) for row in tuple(methods)[1:])
    return Plan("extra:every", "Perturbing at some steps only", tuple(cells), pairs)
