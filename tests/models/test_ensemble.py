import pytest
import torch
from torch import Tensor, nn

from wtawp.base import rng
from wtawp.graphs import load
from wtawp.models import GAT, GCN, MLP, PPNP
from wtawp.models.calls import is_out_of_memory
from wtawp.models.dropout import masks
from wtawp.models.ensemble import Ensemble

KEYS = torch.tensor([5, 6, 7])


@pytest.mark.parametrize("build", [GCN, GAT, PPNP, MLP])
def test_together_is_what_each_is_alone(build: type) -> None:
    data = load("wine")
    models = [build(13, 3, generator=rng("init", i)) for i in range(3)]
    ensemble = Ensemble(models)
    arguments = (data.x, data.edge_index)
    for keys in (KEYS, None):
        together = ensemble.logits(ensemble.parameters(), ensemble.buffers(), arguments, keys)
        assert together.shape == (3, 178, 3)
        for i, model in enumerate(models):
            model.train(keys is not None)
            with masks(KEYS[i]):
                torch.testing.assert_close(together[i], model(*arguments), rtol=1e-5, atol=1e-6)


def test_buffers_are_stacked_whatever_mode_the_members_are_in() -> None:
    models = [nn.BatchNorm1d(2) for _ in range(2)]
    models[0].eval()
    models[1].running_mean.add_(3)
    assert Ensemble(models).buffers()["running_mean"].tolist() == [[0, 0], [3, 3]]


def test_what_vmap_cannot_take_runs_member_by_member_and_says_so() -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(13, 3)

        def forward(self, x: Tensor, _edge_index: Tensor) -> Tensor:
            return self.lin(x) if self.lin.weight.sum() > 0 else -self.lin(x)

    data, models = load("wine"), [Branches() for _ in range(3)]
    ensemble = Ensemble(models)
    with pytest.warns(UserWarning, match="vmap cannot take Branches, so members run one after another"):
        together = ensemble.logits(ensemble.parameters(), {}, (data.x, data.edge_index), None)
    torch.testing.assert_close(together, torch.stack([m(data.x, data.edge_index) for m in models]))


class Noisy(nn.Module):
    def __init__(self, branches: bool = False) -> None:
        super().__init__()
        self.lin, self.norm, self.branches = nn.Linear(13, 3), nn.BatchNorm1d(13), branches

    def forward(self, x: Tensor, _edge_index: Tensor) -> Tensor:
        noisy = self.lin(self.norm(x)) + torch.randn(3)
        return -noisy if self.branches and self.lin.weight.sum() <= 0 else noisy


