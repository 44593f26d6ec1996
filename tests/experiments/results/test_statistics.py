import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import floats, lists
from scipy import stats

from wtawp.experiments import paired_difference
from wtawp.experiments.results.statistics import holm, unpaired_p_value


def test_it_agrees_with_scipy_and_with_the_textbook() -> None:
    before, after = [84.1, 83.0, 85.5, 84.4], [85.0, 83.9, 85.2, 85.9]
    found = paired_difference(before, after)
    test = stats.ttest_rel(after, before)
    interval = test.confidence_interval(0.95)
    assert found.p_value == pytest.approx(test.pvalue)
    assert found.low is not None
    assert found.high is not None
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))
    differences = np.subtract(after, before)
    half = 3.182446 * differences.std(ddof=1) / math.sqrt(4)  # t(0.975, 3) from a printed table
    assert found.mean == pytest.approx(0.75)
    assert found.high - found.mean == pytest.approx(half, rel=1e-5)


def test_row_6_equal_differences_have_no_interval() -> None:
    for gain in (0.0, 0.1):  # equal gains are no proof
        found = paired_difference([1.0, 2.0], [1.0 + gain, 2.0 + gain])
        assert found.mean == pytest.approx(gain)
        assert (found.low, found.high, found.p_value) == (None, None, 1)
        assert found.interval("+.2f") == "none, all pairs differ equally"
    assert paired_difference([1.0, 2.0], [1.5, 3.0]).interval("+.2f") == "-2.43 to +3.93"


@pytest.mark.parametrize(("before", "after"), [([1.0], [2.0]), ([1.0, 2.0], [1.0])])
def test_pairs_must_match(before: list[float], after: list[float]) -> None:
    with pytest.raises(ValueError, match="two equally long series of at least 2"):
        paired_difference(before, after)


def test_the_effect_size_is_the_mean_in_standard_deviations_of_the_differences() -> None:
    found = paired_difference([0.0, 0.0, 0.0, 0.0], [1.0, 3.0, -1.0, 5.0])
    assert found.effect_size == pytest.approx(2.0 / math.sqrt(20 / 3))  # squared distances from 2: 1, 1, 9, 9
    assert found.won == 3
    t = stats.ttest_rel([1.0, 3.0, -1.0, 5.0], [0.0] * 4).statistic
    assert found.effect_size == pytest.approx(t / math.sqrt(4))


def test_differences_that_are_equal_but_for_rounding_have_no_effect_size() -> None:
    found = paired_difference([84.1, 83.3, 85.7], [84.2, 83.4, 85.8])
    assert found.effect_size is None
    assert found.p_value == 1
    assert found.won == 3


def test_the_test_over_runs_is_student_s_with_pooled_variance() -> None:
    one, other = [84.1, 83.0, 85.5, 84.4], [85.0, 83.9, 85.2, 85.9, 86.0]
    assert unpaired_p_value(one, other) == pytest.approx(stats.ttest_ind(one, other, equal_var=True).pvalue)
    # By hand: means 0 and 1, both variances 1, three runs each: t = 1 / sqrt(2 / 3) with 4 degrees of freedom.
    t = 1 / math.sqrt(2 / 3)
    tail = 0.5 - t / (2 * math.sqrt(4 + t * t)) * (1 + 2 / (4 + t * t))  # the closed form of Student's law for 4
    assert unpaired_p_value([-1.0, 0.0, 1.0], [0.0, 1.0, 2.0]) == pytest.approx(2 * tail)


def test_runs_without_any_spread_differ_surely_or_not_at_all() -> None:
    assert unpaired_p_value([1.0, 1.0], [1.0, 1.0, 1.0]) == 1
    assert unpaired_p_value([1.0, 1.0], [2.0, 2.0]) == 0
    with pytest.raises(ValueError, match="two series of at least 2, got 1 and 2"):
        unpaired_p_value([1.0], [1.0, 2.0])


def test_holm_agrees_with_the_example_computed_by_hand() -> None:
    # Sorted: 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1 give 0.02, 0.03, 0.06, 0.04; the last may not fall below 0.06.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.6]) == [1.0, 1.0]
    assert holm([0.2]) == [0.2]
    assert holm([]) == []


@given(lists(floats(0.0, 1.0), max_size=8))
def test_holm_keeps_the_order_and_lies_between_the_p_value_and_bonferroni_s(p_values: list[float]) -> None:
    corrected = holm(p_values)
    for p, c in zip(p_values, corrected, strict=True):
        assert p <= c <= min(1.0, len(p_values) * p)
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    assert [corrected[i] for i in order] == sorted(corrected)
