from wtawp.experiments.plans.scale import at_scale
from wtawp.experiments.spec import Cell, MeasureRequest, Plan, Setting


def test_smaller_scales_have_fewer_runs_and_smoke_fewer_epochs() -> None:
    whole = Plan("p", "P", (Cell("GCN", "cora", Setting(dataset="cora")),))
    assert len(at_scale(whole, "full").runs()) == 200
    quick, smoke = at_scale(whole, "quick"), at_scale(whole, "smoke")
    assert len(quick.runs()) == 10
    assert set(quick.runs()) <= set(whole.runs())  # what was trained quickly counts at full scale
    assert smoke.cells[0].setting.epochs == 30
    assert not smoke.cells[0].judged
    assert quick.cells[0].judged


def test_a_smoke_test_makes_each_measure_small_in_its_own_way() -> None:
    measures = (
        MeasureRequest("smoothness", (("wrt", "features"), ("samples", 100))),
        MeasureRequest("certificate", (("on", "edges"), ("p_add", 0.1), ("p_del", 0.2), ("samples", 10_000))),
        MeasureRequest("spectrum", (("top", 1),)),
    )
    plan = Plan("p", "P", (Cell("GCN", "cora", Setting(dataset="cora", measures=measures)),))
    small = at_scale(plan, "smoke").cells[0].setting.measures
    assert [dict(m.options).get("samples") for m in small] == [2, 100, None]
    assert small[2] == measures[2]  # an option that is not given is not made smaller: it keeps its default
