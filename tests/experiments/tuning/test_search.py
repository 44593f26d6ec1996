import math
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from wtawp.core import AwpConfig
from wtawp.experiments.spec import Cell, Plan, Setting
from wtawp.experiments.tuning.dimensions import Range
from wtawp.experiments.tuning.search import Comparison, TimeBudget, run_search, run_trial
from wtawp.experiments.tuning.space import Space
from wtawp.experiments.tuning.study import Study, open_study

pytest.importorskip("optuna", reason="SEARCHES NOT CHECKED: pip install 'wtawp[tune]'")
BASE = Setting(dataset="wine", epochs=10)
SHARED = {"lr": Range(0.001, 0.1, is_log=True)}
SPACES = {
    "plain": Space("plain", SHARED, {"weight_decay": 0.0}, {"lr": 0.01}),
    "WT-AWP": Space(
        "WT-AWP", {**SHARED, "lam": Range(0.0, 1.0)}, {"weight_decay": 0.0, "rho": 1.0}, {"lr": 0.01, "lam": 0.5}
    ),
}


class FakeTrainer:
    """Trains nothing: all settings are equally good, and every training takes some seconds of a made-up clock."""

    def __init__(self, value: float, seconds: float = 0.0) -> None:
        self.value, self.seconds, self.calls = value, seconds, []
        self.now = 1000.0

    def accuracy(self, setting: Setting, first: int, last: int) -> float:
        self.calls.append((setting, first, last))
        self.now += self.seconds * (last - first)
        return self.value + 0.01 * first


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    with open_study(tmp_path / "s.sqlite", {}, SPACES, seed=0) as opened:
        yield opened


def plan_of(size: int) -> Plan:
    return Plan("p", "", tuple(Cell(str(i), "", Setting(dataset="wine", epochs=10 + i), size, 1) for i in range(4)))


def search(study: Study, trainer: FakeTrainer, *, trials: int | None, end: float = math.inf, most: int = 20) -> int:
    comparison = Comparison(plan_of, most)
    budget = TimeBudget(1000.0, end)
    return run_search(study, trainer, BASE, comparison, max_trials=trials, budget=budget, progress=lambda *_: None)


def test_both_arms_have_equally_many_trials_and_earlier_ones_count(study: Study) -> None:
    trainer = FakeTrainer(0.5)
    assert search(study, trainer, trials=2) == 20
    assert [len(study.trials(arm)) for arm in SPACES] == [2, 2]
    assert [setting.awp for setting, *_ in trainer.calls[:2]] == [
        None,
        None,
    ]  # two of the three stages of the first plain trial
    assert trainer.calls[3][0].awp == AwpConfig(rho=1.0, lam=0.5)
    run_trial(study, trainer, BASE, "plain")  # as if the process was killed between the two arms
    search(study, trainer, trials=4)
    assert [len(study.trials(arm)) for arm in SPACES] == [4, 4]
    search(study, trainer, trials=4)
    assert [len(study.trials(arm)) for arm in SPACES] == [4, 4]


def test_the_accuracy_of_a_trial_is_the_mean_over_all_stages(study: Study) -> None:
    trial = run_trial(study, FakeTrainer(0.5), BASE, "plain")
    assert trial.first_accuracy == 0.5
    assert trial.accuracy == pytest.approx((2 * 0.5 + 2 * 0.52 + 4 * 0.54) / 8)


def test_a_hopeless_trial_ends_after_its_first_stage(study: Study) -> None:
    good = FakeTrainer(0.9)
    for _ in range(5):
        run_trial(study, good, BASE, "plain")
    bad = FakeTrainer(0.1)
    assert run_trial(study, bad, BASE, "plain").accuracy is None
    assert [call[1:] for call in bad.calls] == [(0, 2)]
    assert study.best("plain").accuracy > 0.9


def test_the_search_ends_early_enough_for_the_comparison(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = FakeTrainer(0.5, seconds=2.0)
    monkeypatch.setattr(time, "monotonic", lambda: trainer.now)
    size = search(study, trainer, trials=None, end=1150.0, most=5)
    left = 1150.0 - trainer.now
    # A plain training of 10 epochs takes 2 s; a split of the plan has 4 of them, of 10 to 13 epochs.
    seconds = 2.0 * (10 + 11 + 12 + 13) / 10 * 5
    assert size == 5
    assert seconds < left < 1.15 * seconds + 32  # less than a pair of trials is left unused
    assert len(study.trials("plain")) == len(study.trials("WT-AWP")) == 3


def test_a_comparison_that_would_take_most_of_the_time_is_made_smaller(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = FakeTrainer(0.5, seconds=1.0)
    monkeypatch.setattr(time, "monotonic", lambda: trainer.now)
    assert search(study, trainer, trials=None, end=1100.0) == 7  # for which there are 40 s
    assert trainer.now < 1070.0


def test_without_time_each_arm_has_one_trial_and_two_splits_are_compared(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = FakeTrainer(0.5, seconds=100.0)
    monkeypatch.setattr(time, "monotonic", lambda: trainer.now)
    assert search(study, trainer, trials=None, end=1001.0) == 2
    assert [len(study.trials(arm)) for arm in SPACES] == [1, 1]


def test_a_budget_without_a_limit_has_no_share() -> None:
    assert TimeBudget.of_minutes(None, start=5.0).share == 0.0
    assert TimeBudget.of_minutes(2.0, start=5.0).total == 120.0


def test_a_slow_start_leaves_more_time_for_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 110.0)
    assert TimeBudget(100.0, 400.0).without_closing() == TimeBudget(100.0, 385.0)
    assert TimeBudget(100.0, 105.0).without_closing().share == 1.0
    assert TimeBudget.of_minutes(None, start=100.0).without_closing().end == math.inf
