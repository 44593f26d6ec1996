"""Not in the paper: the league. Which way to flat minima is best, if each is tuned with as many trials?"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from wtawp.core import AwpConfig
from wtawp.experiments.spec import Cell, Contender, Option, Plan, Setting, SplitRule
from wtawp.models.registry import model_spec


@dataclass(frozen=True, kw_only=True)
class Base:
    """The model that all methods of a league train.

    Attributes:
        label: The label of the league's plan.
        name: The name of the base in titles and columns.
        model: The model.
        options: Its options, beside those that are tuned.
        is_public: Whether it is trained on the public splits of Planetoid; otherwise on random ones.
    """

    label: str
    name: str
    model: str
    options: tuple[tuple[str, Option], ...] = ()
    is_public: bool = False

    def columns(self) -> dict[str, tuple[str, SplitRule | None]]:
        """The columns of the plan, each with a data set and its splits."""
        if self.is_public:
            return {f"{self.name} on {name}": (name, SplitRule(kind="masks")) for name in PUBLIC}
        return {f"{self.name} on {name}": (name, None) for name in DATASETS}


_STRONG: tuple[tuple[str, Option], ...] = (("norm", "layer"), ("residual", True))
BASES = (
    Base(label="extra:league", name="GCN", model="GCN"),
    Base(label="extra:league-gat", name="GAT", model="GAT"),
    Base(label="extra:league-sage", name="GraphSAGE", model="GraphSAGE"),
    Base(label="extra:league-ppnp", name="PPNP", model="PPNP"),
    Base(label="extra:league-strong", name="GCN with norms and skips", model="GCN", options=_STRONG),
    Base(label="extra:league-public", name="GCN", model="GCN", is_public=True),
)
DATASETS = (
    "cora", "citeseer", "polblogs", "planetoid-cora", "planetoid-citeseer", "digits", "wine", "breast-cancer",
    "citation",
)  # fmt: skip
PUBLIC = ("planetoid-cora", "planetoid-citeseer", "planetoid-pubmed")
DECAY, DROPOUT = {"weight_decay": 2e-3}, {"dropout": 0.8}  # stronger regularisation than by default
REGULARISATIONS: tuple[Mapping[str, float], ...] = ({}, {**DECAY, **DROPOUT}, DECAY, DROPOUT)
_GENTLE_AND_PAPER = ({"lam": 0.5, "rho": 0.5}, {"lam": 0.7, "rho": 1.0})  # the second is the paper's for Cora
# The strengths of each method: options of `AwpConfig`, and `average`. A method with two strengths tries both with the
# first two regularisations, one with a single strength tries all four, so that each has four trials.
STRENGTHS: dict[str, tuple[Mapping[str, Any], ...]] = {
    "plain": ({},),
    "WT-AWP": _GENTLE_AND_PAPER,
    "WT-AWP auto": ({"lam": "auto", "rho": 1.0},),
    "W-AWP": tuple({**strength, "layers": "all"} for strength in _GENTLE_AND_PAPER),
    "SAM": tuple({"lam": 1.0, "layers": "*", "radius": "global", "rho": rho} for rho in (0.05, 0.2)),
    "ASAM": tuple({"lam": 1.0, "layers": "*", "radius": "adaptive", "rho": rho} for rho in (0.5, 2.0)),
    # The radius of the default and of the examples in its authors' code, at which all are perturbed downhill.
    "Momentum-SAM": tuple(
        {"lam": 1.0, "layers": "*", "radius": "global", "rho": rho, "direction": "momentum"} for rho in (0.3, 3.0)
    ),
    "FGSAM": tuple(  # lam and the smaller radius are those of its authors' code, the radii are SAM's
        {"lam": 0.5, "layers": "*", "radius": "global", "rho": rho, "perturbed_gradient": "without-edges"}
        for rho in (0.05, 0.2)
    ),
    "functional AWP": tuple({**strength, "perturbed_gradient": "functional"} for strength in _GENTLE_AND_PAPER),
    "EMA": ({"average": 0.95}, {"average": 0.99}),
    "SWA": ({"average": "swa"},),
    "WT-AWP and EMA": tuple({**strength, "average": 0.95} for strength in _GENTLE_AND_PAPER),
    "WT-AWP, late start": tuple({**strength, "start": 20} for strength in _GENTLE_AND_PAPER),
    "WT-AWP, every other step": tuple({**strength, "every": 2} for strength in _GENTLE_AND_PAPER),
}
TRIALS = 4  # of each method
NAMED = ("lam", "rho", "average", "weight_decay", "dropout")  # what tells the trials of a method apart


def league_plans() -> tuple[Plan, ...]:
    """Build a plan for each base: four trials of each method on each data set.

    Returns:
        The plans, with a column for each data set: 20 random splits, or 20 initialisations of the public one.
    """
    return tuple(map(_league_plan, BASES))


def _league_plan(base: Base) -> Plan:
    """The plan of one base."""
    splits, inits = (1, 20) if base.is_public else (20, 1)
    cells = tuple(
        Cell(row, column, setting, splits, inits, judged=False)
        for column, (dataset, split) in base.columns().items()
        for name in STRENGTHS
        for row, setting in _trials(name, base, dataset, split)
    )
    league = tuple(
        Contender(name, tuple(row for row, _ in _trials(name, base, DATASETS[0], None))) for name in STRENGTHS
    )
    figures = ("critical_difference", "gains_over_overfitting")
    where = ", public splits" if base.is_public else ""
    title = f"Ways to flat minima, tuned alike: {base.name}{where}"
    return Plan(base.label, title, cells, figures=figures, league=league)


def _trials(name: str, base: Base, dataset: str, split: SplitRule | None) -> Iterator[tuple[str, Setting]]:
    """The trials of a method: the names of their rows, and what is trained."""
    strengths = STRENGTHS[name]
    for strength in strengths:
        for regularisation in REGULARISATIONS[: TRIALS // len(strengths)]:
            spec = model_spec(base.model)
            perturbation = {"layers": spec.layers, **strength}
            perturbation.pop("average", None)
            shown = [f"{key} {value}" for key, value in {**strength, **regularisation}.items() if key in NAMED]
            yield (
                f"{name}: {', '.join(shown) or 'defaults'}",
                Setting(
                    dataset=dataset,
                    model=base.model,
                    awp=AwpConfig(**perturbation) if "lam" in strength else None,
                    average=strength.get("average"),
                    weight_decay=regularisation.get("weight_decay", spec.weight_decay),
                    options=(*base.options, *((k, v) for k, v in regularisation.items() if k == "dropout")),
                    split=split,
                ),
            )
