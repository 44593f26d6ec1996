"""Comparisons of two methods, with their uncertainty: the paper's test over runs and the paired one over splits."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit  # Student's t; scipy.stats takes a second to import

SIGNIFICANCE_LEVEL = 0.05


@dataclass(frozen=True)
class PairedDifference:
    """The mean of `after - before` over pairs, with its 95 % confidence interval and the paired t-test.

    Attributes:
        mean: The mean difference.
        low: The lower end of its 95 % confidence interval; None where the differences do not vary.
        high: The upper end, likewise.
        p_value: Of the two-sided paired t-test; 1 where the differences do not vary.
        num_pairs: The number of pairs.
        won: The number of pairs in which `after` is larger.
        effect_size: Mean over standard deviation of the differences; None where they do not vary.
    """

    mean: float
    low: float | None
    high: float | None
    p_value: float
    num_pairs: int
    won: int
    effect_size: float | None

    def interval(self, form: str) -> str:
        """Write the confidence interval for people.

        Args:
            form: The format of a number, as in "+.2f".

        Returns:
            Both ends; or that there is no interval, and why: without spread between pairs, nothing tells how far chance
            reaches.

        Example:
            >>> paired_difference([1.0, 2.0], [1.5, 2.5]).interval("+.2f")
            'none, all pairs differ equally'
        """
        if self.low is None or self.high is None:
            return "none, all pairs differ equally"
        return f"{self.low:{form}} to {self.high:{form}}"


def paired_difference(before: Sequence[float], after: Sequence[float]) -> PairedDifference:
    """Compare two methods on the same splits and initialisations.

    Args:
        before: Values of the first method, one for each pair.
        after: Values of the second method, in the same order.

    Returns:
        The mean difference with its 95 % confidence interval and the paired t-test; without an interval, and with a
        p-value of 1, if all differences are equal.

    Raises:
        ValueError: If the series differ in length, or have fewer than two values.

    Example:
        >>> paired_difference([1.0, 2.0, 3.0], [2.0, 3.0, 5.0]).mean
        1.3333333333333333
    """
    if len(before) != len(after) or len(before) < 2:
        raise ValueError(
            f"a paired difference needs two equally long series of at least 2, got {len(before)} and {len(after)}"
        )
    differences = np.asarray(after, dtype=float) - np.asarray(before, dtype=float)
    mean, pairs, won = float(differences.mean()), len(differences), int((differences > 0).sum())
    if _is_constant(differences, [before, after]):  # without spread there is no estimate of chance: never significant
        return PairedDifference(mean, None, None, 1.0, pairs, won, None)
    spread = float(differences.std(ddof=1))
    error = spread / math.sqrt(pairs)
    half = error * float(stdtrit(pairs - 1, 0.975))
    p_value = 2 * float(stdtr(pairs - 1, -math.fabs(mean) / error))
    return PairedDifference(mean, mean - half, mean + half, p_value, pairs, won, mean / spread)


def unpaired_p_value(one: Sequence[float], other: Sequence[float]) -> float:
    """Student's two-sided t-test with pooled variance, which the paper applies to all runs of two cells.

    The test treats all runs as independent. Initialisations that share a split are not, so it calls too many
    differences significant.

    Args:
        one: Values of the first method.
        other: Values of the second method; the two may differ in length.

    Returns:
        The p-value.

    Raises:
        ValueError: If either series has fewer than two values.
    """
    if min(len(one), len(other)) < 2:
        raise ValueError(f"a t-test needs two series of at least 2, got {len(one)} and {len(other)}")
    a, b = np.asarray(one, dtype=float), np.asarray(other, dtype=float)
    if _is_constant(a, a) and _is_constant(b, b):
        return float(math.isclose(a.mean(), b.mean(), rel_tol=1e-12))
    freedom = len(a) + len(b) - 2  # by hand, because scipy warns where one of the two is constant
    pooled = ((len(a) - 1) * a.var(ddof=1) + (len(b) - 1) * b.var(ddof=1)) / freedom
    t = (a.mean() - b.mean()) / math.sqrt(pooled * (1 / len(a) + 1 / len(b)))
    return float(2 * stdtr(freedom, -abs(t)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for multiple comparisons with Holm's method.

    Args:
        p_values: One for each comparison.

    Returns:
        The corrected p-values, in the same order.

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))  # never below a smaller one's
        corrected[i] = largest
    return corrected


def _is_constant(values: np.ndarray, computed_from: ArrayLike) -> bool:
    """Whether the values are equal up to the rounding of the numbers that they were computed from."""
    return float(values.max() - values.min()) <= 1e-9 * float(np.abs(computed_from).max())
