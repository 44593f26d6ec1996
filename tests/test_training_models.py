"""Hooks, graphs that autograd does not see whole, the loss form, and models and parameters of many kinds.

Every expected gradient is computed by the loops of `reference_step`, which share no code with the package.
"""

import copy
from typing import Any

import pytest
import torch
from reference_step import gradients_of, reference_step, relative_error, same_bits, weights_of
from small_training import REFUSAL, X, Y, assert_step, loss_of, network, setting_of, with_weights
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import spectral_norm, weight_norm
from torch.utils.checkpoint import checkpoint

from wtawp.base import rng
from wtawp.core import WTAWP, select

# Hooks


@pytest.mark.parametrize("steps", [1, 2])
def test_register_post_accumulate_grad_hook_runs_once_with_the_whole_gradient(steps: int) -> None:
    model, seen = network(), []
    start, names = weights_of(model), {p: n for n, p in model.named_parameters()}
    awp = WTAWP(model, rho=0.4, lam=0.7, steps=steps)
    loss_of(model)().backward()
    expected = reference_step(model, loss_of(model), setting_of(awp), prior=gradients_of(model)).gradient

    def hook(p: Tensor) -> None:
        seen.append((names[p], p.grad.clone(), p.detach().clone()))

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(hook)
    awp.backward(loss_of(model))
    assert sorted(n for n, _, _ in seen) == sorted(start)
    assert relative_error({n: g for n, g, _ in seen}, expected) < 1e-12
    assert same_bits({n: w for n, _, w in seen}, start)
    assert same_bits(weights_of(model), start)
    seen.clear()
    loss_of(model)().backward()  # the hooks are still there
    assert len(seen) == len(start)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_optimizer_in_backward_trains_as_the_optimizer_after_it(kind: type[torch.optim.Optimizer]) -> None:
    model, plain = network(), network()
    inside = {p: kind([p], lr=0.05) for p in model.parameters()}
    after, awp = kind(plain.parameters(), lr=0.05), WTAWP(model, rho=0.4, lam=0.7)

    def hook(p: Tensor) -> None:
        inside[p].step()
        inside[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(hook)
    start = weights_of(model)
    for _ in range(4):
        awp.backward(loss_of(model))
        for n, g in reference_step(plain, loss_of(plain), setting_of(awp)).gradient.items():
            plain.get_parameter(n).grad = g
        after.step()
        assert relative_error(weights_of(model), weights_of(plain)) < 1e-10
    assert relative_error(weights_of(model), start) > 1e-2
    assert not gradients_of(model)


@pytest.mark.parametrize("options", [{"balance": 1.0}, {"exact": True}])
def test_options_that_need_separate_gradients_are_refused_with_hooks(options: dict[str, Any]) -> None:
    model = network()
    model[0].weight.register_post_accumulate_grad_hook(lambda _: None)
    with pytest.raises(REFUSAL, match=next(iter(options))):
        WTAWP(model, rho=0.4, lam=0.7, **options).backward(loss_of(model))


# Graphs that autograd does not see whole


@pytest.mark.parametrize("form", ["backward", "loss"])
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("steps", [1, 2])
def test_checkpointing_is_right_in_both_forms(reentrant: bool, steps: int, form: str) -> None:
    model = network()
    awp = WTAWP(model, rho=0.4, lam=0.7, steps=steps)
    x = X.clone().requires_grad_()

    def closure() -> Tensor:
        return F.cross_entropy(model[4](checkpoint(model[:4], x, use_reentrant=reentrant)), Y)

    expected = reference_step(model, loss_of(model), setting_of(awp)).gradient
    if form == "backward":
        awp.backward(closure)
    else:
        awp.loss(closure).backward()
    assert relative_error(gradients_of(model), expected) < 1e-10


@pytest.mark.parametrize("form", ["backward", "loss"])
def test_functional_call_is_right_in_both_forms(form: str) -> None:
    model = network()
    awp = WTAWP(model, rho=0.4, lam=0.7)
    parameters = dict(model.named_parameters())

    def closure() -> Tensor:
        return F.cross_entropy(torch.func.functional_call(model, parameters, (X,)), Y)

    result = reference_step(model, loss_of(model), setting_of(awp)).gradient
    if form == "backward":
        awp.backward(closure)
    else:
        awp.loss(closure).backward()
    assert relative_error(gradients_of(model), result) < 1e-10


@pytest.mark.parametrize("form", ["backward", "loss"])
def test_functional_call_with_other_tensors_is_not_silently_plain_training(form: str) -> None:
    model = network()
    others = {n: p.detach().clone().requires_grad_() for n, p in model.named_parameters()}

    def closure() -> Tensor:
        return F.cross_entropy(torch.func.functional_call(model, others, (X,)), Y)

    with pytest.raises((*REFUSAL, UserWarning), match=r"unused|functional_call|nothing is perturbed"):
        getattr(WTAWP(model, rho=0.4, lam=0.7), form)(closure)


# The loss form


@pytest.mark.parametrize("factor", [1.0, 0.25, 1024.0])
@pytest.mark.parametrize("steps", [1, 2])
def test_the_loss_form_has_the_objective_s_value_and_gradient(factor: float, steps: int) -> None:
    model = network(nn.BatchNorm1d(6))
    awp = WTAWP(model, rho=0.4, lam=0.7, steps=steps)
    loss_of(model)().backward()
    prior, held = gradients_of(model), [p.grad for p in model.parameters()]
    reference = reference_step(model, loss_of(model), setting_of(awp))
    probe = copy.deepcopy(model)
    with torch.no_grad():
        for n, p in probe.named_parameters():
            p.copy_(reference.points[-1][n])
    value = 0.7 * float(loss_of(probe)().detach()) + 0.3 * float(reference.loss)
    before = weights_of(model)
    objective = awp.loss(loss_of(model))
    assert objective.requires_grad
    assert objective.shape == ()
    assert float(objective.detach()) == pytest.approx(value, rel=1e-12)
    assert same_bits(gradients_of(model), prior)
    assert all(p.grad is g for p, g in zip(model.parameters(), held, strict=True))
    (factor * objective).backward()
    expected = {n: prior[n] + factor * g for n, g in reference.gradient.items()}
    assert relative_error(gradients_of(model), expected) < 1e-12
    assert same_bits(weights_of(model), before)
    assert same_bits(dict(model.named_buffers()), reference.buffers)


def test_the_loss_form_is_one_term_of_a_larger_loss() -> None:
    model = network()
    awp = WTAWP(model, rho=0.4, lam=0.7)
    expected = reference_step(model, loss_of(model), setting_of(awp)).gradient
    (2 * awp.loss(loss_of(model)) + 0.1 * model[0].weight.square().sum()).backward()
    expected = {n: 2 * g for n, g in expected.items()}
    expected["0.weight"] = expected["0.weight"] + 0.2 * model[0].weight.detach()
    assert relative_error(gradients_of(model), expected) < 1e-12


# Parameters of unusual kinds


@pytest.mark.parametrize(
    ("kinds", "word", "names"),
    [
        ("wwl", "all-but-last", ("0.parametrizations.weight.original1", "2.parametrizations.weight.original1")),
        ("lww", "all-but-last", ("0.weight", "2.parametrizations.weight.original1")),
        ("llw", "last", ("4.parametrizations.weight.original1",)),
        ("wll", "first", ("0.parametrizations.weight.original1",)),
        ("ssl", "all-but-last", ("0.parametrizations.weight.original", "2.parametrizations.weight.original")),
        ("lls", "all-but-last", ("0.weight", "2.weight")),
        ("sls", "all", ("0.parametrizations.weight.original", "2.weight", "4.parametrizations.weight.original")),
    ],
)
def test_parametrisations_are_layers_for_the_words(kinds: str, word: str, names: tuple[str, ...]) -> None:
    model = parametrised(kinds)
    assert select(model, word) == names
    awp = WTAWP(model, rho=0.3, lam=0.7, layers=word)
    assert_step(model, loss_of(model), awp, perturbed=names)


def parametrised(kinds: str) -> nn.Module:
    """Three layers, each (w) weight-normalised, (s) spectrally normalised or (l) plain."""
    wrap = {"w": weight_norm, "s": spectral_norm, "l": lambda layer: layer}
    layers = [nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 3)]
    with torch.random.fork_rng():
        torch.manual_seed(0)  # spectral_norm draws its first vectors
        a, b, c = (wrap[kind](layer.double()) for kind, layer in zip(kinds, layers, strict=True))
        return nn.Sequential(a, nn.Tanh(), b, nn.Tanh(), c)


