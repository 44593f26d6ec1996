import torch
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import to_dense_adj

from wtawp.base import rng
from wtawp.graphs import gcn_operator

EDGES = torch.tensor([[0, 1, 1, 2, 0, 3], [1, 0, 2, 1, 3, 0]])


def test_the_gcn_operator_is_the_textbook_formula() -> None:
    adjacency = torch.zeros(5, 5, dtype=torch.float64)  # node 4 is isolated
    adjacency[EDGES[0], EDGES[1]] = 1
    loops = adjacency + torch.eye(5, dtype=torch.float64)
    scale = torch.diag(loops.sum(1) ** -0.5)
    torch.testing.assert_close(gcn_operator(EDGES, None, 5, torch.float64).to_dense(), scale @ loops @ scale)


def test_the_gcn_operator_equals_pyg_with_weights() -> None:
    weight = torch.rand(EDGES.shape[1], generator=rng("weights"))
    edges, values = gcn_norm(EDGES, weight, 5)
    expected = to_dense_adj(edges, edge_attr=values, max_num_nodes=5)[0].T
    torch.testing.assert_close(gcn_operator(EDGES, weight, 5).to_dense(), expected)


def test_gradients_reach_edge_weights() -> None:
    weight = torch.rand(EDGES.shape[1], generator=rng("weights"), dtype=torch.float64, requires_grad=True)
    x = torch.rand(5, 3, generator=rng("x"), dtype=torch.float64)

    def output(w: torch.Tensor) -> torch.Tensor:
        return torch.sparse.mm(gcn_operator(EDGES, w, 5, torch.float64), x).square().sum()

    assert torch.autograd.gradcheck(output, weight)
