from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from wtawp.analysis import SharpnessMonitor
from wtawp.experiments.plans.catalogue import plan
from wtawp.experiments.plans.geometry import sharpness_plan, vanishing_plan
from wtawp.experiments.plans.scale import at_scale
from wtawp.experiments.report.drawing import method_style
from wtawp.experiments.report.training_curves import (
    SHARPNESS_EVERY,
    gradient_norms,
    losses_and_gap,
    relative_gradient_norms,
    saturation_curves,
    sharpness_curves,
)
from wtawp.experiments.results.summary import summarise
from wtawp.experiments.spec import Record

MakeRecord = Callable[..., Record]
MakeRecords = Callable[..., list[Record]]
Plotted = list[list[Any]]


def curves_of(records: list[Record], dataset: str, awp: Any, column: str) -> np.ndarray:
    """[runs, epochs], in the order of the initialisations."""
    rho = None if awp is None else awp.rho
    some = [r for r in records if r.setting["dataset"] == dataset and (r.setting["awp"] or {}).get("rho") == rho]
    return np.array([(r.history or {})[column] for r in sorted(some, key=lambda r: (r.split, r.init))])


def lines_of(ax: Any, num_rows: int) -> list[tuple[np.ndarray, Any]]:
    """Of each row its thin lines [runs, epochs], and the thick one."""
    size = len(ax.lines) // num_rows
    groups = [ax.lines[i * size : (i + 1) * size] for i in range(num_rows)]
    return [(np.array([line.get_ydata() for line in group[:-1]]), group[-1]) for group in groups]


def test_gradient_norms_are_drawn_run_by_run_with_their_median(make_records: MakeRecords, plotted: Plotted) -> None:
    made = at_scale(plan("fig:gdnorm_all"), "quick")
    records = make_records(made)
    gradient_norms(summarise(made, records))
    (axes,) = plotted
    assert [ax.get_title() for ax in axes] == ["cora", "citeseer", "polblogs"]
    for ax, cell in zip(axes, made.cells, strict=True):
        ((thin, thick),) = lines_of(ax, 1)
        norms = curves_of(records, cell.setting.dataset, cell.setting.awp, "perturbed_norm")
        assert thin == pytest.approx(norms)
        assert thick.get_ydata() == pytest.approx(np.median(norms, axis=0))
        assert ax.get_yscale() == "log"