@pytest.mark.parametrize("branches", [False, True])
def test_members_that_draw_run_one_after_another_silently_and_as_if_nothing_else_was_tried(branches: bool) -> None:
    data, models = load("wine"), [Noisy(branches) for _ in range(3)]
    ensemble = Ensemble(models)
    before, buffers = torch.get_rng_state(), ensemble.buffers()
    together = ensemble.logits(ensemble.parameters(), buffers, (data.x, data.edge_index), KEYS)
    assert not ensemble.is_mapped
    torch.set_rng_state(before)
    torch.testing.assert_close(together, torch.stack([m(data.x, data.edge_index) for m in models]))
    assert buffers["norm.num_batches_tracked"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("knows_that_it_is_random", [True, False])
def test_each_member_draws_from_a_random_state_of_its_own(
    knows_that_it_is_random: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not knows_that_it_is_random:  # as an operation of another library that vmap does not know
        mapped = torch.func.vmap
        monkeypatch.setattr(torch.func, "vmap", lambda f, **_: mapped(f, randomness="different"))
    data, models = load("wine"), [Noisy() for _ in range(3)]
    weights, arguments, outputs = Ensemble(models).parameters(), (data.x, data.edge_index), {}
    for chosen in ([0, 1, 2], [2, 1], [1, 0]):
        stack = Ensemble([models[i] for i in chosen], seeds=chosen)
        before, own = torch.get_rng_state(), {name: w[chosen] for name, w in weights.items()}
        first, second = (stack.logits(own, stack.buffers(), arguments, KEYS[chosen]) for _ in range(2))
        assert torch.equal(before, torch.get_rng_state())
        assert not torch.equal(first, second)
        for i, both in zip(chosen, torch.stack([first, second], 1), strict=True):
            torch.testing.assert_close(both, outputs.setdefault(i, both))


def test_dropout_that_drops_nothing_is_mapped() -> None:
    class Still(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(13, 3)

        def forward(self, x: Tensor, _edge_index: Tensor) -> Tensor:
            return nn.functional.dropout(self.lin(x), 0.0, self.training)

    data, ensemble = load("wine"), Ensemble([Still() for _ in range(2)])
    ensemble.logits(ensemble.parameters(), {}, (data.x, data.edge_index), KEYS[:2])
    assert ensemble.is_mapped


def test_what_a_failed_attempt_counted_in_buffers_does_not_count() -> None:
    class NormedBranches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.lin = nn.BatchNorm1d(13), nn.Linear(13, 3)

        def forward(self, x: Tensor, _edge_index: Tensor) -> Tensor:
            out = self.lin(self.norm(x))
            return out if out.sum().item() > 0 else -out

    data, models = load("wine"), [NormedBranches() for _ in range(2)]
    ensemble = Ensemble(models)
    buffers = ensemble.buffers()
    with pytest.warns(UserWarning, match="members run one after another"):
        together = ensemble.logits(ensemble.parameters(), buffers, (data.x, data.edge_index), KEYS[:2])
    torch.testing.assert_close(together, torch.stack([m(data.x, data.edge_index) for m in models]))
    for i, model in enumerate(models):
        for name, alone in model.named_buffers():
            torch.testing.assert_close(buffers[name][i], alone)


def test_exhausted_memory_is_not_taken_for_something_that_vmap_cannot_do() -> None:
    class Hungry(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(13, 3)

        def forward(self, x: Tensor, _edge_index: Tensor) -> Tensor:
            return self.lin(x) + torch.empty(10**15)[0]

    data, ensemble = load("wine"), Ensemble([Hungry() for _ in range(2)])
    with pytest.raises(RuntimeError, match="memory") as caught:
        ensemble.logits(ensemble.parameters(), {}, (data.x, data.edge_index), None)
    assert is_out_of_memory(caught.value)


def test_weights_travel_both_ways() -> None:
    models = [GCN(4, 2, hidden=(3,), generator=rng("init", i)) for i in range(2)]
    ensemble = Ensemble(models)
    stacked = ensemble.parameters()
    assert all(w.requires_grad and w.is_leaf for w in stacked.values())
    ensemble.write_back({n: w + 1 for n, w in stacked.items()})
    assert torch.equal(models[1].convs[0].weight, stacked["convs.0.weight"][1] + 1)


@pytest.mark.parametrize("models", [[], [nn.Linear(2, 2), nn.Linear(2, 3)]])
def test_models_must_be_of_one_architecture(models: list[nn.Module]) -> None:
    with pytest.raises(ValueError, match="models of one architecture"):
        Ensemble(models)


def test_the_template_has_its_own_tensors_again_also_after_an_error() -> None:
    data, model = load("wine"), GCN(13, 3, norm="batch", generator=rng("init"))
    ensemble, own = Ensemble([model]), {**dict(model.named_parameters()), **dict(model.named_buffers())}
    stacked = {name: t + 1 for name, t in ensemble.parameters().items()}
    ensemble.logits(stacked, ensemble.buffers(), (data.x, data.edge_index), KEYS[:1])
    with pytest.raises(ValueError, match="5 columns"):
        ensemble.logits(stacked, ensemble.buffers(), (data.x[:, :5], data.edge_index), KEYS[:1])
    again = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    assert again.keys() == own.keys()
    assert all(again[name] is t for name, t in own.items())


def test_a_shared_weight_is_replaced_everywhere() -> None:
    model = GCN(3, 3, hidden=(3,), dropout=0.0, generator=rng("init"))
    model.convs[1].weight = model.convs[0].weight
    data, ensemble = load("karate"), Ensemble([model])
    x = torch.randn(34, 3, generator=rng("x"))
    shifted = {name: t + 1 for name, t in ensemble.parameters().items()}
    together = ensemble.logits(shifted, {}, (x, data.edge_index), None)
    ensemble.write_back(shifted)
    torch.testing.assert_close(together[0], model.eval()(x, data.edge_index))


def test_the_mode_of_all_modules_follows_the_pass() -> None:
    data, model = load("wine"), GCN(13, 3, generator=rng("init"))
    ensemble = Ensemble([model])
    for keys in (KEYS[:1], None, KEYS[:1]):
        model.convs[0].eval()  # by somebody else
        ensemble.logits(ensemble.parameters(), {}, (data.x, data.edge_index), keys)
        assert {module.training for module in model.modules()} == {keys is not None}


def test_a_subclass_decides_itself_what_its_modes_mean() -> None:
    class Frozen(GCN):
        def train(self, mode: bool = True) -> "Frozen":
            super().train(mode)
            self.convs[0].training = False  # no dropout after the first layer
            return self

    data, results = load("wine"), []
    for kind in (GCN, Frozen):
        ensemble = Ensemble([kind(13, 3, generator=rng("init"))])
        results.append(ensemble.logits(ensemble.parameters(), {}, (data.x, data.edge_index), KEYS[:1]))
    without = Ensemble([GCN(13, 3, dropout=0.0, generator=rng("init"))])
    torch.testing.assert_close(
        results[1], without.logits(without.parameters(), {}, (data.x, data.edge_index), KEYS[:1])
    )
    assert not torch.equal(results[0], results[1])


def test_a_foreign_module_may_hide_parameters() -> None:
    class Hiding(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin, self.extra = nn.Linear(13, 3), nn.Linear(1, 1)

        def named_parameters(self, *arguments: object, **options: object):  # type: ignore[no-untyped-def]
            return ((n, p) for n, p in super().named_parameters(*arguments, **options) if "extra" not in n)

        def forward(self, x: Tensor, _edge_index: Tensor) -> Tensor:
            return self.lin(x)

    data, ensemble = load("wine"), Ensemble([Hiding()])
    logits = ensemble.logits(ensemble.parameters(), {}, (data.x, data.edge_index), None)
    assert logits.shape == (1, 178, 3)
