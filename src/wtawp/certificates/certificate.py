"""What votes under noise guarantee (Bojchevski, Klicpera, Guennemann 2020): a pure function of votes.

Noise flips a 0 with probability p_add and a 1 with p_del. Let x' differ from x by r_add additions and r_del deletions.
Only those r_add + r_del coordinates of a noisy copy z depend on whether it was made from x or from x', and only through
the number q of them that agree with x': P(z | x) / P(z | x') is a constant times eta^q, with
eta = p_add p_del / ((1 - p_add) (1 - p_del)) < 1. Under x, q is a sum of two binomials, Bin(r_add, p_add) +
Bin(r_del, p_del); under x' it is Bin(r_add, 1 - p_del) + Bin(r_del, 1 - p_add). By the lemma of Neyman and Pearson, a
class that has probability p under x has at least `lowest_share` under x': the probability under x' of the regions
q = 0, 1, ... that together have probability p under x.

Rounding never certifies too much: curves are shifted to the safe side by more than all errors of float64 together.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta
from torch import Tensor

from wtawp.certificates.noise import Noise
from wtawp.certificates.votes import NO_CLASS, Votes, is_whole_number
from wtawp.graphs.row_choices import checked_rows

Floats = NDArray[np.float64]
Kind = Literal["binary", "multiclass"]
Radius = tuple[int, int]  # additions, deletions
NoiseAndRadius = tuple[Noise, int, int]  # noise on one part of the input, and the radius there
UNIT = 2.0**-53  # the relative error of one operation
NOTHING = -1  # the radius where even no flip at all is not certified


def regions(noise: Noise, r_add: int, r_del: int) -> tuple[Floats, Floats]:  # -> [r_add + r_del + 1] each
    """The probabilities of q = 0, 1, ... under x and under x', by sums and products of positive numbers only.

    >>> regions(Noise(p_add=0.0, p_del=0.5), 1, 0)
    (array([1., 0.]), array([0.5, 0.5]))
    """
    p, q = noise.p_add, noise.p_del
    own = np.convolve(_binomial(r_add, p, 1 - p), _binomial(r_del, q, 1 - q))
    return own, np.convolve(_binomial(r_add, 1 - q, q), _binomial(r_del, 1 - p, p))


@lru_cache(maxsize=1024)
def _binomial(trials: int, yes: float, no: float) -> Floats:
    """The distribution of the number of successes, trial by trial: scipy's loses digits in the tails."""
    shares = np.ones(1)
    for _ in range(trials):
        shares = np.append(shares * no, 0.0) + np.append(0.0, shares * yes)
    return shares


@dataclass(frozen=True, eq=False)
class Curve:
    """A lower bound on the share under x' as a function of the share under x: convex, linear between these points."""

    own: Floats  # under x, rising from 0
    other: Floats  # under x', rising from 0

    @staticmethod
    def of(parts: Sequence[NoiseAndRadius]) -> "Curve":
        """The curve for independent noise on one or more parts of the input (features, edges)."""
        own, other, slack = _ordered([(noise, *regions(noise, *radius)) for noise, *radius in parts])
        points = (np.concatenate([[0.0], shares.cumsum()]) for shares in (own, other))
        # Points shifted to the right and down: any line between two of them lies under the true curve between them.
        return Curve(next(points) * (1 + slack), next(points) * (1 - slack))

    def lowest_share(self, p: ArrayLike) -> Floats:
        """The least probability under x' of an event that has probability p under x."""
        return np.asarray(np.interp(np.asarray(p, dtype=np.float64), self.own, self.other))

    @cached_property
    def smallest_majority(self) -> float:
        """An event with more than this probability under x has more than 1/2 under x'."""
        above = int(np.searchsorted(self.other, 0.5, side="right"))
        if above == len(self.other):
            return math.inf
        rise = self.other[above] - self.other[above - 1]
        share = (0.5 - self.other[above - 1]) / rise
        return float(self.own[above - 1] + share * (self.own[above] - self.own[above - 1]))


