from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from wtawp.base import DataError, rng
from wtawp.core import AwpConfig
from wtawp.experiments.execution.building import build_model, data_of, split_of
from wtawp.experiments.execution.registrations import Registrations
from wtawp.experiments.spec import PlanError, Run, Setting, SplitRule
from wtawp.experiments.tuning.objective import (
    FIRST_SPLIT,
    Trainer,
    ValidationView,
    halve_validation,
    hide_test_labels,
    search_run_ids,
    train_view,
    validation_view,
)
from wtawp.graphs import Split
from wtawp.training import fit

SETTING = Setting(dataset="wine", epochs=4, awp=AwpConfig(rho=0.5, lam=0.5))


def accuracy_of(view: ValidationView, setting: Setting = SETTING) -> list[float]:
    return train_view(
        (setting, view.number, (0,)), views={view.number: view}, device="cpu", registrations=Registrations()
    )


def test_a_view_holds_the_labels_for_training_and_validation_and_no_others() -> None:
    data = data_of(SETTING, 3)
    split = split_of(SETTING, data, 3)
    view = validation_view(SETTING, 3)
    visible = torch.cat([split.train, split.val])
    assert torch.equal(view.data.y[visible], data.y[visible])
    assert view.data.y[split.test].unique().tolist() == [int(data.y[split.train[0]])]
    assert len(data.y[split.test].unique()) == 3, "the graph itself must stay as it is"


def test_permuted_test_labels_change_neither_the_view_nor_the_objective() -> None:
    data = data_of(SETTING, 3)
    split = split_of(SETTING, data, 3)
    other = data.clone()
    other.y[split.test] = data.y[split.test][torch.randperm(len(split.test), generator=rng("permute"))]
    assert not torch.equal(other.y, data.y)
    views = [ValidationView(3, hide_test_labels(d, split), halve_validation(split, 3)) for d in (data, other)]
    assert torch.equal(views[0].data.y, views[1].data.y)
    assert accuracy_of(views[0]) == accuracy_of(views[1])


def test_the_objective_is_the_accuracy_of_an_ordinary_training_on_validation_nodes_that_were_held_back() -> None:
    data = data_of(SETTING, 3)
    split, run = split_of(SETTING, data, 3), Run(SETTING, 3, 0)
    model, halves = build_model(run, data), validation_view(SETTING, 3).split
    fit(model, data, halves, seed=3000, awp=SETTING.awp, epochs=4)
    held_back = torch.tensor(sorted(set(split.val.tolist()) - set(halves.val.tolist())))
    is_right = model.eval()(data.x, data.edge_index)[held_back].argmax(1) == data.y[held_back]
    assert accuracy_of(validation_view(SETTING, 3)) == pytest.approx([float(is_right.float().mean())])


def test_the_half_of_the_validation_part_that_selects_the_epoch_measures_nothing() -> None:
    split = split_of(SETTING, data_of(SETTING, 3), 3)
    halves = halve_validation(split, 3)
    assert torch.equal(halves.train, split.train)
    assert sorted([*halves.val.tolist(), *halves.test.tolist()]) == split.val.tolist()
    assert len(halves.val) - len(halves.test) in (0, 1)
    assert torch.equal(halves.val, halve_validation(split, 3).val)
    with pytest.raises(DataError, match="two validation nodes"):
        halve_validation(Split(split.train, split.val[:1], split.test), 3)


def test_a_trial_is_the_mean_over_its_splits_whatever_process_trains_them() -> None:
    run_ids = search_run_ids(SETTING, 0)[:4]
    expected = [accuracy_of(validation_view(SETTING, split))[0] for split, _ in run_ids]
    for workers in (1, 2):
        trainer = Trainer(SETTING, run_ids, device="cpu", workers=workers)
        try:
            assert trainer.accuracy(SETTING, 0, 2) == pytest.approx(sum(expected[:2]) / 2)
            assert trainer.accuracy(SETTING, 1, 4) == pytest.approx(sum(expected[1:]) / 3)
        finally:
            trainer.close()


def test_a_model_that_cannot_be_trained_is_named() -> None:
    impossible = Setting(dataset="wine", epochs=1, options=(("hidden", "many"),))
    with pytest.raises(PlanError, match=r"^TypeError: .* \[GCN on wine"):
        accuracy_of(validation_view(SETTING, 0), impossible)


def test_a_search_uses_other_splits_than_a_comparison(tmp_path: Path) -> None:
    first, second = search_run_ids(SETTING, 0), search_run_ids(SETTING, 1)
    assert min(split for split, _ in first + second) >= FIRST_SPLIT
    assert not set(first) & set(second)
    masks = Setting(dataset=str(_graph(tmp_path, columns=None)), split=SplitRule(kind="masks"))
    assert search_run_ids(masks, 0) == tuple((0, 500 + i) for i in range(8))
    several = Setting(dataset=str(_graph(tmp_path, columns=3)), split=SplitRule(kind="masks"))
    assert search_run_ids(several, 0) == tuple((2, 500 + i) for i in range(8))
    many = Setting(dataset=str(_graph(tmp_path, columns=5)), split=SplitRule(kind="masks"))
    assert search_run_ids(many, 0)[:4] == ((3, 500), (4, 500), (3, 501), (4, 501))


def _graph(folder: Path, columns: int | None) -> Path:
    """A graph in a file, with masks."""
    part = torch.arange(30) % 3
    masks = {name: part == i for i, name in enumerate(("train_mask", "val_mask", "test_mask"))}
    if columns is not None:
        masks = {name: torch.stack([mask] * columns, 1) for name, mask in masks.items()}
    path = folder / f"graph-{columns}.pt"
    edges = torch.stack([torch.arange(30), (torch.arange(30) + 1) % 30])
    torch.save(Data(x=torch.eye(30), edge_index=edges, y=torch.arange(30) // 3 % 2, **masks), path)
    return path
