import json

import pytest
import torch
from torch_geometric.data import Data

from wtawp.base import rng
from wtawp.certificates import Noise
from wtawp.experiments.inspection import soundness as module
from wtawp.experiments.inspection.soundness import EDGE_ATTACKS, FEATURE_ATTACKS, check_soundness
from wtawp.graphs import citation, stratified, undirected_pairs
from wtawp.models import GCN
from wtawp.training import fit

NOISE = Noise(p_add=0.01, p_del=0.4)


@pytest.fixture(scope="module")
def trained() -> tuple[Data, GCN]:
    data = citation(seed=0, num_nodes=150, num_words=60)
    model = GCN(60, 7, hidden=(16,), generator=rng("x"))
    fit(model, data, stratified(data.y, seed=0, train=0.2, val=0.2), seed=0, epochs=60)
    return data, model


@pytest.mark.parametrize("on", ["features", "edges"])
def test_no_guarantee_is_broken_by_attacks_within_the_radius(trained: tuple[Data, GCN], on: str) -> None:
    result = check_soundness(*trained, on=on, noise=NOISE, pairs=20, samples=3000, seed=0, group=2)
    assert result["pairs"] == 20
    assert result["broken"] == 0
    assert {a["attack"] for a in result["attempts"]} == ({"random", "greedy"} if on == "features" else {"dice", "pgd"})
    assert len({tuple(a["radius"]) for a in result["attempts"]}) > 3
    assert json.loads(json.dumps(result)) == result


def test_a_broken_guarantee_is_noticed(trained: tuple[Data, GCN], monkeypatch: pytest.MonkeyPatch) -> None:
    """With another graph in the place of a slightly changed one."""

    def cheat(data: Data, *_: object) -> Data:
        return Data(x=data.x.flip(0), edge_index=(149 - data.edge_index).flip(1), y=data.y)

    monkeypatch.setattr(module, "FEATURE_ATTACKS", {"cheat": cheat})
    result = check_soundness(*trained, on="features", noise=NOISE, pairs=20, samples=1000, seed=0)
    assert result["broken"] > 5
    assert result["margin"] < 0


@pytest.mark.parametrize("name", FEATURE_ATTACKS)
def test_feature_attacks_keep_their_budgets(trained: tuple[Data, GCN], name: str) -> None:
    data, model = trained
    changed = FEATURE_ATTACKS[name](data, model, torch.tensor([3, 4]), data.y, (3, 2), 0)
    assert int((changed.x > data.x).sum()) == 3
    assert int((changed.x < data.x).sum()) == 2
    assert changed.x.unique().tolist() == [0, 1]


def test_the_greedy_attack_leaves_the_mode_alone(trained: tuple[Data, GCN]) -> None:
    data, model = trained
    model.train()
    FEATURE_ATTACKS["greedy"](data, model, torch.tensor([3]), data.y, (1, 0), 0)
    assert model.training


@pytest.mark.parametrize("name", EDGE_ATTACKS)
def test_edge_attacks_keep_their_budgets(trained: tuple[Data, GCN], name: str) -> None:
    data, model = trained
    changed = EDGE_ATTACKS[name](data, model, torch.tensor([3, 4]), data.y, (2, 1), 0)
    before, after = ({tuple(p) for p in undirected_pairs(d).T.tolist()} for d in (data, changed))
    assert len(after - before) <= 2
    assert len(before - after) <= 1
    assert after != before


def test_too_few_guarantees_are_an_error(trained: tuple[Data, GCN]) -> None:
    with pytest.raises(ValueError, match="only 0 guarantees"):
        check_soundness(*trained, on="features", noise=NOISE, pairs=5, samples=10, seed=0)
