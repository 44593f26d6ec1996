import pytest
import torch
from torch_geometric.data import Data

from wtawp.attacks.relaxed import RelaxedFlips, contains, target_of
from wtawp.base import DataError

PATH = Data(
    x=torch.eye(4, dtype=torch.float64),
    y=torch.tensor([0, 1, 2, 0]),
    edge_index=torch.tensor([[0, 1, 1, 2, 3], [1, 0, 2, 1, 3]]),  # 0 - 1 - 2, and 3 with a self-loop
)


def test_copies_of_a_graph_are_one_graph_in_blocks() -> None:
    target = target_of(PATH, [torch.tensor([0])] * 2, [PATH.y] * 2, "ce")
    assert target.edges.tolist() == [1, 6, 17, 22]  # 0 4 + 1, 1 4 + 2, and 16 more
    flips = RelaxedFlips.of(
        torch.tensor([19, 1]), torch.tensor([0.5, 0.25], dtype=torch.float64)
    )  # (0, 3) of the second
    edges, weight = target.graph(flips)
    dense = torch.zeros(8, 8, dtype=torch.float64).index_put((edges[0], edges[1]), weight)
    expected = torch.zeros(8, 8, dtype=torch.float64)
    for i, j, w in [(0, 1, 0.75), (1, 2, 1), (4, 5, 1), (5, 6, 1), (4, 7, 0.5), (3, 3, 1), (7, 7, 1)]:
        expected[i, j] = expected[j, i] = w
    assert torch.equal(dense, expected)


def test_values_of_copies_lie_in_rows_in_their_order() -> None:
    target = target_of(PATH, [torch.tensor([0])] * 3, [PATH.y] * 3, "ce")
    codes, values = torch.tensor([33, 2, 34, 1, 35]), torch.arange(1.0, 6.0)
    assert target.padded(values, codes).tolist() == [[2, 4, 0], [0, 0, 0], [1, 3, 5]]
    assert target.padded(values[:0], codes[:0]).shape == (3, 0)


@pytest.mark.parametrize("kind", ["ce", "margin"])
def test_the_losses_of_copies_are_the_losses_of_each(kind: str) -> None:
    logits = torch.tensor(
        [[[2.0, 1, 0], [0, 3, 0], [1, 2, 3], [0, 1, 0]], [[0, 2, 1], [1, 1, 0], [3, 2, 1], [1, 0, 0]]]
    )
    nodes = [torch.tensor([0, 2, 3]), torch.tensor([False, True, False, True])]
    found = target_of(PATH, nodes, [PATH.y] * 2, kind).losses(logits.double())  # type: ignore[arg-type]
    for b, at in enumerate(nodes):
        rows, own = logits[b][at], PATH.y[at]
        if kind == "ce":
            each = rows.logsumexp(1) - rows[torch.arange(len(own)), own]
        else:
            others = [
                max(v for c, v in enumerate(row) if c != y) - row[y] for row, y in zip(rows.tolist(), own, strict=True)
            ]
            each = torch.tensor(others).clamp_max(0)
        assert float(found[b]) == pytest.approx(float(each.mean()), abs=1e-6)


def test_flips_are_found_where_they_are_and_nowhere_else() -> None:
    flips = RelaxedFlips.of(torch.tensor([9, 3, 5]), torch.tensor([0.1, 0.0, 0.2]))
    assert flips.codes.tolist() == [5, 9]
    assert flips.at(torch.tensor([3, 5, 9, 10])).tolist() == pytest.approx([0, 0.2, 0.1, 0])
    assert contains(flips.codes, torch.tensor([3, 5, 9, 10])).tolist() == [False, True, True, False]
    assert contains(flips.codes[:0], torch.tensor([3])).tolist() == [False]


def test_a_self_loop_that_is_there_twice_is_refused() -> None:
    twice = Data(x=PATH.x, y=PATH.y, edge_index=torch.cat([PATH.edge_index, torch.tensor([[3], [3]])], 1))
    with pytest.raises(DataError, match="the same self-loop more than once"):
        target_of(twice, [torch.tensor([0])], [PATH.y], "ce")
