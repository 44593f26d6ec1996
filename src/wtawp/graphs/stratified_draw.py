"""Divide labelled items at random into two parts with equal shares of the classes.

This draws what `train_test_split` of scikit-learn draws, number for number, as a test checks. It is written out here
for two reasons. Stored runs are known by the number of their split, which must stay the same when scikit-learn changes.
And an import of scikit-learn takes longer than a comparison of models on a small graph.
"""

import math

import numpy as np


def draw_stratified(
    labels: np.ndarray, share: float, state: np.random.RandomState, other: float | None = None
) -> tuple[np.ndarray, np.ndarray]:  # [n] -> [n_first], [n_second]
    """Draw a part with a share of each class; the rest, or a share of it, is the other part.

    Args:
        labels: The class of each item.
        share: The share of the first part, between 0 and 1; its size is rounded down.
        state: The source of random numbers, which advances as it would in scikit-learn.
        other: The share of the second part; its size is rounded up. None takes all that is left.

    Returns:
        The positions of the items of the first part and of the second one, each in random order.

    Raises:
        ValueError: If a class has one item, or a part has fewer items than there are classes.

    Example:
        >>> first, second = draw_stratified(np.array([0] * 8 + [1] * 4), 0.25, np.random.RandomState(0))
        >>> sorted(first.tolist()), len(second)
        ([2, 6, 11], 9)
    """
    _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    num_first = math.floor(share * len(labels))
    num_second = len(labels) - num_first if other is None else math.ceil(other * len(labels))
    if counts.min() < 2 or min(num_first, num_second) < len(counts):
        raise ValueError(
            f"every class must have 2 items or more and every part an item of each class, got classes of "
            f"{counts.tolist()} items for parts of {num_first} and {num_second}"
        )
    first_counts = _proportional_counts(counts, num_first, state)
    second_counts = _proportional_counts(counts - first_counts, num_second, state)
    members = np.split(np.argsort(classes, kind="stable"), np.cumsum(counts)[:-1])
    shuffled = [items[state.permutation(len(items))] for items in members]
    first = np.concatenate([items[:count] for items, count in zip(shuffled, first_counts, strict=True)])
    both = zip(shuffled, first_counts, second_counts, strict=True)
    second = np.concatenate([items[begin : begin + count] for items, begin, count in both])
    return state.permutation(first), state.permutation(second)


def _proportional_counts(counts: np.ndarray, total: int, state: np.random.RandomState) -> np.ndarray:  # [c] -> [c]
    """How many items of each class make up a total: the largest remainders are rounded up, and ties drawn."""
    exact = counts / counts.sum() * total
    rounded = np.floor(exact)
    remainders, missing = exact - rounded, int(total - rounded.sum())
    for remainder in np.unique(remainders)[::-1]:
        if missing == 0:
            break
        (tied,) = np.where(remainders == remainder)
        chosen = state.choice(tied, size=min(len(tied), missing), replace=False)
        rounded[chosen] += 1
        missing -= len(chosen)
    whole: np.ndarray = rounded.astype(int)
    return whole