class Bag(nn.Module):
    """A sparse embedding and a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(8, 4, sparse=True), nn.Linear(4, 3)
        with_weights(self.double())

    def forward(self, rows: Tensor) -> Tensor:
        return self.head(self.embed(rows).tanh())


@pytest.mark.parametrize("perturbed", [("embed.weight",), ("head.weight",), ("embed.weight", "head.weight")])
@pytest.mark.parametrize("steps", [1, 2])
def test_sparse_embeddings_keep_sparse_gradients_for_sparse_adam(perturbed: tuple[str, ...], steps: int) -> None:
    model, rows = Bag(), torch.tensor([0, 3, 3, 5])
    awp = WTAWP(model, rho=0.3, lam=0.7, layers=perturbed, steps=steps)
    sparse = torch.optim.SparseAdam([model.embed.weight], lr=0.1)
    dense = torch.optim.Adam(model.head.parameters(), lr=0.1)
    for _ in range(2):
        sparse.zero_grad()
        dense.zero_grad()
        for _ in range(2):  # accumulation as well
            assert_step(model, lambda: F.cross_entropy(model(rows), Y[:4]), awp, perturbed=perturbed)
        assert model.embed.weight.grad.is_sparse
        untouched = model.embed.weight.detach()[[1, 2, 4, 6, 7]].clone()
        sparse.step()
        dense.step()
        assert torch.equal(model.embed.weight.detach()[[1, 2, 4, 6, 7]], untouched)


class Tied(nn.Module):
    """The same matrix embeds and decodes."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mid, self.out = nn.Linear(4, 6, bias=False), nn.Linear(6, 6), nn.Linear(6, 6)
        self.out.weight = self.mid.weight
        self.last = nn.Linear(6, 3)
        with_weights(self.double())

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.out(self.mid(self.embed(x)).tanh()).tanh())


