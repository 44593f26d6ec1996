from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from wtawp.base import rng
from wtawp.graphs import load, stratified
from wtawp.models import MLP
from wtawp.training import identity
from wtawp.training.identity import describe_training


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
        ({"models": frozen}, {"frozen lins.0.weight of the model"}),
        ({"data": edges}, {"data"}),
        ({"data": sparse}, {"data"}),
        ({"splits": [stratified(data.y, seed=1)] * 2}, {"splits"}),
        ({"options": {"epochs": 4}}, {"epochs"}),
        ({"functions": {"loss": max}}, {"loss"}),
    ):
        other = description(**changed)
        assert {name for name in {**plain, **other} if plain.get(name) != other.get(name)} == names


def test_very_large_tensors_are_described_by_some_of_their_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn((1 << 20) + 5, 4, generator=rng("x"))
    monkeypatch.setattr(identity, "MAX_ENTRIES", 1 << 21)
    digest = identity._digest_of_entries(x)
    assert identity._digest_of_entries(x.clone()) == digest
    assert identity._digest_of_entries(x + 1) != digest
