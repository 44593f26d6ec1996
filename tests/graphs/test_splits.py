import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.model_selection import train_test_split
from torch_geometric.data import Data

from wtawp.base import DataError
from wtawp.graphs import (
    Split,
    check_split,
    k_fold,
    load,
    num_mask_splits,
    public,
    released_split,
    split_from_masks,
    stratified,
)


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


@pytest.mark.parametrize(
    "convert",
    [
        torch.Tensor.bool,
        torch.Tensor.float,
        torch.Tensor.int,
        lambda y: y.to(torch.int8),
        lambda y: y.to(torch.bfloat16),
        torch.Tensor.numpy,
        lambda y: y.numpy() > 0,
        lambda y: y.numpy().astype(np.uint32),
        lambda y: y.numpy().astype(np.float64),
        torch.Tensor.tolist,
        lambda y: tuple(y.tolist()),
        lambda y: (y > 0).tolist(),
    ],
)
def test_labels_of_every_type_and_kind_of_list_give_the_same_split(convert: Callable[[torch.Tensor], Any]) -> None:
    y = torch.tensor([0, 1, 1] * 20)
    expected = stratified(y, seed=0)
    ours = stratified(convert(y), seed=0)
    assert all(torch.equal(getattr(ours, part), getattr(expected, part)) for part in ("train", "val", "test"))
    assert check_split(ours, convert(y)) is ours
    assert torch.equal(k_fold(convert(y), folds=4, seed=0)[2].val, k_fold(y, folds=4, seed=0)[2].val)
    assert torch.equal(released_split(convert(y), seed=0).test, released_split(y, seed=0).test)


def test_unknown_labels_may_be_floats() -> None:
    assert len(stratified([0.0, 1.0, -1.0] * 40, seed=0).train) == 8


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (torch.tensor([0.0, 1.0, 0.5] * 20), "got torch.float32 with 0.5 at position 2, which is not a whole number"),
        (torch.tensor([0.0, float("nan")] * 20), "with nan at position 1"),
        (np.array([0.0, np.inf] * 20), "got torch.float64 with inf at position 1"),
        (torch.zeros(60, 1), r"got shape \[60, 1\]; take the column, y\[:, 0\], or the class of each row"),
        (torch.tensor(1), r"got shape \[\]"),
        (torch.zeros(6, dtype=torch.complex64), "got torch.complex64; number the classes from 0"),
        (["red", "blue"] * 20, "got list of <U4; number the classes from 0"),
        ([[0, 1], [1]], "got a list that is no array"),
        (None, "got NoneType of object"),
    ],
)
def test_what_is_no_list_of_class_numbers_is_refused(y: Any, message: str) -> None:
    for draw in (lambda: stratified(y, seed=0), lambda: k_fold(y, folds=3, seed=0), lambda: released_split(y, seed=0)):
        with pytest.raises(DataError, match=f"y must be a list of class numbers, .*{message}"):
            draw()


def test_a_graph_in_place_of_labels_is_refused_with_what_to_pass() -> None:
    graph = Data(x=torch.ones(6, 1), y=torch.zeros(6, dtype=torch.long))
    for draw in (stratified, released_split):
        with pytest.raises(DataError, match=r"got a Data; pass its labels, data\.y$"):
            draw(graph, seed=0)
    with pytest.raises(DataError, match="pass its labels"):
        k_fold(graph, folds=3, seed=0)  # type: ignore[arg-type]


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


def masked(train: list[int], val: list[int], test: list[int], **other: torch.Tensor) -> Data:
    """Six nodes with these masks."""
    masks = {}
    for name, nodes in zip(("train_mask", "val_mask", "test_mask"), (train, val, test), strict=True):
        masks[name] = torch.zeros(6, dtype=torch.bool)
        masks[name][nodes] = True
    return Data(**{"x": torch.ones(6, 1), "y": torch.tensor([0, 1, 0, 1, 0, -1]), **masks, **other})


def test_masks_are_read_as_a_split() -> None:
    split = split_from_masks(masked([0, 2], [1], [3, 4]))
    assert [part.tolist() for part in (split.train, split.val, split.test)] == [[0, 2], [1], [3, 4]]
    several = masked([], [], [])
    for i, name in enumerate(("train_mask", "val_mask", "test_mask")):
        several[name] = torch.stack([torch.arange(6) == i, torch.arange(6) == (i + 1) % 3], 1)
    assert split_from_masks(several, 1).train.tolist() == [1]
    assert split_from_masks(several, 0).test.tolist() == [2]
    float_targets = masked([0], [1], [2], y=torch.full((6, 2), -1.0))  # -1 is a number here, and not a missing label
    assert split_from_masks(float_targets).test.tolist() == [2]


