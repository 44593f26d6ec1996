import math

import numpy as np
import pytest
from scipy import stats

from wtawp.experiments import paired_difference


def test_it_agrees_with_scipy_and_with_the_textbook() -> None:
    before, after = [84.1, 83.0, 85.5, 84.4], [85.0, 83.9, 85.2, 85.9]
    found = paired_difference(before, after)
    test = stats.ttest_rel(after, before)
    interval = test.confidence_interval(0.95)
    assert found.p_value == pytest.approx(test.pvalue)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    differences = np.subtract(after, before)
    half = 3.182446 * differences.std(ddof=1) / math.sqrt(4)  # t(0.975, 3) from a printed table
    assert found.mean == pytest.approx(0.75)
    assert found.high - found.mean == pytest.approx(half, rel=1e-5)


def test_equal_differences_have_no_spread() -> None:
    assert paired_difference([1.0, 2.0], [2.0, 3.0]).p_value == 0
    same = paired_difference([1.0, 2.0], [1.0, 2.0])
    assert (same.mean, same.low, same.high, same.p_value) == (0, 0, 0, 1)


@pytest.mark.parametrize(("before", "after"), [([1.0], [2.0]), ([1.0, 2.0], [1.0])])
def test_pairs_must_match(before: list[float], after: list[float]) -> None:
    with pytest.raises(ValueError, match="two equally long series of at least 2"):
        paired_difference(before, after)
