"""Outputs on flipped graphs, against one call of the victim on each flipped graph."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GAT, GIN, GraphSAGE, PairNorm
from torch_geometric.utils import add_self_loops

from wtawp.attacks.flipped_graphs import NO_FLIP, FlippedGraphs
from wtawp.base import AttackError, rng
from wtawp.graphs import EdgeFlips
from wtawp.models import GCN


def sets_of_flips(size: int) -> Tensor:
    """Three sets of five flips, the last with two of them missing."""
    codes = []
    for row in range(3):
        pairs = torch.triu_indices(size, size, 1)
        chosen = pairs[:, torch.randperm(pairs.shape[1], generator=rng("flips", row))[:5]]
        codes.append(chosen[0] * size + chosen[1])
    codes[2][:2] = NO_FLIP
    return torch.stack(codes)


def naive(data: Data, victim: Callable[..., Tensor], codes: Tensor) -> Tensor:
    outputs = []
    for row in codes:
        kept = row[row != NO_FLIP]
        changed = EdgeFlips.of(torch.stack([kept // data.num_nodes, kept % data.num_nodes]), data.num_nodes).apply(data)
        outputs.append(victim(changed.x, changed.edge_index))
    return torch.stack(outputs)


@pytest.mark.parametrize("hidden", [(), (5,), (5, 4)])
def test_a_stack_of_convolutions_is_evaluated_without_calling_it(
    small: Callable[..., Data], small_victim: Callable[..., GCN], hidden: tuple[int, ...]
) -> None:
    data, victim = small(), small_victim(hidden=hidden).eval()
    data.edge_index = torch.cat([data.edge_index, torch.tensor([[3], [3]])], 1)  # a self-loop is no second one
    with torch.no_grad():
        graphs, codes = FlippedGraphs(data, victim), sets_of_flips(12)
        assert graphs.stack is not None
        assert graphs.at_once > 1
        torch.testing.assert_close(graphs.outputs(codes), naive(data, victim, codes))
    assert graphs.queries == 3


@pytest.mark.parametrize("kind", [GAT, GraphSAGE, GIN])
def test_any_module_is_called_with_several_graphs_at_once(small: Callable[..., Data], kind: type[nn.Module]) -> None:
    data, codes = small(), sets_of_flips(12)
    torch.manual_seed(0)
    victim = kind(4, 5, num_layers=2, out_channels=3).double().eval()
    with torch.no_grad():
        graphs = FlippedGraphs(data, victim)
        assert graphs.stack is None
        assert graphs.at_once > 1
        torch.testing.assert_close(graphs.outputs(codes), naive(data, victim, codes))


def test_a_victim_that_averages_over_all_nodes_sees_one_graph_at_a_time(small: Callable[..., Data]) -> None:
    data, codes = small(), sets_of_flips(12)
    norm, inner = PairNorm(), GCN(4, 3, generator=rng("inner")).double().eval()

    def victim(x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = norm(inner(x, edge_index))
        return out

    with torch.no_grad():
        graphs = FlippedGraphs(data, victim)
        assert graphs.at_once == 1
        torch.testing.assert_close(graphs.outputs(codes), naive(data, victim, codes))


def test_a_subclass_with_another_forward_is_called(small: Callable[..., Data]) -> None:
    class Doubled(GCN):
        def forward(self, *arguments: object) -> Tensor:  # type: ignore[override]
            return 2 * super().forward(*arguments) + 1  # type: ignore[arg-type]

    victim = Doubled(4, 3, generator=rng("victim")).double().eval()
    with torch.no_grad():
        graphs = FlippedGraphs(small(), victim)
        assert graphs.stack is None
        torch.testing.assert_close(graphs.outputs(sets_of_flips(12)), naive(small(), victim, sets_of_flips(12)))


def test_a_graph_with_two_equal_self_loops_is_given_to_the_victim_itself(
    small: Callable[..., Data], small_victim: Callable[..., GCN]
) -> None:
    data = small()
    data.edge_index = add_self_loops(add_self_loops(data.edge_index)[0])[0]
    with torch.no_grad():
        assert FlippedGraphs(data, small_victim().eval()).stack is None


def test_outputs_that_are_no_predictions_are_refused(small: Callable[..., Data]) -> None:
    for output in (torch.zeros(12, 1), torch.zeros(12), torch.zeros(7, 3), "classes"):
        with pytest.raises(AttackError, match="must return a row of 2 or more logits"):
            FlippedGraphs(small(), lambda *_, output=output: output)  # type: ignore[misc]
    graphs = FlippedGraphs(small(), lambda x, _: torch.full((len(x), 2), torch.nan))
    with pytest.raises(AttackError, match="NaN"):
        graphs.outputs(torch.full((1, 1), NO_FLIP))
