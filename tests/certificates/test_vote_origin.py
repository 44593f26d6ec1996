import copy

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.base import CertificateError, rng
from wtawp.certificates import Noise, Votes, provenance_of, vote
from wtawp.certificates.vote_origin import RANDOM, is_same_model, is_same_origin
from wtawp.graphs import citation
from wtawp.models import GCN, RGCN, ElasticGNN

DATA = citation(seed=0, num_nodes=60, num_words=20)
OTHER = citation(seed=1, num_nodes=60, num_words=20)
NOISE = Noise(p_add=0.02, p_del=0.5)


def elastic(lambda1: float) -> ElasticGNN:
    return ElasticGNN(20, 7, lambda1=lambda1, generator=rng("provenance"))


def test_options_outside_the_weights_make_another_model() -> None:
    weak, strong = elastic(0.0), elastic(3.0)
    first, second = provenance_of(DATA, weak), provenance_of(DATA, strong)
    assert first == provenance_of(DATA, copy.deepcopy(weak))
    assert first[:3] == second[:3], "graph, type and weights are the same"
    assert not is_same_origin(first, second)
    assert not is_same_model(first, second)
    votes = vote(DATA, weak, features=NOISE, samples=5, seed=0)
    assert vote(DATA, weak, features=NOISE, samples=5, seed=0, after=votes).samples == 10
    with pytest.raises(CertificateError, match="their graph and model was"):
        vote(DATA, strong, features=NOISE, samples=5, seed=0, after=votes)


def test_an_edited_forward_pass_makes_another_model() -> None:
    def classes(sign: float) -> nn.Module:
        class Edited(GCN):
            def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:  # type: ignore[override]
                return sign * super().forward(x, edge_index, edge_weight)

        return Edited(20, 7, generator=rng("provenance"))

    first, second = provenance_of(DATA, classes(1.0)), provenance_of(DATA, classes(-1.0))
    assert first[:3] == second[:3]
    assert not is_same_origin(first, second)


def test_rounding_errors_do_not_make_another_model() -> None:
    model = GCN(20, 7, generator=rng("provenance"))
    first = dict(provenance_of(DATA, model))
    double = provenance_of(Data(x=DATA.x.double(), edge_index=DATA.edge_index), copy.deepcopy(model).double())
    again = {**first, "logits": dict(double)["logits"]}
    assert is_same_origin(tuple(first.items()), tuple(again.items()))


class DrawsByItself(nn.Module):
    """Random logits from a generator that nobody else seeds."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = rng("draws")

    def forward(self, x: Tensor, _: Tensor) -> Tensor:
        return torch.randn(len(x), 3, generator=self.generator)


def test_models_that_are_random_in_evaluation_still_vote_and_go_on() -> None:
    state = torch.get_rng_state()
    for model in (RGCN(20, 7, sample=True, generator=rng("provenance")), DrawsByItself()):
        assert provenance_of(DATA, model) == provenance_of(DATA, model)
        assert torch.equal(torch.get_rng_state(), state)
        votes = vote(DATA, model, features=NOISE, samples=3, seed=0)
        assert vote(DATA, model, features=NOISE, samples=3, seed=0, after=votes).samples == 6
        torch.set_rng_state(state)  # votes of RGCN draw from the global state
    assert dict(provenance_of(DATA, DrawsByItself()))["logits"] == RANDOM


def test_votes_of_files_without_a_sketch_go_on() -> None:
    model = elastic(1.0)
    votes = vote(DATA, model, features=NOISE, samples=5, seed=0)
    older = Votes(votes.counts, 5, votes.noise, 0, votes.provenance[:3])
    added = vote(DATA, model, features=NOISE, samples=5, seed=0, after=older)
    assert torch.equal(added.counts, vote(DATA, model, features=NOISE, samples=10, seed=0).counts)
    assert added.provenance == votes.provenance


def test_one_model_on_two_graphs_is_the_same_model_of_another_origin() -> None:
    model = elastic(1.0)
    first, second = provenance_of(DATA, model), provenance_of(OTHER, model)
    assert is_same_model(first, second)
    assert not is_same_origin(first, second)
    changed = copy.deepcopy(model)
    with torch.no_grad():
        next(changed.parameters()).add_(1.0)
    assert not is_same_model(first, provenance_of(OTHER, changed))
    assert is_same_model((), first), "what is not named is not compared"


def test_other_callables_are_named_by_their_type_and_not_called() -> None:
    def victim(_: Tensor, __: Tensor) -> Tensor:
        raise AssertionError

    assert [name for name, _ in provenance_of(DATA, victim)] == ["graph", "victim", "weights"]


def test_a_model_that_fails_on_the_graph_has_no_sketch() -> None:
    assert len(provenance_of(DATA, GCN(19, 7, generator=rng("provenance")))) == 3
