"""lam="auto" in all ways of training: the same rule in `fit`, `fit_many`, `fit_batches` and a loop of one's own."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp.base import rng
from wtawp.core import WTAWP, AwpConfig
from wtawp.core.auto import MIN_LAM, AutoState, follow_gap, zero_if_negligible
from wtawp.graphs import Split, load, stratified
from wtawp.models import GCN
from wtawp.training import Fit, fit, fit_batches, fit_many, loop

DATA = load("wine")
SPLITS = [stratified(DATA.y, seed=seed) for seed in range(3)]
AUTO = AwpConfig(rho=1.0, lam="auto")


def gcn(seed: int = 0, **options: Any) -> GCN:
    return GCN(13, 3, generator=rng("init", seed), **options)


@pytest.mark.parametrize("rho", [0.1, 20.0])  # the model cannot bear the second one, which is made smaller
def test_fit_is_a_loop_that_observes_after_every_epoch(rho: float) -> None:
    split, by_fit, by_hand = SPLITS[0], gcn(dropout=0.0).double(), gcn(dropout=0.0).double()
    data = DATA.clone()
    data.x = data.x.double()
    result = fit(by_fit, data, split, seed=0, awp=AwpConfig(rho=rho, lam="auto"), epochs=40, select_on="last")
    awp, lams, rhos = WTAWP(by_hand, rho=rho, lam="auto"), [], []
    optimizer = torch.optim.Adam(by_hand.parameters(), lr=0.01, weight_decay=5e-4)

    def loss(part: Tensor) -> Tensor:
        return F.cross_entropy(by_hand(data.x, data.edge_index)[part], data.y[part])

    for _ in range(40):
        optimizer.zero_grad()
        lams.append(awp.lam)
        rhos.append(awp.rho)
        awp.backward(lambda: loss(split.train))
        optimizer.step()
        with torch.no_grad():
            awp.observe(train_loss=loss(split.train), val_loss=loss(split.val))
    assert result.history["lam"] == pytest.approx(lams, abs=1e-6)
    assert result.history["rho"] == pytest.approx(rhos, rel=1e-6)
    assert max(lams) > 0.3
    assert (min(rhos) < rho) == (rho > 1)
    for a, b in zip(by_fit.parameters(), by_hand.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-6)


def test_models_that_are_trained_together_end_as_alone() -> None:
    seeds, data, awp = [0, 1, 2], DATA.clone(), AwpConfig(rho=20.0, lam="auto")
    data.x = data.x.double()  # the rounding of stacks of other sizes grows in a training
    together, alone = ([gcn(seed).double() for seed in seeds] for _ in range(2))
    results = fit_many(together, data, SPLITS[0], seeds=seeds, awp=awp, epochs=40)
    assert len({min(result.history["rho"]) for result in results}) > 1, "each has a radius of its own"
    for seed in seeds:
        single = fit(alone[seed], data, SPLITS[0], seed=seed, awp=awp, epochs=40)
        assert results[seed].accuracy == single.accuracy
        for name, values in single.history.items():
            assert results[seed].history[name] == pytest.approx(values, rel=1e-9, abs=1e-9)


class WithDropout(nn.Module):
    """A user's module, whose masks torch draws."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(30, 16), nn.ReLU(), nn.Dropout(), nn.Linear(16, 3)).double()
        for p in self.parameters():
            nn.init.normal_(p, std=0.3, generator=rng("init", seed))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # noqa: ARG002
        return self.layers(x)


