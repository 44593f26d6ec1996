"""Weights that are kept in files: the same records as after a training, and nothing wrong is kept."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from wtawp.base import DamagedCacheWarning
from wtawp.core import AwpConfig
from wtawp.experiments.execution import kept_weights, training
from wtawp.experiments.execution.kept_weights import keep_checkpoint
from wtawp.experiments.execution.training import PlanError, train, train_model
from wtawp.experiments.spec import MeasureRequest, Record, Run, Setting
from wtawp.models.registry import _SPECS, ModelSpec, register_model
from wtawp.training import Fit, evaluate

SETTING = Setting(dataset="wine", epochs=4, awp=AwpConfig(rho=0.5, lam=0.5), keep=("history",))
SHARP = replace(SETTING, measures=(MeasureRequest("sharpness", (("steps", 2),)),))
RUNS = (Run(SETTING, 1, 0), Run(SETTING, 1, 1))


class Counting(nn.Module):
    """Changes with every call in training, and its state dict does not say how often that was."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.first, self.last, self.calls = nn.Linear(d_in, 4), nn.Linear(4, d_out), 0

    def forward(self, x: Tensor, _edge_index: Tensor) -> Tensor:
        self.calls += self.training
        return self.last(self.first(x).relu()) + self.calls


def outcomes(records: list[Record]) -> list[tuple[object, ...]]:
    return [record.outcome for record in records]


@pytest.fixture
def num_trainings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts the stacks that are trained."""
    counted: list[int] = []
    original = training._train_stack

    def train_stack(*arguments: object) -> list[Fit]:
        counted.append(1)
        return original(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(training, "_train_stack", train_stack)
    return counted


def test_kept_weights_give_the_records_of_a_training(tmp_path: Path, num_trainings: list[int]) -> None:
    measured = tuple(Run(SHARP, run.split, run.init) for run in RUNS)
    expected = outcomes(train(measured, device="cpu"))
    plain = outcomes(train(RUNS, device="cpu", weights=tmp_path))
    assert plain == outcomes(train(RUNS, device="cpu"))
    assert len(num_trainings) == 3
    assert outcomes(train(measured, device="cpu", weights=tmp_path)) == expected  # another measure, the same weights
    assert outcomes(train(RUNS, device="cpu", weights=tmp_path)) == plain
    assert len(num_trainings) == 3
    assert len(list(tmp_path.iterdir())) == 1


def test_other_splits_stacks_and_settings_are_trained(tmp_path: Path, num_trainings: list[int]) -> None:
    train(RUNS, device="cpu", weights=tmp_path)
    others = [
        RUNS[:1],
        (Run(SETTING, 2, 0),),
        (Run(replace(SETTING, lr=0.02), 1, 0), Run(replace(SETTING, lr=0.02), 1, 1)),
    ]
    for runs in others:
        train(runs, device="cpu", weights=tmp_path)
    assert len(num_trainings) == 4


def test_a_damaged_file_is_told_and_replaced(tmp_path: Path, num_trainings: list[int]) -> None:
    records = outcomes(train(RUNS, device="cpu", weights=tmp_path))
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:100])
    with pytest.warns(DamagedCacheWarning, match="trained again"):
        assert outcomes(train(RUNS, device="cpu", weights=tmp_path)) == records
    assert outcomes(train(RUNS, device="cpu", weights=tmp_path)) == records
    assert len(num_trainings) == 2


def test_a_model_whose_state_dict_is_not_all_of_it_is_not_kept(tmp_path: Path) -> None:
    register_model(ModelSpec(name="Counting", constructor=Counting))
    try:
        run = Run(Setting(dataset="wine", model="Counting", epochs=2), 0, 0)
        (record,) = train((run,), device="cpu", weights=tmp_path)
        assert record.status == "done"
        assert list(tmp_path.iterdir()) == []
    finally:
        del _SPECS["Counting"]


def test_given_weights_take_the_place_of_a_training(tmp_path: Path, num_trainings: list[int]) -> None:
    model, data, split = train_model(Run(SETTING, 0, 0), device="cpu")
    digest = keep_checkpoint(model.state_dict(), tmp_path)
    setting = replace(SETTING, awp=None, weights=digest, measures=SHARP.measures)
    (record,) = train((Run(setting, 0, 0),), device="cpu", weights=tmp_path)
    assert num_trainings == []
    assert record.status == "done"
    assert record.accuracy is not None
    assert record.accuracy["test"] == pytest.approx(evaluate(model, data, split.test)[1])
    assert Setting.from_content(record.setting) == setting
    other = {name: tensor + 1 for name, tensor in model.state_dict().items()}
    assert keep_checkpoint(other, tmp_path) != digest == keep_checkpoint(dict(model.state_dict()), tmp_path)


def test_weights_that_are_not_there_are_asked_for() -> None:
    run = Run(replace(SETTING, weights="0123456789abcdef"), 0, 0)
    with pytest.raises(PlanError, match="audit the checkpoint again"):
        kept_weights.load_checkpoint([run], [], torch.empty(0), [], None)  # type: ignore[arg-type]


def test_settings_without_weights_have_the_keys_that_they_had() -> None:
    assert "weights" not in SETTING.content
    assert Run(SETTING, 0, 0).key != Run(replace(SETTING, weights="0123"), 0, 0).key
