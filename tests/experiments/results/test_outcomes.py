import pytest

from wtawp.experiments.results.outcomes import Outcome, judge


@pytest.mark.parametrize(("holds", "verdict"), [(True, "holds"), (False, "does not hold")])
def test_a_condition_becomes_a_verdict(holds: bool, verdict: str) -> None:
    assert judge(holds, "3 of 4.") == Outcome(verdict, "3 of 4.")