class Attention(nn.Module):
    """Multi-head attention over the rows."""

    def __init__(self) -> None:
        super().__init__()
        self.attend, self.last = nn.MultiheadAttention(4, 2, batch_first=True), nn.Linear(4, 3)
        with_weights(self.double())

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.attend(x[None], x[None], x[None])[0][0])


class Recurrent(nn.Module):
    """An LSTM along the rows."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.last = nn.LSTM(4, 5), nn.Linear(5, 3)
        with_weights(self.double())

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.lstm(x[:, None])[0][:, 0])


class Convolution(nn.Module):
    """A convolution with weights in channels-last order."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.last = nn.Conv2d(2, 4, 3, padding=1), nn.Linear(8, 3)
        with_weights(self.double()).to(memory_format=torch.channels_last)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.conv(torch.cat([x, x], 1).view(-1, 2, 2, 2)).tanh().flatten(2).sum(1).repeat(1, 2))


MODELS = {
    "tied": (Tied, "all-but-last"),
    "frozen": (lambda: frozen_network(), "all"),
    "attention": (Attention, "*weight"),
    "LSTM": (Recurrent, "*weight*"),
    "channels_last": (Convolution, "all"),
    "batch norm": (lambda: network(nn.BatchNorm1d(6)), "*"),
}


def frozen_network() -> nn.Module:
    model = network()
    model[0].requires_grad_(False)
    return model


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("steps", "lam"), [(1, 0.7), (1, 1.0), (2, 0.7)])
@pytest.mark.parametrize("form", ["backward", "loss"])
def test_models_of_many_kinds(name: str, steps: int, lam: float, form: str) -> None:
    build, layers = MODELS[name]
    model = build()
    awp = WTAWP(model, rho=0.3, lam=lam, layers=layers, steps=steps)
    run = None if form == "backward" else lambda: awp.loss(loss_of(model)).backward()
    assert_step(model, loss_of(model), awp, run=run)
    assert all(p.grad is None for p in model.parameters() if not p.requires_grad)
    assert all(p.grad.stride() == p.stride() for p in model.parameters() if p.requires_grad)


