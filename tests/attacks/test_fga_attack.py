"""FGA against the gradient that autograd gives through a dense adjacency matrix."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import GCNConv

from wtawp.attacks import fga
from wtawp.base import AttackError, rng
from wtawp.graphs import citation
from wtawp.models import GCN, GCNJaccard

DATA = citation(seed=0, num_nodes=60, num_words=20)
DATA.x = DATA.x.double()
VICTIM = GCN(20, 7, hidden=(8,), generator=rng("victim")).double()


class Borrowed(nn.Module):
    """The same model through PyG, which shows no factors of its gradient."""

    def __init__(self, model: GCN) -> None:
        super().__init__()
        self.convs = nn.ModuleList()
        for weight, bias in model.convolution_weights():
            conv = GCNConv(*weight.shape).double()
            conv.lin.weight.data, conv.bias.data = weight.detach().T.clone(), bias.detach().clone()
            self.convs.append(conv)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        hidden = self.convs[0](x, edge_index, edge_weight).relu()
        return self.convs[1](hidden, edge_index, edge_weight)  # type: ignore[no-any-return]


def dense_logits(adjacency: Tensor) -> Tensor:
    full = adjacency + torch.eye(60, dtype=torch.float64)
    scale = full.sum(1).rsqrt()
    operator, hidden = scale[:, None] * full * scale, DATA.x
    (first, one), (second, two) = VICTIM.convolution_weights()
    hidden = (operator @ (hidden @ first) + one).relu()
    return operator @ (hidden @ second) + two


def slow_fga(nodes: list[int], count: int, *, direct: bool) -> set[tuple[int, int]]:
    original = torch.zeros(60, 60, dtype=torch.float64)
    original[DATA.edge_index[0], DATA.edge_index[1]] = 1
    flipped: set[tuple[int, int]] = set()
    for _ in range(count):
        adjacency = original.clone()
        for i, j in flipped:
            adjacency[i, j] = adjacency[j, i] = 1 - original[i, j]
        adjacency.requires_grad_()
        loss = F.cross_entropy(dense_logits(adjacency)[nodes], DATA.y[nodes])
        (slope,) = torch.autograd.grad(loss, adjacency)
        best, pair = 0.0, None
        for i in range(60):
            for j in range(i + 1, 60):
                sign = 1 - 2 * float(original[i, j])
                value = sign * float(slope[i, j] + slope[j, i])
                if value > best and (i, j) not in flipped and (not direct or i in nodes or j in nodes):
                    best, pair = value, (i, j)
        if pair is None:
            break
        flipped.add(pair)
    return flipped


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("nodes", [[7], [3, 30, 31]], ids=["one", "three"])
def test_flips_are_those_of_the_largest_gradients(nodes: list[int], direct: bool) -> None:
    how = {"budget": 5, "nodes": torch.tensor(nodes), "labels": DATA.y, "seed": 0, "direct": direct}
    expected = slow_fga(nodes, 5, direct=direct)
    assert len(expected) == 5
    for victim in (VICTIM, Borrowed(VICTIM)):
        flips = fga(DATA, victim, **how)  # type: ignore[arg-type]
        assert {(i, j) for i, j in flips.pairs.T.tolist()} == expected


def test_pairs_that_a_defence_filters_are_not_flipped() -> None:
    victim = GCNJaccard(20, 7, hidden=(8,), generator=rng("victim")).double()
    flips = fga(DATA, victim, budget=5, nodes=torch.tensor([7]), labels=DATA.y, seed=0)
    kept = victim.pair_filter(DATA.x)(0, 60)
    assert len(flips) > 0
    assert all(bool(kept[i, j]) for i, j in flips.pairs.T.tolist())


def test_a_margin_ends_the_attack_once_the_node_is_misclassified() -> None:
    logits = VICTIM.eval()(DATA.x, DATA.edge_index)
    (best, second), is_right = logits.topk(2).values.T, logits.argmax(1) == DATA.y
    right = torch.where(is_right, best - second, torch.inf).argmin()[None]  # the node that is easiest to mislead
    how = {"nodes": right, "labels": DATA.y, "seed": 0, "loss": "margin", "direct": False}
    flips = fga(DATA, VICTIM, budget=50, **how)  # type: ignore[arg-type]
    changed = flips.apply(DATA)
    assert int(VICTIM(changed.x, changed.edge_index)[right].argmax()) != int(DATA.y[right])
    assert len(flips) < 50
    with pytest.raises(AttackError, match=r"no gradient .* is positive"):
        fga(changed, VICTIM, budget=5, **how)  # type: ignore[arg-type]


def test_wrong_options_and_victims_are_refused() -> None:
    how = {"budget": 5, "nodes": torch.tensor([7]), "labels": DATA.y, "seed": 0}
    with pytest.raises(ValueError, match="loss must be 'ce' or 'margin', got 'cw'"):
        fga(DATA, VICTIM, loss="cw", **how)  # type: ignore[arg-type]

    class Blind(nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:  # noqa: ARG002
            return x[:, :7]

    with pytest.raises(AttackError, match="ignores the graph"):
        fga(DATA, Blind(), **how)  # type: ignore[arg-type]
