import numpy as np
import pytest
from sklearn.model_selection import train_test_split

from wtawp.graphs.stratified_draw import draw_stratified


def same_draws(labels: np.ndarray, share: float, seed: int) -> bool:
    """Whether both libraries draw the same parts and leave the random state alike; False if both refuse."""
    ours, theirs = np.random.RandomState(seed), np.random.RandomState(seed)
    try:
        expected = train_test_split(np.arange(len(labels)), train_size=share, stratify=labels, random_state=theirs)
    except ValueError:
        with pytest.raises(ValueError, match="every class must have 2 items or more and every part an item of each"):
            draw_stratified(labels, share, ours)
        return False
    for drawn, wanted in zip(draw_stratified(labels, share, ours), expected, strict=True):
        assert drawn.tolist() == wanted.tolist()
    assert ours.randint(2**31) == theirs.randint(2**31)
    return True


def test_draws_are_those_of_scikit_learn_number_for_number() -> None:
    sizes = np.random.default_rng(0)
    drawn = 0
    for seed in range(200):
        num_classes = int(sizes.integers(1, 8))
        labels = sizes.permutation(np.repeat(np.arange(num_classes), sizes.integers(1, 40, num_classes)))
        drawn += same_draws(labels, float(sizes.choice([0.1, 0.2, 0.5, 0.8, sizes.random()])), seed)
    assert 100 < drawn < 200  # the others are refused by both


def test_a_share_of_the_rest_is_drawn_likewise() -> None:
    labels = np.repeat(np.arange(5), [30, 41, 17, 12, 60])
    for seed in range(20):
        ours, theirs = np.random.RandomState(seed), np.random.RandomState(seed)
        expected = train_test_split(
            np.arange(160), train_size=0.19, test_size=0.8, stratify=labels, random_state=theirs
        )
        drawn = draw_stratified(labels, 0.19, ours, 0.8)
        assert [part.tolist() for part in drawn] == [part.tolist() for part in expected]
        assert [len(part) for part in drawn] == [30, 128]
        assert ours.randint(2**31) == theirs.randint(2**31)


def test_ties_between_classes_of_equal_size_are_drawn_likewise() -> None:
    for seed in range(20):
        assert same_draws(np.arange(70) % 7, 0.15, seed)  # 1.5 items of each class
