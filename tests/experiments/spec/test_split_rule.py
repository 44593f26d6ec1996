from typing import Any

import pytest

from wtawp.experiments.spec import SplitRule


def test_a_rule_is_read_as_words() -> None:
    rules = [SplitRule(), SplitRule(train=0.5, val=0.1), *(SplitRule(kind=kind) for kind in ("masks", "released"))]
    assert [str(rule) for rule in rules] == ["random", "random (train 0.5, val 0.1)", "masks", "released"]
    assert str(SplitRule(kind="k-fold", folds=5)) == "5-fold"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"kind": "other"}, "a split is one of random, masks, k-fold, released, got 'other'"),
        ({"kind": "masks", "train": 0.1}, "train=0.1 is for random splits, and this one is by masks"),
        ({"train": 1.0}, "the share train must lie between 0 and 1, got 1.0"),
        ({"val": True}, "the share val must lie between 0 and 1"),
        ({"val": float("nan")}, "the share val must lie between 0 and 1"),
        ({"train": 0.5, "val": 0.5}, "must leave a share for testing"),
        ({"kind": "k-fold"}, "needs its number of folds"),
        ({"folds": 5}, "needs its number of folds, and no other has any"),
        ({"kind": "k-fold", "folds": 2}, "a whole number of folds >= 3, got 2"),
    ],
)
def test_values_that_contradict_each_other_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SplitRule(**values)