def _ordered(parts: "list[tuple[Noise, Floats, Floats]]") -> tuple[Floats, Floats, float]:
    """Regions of independent parts, highest likelihood ratio first, and a bound on relative errors of their sums."""
    own, other, place = np.ones(1), np.ones(1), np.zeros(1)
    flips, steepest = 0, 0.0
    for noise, a, b in parts:
        step = noise.log_odds
        flips, steepest = flips + len(a) - 1, max(steepest, step if math.isfinite(step) else 0.0)
        if math.isfinite(step):
            here = np.arange(len(a)) * step
        else:  # without additions or without deletions: possible under x alone, under both, under x' alone
            here = np.where(b == 0, -math.inf, np.where(a == 0, math.inf, 0.0))
        with np.errstate(invalid="ignore"):  # possible under x alone, times under x' alone: NaN, and impossible
            place = (place[:, None] + here).ravel()
        own, other = np.outer(own, a).ravel(), np.outer(other, b).ravel()
    possible = ((own > 0) | (other > 0)) & ~np.isnan(place)
    order = np.argsort(place[possible], kind="stable")
    # Each flip rounds three times, each sum once a term; ratios are rounded in proportion to their logarithm.
    slack = 8 * UNIT * (flips + len(order) + 16 + flips * steepest * (len(parts) > 1))
    return own[possible][order], other[possible][order], slack


def clopper_pearson(hits: ArrayLike, samples: int, alpha: float) -> tuple[Floats, Floats]:
    """Compute one-sided confidence bounds on a probability from the number of hits.

    Args:
        hits: The numbers of hits.
        samples: The number of trials, 1 or more.
        alpha: The largest probability with which each of the bounds may be wrong, in (0, 1).

    Returns:
        The lower and the upper bounds, of the shape of `hits`.

    Raises:
        ValueError: If alpha or hits are out of range.

    Example:
        >>> [bound.round(4).tolist() for bound in clopper_pearson([0, 5, 10], 10, 0.05)]
        [[0.0, 0.2224, 0.7411], [0.2589, 0.7776, 1.0]]
    """
    _check_alpha(alpha)
    k = np.asarray(hits, dtype=np.float64)
    if samples < 1 or (k.size and not 0 <= k.min() <= k.max() <= samples):
        raise ValueError(f"hits must lie between 0 and the number of samples, at least 1; got {samples} samples")
    tiny = 1e-12  # quantiles are good to about 1e-14
    with np.errstate(invalid="ignore"):
        lower = np.where(k == 0, 0.0, beta.ppf(alpha, k, samples - k + 1) * (1 - tiny))
        upper = np.where(k == samples, 1.0, np.minimum(beta.isf(alpha, k + 1, samples - k) * (1 + tiny), 1.0))
    return lower, upper


