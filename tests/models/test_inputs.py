from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

from wtawp.base import DataError, rng
from wtawp.graphs import Operator, gcn_operator, load, memory_mapped, receptive_field, sparse_features
from wtawp.graphs.collection import batched
from wtawp.graphs.kernels import HAS_NUMBA
from wtawp.graphs.products import multiply
from wtawp.models import GCN, PPNP, PooledGCN, inputs
from wtawp.models.caches import OperatorCache
from wtawp.models.inputs import features, first_product, operators_by_layer, prepare


def test_bags_of_words_become_sparse_and_dense_features_stay() -> None:
    assert isinstance(features(load("citation").x), Operator)
    assert isinstance(features(load("wine").x), Tensor)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize("rows", [None, torch.tensor([5, 2])])
def test_sparse_tensors_stay_sparse(rows: Tensor | None) -> None:
    x = load("wine").x
    for given in (x.to_sparse(), x.to_sparse_csr()):
        found = features(given, rows)
        assert isinstance(found, Operator)
        assert torch.equal(found.to_dense(), x if rows is None else x[rows])


def test_memory_mapped_features_are_read_by_rows_and_stay_dense_as_a_whole(tmp_path: Path) -> None:
    words = load("citation").x
    np.save(tmp_path / "x.npy", words.numpy())
    x = memory_mapped(tmp_path / "x.npy")
    assert features(x) is x
    some = features(x, torch.tensor([7, 3]))
    assert isinstance(some, Operator)
    assert torch.equal(some.to_dense(), words[[7, 3]])


@pytest.mark.parametrize(("kind", "is_whole"), [(GCN, False), (PPNP, True)])
def test_memory_mapped_features_are_given_whole_where_the_device_of_the_edges_needs_all(
    kind: type, is_whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The edges are on a device without memory here, as if they were on a GPU."""
    data = load("wine")
    np.save(tmp_path / "x.npy", data.x.numpy())
    data.x = memory_mapped(tmp_path / "x.npy")
    data.edge_index = data.edge_index.to("meta")
    given: list[Tensor] = []
    monkeypatch.setattr(kind, "prepare", lambda _self, x, *_: given.append(x))
    model = kind(13, 3, generator=rng("init"))
    prepare(model, data, torch.tensor([1, 2]))
    prepare(model, data, None)
    assert [x.device.type for x in given] == ["meta" if is_whole else "cpu", "meta"]


def test_constant_features_are_looked_through_once_and_changes_by_torch_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, rows = torch.eye(20), torch.tensor([5, 2])
    counted: list[Tensor] = []
    monkeypatch.setattr(inputs, "sparse_features", lambda t: (counted.append(t), sparse_features(t))[1])
    with inputs.constant_features():
        for _ in range(3):
            assert torch.equal(features(x, rows).to_dense(), x[rows])
            assert torch.equal(features(x).to_dense(), x)
        assert len(counted) == 1
        x[5, 7] = 3.0
        assert features(x, rows).to_dense()[0, 7] == 3.0
        x.fill_(1.0)
        assert torch.equal(features(x, rows), x[rows])
    assert len(counted) == 2
    x.zero_()[0, 0] = 1.0
    x.numpy()[2, 2] = 4.0  # outside of the context nothing is remembered
    assert features(x, rows).to_dense()[1, 2] == 4.0


def test_a_foreign_module_gets_the_graph_as_it_is() -> None:
    data = load("wine")
    rows = torch.tensor([1, 2])
    assert prepare(GCNConv(13, 3), data, rows) == ((data.x, data.edge_index), rows)


def test_a_model_of_nodes_is_refused_where_graphs_are_to_be_classified() -> None:
    data = load("wine")
    with pytest.raises(DataError, match="Pooled classifies whole graphs and this is one graph"):
        prepare(PooledGCN(13, 3, generator=rng("init")), data, None)
    graphs = batched([Data(x=data.x, edge_index=data.edge_index, y=torch.tensor([label])) for label in (0, 1)])
    with pytest.raises(DataError, match="GCN classifies nodes and these are graphs to classify"):
        prepare(GCN(13, 3, generator=rng("init")), graphs, None)


def test_blocks_of_another_depth_are_refused() -> None:
    data = load("wine")
    model = GCN(13, 3, hidden=(8, 8), generator=rng("init"))
    blocks = model.prepare(data.x, data.edge_index, None)[1]
    with pytest.raises(
        ValueError, match=r"2 layers need blocks of 2 hops, got 3; use receptive_field\(operator, rows, 2\)"
    ):
        operators_by_layer(blocks, None, data.x, OperatorCache(gcn_operator), 2)


@pytest.mark.skipif(not HAS_NUMBA, reason="the extra `fast` is not installed")
@pytest.mark.parametrize(("name", "is_dense"), [("wine", True), ("citation", False)])
def test_the_first_product_is_that_of_the_block_and_the_features(name: str, is_dense: bool) -> None:
    data = load(name)
    operator = gcn_operator(data.edge_index, None, data.num_nodes)
    before, after = receptive_field(operator, torch.arange(3, 12, 2), 2).nodes[:2]
    product, inputs = first_product(operator, after, before, data.x), features(data.x, before)
    assert isinstance(inputs, Operator) is not is_dense
    if not is_dense:
        assert product is None
        return
    assert product is not None
    assert torch.equal(product, multiply(operator.select(after, before), inputs))
    assert first_product(operator, after, before, data.x.to_sparse()) is None
