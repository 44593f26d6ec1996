"""Not in the paper: the league. Which way to flat minima is best, if each is tuned with as many trials?"""

from collections.abc import Iterator, Mapping
from typing import Any

from wtawp.core import AwpConfig
from wtawp.experiments.spec import Cell, Contender, Plan, Setting
from wtawp.models.registry import model_spec

MODELS = ("GCN",)
DATASETS = (
    "cora", "citeseer", "polblogs", "planetoid-cora", "planetoid-citeseer", "digits", "wine", "breast-cancer",
    "citation",
)  # fmt: skip
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
    "EMA": ({"average": 0.95}, {"average": 0.99}),
    "SWA": ({"average": "swa"},),
    "WT-AWP and EMA": tuple({**strength, "average": 0.95} for strength in _GENTLE_AND_PAPER),
    "WT-AWP, late start": tuple({**strength, "start": 20} for strength in _GENTLE_AND_PAPER),
    "WT-AWP, every other step": tuple({**strength, "every": 2} for strength in _GENTLE_AND_PAPER),
}
TRIALS = 4  # of each method
NAMED = ("lam", "rho", "average", "weight_decay", "dropout")  # what tells the trials of a method apart


def league_plan() -> Plan:
    """Build the plan: four trials of each method for each model and data set, with 20 splits.

    Returns:
        The plan, with a column for each model and data set.
    """
    cells = tuple(
        Cell(row, f"{model} on {dataset}", setting, 20, 1, judged=False)
        for model in MODELS
        for dataset in DATASETS
        for name in STRENGTHS
        for row, setting in _trials(name, model, dataset)
    )
    league = tuple(
        Contender(name, tuple(row for row, _ in _trials(name, MODELS[0], DATASETS[0]))) for name in STRENGTHS
    )
    figures = ("critical_difference", "gains_over_overfitting")
    return Plan("extra:league", "Ways to flat minima, tuned alike", cells, figures=figures, league=league)


def _trials(name: str, model: str, dataset: str) -> Iterator[tuple[str, Setting]]:
    """The trials of a method: the names of their rows, and what is trained."""
    strengths = STRENGTHS[name]
    for strength in strengths:
        for regularisation in REGULARISATIONS[: TRIALS // len(strengths)]:
            perturbation = {"layers": model_spec(model).layers, **strength}
            perturbation.pop("average", None)
            shown = [f"{key} {value}" for key, value in {**strength, **regularisation}.items() if key in NAMED]
            yield (
                f"{name}: {', '.join(shown) or 'defaults'}",
                Setting(
                    dataset=dataset,
                    model=model,
                    awp=AwpConfig(**perturbation) if "lam" in strength else None,
                    average=strength.get("average"),
                    weight_decay=regularisation.get("weight_decay", model_spec(model).weight_decay),
                    options=tuple((key, value) for key, value in regularisation.items() if key == "dropout"),
                ),
            )