@pytest.mark.parametrize(
    "options",
    [
        {"rho": 0.01},
        {"rho": 1.0},
        {"rho": 1.0, "lam": 1.0},
        {"rho": 1.0, "projection": "ball"},
        {"rho": 1.0, "steps": 2},
    ],
)
def test_large_layers_have_the_same_gradient(options: dict[str, Any]) -> None:
    """A large natural gradient need not be kept, because it can be computed from the perturbation."""
    model = nn.Sequential(nn.Linear(1024, 1025, bias=False), nn.Tanh(), nn.Linear(1025, 3))
    g = rng("large")
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=g) / 32)
    x, y = torch.randn(6, 1024, generator=g), torch.tensor([0, 1, 2, 0, 1, 2])
    awp = WTAWP(model, **{"lam": 0.7, **options})

    def closure() -> Tensor:
        return F.cross_entropy(model(x), y)

    for _ in range(2):  # the second time with gradients that are there already
        assert_step(
            model,
            closure,
            awp,
            run=lambda: awp.backward(closure, backward=lambda loss: (loss / 4).backward()),
            scaled=lambda loss: loss / 4,
            tolerance=1e-6,
        )


def test_complex_weights() -> None:
    model = nn.ParameterDict({"a_weight": torch.ones(2, 2, dtype=torch.complex128) * (0.5 + 0.25j)})
    model["b_weight"] = nn.Parameter(torch.full((2, 2), 0.3 - 0.4j, dtype=torch.complex128))
    x = torch.tensor([1.0, 2.0], dtype=torch.complex128)

    def closure() -> Tensor:
        return (model["b_weight"] @ torch.tanh(model["a_weight"] @ x)).abs().square().sum()

    awp = WTAWP(model, rho=0.3, lam=0.7, layers="a*")
    theta = {n: p.detach().clone() for n, p in model.items()}
    natural = torch.autograd.grad(closure(), list(model.values()))
    delta = 0.3 * theta["a_weight"].norm() / natural[0].norm() * natural[0]
    with torch.no_grad():
        model["a_weight"].add_(delta)
    perturbed = torch.autograd.grad(closure(), list(model.values()))
    with torch.no_grad():
        model["a_weight"].copy_(theta["a_weight"])
    awp.backward(closure)
    for p, a, b in zip(model.values(), perturbed, natural, strict=True):
        torch.testing.assert_close(p.grad, 0.7 * a + 0.3 * b, rtol=1e-12, atol=0)


@pytest.mark.parametrize("form", ["backward", "loss"])
def test_a_learned_temperature_outside_the_model_is_trained(form: str) -> None:
    model = network()
    temperature = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    temperature.grad = torch.tensor(1.0, dtype=torch.float64)
    awp = WTAWP(model, rho=0.4, lam=0.7)

    def closure() -> Tensor:
        return F.cross_entropy(model(X) * temperature, Y)

    reference = reference_step(model, closure, setting_of(awp))
    expected = torch.tensor(1.0, dtype=torch.float64)
    for weight, point in ((0.3, reference.points[0]), (0.7, reference.points[-1])):
        logits = torch.func.functional_call(model, point, (X,)).detach()
        expected = expected + weight * torch.autograd.grad(F.cross_entropy(logits * temperature, Y), temperature)[0]
    if form == "backward":
        awp.backward(closure, backward=lambda loss: loss.backward())
    else:
        objective = awp.loss(closure)
        assert temperature.grad == 1.0
        objective.backward()
    torch.testing.assert_close(temperature.grad, expected, rtol=1e-12, atol=0)
    assert relative_error(gradients_of(model), reference.gradient) < 1e-12


@pytest.mark.parametrize("kind", ["foreach", "fused", "neither"])
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
def test_optimizers_of_every_implementation(optimizer: type[torch.optim.Optimizer], kind: str) -> None:
    model, plain = network(), network()
    flags = {"foreach": kind == "foreach", "fused": kind == "fused"}
    ours, theirs = optimizer(model.parameters(), lr=0.05, **flags), optimizer(plain.parameters(), lr=0.05, **flags)
    awp = WTAWP(model, rho=0.4, lam=0.7)
    for _ in range(3):
        ours.zero_grad()
        awp.backward(loss_of(model))
        for n, g in reference_step(plain, loss_of(plain), setting_of(awp)).gradient.items():
            plain.get_parameter(n).grad = g
        ours.step()
        theirs.step()
    assert relative_error(weights_of(model), weights_of(plain)) < 1e-9
