"""Which nodes train, which validate, which test."""

from dataclasses import dataclass

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from torch import Tensor

from wtawp.base import DataError, rng


@dataclass(frozen=True)
class Split:
    """Disjoint node indices, each sorted."""

    train: Tensor  # [n_train]
    val: Tensor  # [n_val]
    test: Tensor  # [n_test]


def stratified(y: Tensor, *, seed: int, train: float = 0.1, val: float = 0.1) -> Split:
    """Shares of every class for training and validation, the rest for testing: 10 / 10 / 80 as in the paper.

    Drawn in the released code's two steps: labelled against test, then training against validation.

    >>> split = stratified(torch.tensor([0] * 50 + [1] * 50), seed=0)
    >>> len(split.train), len(split.val), len(split.test)
    (10, 10, 80)
    """
    if not (train > 0 and val > 0 and train + val < 1):
        raise DataError(f"train and val must be positive shares that leave some test nodes, got {train} and {val}")
    counts = torch.bincount(y)
    scarce = {c: int(k) for c, k in enumerate(counts) if k * min(train, val) < 0.5 or k < 3}
    if scarce:
        raise DataError(
            f"shares of {train} and {val} leave no node of some classes (class: size): {scarce}; raise them"
        )
    nodes, labels = np.arange(len(y)), y.cpu().numpy()
    state = np.random.RandomState(int(torch.randint(2**31, (1,), generator=rng("split", seed))))
    labelled, test = train_test_split(nodes, train_size=train + val, stratify=labels, random_state=state)
    fit, held = train_test_split(
        labelled, train_size=train / (train + val), stratify=labels[labelled], random_state=state
    )
    return Split(*(torch.from_numpy(np.sort(part)).to(y.device) for part in (fit, held, test)))