@dataclass(frozen=True, eq=False)
class Certificate:
    """The smoothed prediction of every node, and the flips against which it is guaranteed.

    A radius is (additions, deletions), counted over the whole input, not for each node. With probability 1 - alpha for
    each node (for all nodes together if `over_nodes`), no input within a certified radius has another prediction.

    Attributes:
        prediction: The class with most votes, [n]; -1, which is no class, where a filter left no vote.
        p_lower: A lower bound on the probability of the predicted class under noise, [n].
        p_upper: An upper bound on the probability of every other class, [n].
        noise: The noise by part of the input: "features", "edges" or both.
        kind: "binary" or "multiclass", see `certificate_of`.
        alpha: The probability that a guarantee is wrong.
        samples: The number of votes of each node, counted or not.
        over_nodes: Whether alpha holds for all nodes together.
    """

    prediction: NDArray[np.int64]
    p_lower: Floats
    p_upper: Floats
    noise: Mapping[str, Noise]
    kind: Kind
    alpha: float
    samples: int
    over_nodes: bool

    @property
    def abstained(self) -> NDArray[np.bool_]:
        """Whether the votes of each node leave open what is predicted even for the unchanged input, [n]."""
        return ~self.certified()

    def certified(self, **radii: Radius) -> NDArray[np.bool_]:
        """Tell which nodes are certified within a radius.

        Args:
            radii: `features=(r_add, r_del)`, `edges=(r_add, r_del)` or both: the numbers of additions and deletions.
                The adversary does not change a part that is not named.

        Returns:
            Whether each node is certified, [n].

        Raises:
            ValueError: If a part has no noise in this certificate, or a radius is not two whole numbers >= 0.
        """
        check_radii("this certificate is", self.noise, radii)
        curve = Curve.of([(noise, *radii.get(part, (0, 0))) for part, noise in self.noise.items()])
        return self._holds(curve, slice(None))

    def _holds(self, curve: Curve, nodes: NDArray[np.int64] | slice) -> NDArray[np.bool_]:
        """Whether some nodes keep their prediction under the worst input that the curve stands for."""
        p_lower, p_upper = self.p_lower[nodes], self.p_upper[nodes]
        if self.kind == "binary":
            return np.asarray(p_lower > curve.smallest_majority)
        # The greatest share of another class under x' is 1 minus the lowest share of all classes but that one.
        return np.asarray(curve.lowest_share(p_lower) + curve.lowest_share(1 - p_upper) > 1)

    def deletions(self, on: str | None = None, *, most: int = 100) -> NDArray[np.int64]:  # -> [n, A]
        """Compute the most deletions that are certified together with each number of additions.

        Args:
            on: The part of the input that is flipped, "features" or "edges"; the other part is not changed. None is
                allowed if the certificate is about one part only.
            most: The largest number of additions and of deletions that is tried.

        Returns:
            Integers [n, A]: column r_add holds the most deletions that are certified together with r_add additions, or
            -1 if not even 0 are. A - 1 is the largest number of additions that is certified for any node.

        Raises:
            ValueError: If `on` does not name a part of this certificate, or `most` is not a whole number >= 0.
        """
        if not is_whole_number(most) or most < 0:
            raise ValueError(f"most, the largest radius that is tried, must be a whole number >= 0, got {most!r}")
        return self._staircase(*self._part(on), most)

    @cached_property
    def radii(self) -> NDArray[np.int64]:
        """The most additions alone and the most deletions alone, [n, 2], of at most 100; -1 for nodes that abstain."""
        if len(self.noise) > 1:
            raise ValueError(
                f"this certificate is about {' and '.join(self.noise)}, and radii are about one of them:"
                f" use deletions(on=...), with {' or '.join(map(repr, self.noise))}"
            )
        stairs = self.deletions()
        return np.stack([(stairs >= 0).sum(1) - 1, stairs[:, 0]], axis=1)

    def certified_ratio(
        self, labels: ArrayLike | None = None, nodes: ArrayLike | None = None, *, on: str | None = None, most: int = 100
    ) -> Floats:  # -> [A, D]
        """Compute S(r_add, r_del), the share of nodes that are certified at each radius.

        Args:
            labels: The true labels of all nodes, [n], to count only nodes that are predicted correctly as well. None:
                all certified nodes count.
            nodes: The nodes to average over, as distinct indices or a boolean mask. None: all nodes.
            on: The part of the input that is flipped, as for `deletions`.
            most: The largest number of additions and of deletions that is tried.

        Returns:
            Shares [A, D], up to the largest radii at which any node is certified.

        Raises:
            ValueError: If `on` does not name a part of this certificate, or `labels`, `nodes` or `most` are not as
                described.
        """
        stairs = self.deletions(on, most=most)
        counts = np.ones(len(stairs), dtype=bool)
        if labels is not None:
            counts = self.prediction == checked_labels(labels, len(stairs))
        chosen = checked_nodes(nodes, len(stairs))
        stairs = np.where(counts[:, None], stairs, NOTHING)[chosen]
        return np.stack([(stairs >= r_del).mean(0) for r_del in range(max(int(stairs.max()), 0) + 1)], axis=1)

    def _part(self, on: str | None) -> tuple[Noise, list[NoiseAndRadius]]:
        """The noise of the part that is flipped, and the other parts with a radius of (0, 0)."""
        if (len(self.noise) > 1 and on is None) or on not in (None, *self.noise):
            raise ValueError(f"say on which part the flips are: on= one of {', '.join(self.noise)}; got {on!r}")
        name = on or next(iter(self.noise))
        return self.noise[name], [(noise, 0, 0) for part, noise in self.noise.items() if part != name]

    def _staircase(self, noise: Noise, unchanged: list[NoiseAndRadius], most: int) -> NDArray[np.int64]:
        """`deletions`, trying only radii at which some node may be certified: larger radii never certify more."""
        columns: list[NDArray[np.int64]] = []
        reach = np.full(len(self.p_lower), most)  # the most deletions that are still possible for each node
        for r_add in range(most + 1):
            before, reach = reach, np.full_like(reach, NOTHING)
            nodes = np.arange(len(reach))
            for r_del in range(most + 1):
                nodes = nodes[before[nodes] >= r_del]
                nodes = nodes[self._holds(Curve.of([(noise, r_add, r_del), *unchanged]), nodes)]
                if len(nodes) == 0:
                    break
                reach[nodes] = r_del
            if columns and bool((reach == NOTHING).all()):
                break
            columns.append(reach)
        return np.stack(columns, axis=1)


