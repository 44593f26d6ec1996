import pytest
import torch
from torch.nn import functional as F

from wtawp.analysis import SaturationMonitor
from wtawp.base import DataError, VanishingGradientWarning, rng
from wtawp.core import AWP, AwpConfig
from wtawp.graphs import load, stratified
from wtawp.models import GCN, MLP
from wtawp.training import fit


def test_it_measures_logits_and_gradients_at_the_weights_and_at_the_perturbed_ones() -> None:
    data = load("karate")
    nodes = torch.arange(0, 30, 3)
    model = GCN(34, 4, hidden=(5,), generator=rng("init")).train()
    monitor = SaturationMonitor(data, nodes, AwpConfig(rho=0.7, lam=1.0, layers="all"))
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    monitor(model, 0)
    assert model.training
    assert all(torch.equal(p, before[n]) for n, p in model.named_parameters())

    def truth() -> list[float]:
        logits = model.eval()(data.x, data.edge_index)[nodes]
        largest = logits.softmax(1).max(1).values.mean()
        return [float(t.detach()) for t in ((logits.max(1).values - logits.min(1).values).mean(), largest)]

    natural = truth()
    awp = AWP(model, rho=0.7)
    weights_at = []

    def closure() -> torch.Tensor:
        weights_at.append({n: p.detach().clone() for n, p in model.named_parameters()})
        return F.cross_entropy(model(data.x, data.edge_index)[nodes], data.y[nodes])

    awp.backward(closure)
    with torch.no_grad():
        for n, p in model.named_parameters():
            p.copy_(weights_at[1][n])
    assert [column[0] for column in monitor.history.values()] == pytest.approx([*natural, *truth()], rel=1e-4)


@pytest.mark.parametrize("kind", [GCN, MLP])
def test_in_training_plain_weights_are_their_own_perturbation(kind: type) -> None:
    data = load("toy-linear")
    split = stratified(data.y, seed=0)
    plain, large = (
        SaturationMonitor(data, split.train, awp) for awp in (None, AwpConfig(rho=5.0, lam=1.0, layers="all"))
    )
    for monitor in (plain, large):
        model = kind(2, 2, generator=rng("init", 0))
        fit(model, data, split, seed=0, awp=monitor.awp, epochs=3, observe=monitor)
    assert plain.history["perturbed_logit_scale"] == plain.history["logit_scale"]
    assert len(large.history["saturation"]) == 3
    assert large.history["perturbed_logit_scale"][0] > 3 * large.history["logit_scale"][0]
    assert large.history["perturbed_saturation"][0] > large.history["saturation"][0]


def test_training_by_hand_with_such_a_radius_is_warned_of() -> None:
    data = load("toy-linear")
    train = stratified(data.y, seed=0).train
    model = GCN(2, 2, generator=rng("init", 0, 0)).eval()
    awp, optimizer = AWP(model, rho=20.0), torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)

    def run() -> None:
        for _ in range(200):
            optimizer.zero_grad()
            awp.backward(lambda: F.cross_entropy(model(data.x, data.edge_index)[train], data.y[train]))
            optimizer.step()

    with pytest.warns(VanishingGradientWarning):
        run()


def test_perturbations_along_another_direction_than_the_gradient_are_refused() -> None:
    data = load("toy-linear")
    with pytest.raises(ValueError, match="along the gradient, and not with direction='momentum'"):
        SaturationMonitor(data, torch.arange(3), AwpConfig(rho=1.0, lam=1.0, direction="momentum"))


def test_nodes_may_be_a_mask_or_a_list_and_must_have_labels() -> None:
    data = load("karate")
    model = GCN(34, 4, generator=rng("init"))
    nodes = torch.tensor([1, 5, 8])
    mask = torch.zeros(34, dtype=torch.bool)
    mask[nodes] = True
    histories = []
    for choice in (nodes, mask, nodes.tolist()):
        monitor = SaturationMonitor(data, choice, None)
        monitor(model, 0)
        histories.append(monitor.history)
    assert histories[0] == histories[1] == histories[2]
    data.y[5] = -1
    for choice, message in ((nodes, "such as number 5"), ([-1], "must lie in 0 to 33"), (mask.long(), "type bool")):
        with pytest.raises(DataError, match=message):
            SaturationMonitor(data, choice, None)
