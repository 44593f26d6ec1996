import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

from wtawp.analysis import LossOn
from wtawp.base import DataError, rng
from wtawp.graphs import load
from wtawp.models import GCN, PooledGCN

DATA = load("karate")
NODES = torch.tensor([3, 1, 20])


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = GCNConv(34, 4)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.conv(x, edge_index)


@pytest.mark.parametrize("make", [lambda: GCN(34, 4, hidden=(5,), generator=rng("init")), Own])
def test_it_is_the_mean_loss_of_the_nodes_and_of_a_stack_that_of_each_member(make: type) -> None:
    model = make().eval()
    logits = model(DATA.x, DATA.edge_index)[NODES]
    torch.testing.assert_close(LossOn(model, DATA, NODES)(), F.cross_entropy(logits, DATA.y[NODES]))
    right = logits.softmax(1)[torch.arange(3), DATA.y[NODES]]
    bounded = LossOn(model, DATA, NODES, bounded=True)
    torch.testing.assert_close(bounded(), 1 - right.mean())
    name = next(iter(dict(model.named_parameters())))
    weight = dict(model.named_parameters())[name].detach()
    losses = bounded.of({name: torch.stack([weight, 0 * weight])})  # the others stay as they are
    torch.testing.assert_close(losses[0], bounded().detach())
    with torch.no_grad():
        dict(model.named_parameters())[name].zero_()
        torch.testing.assert_close(losses[1], bounded())


def test_a_model_in_training_mode_is_refused() -> None:
    model = GCN(34, 4, generator=rng("init"))
    with pytest.raises(ValueError, match="GCN is in training mode; call model"):
        LossOn(model, DATA, NODES)
    loss = LossOn(model.eval(), DATA, NODES)
    model.train()
    with pytest.raises(ValueError, match="in training mode"):
        loss()
    model.eval()
    model.convs[1].train()
    with pytest.raises(ValueError, match=r"GCN.convs.1 is in training mode"):
        loss()


def test_a_mask_is_the_nodes_it_marks_and_no_nodes_are_refused() -> None:
    model = GCN(34, 4, hidden=(5,), generator=rng("init")).eval()
    mask = torch.zeros(34, dtype=torch.bool)
    mask[NODES] = True
    torch.testing.assert_close(LossOn(model, DATA, mask)(), LossOn(model, DATA, NODES)())
    with pytest.raises(ValueError, match="must hold one or more of the nodes, got none"):
        LossOn(model, DATA, torch.zeros(34, dtype=torch.bool))


def test_of_a_list_of_graphs_it_is_the_mean_over_the_chosen_ones() -> None:
    graphs = [
        Data(x=torch.randn(4, 3, generator=rng("x", i)), edge_index=DATA.edge_index[:, :0], y=torch.tensor([i % 2]))
        for i in range(5)
    ]
    model = PooledGCN(3, 2, hidden=(4, 4), generator=rng("init")).eval()
    zeros = torch.zeros(4, dtype=torch.int64)
    each = [F.cross_entropy(model(g.x, g.edge_index, zeros), g.y) for g in graphs]
    loss = LossOn(model, graphs, torch.tensor([4, 1]))
    torch.testing.assert_close(loss(), (each[4] + each[1]) / 2)
    weight = model.readout.weight.detach()
    torch.testing.assert_close(loss.of({"readout.weight": torch.stack([weight, weight])}), loss().detach().expand(2))


def test_samples_that_are_no_choice_of_labelled_nodes_are_refused() -> None:
    model, data = GCN(34, 4, hidden=(5,), generator=rng("init")).eval(), DATA.clone()
    data.y[20] = -1
    torch.testing.assert_close(LossOn(model, DATA, NODES.tolist())(), LossOn(model, DATA, NODES)())
    for samples, message in (
        ([True] * 33, "boolean mask"),
        (torch.ones(34, dtype=torch.long), "must be of type bool"),
        ([-1, 3], "must lie in 0 to 33"),
        ([34], "must lie in 0 to 33"),
        (NODES, "1 of 3 nodes have none .* such as number 20"),
    ):
        with pytest.raises(DataError, match=message):
            LossOn(model, data, samples)
