import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.base import CertificateError, rng
from wtawp.certificates.fields import ReceptiveFields, receptive_fields
from wtawp.graphs import citation, receptive_field, sum_operator, undirected_pairs
from wtawp.models import GCN

DATA = citation(seed=0, num_nodes=60, num_words=20)
MODEL = GCN(20, 7, hidden=(8,), generator=rng("fields"))


def test_fields_of_features_are_the_nodes_within_reach() -> None:
    fields = receptive_fields(DATA, MODEL)
    assert fields.on == "features"
    operator = sum_operator(DATA.edge_index, None, 60)
    for node in (0, 7, 31):
        expected = receptive_field(operator, torch.tensor([node]), hops=2).nodes[0]
        assert sorted(fields.reach[[node]].indices.tolist()) == sorted(expected.tolist())
    assert np.array_equal(fields.ones, DATA.x.sum(1).numpy())
    assert np.array_equal(fields.ones + fields.zeros, [20] * 60)


def test_fields_of_edges_are_the_edges_that_touch_nodes_within_reach() -> None:
    fields, pairs = receptive_fields(DATA, MODEL, on="edges"), undirected_pairs(DATA).tolist()
    operator = sum_operator(DATA.edge_index, None, 60)
    for node in (0, 7, 31):
        near = set(receptive_field(operator, torch.tensor([node]), hops=2).nodes[0].tolist())
        touching = [k for k, (i, j) in enumerate(zip(*pairs, strict=True)) if i in near or j in near]
        assert sorted(fields.reach[[node]].indices.tolist()) == touching
    assert not fields.zeros.any()
    assert bool((fields.ones == 1).all())


class MeanOfAll(nn.Module):
    """Uses all nodes at once."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return x[:, :2] + x[:, :2].mean(0) + edge_index.shape[1]


def own_features(x: Tensor, _: Tensor) -> Tensor:
    return x.to_dense() if x.is_sparse else x


@pytest.mark.parametrize("on", ["features", "edges"])
def test_a_model_that_reaches_further_than_stated_is_refused(on: str) -> None:
    for model, hops in ((MODEL, 1), (MODEL, 0), (MeanOfAll(), 2)):
        with pytest.raises(CertificateError, match=f"depends on {on} outside the receptive field"):
            receptive_fields(DATA, model, hops=hops, on=on)
    assert receptive_fields(DATA, MODEL, hops=3, on=on).reach.nnz > receptive_fields(DATA, MODEL, on=on).reach.nnz


def test_a_model_that_returns_nan_for_a_changed_graph_is_refused() -> None:
    def victim(x: Tensor, edge_index: Tensor) -> Tensor:
        logits: Tensor = MODEL(x, edge_index)
        return logits if torch.equal(x, DATA.x) else logits * float("nan")

    with torch.no_grad(), pytest.raises(CertificateError, match="outside the receptive field"):
        receptive_fields(DATA, victim, hops=2)


def test_directions_of_edges_do_not_make_fields_smaller() -> None:
    arrow = Data(x=torch.eye(3), edge_index=torch.tensor([[0, 1], [1, 2]]))
    assert receptive_fields(arrow, own_features, hops=1).reach.toarray().sum(1).tolist() == [2, 3, 2]


def test_what_is_missing_or_wrong_is_named() -> None:
    with pytest.raises(ValueError, match="say how far MeanOfAll reaches"):
        receptive_fields(DATA, MeanOfAll())
    with pytest.raises(ValueError, match="fields are on features or on edges, got 'nodes'"):
        receptive_fields(DATA, MODEL, on="nodes")
    fields = receptive_fields(DATA, MODEL)
    with pytest.raises(ValueError, match="60 positions"):
        ReceptiveFields("features", fields.reach, fields.zeros[:3], fields.ones)
    with pytest.raises(ValueError, match="got 'both'"):
        ReceptiveFields("both", fields.reach, fields.zeros, fields.ones)


def test_sparse_features_have_the_same_fields() -> None:
    sparse = Data(x=DATA.x.to_sparse(), edge_index=DATA.edge_index, num_nodes=60)
    fields, expected = receptive_fields(sparse, own_features, hops=2), receptive_fields(DATA, MODEL)
    assert np.array_equal(fields.ones, expected.ones)
    assert (fields.reach != expected.reach).nnz == 0
