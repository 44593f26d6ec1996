import re

import pytest
import torch

from wtawp.base import DataError
from wtawp.graphs import Split, check_split, k_fold, load, public, stratified


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
    with pytest.raises(DataError, match=r"leave none of some classes \(class: size\): \{1: 2\}; raise the shares"):
        stratified(torch.tensor([0] * 50 + [1] * 2), seed=0)
    with pytest.raises(DataError, match=r"leave none of some classes \(class: size\): \{1: 7\}"):
        stratified(torch.tensor([0] * 53 + [1] * 7), seed=0)  # 0.7 of a node each: one is drawn for both parts
    sizes = (
        37,
        53,
        *[4] * 7,
    )  # two or three of the small ones train, and none may be left to validate
    crowded = torch.cat([torch.full((size,), c) for c, size in enumerate(sizes)])
    for seed in range(20):
        try:
            split = stratified(crowded, seed=seed, train=0.6, val=0.2)
        except DataError as error:
            assert re.search(r"\(class: size\): \{\d: 4", str(error))  # noqa: PT017, some seeds are lucky
        else:
            assert all(set(crowded[part].tolist()) == set(range(9)) for part in (split.train, split.val))
    with pytest.raises(DataError, match=r"\(class: size\): \{0: 10, 1: 10"):
        stratified(torch.arange(20).repeat(10)[:200], seed=0, train=0.05, val=0.05)
    with pytest.raises(DataError, match="leave none"):
        stratified(load("karate").y, seed=0)
    for train, val in ((0.0, 0.1), (0.6, 0.4), (-0.1, 0.5)):
        with pytest.raises(DataError, match="positive shares that leave some test nodes"):
            stratified(torch.tensor([0, 1] * 30), seed=0, train=train, val=val)


def test_nodes_of_unknown_class_are_in_no_part() -> None:
    y = torch.tensor([0, 1, -1] * 40)
    for split in (stratified(y, seed=0), *k_fold(y, folds=4, seed=0)):
        together = torch.cat([split.train, split.val, split.test])
        assert torch.equal(together.sort().values, (y >= 0).nonzero().ravel())


def test_unknown_labels_do_not_move_the_others() -> None:
    y = load("digits").y
    plain, padded = stratified(y, seed=1), stratified(torch.cat([y, torch.full((7,), -1)]), seed=1)
    assert torch.equal(plain.train, padded.train)


def test_each_fold_tests_once_and_validates_once() -> None:
    y = load("wine").y
    splits = k_fold(y, folds=5, seed=0)
    assert len(splits) == 5
    for part in ("test", "val"):
        together = torch.cat([getattr(split, part) for split in splits])
        assert torch.equal(together.sort().values, torch.arange(len(y)))
    for split, following in zip(splits, [*splits[1:], splits[0]], strict=True):
        assert torch.equal(split.val, following.test)
        assert len(split.train) + len(split.val) + len(split.test) == len(y)
        assert (torch.bincount(y[split.test]) >= torch.bincount(y) // 5).all()
    assert torch.equal(splits[0].test, k_fold(y, folds=5, seed=0)[0].test)
    assert not torch.equal(splits[0].test, k_fold(y, folds=5, seed=1)[0].test)


@pytest.mark.parametrize("folds", [0, 2, 4])
def test_folds_must_fit_the_smallest_class(folds: int) -> None:
    with pytest.raises(DataError, match="between 3 and the size of the smallest class, 3, got"):
        k_fold(torch.tensor([0] * 9 + [1] * 3), folds=folds, seed=0)


def test_the_public_split_is_that_of_the_masks() -> None:
    data = load("karate")
    with pytest.raises(DataError, match="brings no train_mask, val_mask, test_mask"):
        public(data)
    for i, name in enumerate(("train_mask", "val_mask", "test_mask")):
        data[name] = torch.arange(34) % 3 == i
    assert public(data).val.tolist() == list(range(1, 34, 3))
    data.val_mask = data.test_mask
    with pytest.raises(DataError, match="must be disjoint, but 11 nodes occur more than once"):
        public(data)


def test_a_class_that_nobody_has_is_named() -> None:
    with pytest.raises(DataError, match=r"labels go up to 2, but no node has \[1\]"):
        stratified(torch.tensor([0, 2] * 30), seed=0)
    with pytest.raises(DataError, match="some of them known"):
        k_fold(torch.tensor([-1, -1]), folds=3, seed=0)


def test_splits_that_break_a_rule_are_refused() -> None:
    y = torch.tensor([0, 1, 0, 1, -1])

    def split(train: list[int], val: list[int], test: list[int]) -> Split:
        return Split(*(torch.tensor(part, dtype=torch.long) for part in (train, val, test)))

    good = split([0, 1], [2], [3])
    assert check_split(good, y) is good
    for bad, message in (
        (split([0, 1], [], [3]), "val part of a split must hold a node or more"),
        (split([0, 1], [2], [9]), "names nodes 9 to 9, there are 5"),
        (split([0, 1], [2], [4]), "1 nodes of the test part have no label"),
        (split([0, 1], [1], [3]), "must be disjoint, but 1 nodes"),
        (split([0, 2], [1], [3]), "no training node has class 1"),
    ):
        with pytest.raises(DataError, match=message):
            check_split(bad, y)
