from weakref import ref

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GAT as PygGAT  # noqa: N811

from wtawp.base import rng
from wtawp.core import WTAWP, AwpConfig
from wtawp.graphs import kernels, load, stratified, structure
from wtawp.models import GAT, GCN, GCNSVD, GIN, MLP, PPNP, GCNJaccard, GraphSAGE, SimPGCN, fused
from wtawp.models.capabilities import HasExtraLoss
from wtawp.training import fit, fit_many, stack_training

SETTINGS = [None, AwpConfig(rho=0.5, lam=0.7), AwpConfig(rho=0.3, lam=0.5, layers="all", steps=3, balance=1.0)]


def build(kind: type, data: Data, seed: int, dtype: torch.dtype) -> nn.Module:
    other = {
        PPNP: {"hidden": 8},
        SimPGCN: {"hidden": 8},
        GAT: {"width": 2, "heads": 3},
        GIN: {"hidden": (8,), "train_eps": True},
    }
    small = other.get(kind, {"hidden": (8,)})
    return kind(data.num_features, 7, **small, generator=rng("init", seed)).to(dtype)


@pytest.mark.parametrize("kind", [GCN, PPNP, GAT, MLP, GraphSAGE, GIN, GCNJaccard, GCNSVD, SimPGCN])
@pytest.mark.parametrize(
    ("awp", "dtype", "tolerance"),
    [*((awp, torch.float64, 1e-9) for awp in SETTINGS), (SETTINGS[1], torch.float32, 1e-3)],
)
def test_many_together_end_as_each_alone(
    kind: type, awp: AwpConfig | None, dtype: torch.dtype, tolerance: float
) -> None:
    data = load("citation")
    data.x = data.x.to(dtype)
    splits = [stratified(data.y, seed=s) for s in range(2)]
    parts = [splits[0], splits[1], splits[0]]
    models, alone = ([build(kind, data, i, dtype) for i in range(3)] for _ in range(2))
    together = fit_many(models, data, parts, seeds=[10, 11, 12], awp=awp, epochs=20)
    for i, model in enumerate(alone):
        result = fit(model, data, parts[i], seed=10 + i, awp=awp, epochs=20)
        for p, q in zip(model.parameters(), models[i].parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=0, atol=tolerance)
        assert result.epoch == together[i].epoch
        assert result.history["train_loss"][0] == pytest.approx(together[i].history["train_loss"][0], rel=1e-5)


