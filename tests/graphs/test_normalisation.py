import pytest
import torch
from torch import Tensor
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import to_dense_adj

from wtawp.base import rng
from wtawp.graphs import gcn_operator, mean_operator, spmm, sum_operator

EDGES = torch.tensor([[0, 1, 1, 2, 0, 3], [1, 0, 2, 1, 3, 0]])


def test_the_gcn_operator_is_the_textbook_formula() -> None:
    adjacency = torch.zeros(5, 5, dtype=torch.float64)  # node 4 is isolated
    adjacency[EDGES[0], EDGES[1]] = 1
    loops = adjacency + torch.eye(5, dtype=torch.float64)
    scale = torch.diag(loops.sum(1) ** -0.5)
    torch.testing.assert_close(gcn_operator(EDGES, None, 5, torch.float64).to_dense(), scale @ loops @ scale)


@pytest.mark.parametrize("edges", [EDGES, torch.cat([EDGES, torch.tensor([[2, 4], [2, 4]])], dim=1)])
def test_the_gcn_operator_equals_pyg_s_with_weights_and_with_self_loops(edges: Tensor) -> None:
    weight = torch.rand(edges.shape[1], generator=rng("weights"))
    normed, values = gcn_norm(edges, weight, 5)
    expected = to_dense_adj(normed, edge_attr=values, max_num_nodes=5)[0].T
    torch.testing.assert_close(gcn_operator(edges, weight, 5).to_dense(), expected)


@pytest.mark.parametrize("kind", ["none", "equal", "different"])
def test_of_several_self_loops_of_a_node_the_last_counts_as_in_pyg(kind: str) -> None:
    edges = torch.cat([torch.tensor([[2, 3], [2, 3]]), EDGES, torch.tensor([[2, 4, 2, 0], [2, 4, 2, 1]])], 1)
    weight = {
        "none": None,
        "equal": torch.full((12,), 0.7),
        "different": torch.rand(12, generator=rng("weights")) + 0.1,
    }[kind]
    normed, values = gcn_norm(edges, weight, 5)
    expected = to_dense_adj(normed, edge_attr=values, max_num_nodes=5)[0].T
    torch.testing.assert_close(gcn_operator(edges, weight, 5).to_dense(), expected)
    once = [i for i in range(12) if i not in (0, 8)]
    torch.testing.assert_close(
        gcn_operator(edges[:, once], None if weight is None else weight[once], 5).to_dense(), expected
    )


def test_gradients_reach_the_self_loop_that_counts() -> None:
    edges = torch.cat([EDGES, torch.tensor([[2, 2], [2, 2]])], 1)
    weight = (torch.rand(8, generator=rng("weights"), dtype=torch.float64) + 0.1).requires_grad_()

    def entries(weight: Tensor) -> Tensor:
        return gcn_operator(edges, weight, 5, torch.float64).to_dense()

    assert torch.autograd.gradcheck(entries, weight)
    (gradient,) = torch.autograd.grad(entries(weight).square().sum(), weight)
    assert (gradient[6], gradient[7] != 0) == (0, True)


def test_sums_and_means_over_neighbours_follow_the_edges_direction() -> None:
    edges = torch.tensor([[0, 1, 1, 3], [2, 2, 2, 3]])  # an edge given twice, a self-loop, two nodes without edges
    weight = torch.tensor([1.0, 2.0, 3.0, 0.0])
    x = torch.tensor([[1.0], [10.0], [100.0], [1000.0]])
    assert spmm(sum_operator(edges, None, 4), x).flatten().tolist() == [0, 0, 21, 1000]
    assert spmm(sum_operator(edges, weight, 4), x).flatten().tolist() == [0, 0, 51, 0]
    assert spmm(mean_operator(edges, None, 4), x).flatten().tolist() == [0, 0, 7, 1000]
    assert spmm(mean_operator(edges, weight, 4), x).flatten().tolist() == [0, 0, 8.5, 0]  # weights of zero: no mean


def test_gradients_reach_edge_weights() -> None:
    weight = torch.rand(EDGES.shape[1], generator=rng("weights"), dtype=torch.float64, requires_grad=True)
    x = torch.rand(5, 3, generator=rng("x"), dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda w: spmm(gcn_operator(EDGES, w, 5, torch.float64), x).square().sum(), weight)