def test_masks_that_are_no_split_are_refused_with_their_sizes() -> None:
    several = {name: torch.eye(6, 3, dtype=torch.bool) for name in ("train_mask", "val_mask", "test_mask")}
    for data, index, message in (
        (Data(x=torch.ones(6, 1)), None, "the graph has no train_mask, val_mask, test_mask: .* or pass a split"),
        (masked([0, 1], [], [3]), None, "a node or more; they hold train_mask 2, val_mask 0, test_mask 1"),
        (masked([0, 1], [1, 2], [2, 3]), None, "but 2 nodes occur .* hold train_mask 2, val_mask 2, test_mask 2"),
        (masked([0, 1], [2], [5]), None, r"1 nodes of the masks have no label \(-1\)"),
        (masked([0], [1], [2], val_mask=torch.arange(6)), None, "val_mask must be a boolean .* got torch.int64"),
        (masked([0], [1], [2], val_mask=torch.ones(5, dtype=torch.bool)), None, r"6 nodes, got torch.bool .*\[5\]"),
        (masked([0], [1], [2]), 0, "the masks describe one split, so split_index=0 has no meaning; leave it out"),
        (masked([0], [1], [2], **several), True, "split_index must be the number of a split, such as 0, got True"),
        (masked([0], [1], [2], **several), None, r"describes 3 splits, .* split_index= of 0 to 2 .*got None"),
        (
            masked([0], [1], [2], **several),
            3,
            r"0 to 2 \(in a command: --split-seed, .*\), got 3",
        ),
        (
            masked([0], [1], [2], train_mask=several["train_mask"], val_mask=torch.eye(6, 2, dtype=torch.bool)),
            0,
            "column for each split, .* columns: train_mask 3, val_mask 2",
        ),
        (masked([0], [1], [2], test_mask=None), None, "has no test_mask, only train_mask, val_mask: .* --split random"),
        (masked([0], [1], [2], test_mask=[True] * 6), None, "got list; write data.test_mask = torch.as_tensor"),
    ):
        with pytest.raises(DataError, match=message):
            split_from_masks(data, index)
    with pytest.raises(DataError, match="describes 3 splits"):
        public(masked([0], [1], [2], **several))


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.float32])
def test_a_mask_of_numbers_is_refused_with_what_to_write(dtype: torch.dtype) -> None:
    data = masked([0, 2], [1], [3, 4])
    data.train_mask = data.train_mask.to(dtype)
    with pytest.raises(DataError, match=r"write data\.train_mask = data\.train_mask\.bool\(\)$") as error:
        split_from_masks(data)
    exec(str(error.value).partition("write ")[2], {"data": data})
    assert split_from_masks(data).train.tolist() == [0, 2]


def test_a_mask_of_indices_is_refused_with_what_to_write() -> None:
    data = masked([], [1], [3, 4])
    data.train_mask = torch.tensor([2, 0], dtype=torch.int32)
    with pytest.raises(DataError, match=r"indices of nodes, pass a split, Split\(train, val, test\)") as error:
        split_from_masks(data)
    exec(str(error.value).partition("or write ")[2], {"data": data, "torch": torch})
    assert split_from_masks(data).train.tolist() == [0, 2]


def test_a_mask_without_columns_belongs_to_every_split() -> None:
    train = torch.stack([torch.arange(6) == i for i in range(3)], 1)  # [6, 3], as in WikiCS
    data = masked([], [], [4, 5], train_mask=train, val_mask=train.roll(1, 1), y=torch.zeros(6, dtype=torch.long))
    assert num_mask_splits(data) == 3
    for i in range(3):
        split = split_from_masks(data, i)
        assert [part.tolist() for part in (split.train, split.val, split.test)] == [[i], [(i - 1) % 3], [4, 5]]
    with pytest.raises(DataError, match="train_mask describes 3 splits"):
        split_from_masks(data)
    data.test_mask = data.test_mask[:, None]
    assert split_from_masks(data, 2).test.tolist() == [4, 5]


def test_masks_of_one_column_are_one_split() -> None:
    data = masked([0, 2], [1], [3, 4])
    for name in ("train_mask", "val_mask", "test_mask"):
        data[name] = data[name][:, None]
    assert num_mask_splits(data) is None
    assert split_from_masks(data).train.tolist() == split_from_masks(data, 0).train.tolist() == [0, 2]
    assert public(masked([0, 1], [2], [3, 4], test_mask=data.test_mask)).test.tolist() == [3, 4]
    with pytest.raises(DataError, match="split_index=1 has no meaning"):
        split_from_masks(data, 1)


def test_row_2_a_split_accepts_masks() -> None:
    split = Split(*(torch.arange(6) % 3 == i for i in range(3)))
    assert [part.tolist() for part in (split.train, split.val, split.test)] == [[0, 3], [1, 4], [2, 5]]
    with pytest.raises(
        DataError, match=r"mask of the val part must be a list of booleans, got \[2, 2\]; take one column"
    ):
        Split(torch.tensor([0]), torch.ones(2, 2, dtype=torch.bool), torch.tensor([1]))


def split_as_released(labels: np.ndarray, seed: int) -> list[list[int]]:
    """What the released code does, with scikit-learn and numpy's global generator."""
    state = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    try:
        train, val = 1 - 0.1 - 0.8, 0.1
        outer, test = train_test_split(
            np.arange(len(labels)), train_size=train + val, test_size=0.8, stratify=labels, random_state=None
        )
        inner = train_test_split(
            outer, train_size=train / (train + val), test_size=val / (train + val), stratify=labels[outer]
        )
    finally:
        np.random.set_state(state)  # noqa: NPY002
    return [sorted(part.tolist()) for part in (*inner, test)]


@pytest.mark.parametrize(
    ("size", "parts"), [(2485, (247, 249, 1988)), (2110, (210, 211, 1688)), (1222, (121, 123, 978))]
)
def test_released_splits_are_those_of_the_released_code(size: int, parts: tuple[int, ...]) -> None:
    labels = np.sort(np.arange(size) % 7 % 5)
    for seed in range(3):
        split = released_split(torch.from_numpy(labels), seed=seed)
        ours = [split.train, split.val, split.test]
        assert [part.tolist() for part in ours] == split_as_released(labels, seed)
        assert tuple(map(len, ours)) == parts


def test_released_splits_need_labels_of_all_nodes_and_large_classes() -> None:
    with pytest.raises(DataError, match="and 1 have none"):
        released_split(torch.tensor([0, 1] * 50 + [-1]), seed=0)
    with pytest.raises(DataError, match="the classes are too small"):
        released_split(torch.tensor([0, 0, 1, 1]), seed=0)