class Drawing(nn.Module):
    """A user's module that draws from torch's generators in training and, a little, in evaluation."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.first, self.last = nn.Linear(13, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor, _edge_index: Tensor) -> Tensor:
        hidden = F.dropout(self.first(F.dropout(x, 0.3, self.training)).relu(), 0.5, self.training)
        return self.last(hidden + 0.01 * torch.randn_like(hidden))


@pytest.mark.parametrize("awp", [*SETTINGS, AwpConfig(rho=0.5, lam=0.7, perturbed_gradient="functional")])
def test_modules_that_draw_from_torch_s_generators_end_together_as_each_alone(awp: AwpConfig | None) -> None:
    data = load("wine")
    data.x = data.x.double()
    splits = [stratified(data.y, seed=s) for s in range(2)]
    parts = [splits[0], splits[1], splits[0]]
    models, alone = ([Drawing(i).double() for i in range(3)] for _ in range(2))
    before = torch.get_rng_state()
    together = fit_many(models, data, parts, seeds=[10, 11, 12], awp=awp, epochs=8)
    assert torch.equal(before, torch.get_rng_state())
    for i, model in enumerate(alone):
        torch.rand(i)  # the caller's random state decides nothing
        result = fit(model, data, parts[i], seed=10 + i, awp=awp, epochs=8)
        for p, q in zip(model.parameters(), models[i].parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=0, atol=1e-9)
        assert result.history == {name: pytest.approx(column) for name, column in together[i].history.items()}
        assert (result.epoch, result.loss) == (together[i].epoch, pytest.approx(together[i].loss))


def test_the_history_holds_the_by_products_of_every_step() -> None:
    data = load("wine")
    split = stratified(data.y, seed=0)
    result = fit(GCN(13, 3, generator=rng("init")), data, split, seed=0, awp=AwpConfig(rho=0.5, lam=0.5), epochs=7)
    assert {name: len(column) for name, column in result.history.items()} == dict.fromkeys(
        ["train_loss", "gap", "gradient_norm", "perturbed_norm", "weight_norm", "val_loss", "val_accuracy"], 7
    )
    assert min(result.history["gap"]) > 0
    plain = fit(GCN(13, 3, generator=rng("init")), data, split, seed=0, epochs=7)
    assert plain.history["gap"] == [0.0] * 7
    assert plain.history["train_loss"][0] == result.history["train_loss"][0]


def test_batch_norm_statistics_come_from_clean_passes_and_from_the_selected_epoch() -> None:
    data = load("wine")
    split = stratified(data.y, seed=0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = PygGAT(13, 8, 2, 3, norm="batch_norm")
    result = fit(model, data, split, seed=0, awp=AwpConfig(rho=0.5, lam=0.5, steps=2), epochs=6, lr=0.3)
    assert result.epoch < 5  # not the last one
    tracked = [int(b) for n, b in model.named_buffers() if n.endswith("num_batches_tracked")]
    assert tracked == [result.epoch + 1]  # one clean pass in each epoch up to the selected one


def test_bad_calls_say_what_is_wrong() -> None:
    data = load("wine")
    split, model = stratified(data.y, seed=0), GCN(13, 3, generator=rng("init"))
    with pytest.raises(ValueError, match="got 1 models, 1 splits, 2 seeds"):
        fit_many([model], data, split, seeds=[0, 1])
    with pytest.raises(
        ValueError, match=r"awp takes the options of the method, AwpConfig\(rho=..., lam=...\), got dict"
    ):
        fit(model, data, split, seed=0, awp={"rho": 1.0})
    with pytest.raises(ValueError, match="ReLU has no parameters to train"):
        fit(torch.nn.ReLU(), data, split, seed=0)


class Taxed(MLP, HasExtraLoss):
    """An MLP that pays for the size of its first matrix."""

    def forward(self, *arguments: object, with_extra_loss: bool = False) -> object:  # type: ignore[override]
        logits = super().forward(*arguments)  # type: ignore[arg-type]
        return (logits, 10 * self.lins[0].weight.square().sum((-2, -1))) if with_extra_loss else logits

    def extra_loss(self, *arguments: object) -> torch.Tensor:
        return self(*arguments, with_extra_loss=True)[1]


def test_the_last_epoch_is_kept_when_nothing_is_to_be_selected_on() -> None:
    data = load("wine")
    seen: list[torch.Tensor] = []
    model = MLP(13, 3, generator=rng("init"))
    fitted = fit_many(
        [model], data, stratified(data.y, seed=0), seeds=[0], epochs=30, lr=0.5, select_on="last",
        observe=lambda models, _: seen.append(models[0].lins[0].weight.detach().clone()),
    )  # fmt: skip
    assert fitted[0].epoch == 29
    assert torch.equal(model.lins[0].weight, seen[-1])


@pytest.mark.parametrize("awp", [None, AwpConfig(rho=0.5, lam=0.5)])
def test_a_loss_of_the_model_s_own_counts_for_the_natural_weights(awp: AwpConfig | None) -> None:
    data = load("wine")
    split, sizes, tax = stratified(data.y, seed=0), {}, {}
    for kind in (MLP, Taxed):
        models = [kind(13, 3, generator=rng("init", i)) for i in range(2)]
        tax[kind] = [10 * float(m.lins[0].weight.detach().square().sum()) for m in models]
        fits = fit_many(models, data, split, seeds=[0, 1], awp=awp, epochs=30, select_on="loss")
        sizes[kind] = (
            [float(m.lins[0].weight.detach().norm()) for m in models],
            [f.history["train_loss"][0] for f in fits],
        )
    for i in range(2):
        assert sizes[Taxed][0][i] < 0.8 * sizes[MLP][0][i]
        assert sizes[Taxed][1][i] == pytest.approx(sizes[MLP][1][i] + tax[MLP][i], rel=1e-4)


@pytest.mark.parametrize(("every", "start"), [(1, 0), (2, 0), (3, 0), (1, 5), (2, 3)])
def test_the_epochs_between_those_that_are_perturbed_are_plain(every: int, start: int) -> None:
    data = load("wine")
    data.x = data.x.double()
    split = stratified(data.y, seed=0)
    models, by_hand = ([MLP(13, 3, dropout=0.0, generator=rng("init", i)).double() for i in range(2)] for _ in "ab")
    awp = AwpConfig(rho=0.5, lam=0.7, every=every, start=start)
    results = fit_many(models, data, split, seeds=[0, 1], awp=awp, epochs=8, weight_decay=0.0, select_on="last")
    for model, other, result in zip(models, by_hand, results, strict=True):
        method, optimizer = WTAWP(other, **vars(awp)), torch.optim.Adam(other.parameters(), lr=0.01)
        for _ in range(8):
            optimizer.zero_grad()
            method.backward(
                lambda other=other: F.cross_entropy(other(data.x, data.edge_index)[split.train], data.y[split.train])
            )
            optimizer.step()
        for p, q in zip(model.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=0, atol=1e-9)
        assert [gap != 0 for gap in result.history["gap"]] == [
            epoch >= start and (epoch - start) % every == 0 for epoch in range(8)
        ]


def test_a_start_after_the_last_epoch_is_refused() -> None:
    data, awp = load("wine"), AwpConfig(rho=0.5, lam=0.7, start=8)
    with pytest.raises(ValueError, match="start=8 leaves no perturbed epoch of 8"):
        fit(MLP(13, 3, generator=rng("init")), data, stratified(data.y, seed=0), seed=0, awp=awp, epochs=8)


@pytest.mark.parametrize("size", [1, 2])
def test_the_views_of_training_and_validation_are_freed_before_that_of_testing(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peak of memory is where the test nodes are, which are nearly the whole graph."""
    data, make, views, held = load("wine"), stack_training.build_subset, [], []

    def watched(*arguments: object) -> object:
        held.append([view() is not None for view in views])
        view = make(*arguments)  # type: ignore[arg-type]
        views.append(ref(view))
        return view

    monkeypatch.setattr(stack_training, "build_subset", watched)
    models = [GCN(13, 3, hidden=(4,), generator=rng("init", i)) for i in range(size)]
    results = fit_many(models, data, stratified(data.y, seed=0), seeds=list(range(size)), epochs=2)
    assert held == [[], [True], [False, False]]
    assert set(results[0].accuracy) == set(results[0].loss) == {"train", "val", "test"}
    assert [view() for view in views] == [None] * 3


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kind", [GCN, GAT, GraphSAGE])
def test_int64_pointers_train_to_the_bits_of_int32_ones(
    kind: type, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not compiled:
        monkeypatch.setattr(structure, "HAS_NUMBA", False)
        monkeypatch.setattr(kernels, "HAS_NUMBA", False)
        monkeypatch.setattr(fused, "is_compiled", lambda _: False)
    data, split = load("citation"), stratified(load("citation").y, seed=0)
    runs = []
    for threshold in (structure.INT32_ENTRIES, 0):
        monkeypatch.setattr(structure, "INT32_ENTRIES", threshold)
        model = build(kind, data, 0, torch.float32)
        result = fit(model, data, split, seed=0, awp=SETTINGS[1], epochs=2)
        runs.append((result, [p.tolist() for p in model.parameters()]))
    assert runs[0] == runs[1]
