import pytest

from wtawp.experiments.results.outcomes import ClaimOutcome, judge


@pytest.mark.parametrize(("holds", "verdict"), [(True, "holds"), (False, "does not hold")])
def test_a_condition_becomes_a_verdict(holds: bool, verdict: str) -> None:
    assert judge(holds, "3 of 4.") == ClaimOutcome(verdict, "3 of 4.")