def certificate_of(
    votes: Votes | ArrayLike,
    noise: Mapping[str, Noise] | None = None,
    *,
    alpha: float = 0.01,
    kind: Kind = "multiclass",
    chosen: ArrayLike | None = None,
    over_nodes: bool = False,
    samples: int | None = None,
) -> Certificate:
    """Compute the certificate that follows from votes.

    Args:
        votes: What `vote` returned, which holds the noise and the number of samples. Or counts alone, [n, c]: how often
            each node got each class; all nodes must then have the same number of votes, unless `samples` is given.
        noise: The noise that counts were cast under, by part of the input: "features", "edges" or both. None: the noise
            of `votes`.
        alpha: The probability that a guarantee is wrong, in (0, 1).
        kind: "binary" requires that the predicted class keeps more than half of all votes (also of those that a filter
            does not count) under the worst flips; "multiclass" that it keeps more than any other class, which usually
            certifies more although its confidence bounds are wider.
        chosen: The classes to certify, [n], if they were chosen without these votes; the confidence bounds are then
            tighter. None: the class with most votes, with bounds that hold for all classes at once.
        over_nodes: Whether alpha holds for all nodes together instead of for each node.
        samples: The number of votes of each node, which must be given with counts of which a filter has left out some
            votes (`Votes.samples`). They remain part of every probability: shares of counted votes alone would not be
            probabilities of one event under all inputs, and certify too much. None: that of `votes`; all votes count if
            these are counts.

    Returns:
        The certificate of all nodes.

    Raises:
        ValueError: If votes, alpha, kind or chosen are not what they must be, the noise of counts is not given, or
            `noise` or `samples` contradict those of `votes`.

    Example:
        >>> import numpy as np
        >>> counts, noise = np.array([[990, 10], [600, 400]]), {"edges": Noise(p_add=0.001, p_del=0.4)}
        >>> certificate_of(counts, noise).radii
        array([[0, 3],
               [0, 0]])
    """
    counts, noise, samples = _checked_votes(votes, noise, samples)
    if kind not in ("binary", "multiclass"):
        raise ValueError(f"kind must be 'binary' or 'multiclass', got {kind!r}")
    _check_alpha(alpha)
    size, classes = counts.shape
    predicted = counts.argmax(1) if chosen is None else _checked_classes(chosen, size, classes)
    # The bounds that must not be wrong: for "binary" the lower one of the prediction, for "multiclass" the upper one of
    # each other class too; of every class where any might have been predicted.
    events = {"binary": 1 if chosen is not None else classes, "multiclass": (1 if chosen is not None else 2) * classes}
    level = alpha / events[kind] / (size if over_nodes else 1)
    others = counts.copy()
    others[np.arange(size), predicted] = NOTHING
    lower, _ = clopper_pearson(counts[np.arange(size), predicted], samples, level)
    p_upper = 1 - lower
    if kind == "multiclass":
        p_upper = np.minimum(p_upper, clopper_pearson(others.max(1), samples, level)[1])
    prediction = np.where(counts.any(1), predicted, NO_CLASS) if chosen is None else predicted
    return Certificate(prediction, lower, p_upper, dict(noise), kind, alpha, samples, over_nodes)


