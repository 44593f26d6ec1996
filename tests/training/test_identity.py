import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.base import rng
from wtawp.graphs import load, stratified
from wtawp.models import MLP
from wtawp.training import identity
from wtawp.training.identity import describe_function, describe_training


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


def description(**changed: Any) -> dict[str, str]:
    data = load("wine")
    given = {
        "models": [MLP(13, 3, generator=rng("init", i)) for i in range(2)],
        "data": data,
        "splits": [stratified(data.y, seed=0)] * 2,
        "seeds": [0, 1],
        "options": {"epochs": 3},
        "functions": {"loss": None},
    }
    return describe_training(**{**given, **changed})


def test_a_description_repeats_and_names_what_changes() -> None:
    plain, data = description(), load("wine")
    assert description() == plain
    frozen = [MLP(13, 3, generator=rng("init", i)) for i in range(2)]
    frozen[0].lins[0].weight.requires_grad_(False)
    edges = Data(x=data.x, y=data.y, edge_index=data.edge_index[:, :-1])
    sparse = Data(x=data.x.to_sparse_coo(), y=data.y, edge_index=data.edge_index)
    for changed, names in (
        ({"seeds": [0, 2]}, {"seeds"}),
        ({"models": [MLP(13, 3, generator=rng("init", 7))] * 2}, {"initial weights"}),
        ({"models": [MLP(13, 3, hidden=(5,), generator=rng("init", 7))]}, {"initial weights", "parameters", "model"}),
        ({"models": frozen}, {"parameters"}),
        ({"data": edges}, {"data"}),
        ({"data": sparse}, {"data"}),
        ({"splits": [stratified(data.y, seed=1)] * 2}, {"splits"}),
        ({"options": {"epochs": 4}}, {"epochs"}),
        ({"functions": {"loss": plus}}, {"loss"}),
    ):
        other = description(**changed)
        assert {name for name in plain if plain[name] != other[name]} == names


def test_very_large_tensors_are_described_by_some_of_their_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn((1 << 20) + 5, 4, generator=rng("x"))
    monkeypatch.setattr(identity, "MAX_ENTRIES", 1 << 21)
    digest = identity._digest_of_entries(x)
    assert identity._digest_of_entries(x.clone()) == digest
    assert identity._digest_of_entries(x + 1) != digest
