import pytest
import torch

from wtawp.base import DataError, rng
from wtawp.graphs import Operator, gcn_operator, load, receptive_field, spmm, structure, sum_operator


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


def naive_blocks(operator: Operator, targets: list[int], hops: int) -> tuple[list[list[int]], list[Operator]]:
    """The nodes and the operators of the blocks by loops over the dense matrix, last hop first in time."""
    dense, nodes, operators = operator.to_dense(), [targets], []
    for _ in range(hops):
        after = nodes[0]
        new = [j for j in range(len(dense)) if j not in after and any(dense[i, j] != 0 for i in after)]
        before = after + new
        entries = [(r, c) for r, i in enumerate(after) for c, j in enumerate(before) if dense[i, j] != 0]
        rows, cols = torch.tensor(entries).T
        values = torch.stack([dense[after[r], before[c]] for r, c in entries])
        operators.insert(0, Operator.from_entries(rows, cols, values, (len(after), len(before))))
        nodes.insert(0, before)
    return nodes, operators


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("threshold", [0, structure.INT32_ENTRIES])
@pytest.mark.parametrize("targets", [[3, 11, 20], [20, 3, 11]])
@pytest.mark.parametrize("hops", [0, 1, 2, 3])
def test_blocks_are_those_of_a_naive_search_entry_for_entry(
    hops: int, targets: list[int], threshold: int, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(structure, "HAS_NUMBA", compiled and structure.HAS_NUMBA)
    data = load("karate")
    operator = gcn_operator(data.edge_index, None, 34)
    nodes, operators = naive_blocks(operator, targets, hops)
    monkeypatch.setattr(structure, "INT32_ENTRIES", threshold)
    blocks = receptive_field(gcn_operator(data.edge_index, None, 34), torch.tensor(targets), hops)
    assert [part.tolist() for part in blocks.nodes] == nodes
    for block, expected in zip(blocks.operators, operators, strict=True):
        assert block.indptr.dtype == (torch.int32 if threshold else torch.int64)
        for name in ("indptr", "indices", "values", "t_indptr", "t_indices", "order", "back"):
            one, other = getattr(block, name), getattr(expected, name)
            assert torch.equal(one.to(other.dtype), other), name


@pytest.mark.parametrize("hops", [0, 1, 3])
def test_the_operator_of_the_first_hop_can_be_left_out(hops: int) -> None:
    data, targets = load("karate"), torch.tensor([20, 3, 11])
    operator = gcn_operator(data.edge_index, None, 34)
    whole, rest = (receptive_field(operator, targets, hops, with_first=first) for first in (True, False))
    assert [n.tolist() for n in whole.nodes] == [n.tolist() for n in rest.nodes]
    assert len(rest.operators) == max(hops - 1, 0)
    assert all(
        torch.equal(a.to_dense(), b.to_dense()) for a, b in zip(whole.operators[1:], rest.operators, strict=True)
    )


def test_targets_that_are_no_nodes_are_refused() -> None:
    data = load("karate")
    with pytest.raises(DataError, match="rows must lie between 0 and 33, got 3 to 34"):
        receptive_field(gcn_operator(data.edge_index, None, 34), torch.tensor([3, 34]), 2)