def _checked_votes(
    votes: Votes | ArrayLike, noise: Mapping[str, Noise] | None, samples: int | None
) -> tuple[NDArray[np.integer], Mapping[str, Noise], int]:
    """The counts, the noise and the number of votes of each node."""
    if isinstance(votes, Votes):
        for name, given, held in (("noise", noise, votes.noise), ("samples", samples, votes.samples)):
            if given is not None and given != held:
                raise ValueError(f"{name} of these votes is {held}, got {given}; leave it out")
        noise, samples = votes.noise, votes.samples
    counts = np.asarray(votes.counts if isinstance(votes, Votes) else votes)
    if counts.ndim != 2 or counts.shape[1] < 2 or not np.issubdtype(counts.dtype, np.integer):
        raise ValueError(f"votes must be whole numbers, one row for each node, 2 or more classes; got {counts.dtype} of"
                         f" shape {list(counts.shape)}")  # fmt: skip
    if noise is None:
        raise ValueError("counts do not hold the noise they were cast under; pass noise=, or what vote() returned")
    return counts, noise, _checked_samples(counts, samples)


def _checked_samples(counts: NDArray[np.integer], samples: int | None) -> int:  # [n, c]
    """The number of votes of each node: as many as are counted, unless it is given."""
    if counts.size and counts.min() < 0:
        raise ValueError(f"counts of votes must be >= 0, got {counts.min()}; pass what vote() returned")
    sums = counts.sum(1)
    if len(counts) == 0 or (samples is None and (len(np.unique(sums)) > 1 or sums[0] == 0)):
        raise ValueError(
            "every node needs the same number of votes, 1 or more; cast votes first, or pass what vote() returned if"
            " some count for no class"
        )
    if samples is None:
        return int(sums[0])
    if not is_whole_number(samples) or samples < max(1, int(sums.max())):
        raise ValueError(
            f"samples must be a whole number >= 1, and at least the counted votes of a node, up to {sums.max()}, got"
            f" {samples!r}; pass the number of votes that were cast for each node"
        )
    return int(samples)


def _checked_classes(chosen: ArrayLike, size: int, classes: int) -> NDArray[np.int64]:
    """One class for each node, as int64."""
    array = np.asarray(chosen)
    if (
        array.shape != (size,)
        or not np.issubdtype(array.dtype, np.integer)
        or array.min() < 0
        or array.max() >= classes
    ):
        raise ValueError(f"chosen must be a class, 0 to {classes - 1}, for each of the {size} nodes")
    return array.astype(np.int64)


def check_radii(subject: str, noise: Mapping[str, Noise], radii: Mapping[str, Radius]) -> None:
    """Refuse a radius that is not two whole numbers >= 0, or that is for a part of the input without noise."""
    unknown = [part for part in radii if part not in noise]
    if unknown:
        raise ValueError(f"{subject} about {' and '.join(noise)}, not about {', '.join(unknown)}")
    for part, radius in radii.items():
        flips = list(radius) if isinstance(radius, Sequence | np.ndarray) else []
        if len(flips) != 2 or not all(is_whole_number(each) and each >= 0 for each in flips):
            raise ValueError(f"a radius is (additions, deletions), two whole numbers >= 0; got {part}={radius!r}")


def _check_alpha(alpha: float) -> None:
    """Refuse what is no probability between 0 and 1."""
    if not 0 < alpha < 1:
        raise ValueError(f"alpha, the probability that a guarantee is wrong, must lie in (0, 1), got {alpha}")


def checked_nodes(nodes: ArrayLike | None, size: int, what: str = "nodes") -> NDArray[np.int64]:
    """Convert the nodes that count to indices.

    Args:
        nodes: Distinct indices, or a boolean mask of all nodes; None for all nodes.
        size: Number of nodes.
        what: The name of the argument, for messages.

    Returns:
        The indices, one or more.

    Raises:
        DataError: If they are something else, or do not exist.
    """
    return np.arange(size) if nodes is None else checked_rows(nodes, size, what, distinct=True).numpy(force=True)


def checked_labels(labels: ArrayLike, size: int) -> NDArray[np.integer]:
    """Convert the labels of all nodes to an array.

    Args:
        labels: A whole number for each node, [n].
        size: Number of nodes.

    Returns:
        The labels, [n].

    Raises:
        ValueError: If they are of another shape or type.
    """
    known = labels.numpy(force=True) if isinstance(labels, Tensor) else np.asarray(labels)
    if known.shape != (size,) or not np.issubdtype(known.dtype, np.integer):
        raise ValueError(
            f"labels must be whole numbers, one for each of the {size} nodes, [{size}]; got {known.dtype} of shape"
            f" {list(known.shape)}"
        )
    return known
