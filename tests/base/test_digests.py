"""Digests of tensors, plain values and functions, by which another process recognises them."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from wtawp.base import describe_function, digest_of


def weighted(weight: float) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda output, target: weight * (output - target).square().mean()


def recursive() -> Callable[[int], int]:
    def factorial(n: int) -> int:
        return 1 if n == 0 else n * factorial(n - 1)

    return factorial


class Weighted:
    def __init__(self, weight: float) -> None:
        self.weight = weight

    def __call__(self, output: Tensor, target: Tensor) -> Tensor:
        return self.weight * (output - target).mean()

    def method(self, output: Tensor) -> Tensor:
        return output


def plus(x: int, *, y: int = 1) -> int:
    return x + y


def test_equal_functions_have_equal_descriptions_and_others_have_not() -> None:
    def make() -> list[object]:
        return [
            None, weighted(1.0), weighted(2.0), Weighted(1.0), Weighted(2.0), Weighted(1.0).method, plus,
            functools.partial(plus, y=2), functools.partial(plus, y=3), functools.partial(plus, 2), recursive(),
            nn.BCEWithLogitsLoss(), nn.BCEWithLogitsLoss(pos_weight=torch.tensor([2.0])), nn.MSELoss(),
            lambda o, t: (o - t).abs().mean(), lambda o, t: (o + t).abs().mean(), torch.nn.functional.mse_loss,
            torch.dot, functools.partial(weighted(1.0), target=torch.ones(2)), lambda: recursive()(3),
        ]  # fmt: skip

    one, again = ([describe_function(f) for f in make()] for _ in range(2))
    assert one == again
    assert len(set(one)) == len(one)
    assert not any(" at 0x" in text for text in one)


def test_a_name_that_is_not_assigned_yet_is_no_obstacle() -> None:
    def early() -> int:
        return later

    text = describe_function(early)
    later = 3
    assert early() == 3
    assert describe_function(early) != text


def test_digests_tell_values_apart() -> None:
    values: list[Any] = [
        1, 1.0, "1", None, True, [1], [1, 1], [[1], 1], {"a": 1}, {"b": 1}, torch.ones(2), torch.ones(2, 1),
        torch.ones(2, dtype=torch.float64), torch.zeros(2), torch.ones((), dtype=torch.bfloat16),
        torch.ones(2, dtype=torch.complex64), torch.empty(0), ["a", "b"], ["ab"], torch.tensor([True, False]),
    ]  # fmt: skip
    digests = [digest_of(value) for value in values]
    assert len(set(digests)) == len(values)
    assert digest_of(torch.arange(6).reshape(2, 3).T) == digest_of(torch.arange(6).reshape(2, 3).T.contiguous())
    with pytest.raises(TypeError, match="there is no digest of object"):
        digest_of([object()])