def test_masks_are_those_of_a_training_alone_while_others_are_perturbed_already() -> None:
    y = torch.arange(120) % 3
    x = torch.randn(120, 30, generator=rng("features")).double()
    x += 0.3 * F.one_hot(y, 3).double() @ torch.randn(3, 30, generator=rng("classes")).double()
    data, split = Data(x=x, edge_index=torch.zeros(2, 0, dtype=torch.int64), y=y), stratified(y, seed=0)
    seeds = list(range(4))
    together, alone = ([WithDropout(seed) for seed in seeds] for _ in range(2))
    results = fit_many(together, data, split, seeds=seeds, awp=AUTO, epochs=60)
    begins = {[lam > 0 for lam in result.history["lam"]].index(True) for result in results}
    assert len(begins) > 1, "they begin to be perturbed in different epochs"
    for seed in seeds:
        fit(alone[seed], data, split, seed=seed, awp=AUTO, epochs=60)
        for p, q in zip(together[seed].parameters(), alone[seed].parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("average", [None, 0.9, "swa"])
def test_splits_of_their_own_in_one_stack_as_on_a_gpu_change_nothing(
    average: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train() -> list[Fit]:
        models = [gcn(i, dropout=0.0) for i in range(3)]
        return fit_many(models, DATA, SPLITS, seeds=[0, 1, 2], awp=AUTO, epochs=40, average=average)

    apart = train()
    monkeypatch.setattr(loop, "_stacks", lambda splits, *_, **__: [list(range(len(splits)))])
    for one, other in zip(train(), apart, strict=True):
        assert max(other.history["lam"]) > 0.2
        for name in ("lam", "train_loss", "val_loss"):
            assert one.history[name] == pytest.approx(other.history[name], abs=2e-4)


def test_a_member_at_rest_is_trained_plainly_beside_one_that_is_perturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first member never overfits, as its weight is kept at 0; its companion is perturbed from the first epoch."""

    def follow(state: AutoState[Tensor], _train: Tensor, _val: Tensor) -> AutoState[Tensor]:
        return state._replace(lam=torch.tensor([0.0, 0.6]).to(state.lam))

    monkeypatch.setattr("wtawp.training.stack_training.follow_gap", follow)
    perturbed = fit_many([gcn(0), gcn(1)], DATA, SPLITS[0], seeds=[0, 1], awp=AUTO, epochs=20)
    plain = fit_many([gcn(0), gcn(1)], DATA, SPLITS[0], seeds=[0, 1], epochs=20)
    assert perturbed[0].history["train_loss"] == plain[0].history["train_loss"]
    assert perturbed[0].history["gap"] == [0.0] * 20
    assert perturbed[0].history["lam"] == [0.0] * 20
    assert perturbed[1].history["train_loss"] != plain[1].history["train_loss"]
    assert perturbed[1].history["lam"] == pytest.approx([0.0, *[0.6] * 19])


def test_the_history_shows_where_the_perturbed_pass_was_skipped() -> None:
    history = fit(gcn(), DATA, SPLITS[0], seed=0, awp=AUTO, epochs=60).history
    for lam, gap in zip(history["lam"], history["gap"], strict=True):
        assert (lam == 0) == (gap == 0)
        assert lam == 0 or lam >= MIN_LAM
    assert history["lam"][0] == 0
    assert not {"lam", "rho"} & fit(gcn(), DATA, SPLITS[0], seed=0, epochs=2).history.keys()


def test_a_training_that_never_overfits_has_the_bits_of_plain_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wtawp.training.stack_training.follow_gap", lambda state, _train, _val: state)
    auto, plain = gcn(), gcn()
    fit(auto, DATA, SPLITS[0], seed=0, awp=AUTO, epochs=10)
    fit(plain, DATA, SPLITS[0], seed=0, epochs=10)
    assert all(torch.equal(a, b) for a, b in zip(auto.parameters(), plain.parameters(), strict=True))


def test_both_losses_are_measured_after_the_epoch_without_dropout() -> None:
    split, model = SPLITS[1], gcn(dropout=0.6)
    states = [AutoState(*(torch.tensor(value, dtype=torch.float64) for value in (0.0, 0.0, 0.0)))]

    def measure(model: nn.Module, _epoch: int) -> None:
        with torch.no_grad():
            logits = model.eval()(DATA.x, DATA.edge_index)
        model.train()
        train, val = (F.cross_entropy(logits[part], DATA.y[part]) for part in (split.train, split.val))
        states.append(follow_gap(states[-1], train, val))

    first_loss = fit(gcn(dropout=0.6), DATA, split, seed=0, awp=AUTO, epochs=1).history["train_loss"][0]  # with dropout
    states[0].first_loss.fill_(first_loss)
    result = fit(model, DATA, split, seed=0, awp=AUTO, epochs=60, observe=measure)
    assert result.history["lam"] == pytest.approx([float(zero_if_negligible(c.lam)) for c in states[:-1]], abs=1e-6)
    assert states[-1].lam > 0.1


class KilledError(Exception):
    pass


def test_a_resumed_training_has_the_bits_of_an_uninterrupted_one(tmp_path: Path) -> None:
    awp = AwpConfig(rho=20.0, lam="auto")
    whole = fit(gcn(), DATA, SPLITS[0], seed=0, awp=awp, epochs=40)
    assert whole.history["rho"][23] < 20

    def kill(_model: object, epoch: int) -> None:
        if epoch == 23:
            raise KilledError

    for observe in (kill, None):
        model = gcn()
        try:
            result = fit(model, DATA, SPLITS[0], seed=0, awp=awp, epochs=40, observe=observe,
                         checkpoint=tmp_path / "run.pt")  # fmt: skip
        except KilledError:
            continue
    assert result == whole


def test_losses_below_zero_are_refused() -> None:
    with pytest.raises(ValueError, match=r"lam=.auto. compares losses by their ratio and needs them >= 0"):
        fit(gcn(), DATA, SPLITS[0], seed=0, awp=AUTO, epochs=2, loss=lambda out, y: F.cross_entropy(out, y) - 5)


def test_a_training_loss_below_zero_is_refused_where_dropout_hides_it() -> None:
    with pytest.raises(ValueError, match=r"needs them >= 0, but the loss is -0\."):
        fit(gcn(dropout=0.8), DATA, SPLITS[0], seed=0, awp=AUTO, epochs=200,
            loss=lambda out, y: F.cross_entropy(out, y) - 0.02)  # fmt: skip


def test_minibatches_follow_the_losses_of_their_epochs() -> None:
    result = fit_batches(gcn(), DATA, SPLITS[0], seed=0, batch_size=8, fanouts=(5, 5), awp=AUTO, epochs=30)
    assert result.history["lam"][0] == 0
    assert result.history["lam"][-1] > 0.3
    assert len(result.history["rho"]) == 30


def test_a_loss_that_is_a_sum_is_warned_of() -> None:
    split = SPLITS[0]
    large = Split(split.train, split.test, split.val)  # a sum over many validation nodes is never below the first one
    summed = partial(F.cross_entropy, reduction="sum")
    with pytest.warns(UserWarning, match=r'lam="auto" has trained 1 of 1 models plainly.* not their sum'):
        result = fit(gcn(), DATA, large, seed=0, awp=AUTO, epochs=30, loss=summed)
    assert max(result.history["lam"]) == 0
    fit(gcn(), DATA, large, seed=0, awp=AUTO, epochs=30, loss=F.cross_entropy)  # a warning would be an error


def test_a_small_learning_rate_is_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"confirmed with lr=0\.01, and counts epochs: with lr=0\.001"):
        fit(gcn(), DATA, SPLITS[0], seed=0, awp=AUTO, epochs=2, lr=0.001)
    fit(gcn(), DATA, SPLITS[0], seed=0, awp=AUTO, epochs=2, lr=0.005)  # a warning would be an error
    fit(gcn(), DATA, SPLITS[0], seed=0, epochs=2, lr=0.001)
