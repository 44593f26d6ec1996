import math
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace

import pytest

from wtawp.experiments.plans.paper import plan, plans
from wtawp.experiments.plans.robustness import attack_plan
from wtawp.experiments.report.figures import DRAWN, figures_of
from wtawp.experiments.results.summary import summarise
from wtawp.experiments.spec import Plan, Record, Setting

MakeRecords = Callable[..., list[Record]]
SVG = "{http://www.w3.org/2000/svg}"
SHOWN = {  # plan -> figure -> words on it
    "fig:2": {"decisions": ["GCN", "AWP rho=2.5", "WT-AWP rho=2.5", "test accuracy 85.0 %"]},
    "fig:awpknnloss": {"toy_losses": ["AWP rho=1.5", "ln 2: nothing learned", "epoch", "training loss"]},
    "fig:aaa": {"decisions": ["W-AWP lam=0.9"], "toy_losses": ["T-AWP"]},
    "tab:ablation": {"accuracy_over_rho": ["lambda=0.7", "W-AWP", "0.05", "2.5", "ours", "paper", "rho"]},
    "fig:gdnorm_all": {"gradient_norms": ["cora", "citeseer", "polblogs", "norm of the perturbed gradient"]},
    "fig:lcagg": {"losses_and_gap": ["GCN", "AWP rho=0.1", "rise of the loss by the perturbation, cora"]},
    "fig:ngrad": {"relative_gradient_norms": ["gradient norm / weight norm, cora", "WT-AWP rho=1"]},
    "tab:natacc": {"gains": ["GCN+WT-AWP, cora", "PPNP+WT-AWP, polblogs", "gain in test accuracy, points"]},
}


def words(svg: str) -> str:
    return "\n".join("".join(t.itertext()) for t in ET.fromstring(svg).iter(f"{SVG}text"))


def at_hand(name: str) -> Plan:
    return plan(name).at("smoke")


def test_every_figure_that_a_plan_names_can_be_drawn() -> None:
    asked = {figure for p in plans().values() for figure in p.figures}
    assert asked | {"gains", "accuracy_over_budget", "certified_accuracy"} == set(DRAWN)  # of `wtawp attack`, `certify`


@pytest.mark.parametrize("name", SHOWN)
def test_figures_say_what_they_show_and_repeat_byte_for_byte(make_records: MakeRecords, name: str) -> None:
    made = at_hand(name)
    records = make_records(made, lambda cell, split, _: 85.0 + 0.1 * split * len(cell.row))
    drawn = figures_of(summarise(made, records))
    assert {figure for figure, *_ in drawn} == set(SHOWN[name])
    for figure, svg, caption in drawn:
        assert all(word in words(svg) for word in SHOWN[name][figure])
        assert caption.endswith(".")
    assert figures_of(summarise(made, records[::-1])) == drawn


def test_accuracy_is_drawn_over_the_budget_of_each_attack(make_records: MakeRecords) -> None:
    setting = Setting(dataset="wine")
    plan = attack_plan(setting, "dice", [0.1, 0.05], awp=None, poison=False, adaptive=True, splits=2, inits=1)
    records = make_records(Plan("", "", plan.cells[:1]), lambda *_: 90.0)
    report = summarise(plan, [replace(r, measured=[{"accuracy": 0.7}, {"accuracy": 0.8}]) for r in records])
    assert [c.mean for c in report.cells] == pytest.approx([90.0, 70.0, 80.0])
    ((_, svg, caption),) = figures_of(report)
    assert {"budget, % of the edges", "test accuracy, %", "GCN", "10"} <= set(words(svg).splitlines())
    assert "flipped edges" in caption
    assert figures_of(summarise(plan, []))[0][1] == ""


@pytest.mark.parametrize("name", SHOWN)
def test_without_records_nothing_is_drawn(name: str) -> None:
    assert {svg for _, svg, _ in figures_of(summarise(at_hand(name), []))} == {""}


def test_runs_without_curves_are_left_out(make_records: MakeRecords) -> None:
    made = at_hand("fig:ngrad")
    records = [
        replace(r, history={k: v for k, v in (r.history or {}).items() if k != "weight_norm" or r.setting["awp"]})
        for r in make_records(made)
    ]
    ((_, svg, _),) = figures_of(summarise(made, records))
    assert "AWP rho=0.1" in words(svg)
    assert "GCN" not in words(svg)


def test_an_mlp_is_shown_without_the_edges_it_does_not_see(make_records: MakeRecords) -> None:
    def groups(name: str) -> int:
        made = at_hand(name)
        _, svg, _ = figures_of(summarise(made, make_records(made)))[0]
        return svg.count("LineCollection")

    assert groups("fig:2") == 5
    assert groups("fig:aa") == 0


def test_losses_that_run_away_are_cut_and_zero_norms_do_no_harm(make_records: MakeRecords) -> None:
    made = at_hand("fig:awpknnloss")
    high = [replace(r, history={"train_loss": [50.0, math.nan, 0.1]}) if r.history else r for r in make_records(made)]
    ((_, svg, _),) = figures_of(summarise(made, high))
    assert "training loss (cut at 2)" in words(svg)
    norms = at_hand("fig:gdnorm_all")
    gone = [replace(r, history={"perturbed_norm": [1.0, 0.0, 0.0]}) for r in make_records(norms)]
    ((_, svg, _),) = figures_of(summarise(norms, gone))
    assert "<path" in svg
