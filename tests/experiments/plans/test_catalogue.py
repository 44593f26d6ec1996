import pytest

from wtawp.base import WtawpError
from wtawp.experiments.plans.catalogue import PAGES, plan, plans
from wtawp.experiments.plans.paper import paper_plans
from wtawp.experiments.spec import Plan

READY = list(plans().values())


def test_the_paper_s_tables_and_figures_come_first_and_pages_have_other_labels() -> None:
    assert all(name == each.name for name, each in plans().items())
    assert list(plans())[: len(paper_plans())] == list(paper_plans())
    assert {name.partition(":")[0] for name in list(plans())[len(paper_plans()) :]} == {
        "deviation", "extra", "claim", "released",
    }  # fmt: skip
    assert not set(PAGES) & set(plans())


@pytest.mark.parametrize("ready", READY, ids=lambda p: p.name)
def test_what_is_ready_has_runs_and_unique_places(ready: Plan) -> None:
    assert ready is plan(ready.name)
    assert ready.runs()
    places = [(c.row, c.column) for c in ready.cells]
    assert len(set(places)) == len(places)
    assert {row for pair in ready.pairs for row in pair} <= {c.row for c in ready.cells}


def test_an_unknown_label_is_refused_with_those_that_there_are() -> None:
    assert plan("TAB:NatAcc") is plan("tab:natacc")
    with pytest.raises(WtawpError, match=r"there is no plan 'tab:nat'; did you mean tab:natacc\? There are fig:1"):
        plan("tab:nat")
