"""Prediction sets from votes: they contain the true class with a stated probability, also after flips of the input.

Split conformal prediction. The score of a class at a node is its share of the votes. The threshold is the k-th smallest
score of the true classes of n calibration nodes, k = floor(alpha (n + 1)); a prediction set holds every class whose
score is at least the threshold. If the calibration nodes and the node in question are exchangeable, the set misses the
true class with probability alpha at most. Nodes of one graph are exchangeable if the calibration nodes are a random
choice among the nodes whose labels had no part in training, early stopping included (Zargarbashi, Antonelli,
Bojchevski 2023): the graph, the model and the votes are then the same whichever nodes are chosen.

Sets that withstand flips (Gendler et al. 2022; Zargarbashi, Akhondzadeh, Bojchevski 2024). An adversary changes the
clean x to x' by at most r_add additions and r_del deletions, and only votes on x' are seen. The score of a class is now
its probability under noise, and the curve of Neyman and Pearson that certificates use bounds by how much it differs
between two inputs: one with probability p here has at least `lowest_share`(p) there, and at most
1 - `lowest_share`(1 - p). Let x_1 be x after the deletions, before the additions:

- At calibration, on the clean graph, the score of a node is the least that its true class can have after r_del
  deletions. Worst cases of exchangeable nodes are exchangeable, so the true class has at x_1 a score of at least the
  threshold, with probability 1 - alpha.
- At prediction, every class is in the set that can have this score at x_1, which is x' without at most r_add ones.

Both steps remove ones, because noise that seldom adds hides a removed one better than an added one; if p_add exceeds
p_del, both steps add ones instead. If the calibration nodes, too, are only seen after the attack, scores are those of
the clean x, and both steps go all the way back: r_del additions and r_add deletions.

Votes that a filter does not count (`min_confidence`) are part of no score, and of the denominator of all: a score is
the probability of a counted vote for a class, so that everything above holds for it.

Probabilities are estimated from votes. With confidence 1 - eta all those of the true calibration classes are above
lower bounds, and that of the true class of the node in question is below its upper bound (Clopper and Pearson, eta
divided among all of them). The threshold is computed from the lower bounds with alpha - eta instead of alpha; the
probability of a miss is then at most alpha in total.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wtawp.certificates.certificate import Curve, Radius, check_radii, checked_labels, checked_nodes, clopper_pearson
from wtawp.certificates.noise import Noise
from wtawp.certificates.vote_origin import is_same_model
from wtawp.certificates.votes import Votes

Floats = NDArray[np.float64]
ETA = 0.05  # the share of alpha that is spent on the estimates of probabilities


@dataclass(frozen=True, eq=False)
class PredictionSets:
    """A set of classes for every node, which contains the true one with probability 1 - alpha or more.

    Attributes:
        members: Whether each class is in the set of each node, [n, c].
        threshold: The score from which on a class is in the set.
        alpha: The probability that a set does not contain the true class.
        radii: The flips that the sets withstand, by part of the input: (additions, deletions).
    """

    members: NDArray[np.bool_]
    threshold: float
    alpha: float
    radii: Mapping[str, Radius]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of classes in the set of each node, [n]."""
        return np.asarray(self.members.sum(1))

    def coverage(self, labels: ArrayLike, nodes: ArrayLike | None = None) -> float:
        """Compute the share of nodes whose set contains the true class.

        Args:
            labels: The true labels of all nodes, [n].
            nodes: The nodes to average over, as distinct indices or a boolean mask; leave out the calibration nodes
                yourself. None: all nodes, those of the calibration included.

        Returns:
            The share.

        Raises:
            ValueError: If labels are not one whole number for each node, or that of a node that counts is not a class.
        """
        size, classes = self.members.shape
        chosen = checked_nodes(nodes, size)
        true = checked_labels(labels, size)[chosen]
        if true.size and not 0 <= true.min() <= true.max() < classes:
            raise ValueError(
                f"labels must be classes, 0 to {classes - 1}, got {true.min()} to {true.max()}; leave out nodes without"
                " a label (nodes=...)"
            )
        return float(self.members[chosen, true].mean())


