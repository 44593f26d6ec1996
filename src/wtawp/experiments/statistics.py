"""Paired comparisons, with their uncertainty."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats


@dataclass(frozen=True)
class PairedDifference:
    """The mean of `after - before` over pairs, with its 95 % confidence interval and the paired t-test."""

    mean: float
    low: float
    high: float
    p_value: float
    num_pairs: int


def paired_difference(before: Sequence[float], after: Sequence[float]) -> PairedDifference:
    """Compare two methods on the same splits and initialisations.

    >>> paired_difference([1.0, 2.0, 3.0], [2.0, 3.0, 5.0]).mean
    1.3333333333333333
    """
    if len(before) != len(after) or len(before) < 2:
        raise ValueError(
            f"a paired difference needs two equally long series of at least 2, got {len(before)} and {len(after)}"
        )
    differences = np.asarray(after) - np.asarray(before)
    mean, error = float(differences.mean()), float(stats.sem(differences))
    if error == 0:  # all differences equal: the t statistic is 0 / 0 or infinite
        return PairedDifference(mean, mean, mean, float(mean == 0), len(differences))
    half = error * float(stats.t.ppf(0.975, len(differences) - 1))
    p_value = 2 * float(stats.t.sf(math.fabs(mean) / error, len(differences) - 1))
    return PairedDifference(mean, mean - half, mean + half, p_value, len(differences))
