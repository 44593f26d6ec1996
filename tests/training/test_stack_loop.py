"""The epochs of a stack of models: when they end, and what is looked at between them."""

import pytest

from wtawp.base import rng
from wtawp.core import AwpConfig, VanishingMembersMonitor
from wtawp.graphs import load, stratified
from wtawp.models import GCN, MLP
from wtawp.training import fit, fit_many


def test_patience_stops_each_member_where_it_would_stop_alone() -> None:
    data = load("wine")
    split = stratified(data.y, seed=0)
    models = [GCN(13, 3, generator=rng("init", i)) for i in range(4)]
    together = fit_many(models, data, split, seeds=[0, 1, 2, 3], epochs=300, lr=0.05, patience=5)
    for i in range(4):
        alone = fit(GCN(13, 3, generator=rng("init", i)), data, split, seed=i, epochs=300, lr=0.05, patience=5)
        assert len(alone.history["val_loss"]) == alone.epoch + 6 or len(alone.history["val_loss"]) == 300
        assert alone.epoch == together[i].epoch
    assert any(r.epoch < 290 for r in together)


def test_gradients_are_checked_in_perturbed_epochs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    data, checked = load("wine"), []
    monkeypatch.setattr(VanishingMembersMonitor, "check", lambda _self, _member, step, *_numbers: checked.append(step))
    for every, start in ((1, 0), (2, 0), (1, 5)):
        awp = AwpConfig(rho=0.5, lam=0.5, every=every, start=start)
        fit(MLP(13, 3, generator=rng("init")), data, stratified(data.y, seed=0), seed=0, awp=awp, epochs=40)
    assert checked == [1, 10, 20, 30, 40, *[1, 19, 39], *[6, 15, 25, 35]]


def test_augment_must_return_a_graph() -> None:
    data = load("wine")
    with pytest.raises(ValueError, match="augment must return a graph, a PyG Data, for each epoch, got NoneType"):
        fit(GCN(13, 3, generator=rng("init")), data, stratified(data.y, seed=0), seed=0, augment=lambda *_: None)
