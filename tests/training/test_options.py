from typing import get_args

import pytest

from wtawp.experiments.spec.plan import Setting
from wtawp.training.options import FitSelectOn, Schedule, SelectOn

OPTIONS = {"epochs": 3, "lr": 0.01, "weight_decay": 0.0, "patience": None, "select_on": "either"}


@pytest.mark.parametrize("select_on", get_args(SelectOn))
def test_every_rule_is_accepted_by_training_and_by_plans(select_on: SelectOn) -> None:
    assert Schedule(**{**OPTIONS, "select_on": select_on}).select_on == select_on
    assert Setting(dataset="wine", select_on=select_on).select_on == select_on


def test_the_metric_of_one_s_own_is_selected_on_in_training_alone() -> None:
    assert Schedule(**{**OPTIONS, "select_on": "metric"}).select_on == "metric"
    assert set(get_args(FitSelectOn)) == {*get_args(SelectOn), "metric"}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"epochs": 0}, "epochs must be a whole number >= 1, got 0"),
        ({"lr": "0.1"}, r"lr must be a finite number >= 0, such as 0.01, got '0.1'"),
        ({"lr": True}, "lr must be a finite number >= 0"),
        ({"lr": float("nan")}, "lr must be a finite number >= 0"),
        ({"weight_decay": -1}, r"weight_decay must be a finite number >= 0, such as 0.01, got -1"),
        ({"patience": 0}, r"patience must be a whole number of epochs >= 1, or None to train them all, got 0"),
        ({"patience": 1.5}, "patience must be a whole number"),
        ({"patience": True}, "patience must be a whole number"),
        ({"select_on": "best"}, r"one of \('either', 'loss', 'accuracy', 'metric', 'last'\), got 'best'"),
    ],
)
def test_bad_options_say_what_was_expected(changed: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Schedule(**{**OPTIONS, **changed})