def test_loss_and_gap_stand_side_by_side(make_records: MakeRecords, plotted: Plotted) -> None:
    made = at_scale(plan("fig:lcagg"), "quick")
    records = make_records(made)
    losses_and_gap(summarise(made, records))
    (axes,) = plotted
    assert [ax.get_yscale() for ax in axes] == ["log", "linear"] * (len(axes) // 2)
    for ax, column in zip(axes[:2], ("train_loss", "gap"), strict=True):
        cells = [c for c in made.cells if c.column == made.cells[0].column]
        for (thin, thick), cell in zip(lines_of(ax, len(cells)), cells, strict=True):
            expected = curves_of(records, cell.setting.dataset, cell.setting.awp, column)
            assert thin == pytest.approx(expected)
            assert thick.get_ydata() == pytest.approx(np.median(expected, axis=0))
            assert (thick.get_label(), thick.get_color()) == (cell.row, method_style(cell.setting.awp)["color"])


def test_gradients_are_relative_to_the_weights_and_runs_without_curves_are_left_out(
    make_records: MakeRecords, plotted: Plotted
) -> None:
    made = at_scale(plan("fig:ngrad"), "quick")
    records = [
        replace(r, history={k: v for k, v in (r.history or {}).items() if k != "weight_norm" or r.setting["awp"]})
        for r in make_records(made)
    ]
    relative_gradient_norms(summarise(made, records))
    ax = plotted[0][0]
    perturbed = [c for c in made.cells if c.column == made.cells[0].column and c.setting.awp is not None]
    assert {line.get_label() for line in ax.lines if not line.get_label().startswith("_")} == {c.row for c in perturbed}
    for (thin, thick), cell in zip(lines_of(ax, len(perturbed)), perturbed, strict=True):
        each = [curves_of(records, cell.setting.dataset, cell.setting.awp, f"{name}_norm") for name in
                ("gradient", "weight")]  # fmt: skip
        assert thin == pytest.approx(each[0] / each[1])
        assert thick.get_label() == cell.row


def test_norms_of_zero_do_no_harm(make_records: MakeRecords, plotted: Plotted) -> None:
    made = at_scale(plan("fig:gdnorm_all"), "smoke")
    gone = [replace(r, history={"perturbed_norm": [1.0, 0.0, 0.0]}) for r in make_records(made)]
    gradient_norms(summarise(made, gone))
    assert plotted[0][0].lines[-1].get_ydata().tolist() == [1.0, 0.0, 0.0]


def test_sharpness_is_drawn_over_every_tenth_epoch(make_record: MakeRecord, plotted: Plotted) -> None:
    made = sharpness_plan()

    def history(split: int) -> dict[str, list[float]]:
        return {"sharpness_adaptive": [2.0, 1.0 + split, 0.2], "sharpness_layer": [1.0, 0.5 + split, 0.1]}

    records = [make_record(key=run.key, setting=run.setting.content, split=run.split, init=run.init,
                           history=history(run.split)) for run in made.runs()]  # fmt: skip
    sharpness_curves(summarise(made, records))
    (axes,) = plotted
    assert [ax.get_title() for ax in axes] == ["layer radius", "adaptive radius"]
    assert SharpnessMonitor.EVERY == SHARPNESS_EVERY
    for ax, column in zip(axes, ("sharpness_layer", "sharpness_adaptive"), strict=True):
        for (thin, thick), cell in zip(lines_of(ax, 3), made.cells, strict=True):
            assert thin.tolist() == [history(split)[column] for split in range(5)]
            assert thick.get_xdata().tolist() == [0, 10, 20]
            assert thick.get_ydata().tolist() == history(2)[column], "the median"
            assert (thick.get_label(), thick.get_color()) == (cell.row, method_style(cell.setting.awp)["color"])


def test_saturation_is_smoothed_and_balanced_rows_have_panels_of_their_own(
    make_record: MakeRecord, plotted: Plotted
) -> None:
    made = vanishing_plan()
    columns = ("logit_scale", "perturbed_logit_scale", "perturbed_saturation", "gradient_norm", "perturbed_norm")
    curve = np.linspace(1.0, 2.0, 20)
    spiked = np.where(np.arange(20) == 10, 100.0, curve)
    records = [
        make_record(key=run.key, setting=run.setting.content, split=run.split, init=run.init,
                    history={name: (spiked * 2**i).tolist() for i, name in enumerate(columns)})
        for run in made.runs()
    ]  # fmt: skip
    saturation_curves(summarise(made, records))
    (axes,) = plotted
    titles = [axes[i].get_title(loc="left") for i in range(0, len(axes), 5)]
    datasets = list(dict.fromkeys(c.column for c in made.cells))
    assert titles == [title for name in datasets for title in (name, f"{name}, balance=1")]
    assert [ax.get_yscale() for ax in axes[:5]] == ["log", "log", "linear", "log", "log"]
    rows = [[line.get_label() for line in axes[i].lines] for i in (0, 5)]
    assert rows == [["plain", "AWP", "W-AWP", "T-AWP", "WT-AWP"],
                    [f"{name}, balance=1" for name in ("AWP", "W-AWP", "T-AWP", "WT-AWP")]]  # fmt: skip
    for i, ax in enumerate(axes[:5]):
        smooth = [np.median(spiked[max(0, epoch - 4) : epoch + 5]) * 2**i for epoch in range(20)]
        assert ax.lines[0].get_ydata() == pytest.approx(smooth)
        assert max(smooth) < 3 * 2**i, "the spike is gone"


@pytest.mark.parametrize(
    "draw", [gradient_norms, losses_and_gap, relative_gradient_norms, saturation_curves, sharpness_curves]
)
def test_without_records_nothing_is_drawn(draw: Callable[..., str]) -> None:
    assert draw(summarise(vanishing_plan(), [])) == ""
