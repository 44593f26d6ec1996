"""The test of unnoticeability of Nettack and Metattack: do the degrees still fit the power law of the original ones?"""

import math

import torch
from torch import Tensor

LEAST_DEGREE = 2  # the power law is fitted to degrees from here on


class LikelyDegrees:
    """Which pairs may be flipped so that original and new degrees still are likely to be draws from one power law.

    The likelihood-ratio test of Nettack's and Metattack's appendices. With n degrees d >= 2 and s the sum of their
    logarithms, alpha = 1 + n / (s - n log 1.5) and l = n log alpha + n alpha log 2 + (alpha + 1) s; a flip is allowed
    if -2 l(both) + 2 (l(original) + l(new)) < cutoff. In a Pareto likelihood the last sign of l is a minus; the plus is
    that of the released implementations, to which the cutoff of 0.004 belongs. A flip changes two degrees by one, so
    the answer is a table over pairs of degrees.
    """

    def __init__(self, original: Tensor, degree: Tensor, cutoff: float) -> None:
        self.cutoff = cutoff
        self.original = [part.sum() for part in _tail(original)]
        self.now = [part.sum() for part in _tail(degree)]
        self.degrees, self.which = torch.unique(degree, return_inverse=True)
        self.add_table, self.remove_table = self._table(1), self._table(-1)

    def _table(self, change: int) -> Tensor:  # -> [r, r] bool, r different degrees
        """Whether a flip that changes two degrees by `change` is allowed, for each pair of degrees."""
        before, after = _tail(self.degrees), _tail(self.degrees + change)
        gains = [new - old for new, old in zip(after, before, strict=True)]
        n, s = (now + gain[:, None] + gain for now, gain in zip(self.now, gains, strict=True))
        ratio = 2 * (_likelihood(*self.original) + _likelihood(n, s))
        ratio = ratio - 2 * _likelihood(self.original[0] + n, self.original[1] + s)
        return ratio < self.cutoff

    def added(self, first: int, last: int) -> Tensor:  # -> [last - first, n - first] bool
        """Whether new edges between nodes `first` to `last` and the nodes from `first` on are allowed."""
        return self.add_table[self.which[first:last]][:, self.which[first:]]

    def removed(self, i: Tensor, j: Tensor) -> Tensor:  # [m], [m] -> [m] bool
        """Whether the removal of the edges between i and j is allowed."""
        return self.remove_table[self.which[i], self.which[j]]

    def allowed(self, i: Tensor, j: Tensor, is_edge: Tensor) -> Tensor:  # [m], [m], [m] bool -> [m] bool
        """Whether the flip of each pair is allowed: a removal where the pair is an edge, else an addition."""
        one, other = self.which[i], self.which[j]
        return torch.where(is_edge, self.remove_table[one, other], self.add_table[one, other])


def _tail(degree: Tensor) -> tuple[Tensor, Tensor]:
    """The contribution of each degree to n and to s: 1 and its logarithm, or 0 if it is below `LEAST_DEGREE`."""
    counts = (degree >= LEAST_DEGREE).double()
    return counts, counts * degree.clamp_min(1).double().log()


def _likelihood(n: Tensor, s: Tensor) -> Tensor:
    """The log-likelihood l of n degrees with a sum of logarithms s; 0 for no degrees."""
    some = n.clamp_min(1)  # without degrees that count there is nothing to be likely
    alpha = 1 + some / (s - n * math.log(LEAST_DEGREE - 0.5)).clamp_min(1e-12)
    return torch.where(n > 0, n * alpha.log() + n * alpha * math.log(LEAST_DEGREE) + (alpha + 1) * s, 0)
