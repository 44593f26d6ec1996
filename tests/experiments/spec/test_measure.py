import json

import pytest

from wtawp.experiments.spec import MeasureRequest, is_option, options_from_json


def test_options_survive_json_and_their_order_does_not_matter() -> None:
    measure = MeasureRequest("evasion", (("sizes", (1, 2)), ("attack", "pgd"), ("budget", 0.05)))
    content = json.loads(json.dumps({"name": measure.name, "options": measure.options}))
    assert MeasureRequest.from_content(content) == measure
    assert options_from_json([["a", [1, 2]], ["b", None]]) == (("a", (1, 2)), ("b", None))
    assert measure.with_options(budget=4) == MeasureRequest(
        "evasion", (("attack", "pgd"), ("budget", 4), ("sizes", (1, 2)))
    )


@pytest.mark.parametrize(
    ("value", "is_plain"),
    [(1, True), (None, True), ((1, 2), True), (float("inf"), False), ([1], False), ((0.5,), False)],
)
def test_options_are_finite_numbers_text_or_whole_numbers(value: object, is_plain: bool) -> None:
    assert is_option(value) == is_plain
    if not is_plain:
        with pytest.raises(ValueError, match="option x must be a finite number"):
            MeasureRequest("evasion", (("x", value),))  # type: ignore[arg-type]


def test_requests_are_equal_if_they_are_as_json() -> None:
    requests = {MeasureRequest("evasion", (("budget", budget),)) for budget in (1, 1.0, True, 1)}
    assert len(requests) == 3, "one edge is neither all edges nor true"
    assert MeasureRequest("evasion", (("budget", 1),)) != ("evasion", (("budget", 1),))
