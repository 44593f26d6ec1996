"""Certified accuracy by randomized smoothing: votes that are kept in files and added to, and what they guarantee."""

import hashlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
from torch import nn
from torch_geometric.data import Data

from wtawp.base import CertificateError, DamagedCacheWarning, find_stack_level, home, report_progress
from wtawp.certificates import Kind, Noise, Votes, certificate_of, provenance_of, vote
from wtawp.certificates.noise import NoisyGraphs
from wtawp.certificates.votes import check_min_confidence
from wtawp.experiments.measures.shared.interface import MeasureSpec, Result, TrainedModels
from wtawp.experiments.measures.shared.option_checks import check_choice, check_count
from wtawp.graphs import Split

PARTS = ("features", "edges")
SAMPLES_BETWEEN_SAVES = 20_000  # after each of which the votes are written and the model is prepared anew


@dataclass(frozen=True, kw_only=True)
class CertificateOptions:
    """Options of the measure.

    Attributes:
        on: What the noise flips: "features" or "edges".
        p_add: The probability with which a zero becomes a one.
        p_del: The probability with which a one becomes a zero.
        samples: Votes for each model.
        alpha: The probability with which a guarantee may be wrong.
        kind: How the certificate compares classes.
        min_confidence: The confidence below which votes do not count.
    """

    on: str
    p_add: float
    p_del: float
    samples: int
    alpha: float = 0.01
    kind: Kind = "multiclass"
    min_confidence: float = 0.0

    def __post_init__(self) -> None:
        check_choice("on", self.on, PARTS)
        check_count("samples", self.samples, 1)
        check_choice("kind", self.kind, get_args(Kind))
        Noise(p_add=self.p_add, p_del=self.p_del)  # which refuses what are no probabilities
        certificate_of([[1, 0]], {}, alpha=self.alpha, kind=self.kind)
        check_min_confidence(self.min_confidence)

    @property
    def noise(self) -> Noise:
        """The noise under which models vote."""
        return Noise(p_add=self.p_add, p_del=self.p_del)


def run(
    trained: TrainedModels,
    options: CertificateOptions,
    *,
    folder: Path | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> list[Result]:
    """Certified accuracy of each model on the test nodes of its split.

    "certified" is S(r_add, r_del), a list of rows: the share of nodes that are classified correctly and certified
    there; "accuracy" is the share of correct majority votes, certified or not, where a node without any counted vote is
    not correct; "abstained" the share of nodes whose votes settle nothing; with a filter, "counted" is the share of
    votes that count.

    Args:
        trained: The models.
        options: The noise, the number of votes, and how sure a guarantee must be.
        folder: Where votes are kept, under a name made of all that they depend on, so that an interrupted run
            continues, and a longer one starts from there. By default "votes" in our data folder.
        progress: Called with the share that is done, and a description.

    Returns:
        One result for each model.
    """
    folder = home() / "votes" if folder is None else folder
    results: list[Result] = []
    models = zip(trained.models, trained.splits, trained.seeds, strict=True)
    for index, (model, split, seed) in enumerate(models):

        def report(share: float, what: str, index: int = index) -> None:
            report_progress((index + share) / len(trained.models))
            if progress is not None:
                progress((index + share) / len(trained.models), what)

        votes = kept_votes(
            trained.data, model, options.on, options.noise, options.samples, seed, folder, report,
            options.min_confidence,
        )  # fmt: skip
        certificate = certificate_of(votes, alpha=options.alpha, kind=options.kind)
        nodes, labels = split.test.cpu().numpy(), trained.data.y.cpu().numpy()
        grid = certificate.certified_ratio(labels, nodes)
        results.append({
            "on": options.on, "p_add": options.p_add, "p_del": options.p_del, "samples": votes.samples,
            "alpha": options.alpha, "kind": options.kind,
            "accuracy": float((certificate.prediction == labels)[nodes].mean()),
            "abstained": float(certificate.abstained[nodes].mean()),
            "certified": np.round(grid, 6).tolist(), **filter_results(votes, nodes),
        })  # fmt: skip
    return results


def filter_results(votes: Votes, nodes: np.ndarray) -> Result:
    """The filter of the votes and the share of them that count, for records; nothing without a filter."""
    if votes.min_confidence == 0:
        return {}
    counted = round(float(votes.counted.numpy()[nodes].mean()), 6)
    return {"min_confidence": votes.min_confidence, "counted": counted}


def _check(options: CertificateOptions, _: nn.Module, data: Data, __: Split) -> None:
    """The graph must be one that the noise can flip."""
    NoisyGraphs.of(data, **{**dict.fromkeys(PARTS), options.on: options.noise})


def kept_votes(
    data: Data,
    model: nn.Module,
    on: str,
    noise: Noise,
    samples: int,
    seed: int,
    folder: Path | None,
    progress: Callable[[float, str], None] | None = None,
    min_confidence: float = 0.0,
) -> Votes:
    """`samples` votes, going on from those in `folder` of just this model, graph, noise, seed and filter, if any."""
    votes, path = None, None
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        limit = (min_confidence,) if min_confidence else ()  # names of files without a filter stay as they were
        name = (*provenance_of(data, model), on, noise, seed, str(data.x.device.type), *limit)
        path = folder / f"{hashlib.sha256(repr(name).encode()).hexdigest()[:16]}.npz"
        votes = _load_or_warn(path) if path.is_file() else None
    if votes is not None and votes.samples > samples:
        votes, path = None, None  # fewer than were cast before: counts cannot be taken back
    while votes is None or votes.samples < samples:
        first = 0 if votes is None else votes.samples
        step = min(SAMPLES_BETWEEN_SAVES, samples - first)

        def report(share: float, _: str, first: int = first, step: int = step) -> None:
            if progress is not None:
                progress((first + share * step) / samples, f"{first + round(share * step):,} samples")

        parts: dict[str, Any] = {on: noise}
        votes = vote(
            data, model, **parts, samples=step, seed=seed, min_confidence=min_confidence, after=votes, progress=report
        )
        if path is not None:
            votes.save(path)
    return votes


def _load_or_warn(path: Path) -> Votes | None:
    """The votes in a file; None, with a warning, if it is damaged. Its votes are then cast again and replace it."""
    try:
        return Votes.load(path)
    except CertificateError as error:
        message = f"{error} (all votes of this model are cast again, and the file is replaced)"
        warnings.warn(message, DamagedCacheWarning, stacklevel=find_stack_level())
        return None


MEASURE = MeasureSpec(
    name="certificate",
    options=CertificateOptions,
    run=run,
    smoke_options={"samples": 100},
    check=_check,
    cost=lambda options: 0.3 * options.samples,
)
