"""The generalisation bounds of Theorem 1 (nodes) and of whole graphs, term by term."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.analysis import BoundAt, bound_over_rho, refuse_bound
from wtawp.experiments.measures.shared.interface import DIGITS, MeasureSpec, Result, TrainedModels, rounded
from wtawp.experiments.measures.shared.option_checks import check_count, check_number
from wtawp.experiments.spec import BOUND_TERMS
from wtawp.graphs import Split


@dataclass(frozen=True, kw_only=True)
class BoundOptions:
    """Options of the measure.

    Attributes:
        rho: The largest radius, relative to each layer.
        least: The smallest radius.
        points: The number of radii from `least` to `rho`, both included, in geometric progression.
        delta: The probability with which the bound may fail.
        constant: The factor that the theorem leaves unnamed.
    """

    rho: float = 10.0
    least: float = 0.01
    points: int = 7
    delta: float = 0.05
    constant: float = 1.0

    def __post_init__(self) -> None:
        check_number("rho", self.rho, 0.0)
        check_number("least", self.least, 1e-9)
        check_count("points", self.points, 2)
        check_number("constant", self.constant, 0.0)
        if not (isinstance(self.delta, float) and 0 < self.delta < 1):
            raise ValueError(f"delta must lie in (0, 1), got {self.delta!r}")
        if not self.least <= self.rho:
            raise ValueError(f"least must be at most rho, got {self.least} and {self.rho}")


def bounds(
    model: nn.Module,
    data: Data,
    nodes: Tensor,
    rhos: Sequence[float],
    *,
    delta: float,
    constant: float,
    epsilon: float = 1.0,
) -> list[BoundAt]:
    """The bound of a model at each radius."""
    return bound_over_rho(model, data, nodes, rhos, delta=delta, epsilon=epsilon, constant=constant)


def run(trained: TrainedModels, options: BoundOptions) -> list[Result]:
    """The terms of the bound at each radius, and the losses in training and on all nodes or graphs."""
    rhos = [round(r, DIGITS) for r in np.geomspace(options.least, options.rho, options.points).tolist()]
    results: list[Result] = []
    for model, split in zip(trained.models, trained.splits, strict=True):
        at_each = bounds(
            model.eval(), trained.data, split.train, rhos, delta=options.delta, constant=options.constant
        )  # fmt: skip
        terms = [at.bound.terms() for at in at_each]
        results.append({
            "rhos": rhos,
            "total_rhos": [rounded(at.total_rho) for at in at_each],
            "train_loss": rounded(at_each[0].train_loss), "all_loss": rounded(at_each[0].all_loss),
            **{name: [rounded(each[name]) for each in terms] for name in BOUND_TERMS},
        })  # fmt: skip
    return results


def _check(_: BoundOptions, model: nn.Module, data: Data, __: Split) -> None:
    refuse_bound(model, data)


MEASURE = MeasureSpec(name="bound", options=BoundOptions, run=run, levels=frozenset({"node", "graph"}), check=_check)
