from wtawp.experiments.plans.claims import claim_plans
from wtawp.experiments.results.claims import CHECKS


def test_each_plan_has_a_claim_that_can_be_checked() -> None:
    for each in claim_plans():
        assert each.name.startswith("claim:")
        assert {claim.check for claim in each.claims} <= set(CHECKS)
        assert each.claims


def test_plans_differ_from_the_paper_s_tables_in_what_they_check_alone() -> None:
    claims = {each.name: each for each in claim_plans()}
    radii = [cell.setting.awp.radius for cell in claims["claim:adaptive-radius"].cells if cell.setting.awp]
    assert radii == ["layer", *["adaptive"] * 5]
    exact = {(c.row, c.setting.awp.exact) for c in claims["claim:exact-gradient"].cells if c.setting.awp}
    assert exact == {("first order", False), ("exact", True)}
    layers = [cell.setting.awp.layers for cell in claims["claim:second-layer"].cells if cell.setting.awp]
    assert layers == ["all-but-last", "last"]
