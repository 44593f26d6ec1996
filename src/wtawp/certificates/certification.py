"""Votes and the guarantees that follow from them, in one call."""

from torch_geometric.data import Data

from wtawp.certificates.certificate import Certificate, Kind, certificate_of
from wtawp.certificates.noise import Noise
from wtawp.certificates.voters import Victim
from wtawp.certificates.votes import Progress, vote


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
    min_confidence: float = 0.0,
    progress: Progress | None = None,
) -> Certificate:
    """Certify the smoothed version of a classifier against flips of features, edges or both.

    To add samples later, or to certify with another alpha from the same votes, use `vote` and `certificate_of`.

    Args:
        data: The graph, with binary features if `features` are noisy.
        victim: The classifier, called as `victim(x, edge_index)`, which returns logits or log-probabilities; with
            `min_confidence` these must not be probabilities. A module is used in evaluation mode.
        features: The noise on features. None: features are not changed.
        edges: The noise on edges. None: edges are not changed. At least one of the two is needed.
        samples: The number of noisy graphs that the classifier votes on. More votes certify larger radii.
        seed: The seed of the noise.
        alpha: The probability that a guarantee is wrong.
        kind: "multiclass" compares the predicted class with every other class; "binary" requires that it keeps more
            than half of all votes.
        over_nodes: Whether alpha holds for all nodes together instead of for each node.
        min_confidence: A vote counts only if the largest probability of the softmax of its logits is at least this, in
            [0, 1). 0: every vote counts.
        progress: Called after each batch of votes with the share that is done and a text.

    Returns:
        The smoothed prediction of every node, and the radii within which it is certified.

    Example:
        >>> from wtawp.base import rng
        >>> from wtawp.graphs import citation
        >>> from wtawp.models import GCN
        >>> data, model = citation(seed=0, num_nodes=60, num_words=20), GCN(20, 7, generator=rng("model"))
        >>> certify(data, model, edges=Noise(p_add=0.001, p_del=0.4), samples=100, seed=0).prediction.shape
        (60,)
    """
    votes = vote(
        data, victim, features=features, edges=edges, samples=samples, seed=seed, min_confidence=min_confidence,
        progress=progress,
    )  # fmt: skip
    return certificate_of(votes, alpha=alpha, kind=kind, over_nodes=over_nodes)
