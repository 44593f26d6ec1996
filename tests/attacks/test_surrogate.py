import pytest
import torch
from torch import nn

from wtawp.attacks.surrogate import distilled_surrogate
from wtawp.base import AttackError, rng
from wtawp.graphs import citation
from wtawp.models import GCN

DATA = citation(seed=0, num_nodes=60, num_words=20)
VICTIM = GCN(20, 7, hidden=(8,), generator=rng("victim"))


def test_a_surrogate_predicts_what_the_victim_predicts_and_leaves_it_alone() -> None:
    VICTIM.train()
    before = {name: value.clone() for name, value in VICTIM.state_dict().items()}
    state = torch.get_rng_state()
    surrogate = distilled_surrogate(DATA, VICTIM, seed=0)
    assert VICTIM.training
    assert all(torch.equal(value, before[name]) for name, value in VICTIM.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    untrained = GCN(20, 7, hidden=(64,), generator=rng("distilled surrogate", 0))
    with torch.no_grad():
        wanted, found, first = (model.eval()(DATA.x, DATA.edge_index) for model in (VICTIM, surrogate, untrained))
    assert float((found.argmax(1) == wanted.argmax(1)).float().mean()) > 0.9
    near, far = (float((each.softmax(1) - wanted.softmax(1)).abs().mean()) for each in (found, first))
    assert near < far / 2


def test_the_same_seed_gives_the_same_surrogate_and_another_gives_another() -> None:
    one, same, other = (distilled_surrogate(DATA, VICTIM, seed=seed, epochs=3) for seed in (0, 0, 1))
    weights = [torch.cat([p.flatten() for p in model.parameters()]) for model in (one, same, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_a_victim_whose_logits_are_not_finite_has_no_surrogate(broken: nn.Module) -> None:
    with pytest.raises(AttackError, match="NaN or infinite logits"):
        distilled_surrogate(DATA, broken, seed=0)
