import pytest
import torch
from torch import Tensor
from torch_geometric.nn import APPNP
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import to_dense_adj

from wtawp.base import DataError, rng
from wtawp.graphs import (
    Operator,
    gcn_operator,
    jaccard,
    jaccard_operator,
    load,
    mean_operator,
    ppr_rows,
    receptive_field,
    sparse_features,
    spmm,
    sum_operator,
)
from wtawp.graphs.operators import jaccard_rows

EDGES = torch.tensor([[0, 1, 1, 2, 0, 3], [1, 0, 2, 1, 3, 0]])


def random_matrix(n: int = 7, m: int = 5, seed: int = 0) -> Tensor:
    g = rng("matrix", seed)
    return torch.randn(n, m, generator=g, dtype=torch.float64) * (torch.rand(n, m, generator=g) < 0.4)


def test_an_operator_is_its_dense_matrix_and_so_is_its_transpose() -> None:
    dense = random_matrix()
    operator = sparse_features(dense)
    assert torch.equal(operator.to_dense(), dense)
    assert torch.equal(operator.T.to_dense(), dense.T)
    assert torch.equal(operator.T.T.to_dense(), dense)
    assert operator.indices.dtype == operator.indptr.dtype == torch.int32
    rows, cols = torch.tensor([4, 0, 6]), torch.tensor([2, 1])
    assert torch.equal(operator.select(rows, cols).to_dense(), dense[rows][:, cols])
    assert torch.equal(operator.to(torch.float32).to_dense(), dense.float())


def test_entries_in_one_place_are_summed_and_outside_the_matrix_refused() -> None:
    rows, cols = torch.tensor([1, 1, 0]), torch.tensor([0, 0, 1])
    assert Operator.from_entries(rows, cols, torch.tensor([1.0, 2.0, 4.0]), (2, 2)).to_dense().tolist() == [
        [0, 4],
        [3, 0],
    ]
    for bad in (torch.tensor([1, 1, 5]), torch.tensor([-1, 1, 0])):
        with pytest.raises(DataError, match=r"entries must lie inside a matrix of shape \[2, 2\], got rows"):
            Operator.from_entries(bad, cols, torch.ones(3), (2, 2))


@pytest.mark.parametrize("stack", [(), (3,)])
@pytest.mark.parametrize("own_values", [False, True])
def test_products_and_both_gradients_by_dense_algebra(stack: tuple[int, ...], own_values: bool) -> None:
    dense = random_matrix()
    operator = sparse_features(dense)
    g = rng("product")
    x = torch.randn(*stack, 5, 4, generator=g, dtype=torch.float64, requires_grad=True)
    shape = (*stack, len(operator.values)) if own_values else (len(operator.values),)
    values = torch.randn(shape, generator=g, dtype=torch.float64, requires_grad=True)
    places = (operator.rows, operator.indices.long())
    matrix = torch.stack([v.new_zeros(7, 5).index_put(places, v) for v in values.reshape(-1, len(operator.values))])
    matrix = matrix if values.dim() == 2 else matrix[0]
    weight = torch.randn(*stack, 7, 4, generator=g, dtype=torch.float64)
    expected = torch.autograd.grad((matrix @ x * weight).sum(), (x, values))
    found = torch.autograd.grad((spmm(operator, x, values) * weight).sum(), (x, values))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradgradcheck(lambda x, v: spmm(operator, x, v), (x, values))


@pytest.mark.parametrize(("x_dim", "v_dim"), [(0, None), (1, None), (None, 0), (0, 1)])
def test_the_vmap_rule_equals_a_loop(x_dim: int | None, v_dim: int | None) -> None:
    operator = sparse_features(random_matrix())
    g = rng("vmap")
    x = torch.randn(*([5, 4] if x_dim is None else [3, 5, 4]), generator=g, dtype=torch.float64)
    v = torch.randn(
        *([len(operator.values)] if v_dim is None else [3, len(operator.values)]), generator=g, dtype=torch.float64
    )
    moved_x, moved_v = (t if d is None else t.movedim(0, d) for t, d in ((x, x_dim), (v, v_dim)))
    mapped = torch.func.vmap(lambda x, v: spmm(operator, x, v), in_dims=(x_dim, v_dim))(moved_x, moved_v)
    loop = [spmm(operator, x if x_dim is None else x[i], v if v_dim is None else v[i]) for i in range(3)]
    torch.testing.assert_close(mapped, torch.stack(loop), rtol=1e-14, atol=1e-14)


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


@pytest.mark.parametrize("steps", [1, 10, None])
def test_pagerank_rows_equal_the_power_series_and_pyg(steps: int | None) -> None:
    data = load("karate")
    operator = gcn_operator(data.edge_index, None, 34, torch.float64)
    rows = torch.tensor([5, 0, 33])
    found = ppr_rows(operator, rows, alpha=0.1, steps=steps)
    dense = operator.to_dense()
    if steps is None:
        expected = 0.1 * torch.linalg.inv(torch.eye(34).double() - 0.9 * dense)
    else:
        powers = [0.1 * 0.9**k * torch.linalg.matrix_power(dense, k) for k in range(steps)]
        expected = sum(powers) + 0.9**steps * torch.linalg.matrix_power(dense, steps)
        pyg = APPNP(steps, 0.1)(torch.eye(34), data.edge_index)
        torch.testing.assert_close(found.float(), pyg[rows], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(found, expected[rows])


def test_edges_between_dissimilar_nodes_are_left_out() -> None:
    x = torch.tensor([[1, 1, 0, 0], [2, -1, 1, 0], [0, 0, 1, 1], [0, 0, 0, 0], [0, 0, 0, 0]], dtype=torch.float64)
    edges = torch.tensor([[0, 1, 1, 2, 0, 2, 3, 4, 0, 3], [1, 0, 2, 1, 2, 0, 4, 3, 3, 0]])
    expected = [2 / 3, 2 / 3, 1 / 4, 1 / 4, 0, 0, 1, 1, 0, 0]  # a feature counts where it is not 0; none and none: 1
    assert jaccard(edges, x).tolist() == pytest.approx(expected)
    for threshold, kept in ((0.0, 10), (0.01, 6), (0.25, 6), (0.3, 4), (1.0, 2)):
        operator = jaccard_operator(edges, None, x, threshold)
        assert len(operator.indices) == kept + 5  # and the self-loops
    left = torch.tensor(expected) >= 0.3
    torch.testing.assert_close(
        jaccard_operator(edges, None, x, 0.3).to_dense(), gcn_operator(edges[:, left], None, 5, x.dtype).to_dense()
    )


@pytest.mark.parametrize("sparse", [False, True])
def test_rows_of_jaccard_similarities_are_those_of_pairs(sparse: bool) -> None:
    x = (torch.rand(9, 6, generator=rng("rows")) > 0.7).float()
    x[3] = 0
    pairs = torch.cartesian_prod(torch.arange(2, 7), torch.arange(9)).T
    found = jaccard_rows(sparse_features(x) if sparse else x)(2, 7)
    assert torch.equal(found.flatten(), jaccard(pairs, x))
