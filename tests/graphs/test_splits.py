import pytest
import torch

from wtawp.base import DataError
from wtawp.graphs import load, stratified


@pytest.mark.parametrize("name", ["citation", "digits", "toy-linear"])
def test_a_split_is_disjoint_complete_and_keeps_class_shares(name: str) -> None:
    y = load(name).y
    split = stratified(y, seed=0)
    together = torch.cat([split.train, split.val, split.test])
    assert torch.equal(together.sort().values, torch.arange(len(y)))
    shares = torch.bincount(y) / len(y)
    for part, size in ((split.train, 0.1), (split.val, 0.1), (split.test, 0.8)):
        assert len(part) == pytest.approx(size * len(y), abs=1)
        counts = torch.bincount(y[part], minlength=len(shares))
        assert (counts > 0).all()
        assert ((counts - shares * len(part)).abs() <= 1.5).all()


def test_seeds_repeat_and_differ() -> None:
    y = load("digits").y
    assert torch.equal(stratified(y, seed=1).train, stratified(y, seed=1).train)
    assert not torch.equal(stratified(y, seed=1).train, stratified(y, seed=2).train)


def test_bad_splits_are_refused() -> None:
    with pytest.raises(DataError, match=r"leave no node of some classes \(class: size\): \{1: 2\}; raise them"):
        stratified(torch.tensor([0] * 50 + [1] * 2), seed=0)
    with pytest.raises(DataError, match="leave no node"):
        stratified(load("karate").y, seed=0)
    for train, val in ((0.0, 0.1), (0.6, 0.4), (-0.1, 0.5)):
        with pytest.raises(DataError, match="positive shares that leave some test nodes"):
            stratified(torch.tensor([0, 1] * 30), seed=0, train=train, val=val)
