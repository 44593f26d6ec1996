"""Nodes certified together: how many withstand one attack with a global budget, from the votes of each node."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn
from torch_geometric.data import Data

from wtawp.base import home, report_progress
from wtawp.certificates import (
    Certificate,
    CollectiveCertificate,
    Kind,
    Noise,
    ReceptiveFields,
    certificate_of,
    collective,
    receptive_fields,
)
from wtawp.certificates.noise import NoisyGraphs
from wtawp.experiments.measures.certificate import PARTS, CertificateOptions, filter_results, kept_votes
from wtawp.experiments.measures.shared.interface import MeasureSpec, Result, TrainedModels
from wtawp.experiments.measures.shared.option_checks import check_count
from wtawp.graphs import Split

VOTING = 0.9  # the share of the time that votes take, for the progress bar
EACH, GROWTH = 10, 1.1  # budgets of which each is stored, and the factor from one to the next beyond
FLIPS: dict[str, tuple[str, ...]] = {"features": ("deletions", "additions"), "edges": ("deletions",)}


@dataclass(frozen=True, kw_only=True)
class CollectiveOptions:
    """Options of the measure.

    Attributes:
        on: What the noise flips: "features" or "edges".
        p_add: The probability with which a zero becomes a one; for edges it must be 0.
        p_del: The probability with which a one becomes a zero.
        samples: Votes for each model.
        alpha: The probability with which any of the guarantees may be wrong.
        kind: How the certificate compares classes.
        hops: How far the model reaches into the graph. None: as the model states it.
        min_confidence: The confidence below which votes do not count.
    """

    on: str
    p_add: float
    p_del: float
    samples: int
    alpha: float = 0.01
    kind: Kind = "multiclass"
    hops: int | None = None
    min_confidence: float = 0.0

    def __post_init__(self) -> None:
        CertificateOptions(
            on=self.on, p_add=self.p_add, p_del=self.p_del, samples=self.samples, alpha=self.alpha, kind=self.kind,
            min_confidence=self.min_confidence,
        )  # fmt: skip
        if self.hops is not None:
            check_count("hops", self.hops, 0)
        if self.on == "edges" and self.p_add > 0:
            raise ValueError(
                f"a collective certificate of edges needs noise that only deletes, p_add = 0 (--p-add 0), got"
                f" {self.p_add}: with added edges every prediction depends on the whole graph"
            )

    @property
    def noise(self) -> Noise:
        """The noise under which models vote."""
        return Noise(p_add=self.p_add, p_del=self.p_del)


def run(
    trained: TrainedModels,
    options: CollectiveOptions,
    *,
    folder: Path | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> list[Result]:
    """Count the test nodes of each model that are correct and certified together, over budgets of flips.

    "curves" holds for deletions, and for features also for additions, the budgets, the shares of nodes that are
    certified together and one by one, and the average radius of both. Votes are those of the measure "certificate".

    Args:
        trained: The models.
        options: The noise, the number of votes, and how sure the guarantees must be, all of them together.
        folder: Where votes are kept. By default "votes" in our data folder.
        progress: Called with the share that is done, and a description.

    Returns:
        One result for each model.
    """
    folder = home() / "votes" if folder is None else folder
    results: list[Result] = []
    for index, (model, split, seed) in enumerate(zip(trained.models, trained.splits, trained.seeds, strict=True)):

        def report(share: float, what: str, index: int = index) -> None:
            done = (index + VOTING * share) / len(trained.models)
            report_progress(done)
            if progress is not None:
                progress(done, what)

        votes = kept_votes(
            trained.data, model, options.on, options.noise, options.samples, seed, folder, report,
            options.min_confidence,
        )  # fmt: skip
        certificate = certificate_of(votes, alpha=options.alpha, kind=options.kind, over_nodes=True)
        fields = receptive_fields(trained.data, model, hops=options.hops, on=options.on)
        nodes, labels = split.test.cpu().numpy(), trained.data.y.cpu().numpy()
        results.append({
            "on": options.on, "p_add": options.p_add, "p_del": options.p_del, "samples": votes.samples,
            "alpha": options.alpha, "kind": options.kind, "nodes": len(nodes),
            "accuracy": float((certificate.prediction == labels)[nodes].mean()),
            "curves": {flips: _curve(certificate, fields, labels, nodes, flips) for flips in FLIPS[options.on]},
            **filter_results(votes, nodes),
        })  # fmt: skip
        report_progress((index + 1) / len(trained.models))
        if progress is not None:
            progress((index + 1) / len(trained.models), "collective certificate")
    return results


def _curve(
    certificate: Certificate, fields: ReceptiveFields, labels: np.ndarray, nodes: np.ndarray, flips: str
) -> dict[str, Any]:
    """The curve over one kind of flips, with fewer budgets the larger they are."""
    budgets: dict[str, Any] = {"additions": (0,), "deletions": (0,), flips: None}
    found: CollectiveCertificate = collective(certificate, fields, labels=labels, nodes=nodes, **budgets)
    chosen = stored_budgets(found.ratio.size - 1)
    return {
        "budgets": chosen,
        "together": np.round(found.ratio.ravel()[chosen], 6).tolist(),
        "per_node": np.round(found.per_node_ratio.ravel()[chosen], 6).tolist(),
        "average": round(found.average, 6),
        "per_node_average": round(found.per_node_average, 6),
    }


def stored_budgets(last: int) -> list[int]:
    """The budgets from 0 to the last that are stored.

    >>> stored_budgets(16)
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
    >>> stored_budgets(40)[15:]
    [15, 16, 17, 18, 19, 20, 22, 24, 26, 28, 30, 33, 36, 39, 40]
    """
    budgets = list(range(min(last, EACH) + 1))
    while budgets[-1] < last:
        budgets.append(min(max(budgets[-1] + 1, int(GROWTH * budgets[-1])), last))
    return budgets


def _check(options: CollectiveOptions, model: nn.Module, data: Data, _: Split) -> None:
    """The noise must be able to flip the graph, and the model must be local."""
    NoisyGraphs.of(data, **{**dict.fromkeys(PARTS), options.on: options.noise})
    receptive_fields(data, model, hops=options.hops, on=options.on)


MEASURE = MeasureSpec(
    name="collective",
    options=CollectiveOptions,
    run=run,
    smoke_options={"samples": 100},
    check=_check,
    cost=lambda options: 0.3 * options.samples + 1000,
)
