"""Certified accuracy of trained models: votes that are kept in files and added to, and what they guarantee."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn
from torch_geometric.data import Data

from wtawp.certificates import Kind, Noise, Votes, certificate_of, provenance_of, vote
from wtawp.certificates.noise import NoisyGraphs
from wtawp.graphs import Split

PARTS = ("features", "edges")
BETWEEN_SAVES = 20_000  # samples; each time the model is looked at anew, for some hundredths of a second


def certification_of(
    models: Sequence[nn.Module],
    data: Data,
    splits: Sequence[Split],
    seeds: Sequence[int],
    *,
    on: str,
    p_add: float,
    p_del: float,
    samples: int,
    alpha: float = 0.01,
    kind: Kind = "multiclass",
    folder: Path | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> list[dict[str, Any]]:
    """For each model, over the test nodes of its split, plain data that goes through JSON.

    "certified" is S(r_add, r_del), a list of rows: the share that is right and certified there; "accuracy" the share
    of right majority votes, certified or not; "abstained" the share whose votes settle nothing. Votes are kept in
    `folder`, under a name made of all that they depend on: a broken-off run goes on, a longer one starts from there.
    """
    check_options(on=on, p_add=p_add, p_del=p_del, samples=samples, alpha=alpha, kind=kind)
    noise, found = Noise(p_add=p_add, p_del=p_del), []
    for place, (model, split, seed) in enumerate(zip(models, splits, seeds, strict=True)):

        def tell(share: float, what: str, place: int = place) -> None:
            if progress is not None:
                progress((place + share) / len(models), what)

        votes = kept_votes(data, model, on, noise, samples, seed, folder, tell)
        certificate = certificate_of(votes.counts, votes.noise, alpha=alpha, kind=kind)
        nodes, labels = split.test.cpu().numpy(), data.y.cpu().numpy()
        grid = certificate.certified_ratio(labels, nodes)
        found.append({
            "on": on, "p_add": p_add, "p_del": p_del, "samples": votes.samples, "alpha": alpha, "kind": kind,
            "accuracy": float((certificate.prediction == labels)[nodes].mean()),
            "abstained": float(certificate.abstained[nodes].mean()),
            "certified": np.round(grid, 6).tolist(),
        })  # fmt: skip
    return found


def check_options(
    *,
    on: str,
    p_add: float,
    p_del: float,
    samples: int,
    alpha: float = 0.01,
    kind: str = "multiclass",
    data: Data | None = None,
) -> None:
    """Refuse, before anything is trained, what `certification_of` would refuse after it; of `data` too, if given."""
    if on not in PARTS:
        raise ValueError(f"a certificate is on {' or on '.join(PARTS)}, got {on!r}")
    noise = Noise(p_add=p_add, p_del=p_del)
    if data is not None:
        NoisyGraphs.of(data, **{**dict.fromkeys(PARTS), on: noise})
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
        raise ValueError(f"samples must be a whole number >= 1, got {samples!r}")
    certificate_of([[1, 0]], {}, alpha=alpha, kind=kind)  # type: ignore[arg-type]  # which is what it checks


def kept_votes(
    data: Data,
    model: nn.Module,
    on: str,
    noise: Noise,
    samples: int,
    seed: int,
    folder: Path | None,
    progress: Callable[[float, str], None] | None = None,
) -> Votes:
    """`samples` votes, going on from those in `folder`, if there are any of just this model, graph, noise and seed."""
    votes, path = None, None
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        name = (*provenance_of(data, model), on, noise, seed, str(data.x.device.type))
        path = folder / f"{hashlib.sha256(repr(name).encode()).hexdigest()[:16]}.npz"
        votes = Votes.load(path) if path.is_file() else None
    if votes is not None and votes.samples > samples:
        votes, path = None, None  # fewer than were cast before: counts cannot be taken back
    while votes is None or votes.samples < samples:
        first = 0 if votes is None else votes.samples
        step = min(BETWEEN_SAVES, samples - first)

        def tell(share: float, _: str, first: int = first, step: int = step) -> None:
            if progress is not None:
                progress((first + share * step) / samples, f"{first + round(share * step):,} samples")

        parts: dict[str, Any] = {on: noise}
        votes = vote(data, model, **parts, samples=step, seed=seed, after=votes, progress=tell)
        if path is not None:
            votes.save(path)
    return votes
