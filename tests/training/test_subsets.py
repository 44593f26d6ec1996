import pytest
import torch
from torch import nn
from torch_geometric.data import Data

from wtawp.base import DataError, rng
from wtawp.graphs import Split, load
from wtawp.models import GCN
from wtawp.training import dot_product
from wtawp.training.subsets import Subset, build_subset, check_links

OUTPUTS = torch.randn(2, 6, 3, generator=rng("outputs"))


@pytest.mark.parametrize("shape", [(2, 6), (2, 6, 3), (2, 6, 3, 4)])
def test_rows_are_taken_for_all_members_or_for_each(shape: tuple[int, ...]) -> None:
    outputs, y = torch.randn(shape, generator=rng("o")), torch.zeros(3)
    rows = torch.tensor([[0, 5, 2], [1, 1, 4]])
    each = Subset((), rows, y)
    assert not each.is_shared
    assert torch.equal(each.take(outputs), torch.stack([outputs[0][rows[0]], outputs[1][rows[1]]]))
    shared = Subset((), rows[0], y)
    assert shared.is_shared
    assert torch.equal(shared.take(outputs), outputs[:, rows[0]])
    everything = Subset((), None, y)
    assert everything.is_shared
    assert everything.take(outputs) is outputs


def linked() -> Data:
    """Wine with some pairs: five edges of the graph's, that are removed from it, and five that it has not."""
    data = load("wine")
    is_edge = torch.zeros(178, 178, dtype=torch.bool)
    is_edge[tuple(data.edge_index)] = True
    upper = data.edge_index[:, data.edge_index[0] < data.edge_index[1]]
    held, absent = upper[:, ::60][:, :5], (~is_edge).triu(1).nonzero().T[:, ::999][:, :5]
    keys, gone = (e.sort(0).values[0] * 178 + e.sort(0).values[1] for e in (data.edge_index, held))
    return Data(
        x=data.x,
        edge_index=data.edge_index[:, ~torch.isin(keys, gone)],
        edge_label_index=torch.cat([held, absent], 1),
        edge_label=torch.tensor([1.0] * 5 + [0.0] * 5),
    )


@pytest.mark.parametrize("is_ours", [True, False])
def test_pairs_are_decoded_from_the_rows_of_their_ends(is_ours: bool) -> None:
    data, part = linked(), torch.tensor([7, 0, 3])
    model: nn.Module = GCN(13, 4, dropout=0.0, generator=rng("init"))
    expected_rows = model(data.x, data.edge_index)
    if not is_ours:

        class Wrapped(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.inside = GCN(13, 4, dropout=0.0, generator=rng("init"))

            def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
                return self.inside(x, edge_index)

        model = Wrapped()
    subset = build_subset(model, data, [part], dot_product)
    first, second = data.edge_label_index[:, part]
    scores = subset.take(model(*subset.arguments)[None])
    torch.testing.assert_close(scores[0], (expected_rows[first] * expected_rows[second]).sum(1), rtol=1e-5, atol=1e-6)
    assert subset.y.tolist() == [0.0, 1.0, 1.0]
    assert subset.is_shared


def test_a_decoder_must_return_a_row_for_each_pair() -> None:
    subset = Subset((), None, torch.zeros(3), torch.tensor([[0, 1, 2], [3, 4, 5]]), lambda a, b: (a * b).sum())
    with pytest.raises(ValueError, match=r"one row for each of the 3 pairs, got \[\]"):
        subset.take(OUTPUTS)


def split(train: list[int], val: list[int], test: list[int]) -> Split:
    return Split(*(torch.tensor(part) for part in (train, val, test)))


GOOD = split([0, 5], [1, 6], [2, 7])


def test_links_that_do_not_fit_are_refused() -> None:
    data = linked()
    check_links(data, [GOOD], dot_product)
    for name, value, words in (
        ("edge_label", None, r"needs edge_label_index \[2, p\] and edge_label"),
        ("edge_label_index", None, "needs edge_label_index"),
        ("edge_label", torch.ones(3), r"with as many edge_label, got torch.int64 of shape \[2, 10\] and \[3\]"),
        ("edge_label_index", torch.ones(2, 10), "must be whole numbers"),
        ("edge_label_index", data.edge_label_index + 170, "must name nodes 0 to 177, got 1"),
    ):
        changed = linked()
        changed[name] = value
        with pytest.raises(DataError, match=words):
            check_links(changed, [GOOD], dot_product)
    with pytest.raises(DataError, match="must name pairs 0 to 9 of edge_label_index, got 0 to 10"):
        check_links(data, [split([0, 5], [1, 6], [2, 10])], dot_product)
    with pytest.raises(ValueError, match="the decoder Bilinear has parameters, which would not be trained"):
        check_links(data, [GOOD], nn.Bilinear(4, 4, 1))


def test_links_to_be_predicted_must_not_be_edges() -> None:
    data = linked()
    reversed_edge = data.edge_label_index[:, [2]].flip(0)  # a test link, the other way round
    data.edge_index = torch.cat([data.edge_index, reversed_edge, data.edge_label_index[:, [0]]], 1)
    with pytest.warns(UserWarning, match="1 of 2 positive validation and test pairs are edges of edge_index"):
        check_links(data, [GOOD], dot_product)
