"""How a setting divides the nodes, or graphs, of its data into training, validation and test parts."""

from dataclasses import dataclass
from typing import Literal, get_args

SplitKind = Literal["random", "masks", "k-fold", "released"]
RANDOM: SplitKind = "random"


@dataclass(frozen=True, kw_only=True)
class SplitRule:
    """How data are divided. The number of a split chooses a seed, a column of the masks, or a fold.

    Attributes:
        kind: "random" draws stratified parts; "masks" takes train_mask, val_mask and test_mask of the graph; "k-fold"
            draws the folds of a cross-validation; "released" draws the parts of the paper's released code.
        train: With "random", the share for training; by default the paper's, 0.1 of nodes and 0.8 of graphs.
        val: With "random", the share for validation; by default 0.1. The rest is for testing.
        folds: With "k-fold", the number of folds, at least 3: one is for testing, one for validation.

    Raises:
        ValueError: If a value is out of its range, or belongs to another kind.

    Example:
        >>> print(SplitRule(), SplitRule(kind="k-fold", folds=5), sep="; ")
        random; 5-fold
    """

    kind: SplitKind = RANDOM
    train: float | None = None
    val: float | None = None
    folds: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(SplitKind):
            raise ValueError(f"a split is one of {', '.join(get_args(SplitKind))}, got {self.kind!r}")
        for name in ("train", "val"):
            share = getattr(self, name)
            if share is not None and self.kind in ("masks", "k-fold", "released"):
                raise ValueError(f"the share {name}={share} is for random splits, and this one is by {self.kind}")
            if share is not None and not (type(share) in (int, float) and 0 < share < 1):
                raise ValueError(f"the share {name} must lie between 0 and 1, got {share!r}")
        if (self.train or 0) + (self.val or 0) >= 1:
            raise ValueError(f"train and val must leave a share for testing, got {self.train} and {self.val}")
        if (self.folds is not None) != (self.kind == "k-fold"):
            raise ValueError(f"a k-fold split needs its number of folds, and no other has any, got {self.folds!r}")
        if self.folds is not None and (type(self.folds) is not int or self.folds < 3):
            raise ValueError(f"a k-fold split needs a whole number of folds >= 3, got {self.folds!r}")

    @property
    def is_random(self) -> bool:
        """Whether parts are drawn, so that there are as many splits as one likes, all with parts of the same sizes."""
        return self.kind not in ("masks", "k-fold")

    def __str__(self) -> str:
        shares = {name: getattr(self, name) for name in ("train", "val")}
        given = ", ".join(f"{name} {share:g}" for name, share in shares.items() if share is not None)
        return f"{self.folds}-fold" if self.folds else f"{self.kind}{f' ({given})' * bool(given)}"
