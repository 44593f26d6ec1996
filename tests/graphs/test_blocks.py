import pytest
import torch

from wtawp.base import rng
from wtawp.graphs import gcn_operator, load, receptive_field, spmm, sum_operator


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_blocks_compute_the_rows_asked_for(hops: int) -> None:
    data = load("karate")
    operator = gcn_operator(data.edge_index, None, 34, torch.float64)
    targets = torch.tensor([20, 3, 11])
    blocks = receptive_field(operator, targets, hops)
    x = torch.rand(34, 2, generator=rng("x"), dtype=torch.float64)
    out = x[blocks.nodes[0]]
    for block in blocks.operators:
        out = spmm(block, out)
    expected = torch.linalg.matrix_power(operator.to_dense(), hops) @ x
    torch.testing.assert_close(out, expected[targets])
    assert torch.equal(blocks.nodes[-1], targets)


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_blocks_have_the_nodes_own_features_in_front(hops: int) -> None:
    data = load("karate")
    edges = data.edge_index[:, (data.edge_index != 11).all(0)]  # node 11 is isolated
    operator = sum_operator(edges, None, 34, torch.float64)
    blocks = receptive_field(operator, torch.tensor([20, 3, 11]), hops)
    x = torch.rand(34, 2, generator=rng("x"), dtype=torch.float64)
    out, whole = x[blocks.nodes[0]], x
    for block, nodes in zip(blocks.operators, blocks.nodes[1:], strict=True):
        out, whole = spmm(block, out) + 2 * out[: len(nodes)], spmm(operator, whole) + 2 * whole
        torch.testing.assert_close(out, whole[nodes])
    assert blocks.nodes[-1].tolist() == [20, 3, 11]
    assert all(len(nodes.unique()) == len(nodes) for nodes in blocks.nodes)
