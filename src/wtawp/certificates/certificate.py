"""What votes under noise guarantee (Bojchevski, Klicpera, Guennemann 2020): a pure function of vote counts.

Noise flips a 0 with probability p_add and a 1 with p_del. Let x' differ from x by r_add additions and r_del deletions.
Of a noisy copy z only those r_add + r_del coordinates tell x from x', and of them only the number q that look like x':
P(z | x) / P(z | x') is a constant times eta^q, eta = p_add p_del / ((1 - p_add) (1 - p_del)) < 1. Under x, q is a sum
of two binomials, Bin(r_add, p_add) + Bin(r_del, p_del); under x' it is Bin(r_add, 1 - p_del) + Bin(r_del, 1 - p_add).
By the lemma of Neyman and Pearson, a class that x gets with probability p gets at least `lowest_share` under x': the
share of the regions q = 0, 1, ... under x' once those have been filled with p under x.

Rounding never certifies too much: curves are moved by more than all errors of float64 together, to the safe side.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import beta

from wtawp.certificates.noise import Noise

Floats = NDArray[np.float64]
Kind = Literal["binary", "multiclass"]
Radius = tuple[int, int]  # additions, deletions
Moved = tuple[Noise, int, int]  # noise on one part of the input, and the radius there
UNIT = 2.0**-53  # the relative error of one operation
NOTHING = -1  # the radius where even no flip at all is not certified


def regions(noise: Noise, r_add: int, r_del: int) -> tuple[Floats, Floats]:  # -> [r_add + r_del + 1] each
    """The probabilities of q = 0, 1, ... under x and under x'. Sums and products of positive numbers alone.

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
    """The least share under x' as a function of the share under x: convex, through these points, a hair too low."""

    own: Floats  # under x, rising from 0
    other: Floats  # under x', rising from 0

    @staticmethod
    def of(moved: Sequence[Moved]) -> "Curve":
        """Of noise on one part of the input (features or edges), or on several at once, independent of each other."""
        own, other, slack = _ordered([(noise, *regions(noise, *radius)) for noise, *radius in moved])
        points = (np.concatenate([[0.0], shares.cumsum()]) for shares in (own, other))
        # Points moved to the right and down: any line between two of them lies under the true curve between them.
        return Curve(next(points) * (1 + slack), next(points) * (1 - slack))

    def lowest_share(self, p: ArrayLike) -> Floats:
        """The least probability under x' of what has probability p under x."""
        return np.asarray(np.interp(np.asarray(p, dtype=np.float64), self.own, self.other))

    @cached_property
    def smallest_majority(self) -> float:
        """What has more than this probability under x has more than 1/2 under x'."""
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
    """One-sided bounds on a probability, each wrong with probability alpha at most, after `hits` of `samples`.

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
    """For every node the smoothed prediction, and against which flips it is guaranteed.

    A radius is (additions, deletions), counted over the whole input, not a node's own. With probability 1 - alpha for
    each node (for all nodes together if `over_nodes`), no input within a certified radius has another prediction.
    """

    prediction: NDArray[np.int64]  # [n], the class with most votes
    p_lower: Floats  # [n], of the predicted class
    p_upper: Floats  # [n], of every other class
    noise: Mapping[str, Noise]  # by part of the input: "features", "edges" or both
    kind: Kind
    alpha: float
    samples: int
    over_nodes: bool

    @property
    def abstained(self) -> NDArray[np.bool_]:
        """Nodes whose votes do not even settle the prediction for the input as it is, [n]."""
        return ~self.certified()

    def certified(self, **radii: Radius) -> NDArray[np.bool_]:
        """Whether each node is certified, [n], within `features=(r_add, r_del)`, `edges=(r_add, r_del)` or both.

        A part that is not named is left as it is by the adversary.
        """
        unknown = [part for part in radii if part not in self.noise]
        if unknown:
            raise ValueError(f"this certificate is about {' and '.join(self.noise)}, not about {', '.join(unknown)}")
        for part, radius in radii.items():
            if len(radius) != 2 or min(radius) < 0:
                raise ValueError(f"a radius is (additions, deletions), both >= 0; got {part}={radius}")
        curve = Curve.of([(noise, *radii.get(part, (0, 0))) for part, noise in self.noise.items()])
        return self._holds(curve, slice(None))

    def _holds(self, curve: Curve, nodes: NDArray[np.int64] | slice) -> NDArray[np.bool_]:
        p_lower, p_upper = self.p_lower[nodes], self.p_upper[nodes]
        if self.kind == "binary":
            return np.asarray(p_lower > curve.smallest_majority)
        # Another class's greatest share under x' is 1 less the lowest share of all that is not that class.
        return np.asarray(curve.lowest_share(p_lower) + curve.lowest_share(1 - p_upper) > 1)

    def deletions(self, on: str | None = None, *, most: int = 100) -> NDArray[np.int64]:  # -> [n, A]
        """Column r_add holds the most deletions that are certified together with r_add additions; -1 if not even 0 are.

        As many columns as there are additions certified for any node, and one. Radii are looked for up to `most`.
        """
        return self._staircase(*self._part(on), most)

    @cached_property
    def radii(self) -> NDArray[np.int64]:
        """The most additions alone and the most deletions alone, [n, 2], of at most 100; -1 for nodes that abstain."""
        if len(self.noise) > 1:
            raise ValueError(
                f"this certificate is about {' and '.join(self.noise)}, so that radii are of one of them:"
                f" ask deletions(on=...), with {' or '.join(map(repr, self.noise))}"
            )
        stairs = self.deletions()
        return np.stack([(stairs >= 0).sum(1) - 1, stairs[:, 0]], axis=1)

    def certified_ratio(
        self, labels: ArrayLike | None = None, nodes: ArrayLike | None = None, *, on: str | None = None, most: int = 100
    ) -> Floats:  # -> [A, D]
        """S(r_add, r_del): the share of `nodes` (default: all) certified there; with `labels` [n] and right as well."""
        stairs = self.deletions(on, most=most)
        counts = np.ones(len(stairs), dtype=bool) if labels is None else self.prediction == np.asarray(labels)
        chosen = np.arange(len(stairs)) if nodes is None else np.asarray(nodes)
        stairs = np.where(counts[:, None], stairs, NOTHING)[chosen]
        return np.stack([(stairs >= r_del).mean(0) for r_del in range(max(int(stairs.max()), 0) + 1)], axis=1)

    def _part(self, on: str | None) -> tuple[Noise, list[Moved]]:
        """The noise of the part that is looked at, and the other parts, unmoved."""
        if (len(self.noise) > 1 and on is None) or on not in (None, *self.noise):
            raise ValueError(f"say on which part the flips are: on= one of {', '.join(self.noise)}; got {on!r}")
        name = on or next(iter(self.noise))
        return self.noise[name], [(noise, 0, 0) for part, noise in self.noise.items() if part != name]

    def _staircase(self, noise: Noise, still: list[Moved], most: int) -> NDArray[np.int64]:
        """Walk the grid of radii only where some node is still certified: larger radii never certify more."""
        columns: list[NDArray[np.int64]] = []
        reach = np.full(len(self.p_lower), most)  # the most deletions that are still possible for each node
        for r_add in range(most + 1):
            before, reach = reach, np.full_like(reach, NOTHING)
            nodes = np.arange(len(reach))
            for r_del in range(most + 1):
                nodes = nodes[before[nodes] >= r_del]
                nodes = nodes[self._holds(Curve.of([(noise, r_add, r_del), *still]), nodes)]
                if len(nodes) == 0:
                    break
                reach[nodes] = r_del
            if columns and bool((reach == NOTHING).all()):
                break
            columns.append(reach)
        return np.stack(columns, axis=1)


def certificate_of(
    counts: ArrayLike,
    noise: Mapping[str, Noise],
    *,
    alpha: float = 0.01,
    kind: Kind = "multiclass",
    chosen: ArrayLike | None = None,
    over_nodes: bool = False,
) -> Certificate:  # [n, c]
    """The certificate that votes give. `kind`: "binary" asks for more than half of all votes under the worst flips,
    "multiclass" for more than any other class gets there, which certifies as much or more but for its wider bounds.

    Bounds hold for all classes at once, as the same votes choose the prediction and measure it. Classes `chosen` [n]
    without these votes need fewer: one bound a node for "binary". `over_nodes` makes them hold for all nodes at once.
    """
    votes = np.asarray(counts)
    if votes.ndim != 2 or votes.shape[1] < 2 or not np.issubdtype(votes.dtype, np.integer):
        raise ValueError(f"votes must be whole numbers, a node a row, 2 or more classes; got {votes.dtype} of "
                         f"shape {list(votes.shape)}")  # fmt: skip
    if len(votes) == 0 or votes.min() < 0 or len(np.unique(votes.sum(1))) > 1 or votes[0].sum() == 0:
        raise ValueError("every node needs the same number of votes, 1 or more; ask for samples first")
    if kind not in ("binary", "multiclass"):
        raise ValueError(f"kind must be 'binary' or 'multiclass', got {kind!r}")
    _check_alpha(alpha)
    (size, classes), samples = votes.shape, int(votes[0].sum())
    prediction = votes.argmax(1) if chosen is None else _checked_classes(chosen, size, classes)
    # The bounds that must not be wrong: for "binary" the lower one of the prediction, for "multiclass" the upper one of
    # each other class too; of every class where any might have been predicted.
    events = {"binary": 1 if chosen is not None else classes, "multiclass": (1 if chosen is not None else 2) * classes}
    level = alpha / events[kind] / (size if over_nodes else 1)
    others = votes.copy()
    others[np.arange(size), prediction] = NOTHING
    lower, _ = clopper_pearson(votes[np.arange(size), prediction], samples, level)
    p_upper = 1 - lower
    if kind == "multiclass":
        p_upper = np.minimum(p_upper, clopper_pearson(others.max(1), samples, level)[1])
    return Certificate(prediction, lower, p_upper, dict(noise), kind, alpha, samples, over_nodes)


def _checked_classes(chosen: ArrayLike, size: int, classes: int) -> NDArray[np.int64]:
    given = np.asarray(chosen)
    if (
        given.shape != (size,)
        or not np.issubdtype(given.dtype, np.integer)
        or given.min() < 0
        or given.max() >= classes
    ):
        raise ValueError(f"chosen must be a class, 0 to {classes - 1}, for each of the {size} nodes")
    return given.astype(np.int64)


def _check_alpha(alpha: float) -> None:
    if not 0 < alpha < 1:
        raise ValueError(f"alpha, the probability that a guarantee is wrong, must lie in (0, 1), got {alpha}")
