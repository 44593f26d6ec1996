import math
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from wtawp.core import AwpConfig
from wtawp.experiments.execution.engines import local
from wtawp.experiments.spec import Plan, Setting, SplitRule
from wtawp.experiments.store import Store
from wtawp.experiments.tuning.comparison import RowNames, comparison_plan, run_comparison

BASE = Setting(dataset="wine", epochs=2)
TUNED = {
    "plain": Setting(dataset="wine", epochs=2, lr=0.02),
    "WT-AWP": Setting(dataset="wine", epochs=2, lr=0.03, awp=AwpConfig(rho=0.5, lam=0.25)),
}


def plan_of(size: int) -> Plan:
    return comparison_plan(BASE, TUNED, size)


def test_the_four_rows_are_tuned_and_untuned_and_share_their_splits() -> None:
    plan = plan_of(3)
    names = RowNames.of_model("GCN")
    settings = {cell.row: cell.setting for cell in plan.cells}
    assert settings == {
        names.plain: TUNED["plain"],
        names.tuned: TUNED["WT-AWP"],
        names.paper: Setting(dataset="wine", epochs=2, awp=AwpConfig(rho=1.0, lam=0.7)),
        names.auto: Setting(dataset="wine", epochs=2, awp=AwpConfig(rho=1.0, lam="auto")),
    }
    assert {(cell.splits, cell.inits) for cell in plan.cells} == {(3, 1)}
    assert plan.pairs[0] == (names.plain, names.tuned)


def test_without_the_untuned_rows_every_two_tuned_rows_are_compared() -> None:
    auto = replace(BASE, awp=AwpConfig(rho=1.0, lam="auto"))
    plan = comparison_plan(BASE, {**TUNED, "WT-AWP auto": auto}, 3, includes_untuned=False)
    plain, tuned, other = "GCN, tuned", "GCN+WT-AWP, tuned", "GCN+WT-AWP auto, tuned"
    settings = {cell.row: cell.setting for cell in plan.cells}
    assert settings == {plain: TUNED["plain"], tuned: TUNED["WT-AWP"], other: auto}
    assert plan.pairs == ((plain, tuned), (plain, other), (other, tuned))


def test_a_model_that_cannot_be_perturbed_is_refused() -> None:
    with pytest.raises(ValueError, match="RGCN cannot be perturbed"):
        comparison_plan(Setting(dataset="wine", model="RGCN"), TUNED, 2)


def test_masks_that_describe_one_split_are_compared_with_several_initialisations(tmp_path: Path) -> None:
    part = torch.arange(12) % 3
    masks = {name: part == i for i, name in enumerate(("train_mask", "val_mask", "test_mask"))}
    edges = torch.stack([torch.arange(12), (torch.arange(12) + 1) % 12])
    for columns, sizes in ((None, (1, 7)), (4, (2, 4))):
        chosen = masks if columns is None else {n: torch.stack([m] * columns, 1) for n, m in masks.items()}
        path = tmp_path / f"{columns}.pt"
        torch.save(Data(x=torch.eye(12), edge_index=edges, y=torch.arange(12) // 3 % 2, **chosen), path)
        base = Setting(dataset=str(path), split=SplitRule(kind="masks"))
        plan = comparison_plan(base, {"plain": base, "WT-AWP": base}, 7)
        assert {(cell.splits, cell.inits) for cell in plan.cells} == {sizes}


def test_runs_are_stored_as_ordinary_records_and_paired(tmp_path: Path) -> None:
    with Store(tmp_path / "r.sqlite") as store:
        report, counts = _run(store, 3, math.inf)
        assert counts is not None
        assert counts.trained == 12
        assert [pair.gain.num_pairs for pair in report.pairs] == [3] * 5
        assert {record.split for record in store.records()} == {0, 1, 2}
        _, again = _run(store, 3, math.inf)
        assert again is not None
        assert again.known == 12


def test_a_comparison_whose_time_is_over_keeps_the_splits_that_all_rows_have(tmp_path: Path) -> None:
    with Store(tmp_path / "r.sqlite") as store:
        report, counts = _run(store, 5, time.monotonic() - 1)
        assert counts is None
        assert [(cell.num_finished, cell.is_complete) for cell in report.cells] == [(2, True)] * 4
        assert len(store.records()) == 8


def _run(store: Store, size: int, end: float):
    return run_comparison(plan_of, size, store, engine=local(), device="cpu", end=end, progress=lambda *_: None)
