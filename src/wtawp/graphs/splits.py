"""Splits of the nodes (or graphs) into training, validation and test parts. Unlabelled ones (-1) are in no part."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.data import BaseData

from wtawp.base import DataError, checked_seed, rng
from wtawp.graphs.stratified_draw import draw_stratified

MASKS = ("train_mask", "val_mask", "test_mask")
Labels = Tensor | np.ndarray | Sequence[int]  # booleans and whole numbers as floats are converted


@dataclass(frozen=True)
class Split:
    """Disjoint parts of the nodes, or of the graphs of a collection, as sorted indices.

    A boolean mask, [n], may be passed for each part; it becomes the indices of what it holds.

    Attributes:
        train: Whose labels are trained on, [n_train].
        val: On which the epoch is selected, [n_val].
        test: On which the result is measured, [n_test].

    Raises:
        DataError: If a mask has more than one dimension.

    Example:
        >>> split = Split(torch.tensor([True, False, True]), torch.tensor([False, True, False]), torch.tensor([3]))
        >>> split
        Split(train=[2], val=[1], test=[1])
        >>> split.train
        tensor([0, 2])
    """

    train: Tensor
    val: Tensor
    test: Tensor

    def __post_init__(self) -> None:
        for name in ("train", "val", "test"):
            part = getattr(self, name)
            if isinstance(part, Tensor) and part.dtype == torch.bool:
                if part.ndim != 1:
                    raise DataError(
                        f"the mask of the {name} part must be a list of booleans, got {list(part.shape)};"
                        " take one column of it, as in train_mask[:, 0]"
                    )
                object.__setattr__(self, name, part.nonzero()[:, 0])

    def __repr__(self) -> str:
        parts = ((name, getattr(self, name)) for name in ("train", "val", "test"))
        shown = (f"{name}={list(part.shape) if isinstance(part, Tensor) else part!r}" for name, part in parts)
        return f"{type(self).__name__}({', '.join(shown)})"


def check_split(split: Split, y: Labels) -> Split:
    """Check that a split is usable.

    Args:
        split: The split.
        y: The labels that it divides, -1 for unknown ones, [n]; as `stratified` takes them.

    Returns:
        The split itself.

    Raises:
        DataError: If a part is empty, has unknown labels or indices out of range; if the parts overlap; if a class of
            `y` does not occur in the training part; or if `y` is not a list of class numbers.
    """
    y = _class_numbers(y)
    parts = {"train": split.train, "val": split.val, "test": split.test}
    for name, part in parts.items():
        if not len(part):
            raise DataError(f"the {name} part of a split must hold a node or more, got none")
        if int(part.min()) < 0 or int(part.max()) >= len(y):
            raise DataError(f"the {name} part names nodes {int(part.min())} to {int(part.max())}, there are {len(y)}")
        if (y[part] < 0).any():
            raise DataError(f"{int((y[part] < 0).sum())} nodes of the {name} part have no label; leave them out")
    everyone = torch.cat(list(parts.values()))
    twice = len(everyone) - int(torch.bincount(everyone, minlength=len(y)).count_nonzero())
    if twice:
        raise DataError(f"the parts of a split must be disjoint, but {twice} nodes occur more than once")
    unseen = sorted(set(torch.unique(y[y >= 0]).tolist()) - set(torch.unique(y[split.train]).tolist()))
    if unseen:
        raise DataError(f"no training node has class {', '.join(map(str, unseen))}; choose a larger training part")
    return split


def stratified(y: Labels, *, seed: int, train: float = 0.1, val: float = 0.1) -> Split:
    """Draw a split in which every part has the same shares of the classes.

    It is drawn in two steps, as in the released code: training and validation against test, then training against
    validation.

    Args:
        y: The labels, classes numbered from 0, -1 for unknown ones, [n]: a tensor, a NumPy array or a list of whole
            numbers, of booleans (False is class 0, True is class 1), or of floats that are whole numbers.
        seed: Number of the split; equal seeds give equal splits.
        train: Share of the labelled nodes for training; 10 % as in the paper.
        val: Share of the labelled nodes for validation, likewise. The rest is for testing.

    Returns:
        The split, on the device of `y`.

    Raises:
        DataError: If the shares are not positive or leave nothing for testing, if a class is too small for them, or if
            the labels are not a list of class numbers or skip a class.

    Example:
        >>> split = stratified(torch.tensor([0] * 50 + [1] * 50), seed=0)
        >>> len(split.train), len(split.val), len(split.test)
        (10, 10, 80)
    """
    seed = checked_seed(seed)
    if not (train > 0 and val > 0 and train + val < 1):
        raise DataError(f"train and val must be positive shares that leave some test nodes, got {train} and {val}")
    y = _class_numbers(y)
    nodes, labels, counts = _labelled(y)
    state, scarce = _state(seed), {c: int(k) for c, k in enumerate(counts) if k * min(train, val) < 0.5 or k < 3}
    if not scarce:
        try:
            labelled, test = (nodes[part] for part in draw_stratified(labels[nodes], train + val, state))
            inner = draw_stratified(labels[labelled], train / (train + val), state)
            fit, held = (labelled[part] for part in inner)
        except ValueError:  # below, it is said which classes are too small
            scarce = {c: int(k) for c, k in enumerate(counts) if k == counts.min()}
        else:
            drawn = [np.bincount(labels[part], minlength=len(counts)) for part in (fit, held)]
            scarce = {c: int(k) for c, k in enumerate(counts) if not (drawn[0][c] and drawn[1][c])}
    if scarce:
        raise DataError(
            f"shares of {train} and {val} leave none of some classes (class: size): {scarce}; raise the shares, or"
            " remove these classes"
        )
    return check_split(_split(fit, held, test, y), y)


def released_split(y: Labels, *, seed: int) -> Split:
    """Draw the split that the released code of the paper draws: 10 / 10 / 80 per cent, by its own arithmetic.

    There, the share for training is 1 - 0.1 - 0.8, which is a little less than 0.1 in floating point. So parts are
    rounded otherwise than by `stratified`, and one node may be in no part: on Cora there are 247, 249 and 1,988 nodes.

    Args:
        y: The labels, classes numbered from 0, all of them known, [n]; as `stratified` takes them.
        seed: Number of the split, by which numpy's generator is seeded there.

    Returns:
        The split.

    Raises:
        DataError: If a label is unknown or not a class number, or a class is too small.

    Example:
        >>> split = released_split(torch.arange(2485) % 7, seed=0)
        >>> len(split.train), len(split.val), len(split.test)
        (247, 249, 1988)
    """
    seed = checked_seed(seed)
    y = _class_numbers(y)
    nodes, labels, counts = _labelled(y)
    if len(nodes) < len(labels):
        raise DataError(
            f"the released code splits nodes that all have labels, and {len(labels) - len(nodes)} have none"
        )
    train, val, test = 1 - 0.1 - 0.8, 0.1, 0.8
    state = np.random.RandomState(seed)
    try:
        outer, tested = draw_stratified(labels, train + val, state, test)
        inner = draw_stratified(labels[outer], train / (train + val), state, val / (train + val))
    except ValueError as error:
        raise DataError(f"the classes are too small for parts of 10, 10 and 80 per cent: {counts.tolist()}") from error
    return check_split(_split(outer[inner[0]], outer[inner[1]], tested, y), y)


def k_fold(y: Labels, *, folds: int, seed: int) -> list[Split]:
    """Draw the splits of a stratified cross-validation.

    Each fold is the test part of one split; the next fold is its validation part, and the others its training part.

    Args:
        y: The labels, classes numbered from 0, -1 for unknown ones, [n]; as `stratified` takes them.
        folds: Number of folds, from 3 to the size of the smallest class.
        seed: Number of the draw; equal seeds give equal folds.

    Returns:
        One split a fold.

    Raises:
        DataError: If the number of folds is out of range, or the labels are not a list of class numbers, or skip a
            class.

    Example:
        >>> split = k_fold(torch.tensor([0, 1] * 50), folds=10, seed=0)[0]
        >>> len(split.train), len(split.val), len(split.test)
        (80, 10, 10)
    """
    seed = checked_seed(seed)
    from sklearn.model_selection import StratifiedKFold

    y = _class_numbers(y)
    nodes, labels, counts = _labelled(y)
    if not 3 <= folds <= int(counts.min()):
        raise DataError(
            f"folds must lie between 3 and the size of the smallest class, {int(counts.min())}, got {folds}"
        )
    cutter = StratifiedKFold(n_splits=folds, shuffle=True, random_state=_state(seed))
    parts = [nodes[part] for _, part in cutter.split(nodes, labels[nodes])]
    splits = []
    for i, test in enumerate(parts):
        held = parts[(i + 1) % folds]
        splits.append(check_split(_split(np.setdiff1d(nodes, np.concatenate([held, test])), held, test, y), y))
    return splits


def public(data: Data) -> Split:
    """The split that is published with a data set, such as Planetoid's.

    Args:
        data: A graph with the boolean masks `train_mask`, `val_mask` and `test_mask`.

    Returns:
        The split.

    Raises:
        DataError: If the graph has no such masks, or they are not a usable split.
    """
    absent = [name for name in MASKS if name not in data]
    if absent:
        raise DataError(
            f"this graph brings no {', '.join(absent)}, as the planetoid data sets do; draw a split with `stratified`"
        )
    return check_split(split_from_masks(data), data.y)


def split_from_masks(data: Data, index: int | None = None) -> Split:
    """Read the split that the masks of a graph describe. A class may be missing from its training part.

    Args:
        data: A graph with the boolean masks `train_mask`, `val_mask` and `test_mask`, each [n], or [n, k] for k splits.
            Beside masks with columns, a mask [n] belongs to every split, as the test mask of WikiCS does; [n, 1] counts
            as [n].
        index: Number of the split, counted from 0, if the masks describe several; None if they describe one.

    Returns:
        The split, on the device of the masks.

    Raises:
        DataError: If a mask is missing, is not boolean, or has not one entry for each node; if a part is empty,
            overlaps another one, or holds nodes with the label -1; or if `index` does not fit the masks.

    Example:
        >>> masks = {name: torch.arange(6) % 3 == i for i, name in enumerate(("train_mask", "val_mask", "test_mask"))}
        >>> split_from_masks(Data(x=torch.ones(6, 1), y=torch.zeros(6, dtype=torch.long), **masks)).val
        tensor([1, 4])
    """
    absent = [name for name in MASKS if getattr(data, name, None) is None]
    if absent:
        there = ", ".join(name for name in MASKS if name not in absent)
        raise DataError(
            f"the graph has no {', '.join(absent)}{f', only {there}' * bool(there)}: give it boolean masks, or pass a"
            " split, such as `stratified(data.y, seed=0)` (in a command: --split random)"
        )
    masks = [_checked_mask(data, name) for name in MASKS]
    _check_index(masks, index)
    chosen = [mask if mask.dim() == 1 else mask[:, (index or 0) if mask.shape[1] > 1 else 0] for mask in masks]
    sizes = ", ".join(f"{name} {int(mask.sum())}" for name, mask in zip(MASKS, chosen, strict=True))
    if not all(bool(mask.any()) for mask in chosen):
        raise DataError(f"each mask must hold a node or more; they hold {sizes}")
    twice = int((torch.stack(chosen).sum(0) > 1).sum())
    if twice:
        raise DataError(
            f"the parts of a split must be disjoint, but {twice} nodes occur more than once; the masks hold {sizes}"
        )
    y = data.y
    if y is not None and y.dim() == 1 and not y.is_floating_point() and len(y) == len(chosen[0]):
        unlabelled = int(((y < 0) & torch.stack(chosen).any(0).to(y.device)).sum())
        if unlabelled:
            raise DataError(f"{unlabelled} nodes of the masks have no label (-1); leave them out. They hold {sizes}")
    return Split(*chosen)


def has_masks(data: Data) -> bool:
    """Whether a graph has any of the masks that describe a split.

    Args:
        data: The graph.

    Returns:
        True if train_mask, val_mask or test_mask is there, even if the others are not, or are not usable.

    Example:
        >>> has_masks(Data(x=torch.ones(2, 1)))
        False
    """
    return any(getattr(data, name, None) is not None for name in MASKS)


def num_mask_splits(data: Data) -> int | None:
    """Count the splits that the masks of a graph describe.

    Args:
        data: A graph with a train_mask.

    Returns:
        The number of columns of the masks, [n, k], the largest if they have several; None if no mask has more than one
        column, so that they describe one split.

    Example:
        >>> num_mask_splits(Data(train_mask=torch.ones(6, 10, dtype=torch.bool)))
        10
    """
    masks = [getattr(data, name, None) for name in MASKS]
    columns = [int(mask.shape[1]) for mask in masks if isinstance(mask, Tensor) and mask.dim() == 2]
    return max((number for number in columns if number != 1), default=None)


def _checked_mask(data: Data, name: str) -> Tensor:  # -> [n] or [n, k]
    """One mask of a graph, which must be boolean and have an entry, or a row, for each node."""
    mask = data[name]
    expected = f"{name} must be a boolean tensor with one entry for each of the {data.num_nodes} nodes"
    if not isinstance(mask, Tensor):
        raise DataError(f"{expected}, got {type(mask).__name__}; write data.{name} = torch.as_tensor(data.{name})")
    if mask.dtype != torch.bool:
        advice = mask_advice(mask, name, int(data.num_nodes or 0))
        raise DataError(f"{expected}, got {mask.dtype} of shape {list(mask.shape)}{advice}")
    if mask.dim() not in (1, 2) or len(mask) != data.num_nodes:
        raise DataError(f"{expected}, got {mask.dtype} of shape {list(mask.shape)}")
    return mask


def mask_advice(mask: Tensor, name: str, num_nodes: int) -> str:
    """What to do about a mask that is not boolean: numbers that are 0 or 1 become booleans, indices become a split.

    Args:
        mask: The mask.
        name: Its name in the graph.
        num_nodes: The number of nodes of the graph.

    Returns:
        The end of a sentence.
    """
    if mask.dim() in (1, 2) and len(mask) == num_nodes and bool(((mask == 0) | (mask == 1)).all()):
        return f"; write data.{name} = data.{name}.bool()"
    return (
        f"; if it holds the indices of nodes, pass a split, Split(train, val, test), or write indices = data.{name}; "
        f"data.{name} = torch.zeros(data.num_nodes, dtype=torch.bool); data.{name}[indices.long()] = True"
    )


def _check_index(masks: Sequence[Tensor], index: int | None) -> None:
    """Refuse the number of a split that the masks do not have, and masks with different numbers of columns."""
    if isinstance(index, bool):
        raise DataError(f"split_index must be the number of a split, such as 0, got {index}")
    columns = {name: mask.shape[1] for name, mask in zip(MASKS, masks, strict=True) if mask.dim() == 2}
    several = {name: number for name, number in columns.items() if number != 1}
    if len(set(several.values())) > 1:
        numbers = ", ".join(f"{name} {number}" for name, number in several.items())
        raise DataError(f"each mask must have a column for each split, or be [n] for all splits; columns: {numbers}")
    if not several:
        if index is not None and (index != 0 or not columns):
            raise DataError(f"the masks describe one split, so split_index={index} has no meaning; leave it out")
        return
    name, number = next(iter(several.items()))
    if index is None or not 0 <= index < number:
        raise DataError(
            f"{name} describes {number} splits, so one must be chosen: split_index= of 0 to {number - 1} (in a command:"
            f" --split-seed, or up to --splits {number}; for fit_batches split=split_from_masks(data, 0)), got {index}"
        )


def _class_numbers(y: Labels) -> Tensor:  # -> [n] int64
    """Labels as int64, on their device if they are a tensor; whatever is not a list of whole numbers is refused."""
    wanted = "y must be a list of class numbers, one for each node or graph and -1 for unknown ones"
    if isinstance(y, BaseData):
        raise DataError(f"{wanted}, got a {type(y).__name__}; pass its labels, data.y")
    if isinstance(y, Tensor):
        labels = y.detach()
    else:
        try:
            array = np.asarray(y)
        except (TypeError, ValueError) as error:  # lists of different lengths
            raise DataError(f"{wanted}, got a {type(y).__name__} that is no array: {error}") from error
        if array.dtype.kind not in "biuf":
            raise DataError(f"{wanted}, got {type(y).__name__} of {array.dtype}; number the classes from 0")
        labels = torch.from_numpy(array.astype(np.float64 if array.dtype.kind == "f" else np.int64))
    if labels.is_complex():
        raise DataError(f"{wanted}, got {labels.dtype}; number the classes from 0")
    if labels.ndim != 1:
        advice = {2: "; take the column, y[:, 0], or the class of each row, y.argmax(1)"}.get(labels.ndim, "")
        raise DataError(f"{wanted}, got shape {list(labels.shape)}{advice}")
    numbers = labels.long()
    if labels.is_floating_point() and not torch.equal(numbers.to(labels.dtype), labels):
        first = int((numbers.to(labels.dtype) != labels).nonzero()[0, 0])
        raise DataError(
            f"{wanted}, got {labels.dtype} with {float(labels[first])} at position {first}, which is not a whole"
            " number; number the classes from 0"
        )
    return numbers


def _labelled(y: Tensor) -> tuple[np.ndarray, np.ndarray, Tensor]:
    """Labelled nodes, all labels, and the size of each class; no class number may be skipped."""
    if not (y >= 0).any():
        raise DataError(f"y must be a list of class numbers, some of them known, got {len(y)} unknown ones")
    labels = y.cpu().numpy()
    counts = torch.bincount(y[y >= 0])
    if (counts == 0).any():
        absent = (counts == 0).nonzero().ravel().tolist()
        raise DataError(f"labels go up to {len(counts) - 1}, but no node has {absent}; number the classes from 0")
    return np.flatnonzero(labels >= 0), labels, counts


def _state(seed: int) -> np.random.RandomState:
    """The random state of a split, as scikit-learn takes it."""
    return np.random.RandomState(int(torch.randint(2**31, (1,), generator=rng("split", seed))))


def _split(train: np.ndarray, val: np.ndarray, test: np.ndarray, y: Tensor) -> Split:
    """The split with these parts, sorted, on the device of `y`."""
    return Split(*(torch.from_numpy(np.sort(part)).to(y.device) for part in (train, val, test)))
