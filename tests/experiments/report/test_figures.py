from collections.abc import Callable
from dataclasses import replace

import pytest

from wtawp.experiments.plans.catalogue import plan, plans
from wtawp.experiments.plans.scale import at_scale
from wtawp.experiments.report.figures import captions_of, figure_names, figure_spec, figures_of
from wtawp.experiments.results.summary import summarise
from wtawp.experiments.spec import Plan, Record

MakeRecords = Callable[..., list[Record]]


def test_every_figure_that_a_plan_names_can_be_drawn() -> None:
    named = {figure for p in plans().values() for figure in p.figures}
    assert named | {"gains", "accuracy_over_budget"} <= set(figure_names())  # of pairs, and of `wtawp attack`
    assert len(set(figure_names())) == len(figure_names())
    assert all(figure_spec(name).caption.endswith(".") for name in figure_names())


def test_an_unknown_figure_is_refused_and_the_nearest_named() -> None:
    with pytest.raises(ValueError, match="got 'bound_curve'; did you mean 'bound_curves'"):
        figure_spec("bound_curve")


def test_figures_repeat_byte_for_byte_in_any_order_of_records(small_plan: Plan, make_records: MakeRecords) -> None:
    for made in (small_plan, at_scale(plan("fig:gdnorm_all"), "smoke"), at_scale(plan("tab:ablation"), "smoke")):
        records = make_records(made)
        drawn = figures_of(summarise(made, records))
        assert [(name, caption) for name, _, caption in drawn] == captions_of(made)
        assert all(svg.startswith("<svg") for _, svg, _ in drawn)
        assert figures_of(summarise(made, records[::-1])) == drawn
        assert {svg for _, svg, _ in figures_of(summarise(made, []))} == {""}


def test_only_captions_beside_printed_numbers_mention_the_paper(small_plan: Plan) -> None:
    ((name, printed),) = captions_of(small_plan)
    cells = tuple(replace(cell, printed=None) for cell in small_plan.cells)
    assert captions_of(replace(small_plan, cells=cells)) == [(name, figure_spec("gains").caption)]
    assert printed == f"{figure_spec('gains').caption} A vertical stroke is the gain that the paper prints."
    assert "paper" not in figure_spec("gains").caption