def conformal_sets(
    votes: Votes,
    labels: ArrayLike,
    calibration: ArrayLike,
    *,
    alpha: float = 0.1,
    clean: Votes | None = None,
    **radii: Radius,
) -> PredictionSets:
    """Compute prediction sets that contain the true class with probability 1 - alpha, also under flips of the input.

    Args:
        votes: The votes on the graph as it is seen, which may have been attacked within the radius.
        labels: The labels of all nodes, [n]; only those of the calibration nodes are read.
        calibration: The indices of the calibration nodes, a random choice among nodes whose labels had no part in
            training, early stopping included.
        alpha: The probability that a set may miss the true class, in (0, 1).
        clean: The votes of the same model on the graph before it was attacked, from which the threshold is computed;
            they may be the same as `votes`, and without a radius must be. None: the calibration nodes, too, are only
            seen after the attack, and the threshold is lowered for that.
        radii: `features=(r_add, r_del)`, `edges=(r_add, r_del)` or both: the flips by which an adversary may have
            changed the clean graph. None of them, or only zeros: plain split conformal prediction.

    Returns:
        The sets of all nodes.

    Raises:
        ValueError: If alpha, a radius or the calibration nodes are out of range, a part has no noise in these votes, or
            `clean` has other noise, is of another model, or differs from `votes` without a radius.

    Example:
        >>> import torch
        >>> from wtawp.certificates import Noise
        >>> counts, noise = torch.tensor([[90, 10], [60, 40], [30, 70], [80, 20]]), Noise(p_add=0.01, p_del=0.6)
        >>> votes = Votes(counts, 100, {"features": noise}, seed=0)
        >>> conformal_sets(votes, [0, 0, 1, 0], calibration=[0, 1, 2], alpha=0.25).members[3]
        array([ True, False])
    """
    check_radii("these votes are", votes.noise, radii)
    clean_votes = votes if clean is None else clean
    is_plain = not any(any(radius) for radius in radii.values())
    _check_clean(clean_votes, votes, is_plain=is_plain)
    if not 0 < alpha < 1:
        raise ValueError(f"alpha, the probability that a set misses the true class, must lie in (0, 1), got {alpha}")
    counts, true = votes.counts.numpy(), _true_counts(clean_votes, labels, calibration)
    if is_plain:
        threshold = _threshold(true / votes.samples, alpha)
        return PredictionSets(counts / votes.samples >= threshold, threshold, alpha, dict(radii))
    eta = ETA * alpha
    level = eta / (len(true) + 1)
    lower, upper = (
        clopper_pearson(true, clean_votes.samples, level)[0],
        clopper_pearson(counts, votes.samples, level)[1],
    )
    at_calibration, at_prediction = curves(votes.noise, radii, is_calibration_clean=clean is not None)
    threshold = _threshold(at_calibration.lowest_share(lower), alpha - eta)
    return PredictionSets(1 - at_prediction.lowest_share(1 - upper) >= threshold, threshold, alpha, dict(radii))


def curves(
    noise: Mapping[str, Noise], radii: Mapping[str, Radius], *, is_calibration_clean: bool
) -> tuple[Curve, Curve]:
    """The curves from the inputs that are seen at calibration and at prediction to the one whose scores are compared.

    The input that is compared is clean after one kind of flips, those that the noise hides better, if calibration
    nodes are seen before the attack; and the clean one if they are not. On the way back, what was added is deleted.
    """
    at_calibration, at_prediction = [], []
    for part, each in noise.items():
        added, deleted = radii.get(part, (0, 0))
        if not is_calibration_clean:
            ways = (deleted, added), (deleted, added)
        elif each.p_add <= each.p_del:
            ways = (0, deleted), (0, added)
        else:
            ways = (added, 0), (deleted, 0)
        at_calibration.append((each, *ways[0]))
        at_prediction.append((each, *ways[1]))
    return Curve.of(at_calibration), Curve.of(at_prediction)


def _check_clean(clean: Votes, votes: Votes, *, is_plain: bool) -> None:
    """Refuse votes on the clean graph whose scores cannot be compared with those of `votes`."""
    is_comparable = dict(clean.noise) == dict(votes.noise) and clean.min_confidence == votes.min_confidence
    if not is_comparable or clean.counts.shape != votes.counts.shape:
        raise ValueError(
            "clean must be votes of the same nodes and classes under the same noise as votes, with the same"
            " min_confidence"
        )
    if not is_same_model(clean.provenance, votes.provenance):
        raise ValueError(
            f"clean must be votes of the same model as votes: it is of {clean.provenance}, votes of {votes.provenance}"
        )
    if is_plain and not np.array_equal(clean.counts.numpy(), votes.counts.numpy()):
        raise ValueError(
            "without a radius the scores of calibration nodes are only exchangeable with those of other nodes if both"
            " come from the same votes; leave clean out, or state the radius of the attack (features=..., edges=...)"
        )


def _true_counts(votes: Votes, labels: ArrayLike, calibration: ArrayLike) -> NDArray[np.int64]:
    """The votes for the true class of each calibration node."""
    size, classes = votes.counts.shape
    nodes = checked_nodes(calibration, size, "calibration")
    known = checked_labels(labels, size)
    if not 0 <= known[nodes].min() <= known[nodes].max() < classes:
        raise ValueError(f"labels of calibration nodes must be classes, 0 to {classes - 1}")
    return np.asarray(votes.counts.numpy()[nodes, known[nodes]])


def _threshold(scores: Floats, alpha: float) -> float:  # [n]
    """The score that the true class of a further node falls below with probability alpha at most."""
    place = math.floor(alpha * (len(scores) + 1))
    return float(np.sort(scores)[place - 1]) if place else 0.0  # every score is at least 0: all classes
