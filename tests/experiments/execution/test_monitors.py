import pytest
from torch import nn

from wtawp.experiments.execution.monitors import CURVES, monitors_of, observer
from wtawp.experiments.spec import Setting
from wtawp.graphs import load, stratified


def test_a_setting_gets_one_monitor_of_each_kind_for_each_model() -> None:
    data = load("wine")
    splits = [stratified(data.y, seed=seed) for seed in (0, 1)]
    both = monitors_of(Setting(dataset="wine", keep=("saturation", "sharpness", "scores")), data, splits, "cpu")
    assert [len(of_a_kind) for of_a_kind in both] == [2, 2]
    assert len({type(of_a_kind[0]) for of_a_kind in both}) == 2
    assert monitors_of(Setting(dataset="wine", keep=("history",)), data, splits, "cpu") == []
    assert {"history", "saturation", "sharpness"} == CURVES


def test_every_monitor_sees_its_own_model() -> None:
    calls: list[tuple[int, nn.Module, int]] = []

    class Recorder:
        def __init__(self, number: int) -> None:
            self.number, self.history = number, dict[str, list[float]]()

        def __call__(self, model: nn.Module, epoch: int) -> None:
            calls.append((self.number, model, epoch))

    models: list[nn.Module] = [nn.Identity(), nn.Linear(1, 1)]
    observe = observer([[Recorder(0), Recorder(1)]])
    assert observe is not None
    observe(models, 7)
    assert calls == [(0, models[0], 7), (1, models[1], 7)]
    assert observer([]) is None
    with pytest.raises(ValueError, match="argument"):
        observe(models[:1], 8)
