from wtawp.experiments.tuning.dimensions import RANGES, Choice, Range


def test_a_range_contains_the_numbers_between_its_ends() -> None:
    assert [Range(0.1, 1.0).contains(value) for value in (0.1, 1.0, 0.05, 2.0, "0.5", None)] == [True] * 2 + [False] * 4


def test_a_choice_contains_its_values_alone() -> None:
    assert [Choice((None, 4.0, "swa")).contains(value) for value in (None, 4.0, "swa", 1.0, "x")] == [True] * 3 + [
        False
    ] * 2


def test_the_first_value_is_one_that_a_dimension_contains() -> None:
    assert (Range(0.1, 1.0).first, Choice((None, 4.0)).first) == (0.1, None)


def test_every_range_has_room() -> None:
    assert all(dimension.low < dimension.high for dimension in RANGES.values())
