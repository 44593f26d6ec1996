"""Votes, then guarantees: what most users need in one call."""

from torch_geometric.data import Data

from wtawp.certificates.certificate import Certificate, Kind, certificate_of
from wtawp.certificates.noise import Noise
from wtawp.certificates.votes import Progress, Victim, vote


def certify(
    data: Data,
    victim: Victim,
    *,
    features: Noise | None = None,
    edges: Noise | None = None,
    samples: int = 10_000,
    seed: int,
    alpha: float = 0.01,
    kind: Kind = "multiclass",
    over_nodes: bool = False,
    progress: Progress | None = None,
) -> Certificate:
    """Certify the smoothed version of any `victim(x, edge_index) -> logits` against flips of features, edges or both.

    To add samples later, or to look at the same votes with another alpha, use `vote` and `certificate_of`.
    """
    votes = vote(data, victim, features=features, edges=edges, samples=samples, seed=seed, progress=progress)
    return certificate_of(votes.counts, votes.noise, alpha=alpha, kind=kind, over_nodes=over_nodes)
