import pytest
import torch
from torch import nn
from torch.nn import functional as F

from wtawp.attacks import surrogate_weights
from wtawp.attacks.linear_surrogate import WEIGHT_DECAY
from wtawp.base import AttackError, DataError, rng
from wtawp.graphs import citation, gcn_operator
from wtawp.models import GCN

DATA = citation(seed=0, num_nodes=60, num_words=20)
DATA.x = DATA.x.double()
TRAIN = torch.arange(0, 60, 2)
OPERATOR = gcn_operator(DATA.edge_index, None, 60, torch.float64).to_dense()


def test_the_weights_minimise_the_penalised_cross_entropy() -> None:
    weights = surrogate_weights(DATA, train=TRAIN, steps=200).requires_grad_()
    logits = OPERATOR @ OPERATOR @ DATA.x @ weights
    loss = F.cross_entropy(logits[TRAIN], DATA.y[TRAIN]) + 0.5 * WEIGHT_DECAY * weights.square().sum()
    (gradient,) = torch.autograd.grad(loss, weights)
    assert float(gradient.abs().max()) < 1e-4
    assert float((logits.argmax(1) == DATA.y)[TRAIN].double().mean()) > 0.8


def test_without_training_nodes_it_imitates_the_victim() -> None:
    victim = GCN(20, 7, hidden=(8,), generator=rng("victim")).double()
    for parameter in victim.parameters():
        parameter.data *= 3  # so that there is something to tell apart
    weights = surrogate_weights(DATA, victim=victim, steps=200)
    same = (OPERATOR @ OPERATOR @ DATA.x @ weights).argmax(1) == victim.eval()(DATA.x, DATA.edge_index).argmax(1)
    assert float(same.double().mean()) > 0.8


def test_what_cannot_be_trained_is_refused() -> None:
    with pytest.raises(ValueError, match="training nodes"):
        surrogate_weights(DATA)
    with pytest.raises(ValueError, match="steps must be >= 1"):
        surrogate_weights(DATA, train=TRAIN, steps=0)
    with pytest.raises(ValueError, match="must be known"):
        surrogate_weights(DATA, labels=torch.full((60,), -1), train=TRAIN)
    whole = DATA.clone()
    whole.x = DATA.x.long()
    with pytest.raises(DataError, match="floats of shape"):
        surrogate_weights(whole, train=TRAIN)
    whole.x = torch.full_like(DATA.x, torch.inf)
    with pytest.raises(AttackError, match="diverges"):
        surrogate_weights(whole, train=TRAIN)

    class Broken(nn.Module):
        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:  # noqa: ARG002
            return x[:, :7] * torch.nan

    with pytest.raises(AttackError, match="NaN or infinite logits"):
        surrogate_weights(DATA, victim=Broken())
