import math

import pytest

from wtawp.experiments.measures.shared.option_checks import check_choice, check_count, check_number


@pytest.mark.parametrize("value", [True, 0, 1.0, "1"])
def test_counts_are_whole_numbers(value: object) -> None:
    with pytest.raises(ValueError, match="n must be a whole number >= 1"):
        check_count("n", value, 1)
    check_count("n", 1, 1)


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.1, False, "1"])
def test_numbers_are_finite(value: object) -> None:
    with pytest.raises(ValueError, match="r must be a finite number >= 0"):
        check_number("r", value, 0.0)
    check_number("r", 0, 0.0)


def test_choices_are_among_those_allowed() -> None:
    check_choice("kind", "a", ("a", "b"))
    with pytest.raises(ValueError, match="kind must be one of a, b, got 'c'"):
        check_choice("kind", "c", ("a", "b"))
