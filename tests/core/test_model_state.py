"""What forward passes change besides weights, buffers above all: only the first pass of a step counts."""

import copy
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from wtawp.core import WTAWP
from wtawp.core import passes as passes_module
from wtawp.core.model_state import ModelState

X = torch.randn(7, 6, generator=torch.Generator().manual_seed(1))
RHO, LAM = 0.8, 0.4


class Teacher(nn.Module):
    """A student that is pulled towards a slow copy of itself, which its forward pass updates."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.student, self.head = nn.Linear(6, 4), nn.Linear(4, 2)
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)
        with torch.no_grad():
            self.teacher.weight.mul_(0.5)

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.teacher.weight.lerp_(self.student.weight, 0.1)
        h = torch.tanh(self.student(x))
        return self.head(h) + (h - torch.tanh(self.teacher(x))).mean()


class TeacherByData(Teacher):
    """The same with a new tensor as the data of the parameter."""

    def forward(self, x: Tensor) -> Tensor:
        self.teacher.weight.data = self.teacher.weight.data.lerp(self.student.weight.data, 0.1)
        h = torch.tanh(self.student(x))
        return self.head(h) + (h - torch.tanh(self.teacher(x))).mean()


class TeacherInData(Teacher):
    """The same through `.data`, a change that torch does not count."""

    def forward(self, x: Tensor) -> Tensor:
        self.teacher.weight.data.mul_(0.9).add_(self.student.weight.data, alpha=0.1)
        h = torch.tanh(self.student(x))
        return self.head(h) + (h - torch.tanh(self.teacher(x))).mean()


class TwoViews(nn.Module):
    """A teacher whose data are replaced twice in a pass, so that the second tensor may lie where the first one lay."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.student, self.teacher = nn.Linear(6, 64), nn.Linear(6, 64).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        total = torch.zeros(())
        for view in (x, x.flip(0)):
            self.teacher.weight.data = torch.lerp(self.teacher.weight.data, self.student.weight.data, 0.1)
            total = total + (torch.tanh(self.student(view)) - torch.tanh(self.teacher(view))).square().mean()
        return total


class Counting(nn.Module):
    """Buffers that are written into, replaced, shared, resized, and registered by the first pass."""

    shift: Tensor
    seen: Tensor
    replaced: Tensor
    history: Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.last = nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("replaced", torch.zeros(()))
        self.register_buffer("history", torch.zeros(0))
        self.other = nn.Module()
        self.other.register_buffer("shared", self.seen)

    def forward(self, x: Tensor) -> Tensor:
        self.seen += 1
        self.replaced = self.replaced + 1
        self.history.resize_(len(self.history) + 1).fill_(float(self.replaced))
        if not hasattr(self, "shift"):
            self.register_buffer("shift", torch.ones(4))
        self.shift.mul_(2)
        return self.last(torch.tanh(self.norm(self.first(x)) + self.shift))


class Remembering(nn.Module):
    """Tensors that it keeps in another way than as buffers: one is replaced, one changed in place, one in a list.

    The one in the list is a buffer as well.
    """

    codes: Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(6, 4), nn.Linear(4, 2)
        self.hidden, self.mean = torch.zeros(4), torch.full((4,), 0.5)
        self.register_buffer("codes", torch.zeros(4))
        self.books = [self.codes]

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.first(x) + self.hidden)
        self.hidden = h.detach().mean(0)
        self.mean.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)
        self.books[0].mul_(0.9).add_(h.detach().mean(0), alpha=0.1)
        return self.last(h + self.mean - self.codes)


class RememberingByData(Remembering):
    """The same through `.data` of the list, which torch does not count."""

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.first(x))
        self.books[0].data.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)
        return self.last(h - self.codes)


def embedding() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(7, 6, max_norm=0.5), nn.Tanh(), nn.Linear(6, 2))


def loss_of(model: nn.Module) -> Tensor:
    first = next(model.children())
    return model(torch.tensor([0, 2, 4]) if isinstance(first, nn.Embedding) else X).square().mean()


def by_hand(model: nn.Module, names: list[str]) -> tuple[nn.Module, dict[str, Tensor]]:
    """The model after one plain forward pass, and the gradient of the step: on copies, with nothing to restore."""
    after = copy.deepcopy(model)
    loss_of(after).backward()
    natural = {n: p.grad.clone() for n, p in after.named_parameters() if p.grad is not None}
    moved = copy.deepcopy(after)
    moved.zero_grad()
    with torch.no_grad():
        for name in names:
            p, g = moved.get_parameter(name), natural[name]
            p += RHO * p.norm() * g / g.norm()
    loss_of(moved).backward()
    after.zero_grad()
    return after, {n: LAM * moved.get_parameter(n).grad + (1 - LAM) * g for n, g in natural.items()}


def assert_is(model: nn.Module, expected: nn.Module) -> None:
    state, wanted = model.state_dict(), expected.state_dict()
    assert state.keys() == wanted.keys()
    assert all(torch.equal(state[name], wanted[name]) for name in wanted)
    for module, other in zip(model.modules(), expected.modules(), strict=True):
        kept, kept_by_other = ({n: t for n, t in vars(m).items() if isinstance(t, Tensor)} for m in (module, other))
        assert kept.keys() == kept_by_other.keys()
        assert all(torch.equal(kept[name], kept_by_other[name]) for name in kept)


@pytest.mark.parametrize(
    ("build", "names"),
    [
        (Teacher, ["student.weight", "student.bias"]),
        (TeacherByData, ["student.weight", "student.bias"]),
        (TeacherInData, ["student.weight", "student.bias"]),
        (TwoViews, ["student.weight"]),
        (embedding, ["0.weight"]),
        (Counting, ["first.weight", "first.bias"]),
        (Remembering, ["first.weight", "first.bias"]),
        (RememberingByData, ["first.weight", "first.bias"]),
    ],
)
@pytest.mark.parametrize("form", ["backward", "loss"])
def test_only_the_first_pass_changes_the_model_and_the_gradient_is_that_of_copies(
    build: Callable[[], nn.Module], names: list[str], form: str
) -> None:
    model = build()
    awp = WTAWP(model, rho=RHO, lam=LAM, layers=names)
    for step in range(3):  # the later ones know what the first one has noticed
        model.zero_grad()
        expected, gradient = by_hand(model, names)
        _ = awp.backward(lambda: loss_of(model)) if form == "backward" else awp.loss(lambda: loss_of(model)).backward()
        assert_is(model, expected)
        assert {n for n, p in model.named_parameters() if p.grad is not None} == gradient.keys()
        if step == 0 and isinstance(model, Remembering):
            continue  # there the second pass reads the buffer, and not what the list has made of it
        for name, g in gradient.items():
            torch.testing.assert_close(model.get_parameter(name).grad, g, rtol=1e-5, atol=1e-7)


def test_a_shared_buffer_stays_shared() -> None:
    model = Counting()
    shared = model.seen
    during: list[bool] = []

    def closure() -> Tensor:
        loss = loss_of(model)
        during.append(model.seen is model.other.shared)
        return loss

    WTAWP(model, rho=RHO, lam=LAM).backward(closure)
    assert during == [True, True]
    assert model.seen is shared
    assert model.other.shared is shared


@pytest.mark.parametrize("wrap", [nn.utils.weight_norm, nn.utils.spectral_norm])
@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated:FutureWarning")
def test_weights_that_a_hook_computes_are_those_of_the_first_pass(wrap: Callable[[nn.Module], nn.Module]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(wrap(nn.Linear(6, 4)), nn.Tanh(), nn.Linear(4, 2))
    expected, _ = by_hand_of_plain(model)
    WTAWP(model, rho=RHO, lam=LAM, layers="all").backward(lambda: loss_of(model))
    assert_is(model, expected)
    assert torch.equal(model[0].weight, expected[0].weight)


def by_hand_of_plain(model: nn.Sequential) -> tuple[nn.Sequential, Tensor]:
    """A model of the same weights after one forward pass; a computed weight cannot be copied."""
    wrapped = [name for name in ("weight_g", "weight_orig") if hasattr(model[0], name)]
    torch.manual_seed(0)
    wrap = nn.utils.weight_norm if wrapped == ["weight_g"] else nn.utils.spectral_norm
    other = nn.Sequential(wrap(nn.Linear(6, 4)), nn.Tanh(), nn.Linear(4, 2))
    return other, loss_of(other)


@pytest.mark.parametrize("build", [Teacher, embedding, Counting, Remembering])
@pytest.mark.parametrize("num_calls", [1, 2])
def test_a_step_that_fails_leaves_nothing(build: Callable[[], nn.Module], num_calls: int) -> None:
    model = build()
    awp = WTAWP(model, rho=RHO, lam=LAM, layers=[next(n for n, p in model.named_parameters() if p.requires_grad)])
    awp.backward(lambda: loss_of(model))  # notices which parameters change
    before, gradients = copy.deepcopy(model), {p: p.grad.clone() for p in model.parameters() if p.grad is not None}
    calls: list[int] = []

    def closure() -> Tensor:
        calls.append(0)
        loss = loss_of(model)
        if len(calls) == num_calls:
            raise RuntimeError("no power")
        return loss

    with pytest.raises(RuntimeError, match="no power"):
        awp.backward(closure)
    assert_is(model, before)
    assert {p for p in model.parameters() if p.grad is not None} == gradients.keys()
    assert all(torch.equal(p.grad, g) for p, g in gradients.items())


def test_buffers_of_a_first_pass_that_fails_go_with_it() -> None:
    model = Counting()
    before = copy.deepcopy(model)

    def closure() -> Tensor:
        loss_of(model)
        raise RuntimeError("no power")

    with pytest.raises(RuntimeError, match="no power"):
        WTAWP(model, rho=RHO, lam=LAM).backward(closure)
    assert not hasattr(model, "shift")
    assert_is(model, before)


def test_a_buffer_that_is_reached_in_another_way_from_the_second_step_on_is_said_once_and_undone_from_then_on() -> None:
    model = Remembering()
    books = model.books
    model.books = [torch.zeros(4)]
    awp = WTAWP(model, rho=RHO, lam=LAM)
    awp.backward(lambda: loss_of(model))
    model.books = books
    with pytest.warns(UserWarning, match="changed the buffer codes, .* this change stays"):
        awp.backward(lambda: loss_of(model))
    expected = copy.deepcopy(model)
    loss_of(expected)
    awp.backward(lambda: loss_of(model))
    assert torch.equal(model.codes, expected.codes)


@pytest.mark.parametrize("as_data", [False, True])
def test_a_buffer_that_is_a_view_of_a_weight_moves_with_it(as_data: bool) -> None:
    gradients = []
    for is_buffer in (True, False):
        model = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 2))
        torch.manual_seed(0)
        for p in model.parameters():
            nn.init.normal_(p)
        weight = model[0].weight
        if is_buffer:
            model[0].register_buffer("view", weight.data if as_data else weight.detach().view(-1))

        def closure(layers: nn.Sequential = model, weight: Tensor = weight, is_buffer: bool = is_buffer) -> Tensor:
            view = layers[0].view.view(4, 6) if is_buffer else weight.detach()
            return layers[1](torch.tanh(layers[0](X)) + X @ view.T).square().mean()

        before = weight.detach().clone()
        WTAWP(model, rho=RHO, lam=LAM, layers=["0.weight"]).backward(closure)
        assert torch.equal(weight, before)
        assert not is_buffer or torch.equal(model[0].view.view(4, 6), before)
        gradients.append([p.grad for p in model.parameters()])
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize(
    "parameter",
    [torch.ones(3, 3, device="meta"), torch.ones(1100, 1100).to(torch.float8_e4m3fn), "inference"],
    ids=["meta", "8-bit", "inference"],
)
def test_frozen_parameters_whose_values_cannot_be_compared_do_not_disturb(parameter: Tensor | str) -> None:
    model = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 2))
    if isinstance(parameter, str):
        with torch.inference_mode():
            parameter = torch.ones(2)
    model.frozen = nn.Parameter(parameter, requires_grad=False)
    plain = nn.Sequential(*copy.deepcopy(list(model.children())))
    for m in (model, plain):
        WTAWP(m, rho=RHO, lam=LAM, layers=["0.weight"]).backward(lambda m=m: m[1](torch.tanh(m[0](X))).square().mean())
    assert torch.equal(model[0].weight.grad, plain[0].weight.grad)


@pytest.mark.filterwarnings("ignore:.*nested tensors is in prototype")
def test_an_error_of_the_closure_is_not_hidden_by_a_nested_buffer() -> None:
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    model.register_buffer("nested", torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]))
    calls: list[int] = []

    def closure() -> Tensor:
        calls.append(0)
        loss = loss_of(model)
        if len(calls) == 2:
            raise RuntimeError("no power")
        return loss

    with pytest.raises(RuntimeError, match="no power"):
        WTAWP(model, rho=RHO, lam=LAM).backward(closure)
    assert model[1].num_batches_tracked == 0


def test_what_changes_at_perturbed_weights_alone_is_said_once_and_undone_from_then_on() -> None:
    model = Teacher()
    theta = model.student.weight.detach().clone()
    plain = model.forward

    def forward(x: Tensor) -> Tensor:
        h = torch.tanh(model.student(x))
        if not torch.equal(model.student.weight, theta):
            return plain(x)
        return model.head(h) + (h - torch.tanh(model.teacher(x))).mean()

    model.forward = forward  # type: ignore[method-assign]
    awp = WTAWP(model, rho=RHO, lam=LAM, layers=["student.weight"])
    with pytest.warns(UserWarning, match=r"at perturbed weights changed teacher\.weight, .* this change stays"):
        awp.backward(lambda: loss_of(model))
    teacher = model.teacher.weight.clone()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        awp.backward(lambda: loss_of(model))
    assert torch.equal(model.teacher.weight, teacher)


def test_a_natural_gradient_that_lies_in_changed_weights_is_refused_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes_module, "LARGE", 1)
    model = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2))
    theta = model[0].weight.detach().clone()

    def closure() -> Tensor:
        loss = loss_of(model)
        if not torch.equal(model[0].weight, theta):
            with torch.no_grad():
                model[0].weight.clamp_(-1, 1)
        return loss

    awp = WTAWP(model, rho=RHO, lam=LAM)
    with pytest.raises(ValueError, match=r"changed 0\.weight while it was perturbed.*call backward\(\) again"):
        awp.backward(closure)
    assert torch.equal(model[0].weight, theta)
    assert model[0].weight.grad is None
    awp.backward(closure)
    assert torch.equal(model[0].weight, theta)
    monkeypatch.setattr(passes_module, "LARGE", 1 << 20)
    stored = copy.deepcopy(model)
    WTAWP(stored, rho=RHO, lam=LAM).backward(lambda: loss_of(stored))
    torch.testing.assert_close(model[0].weight.grad, stored[0].weight.grad)


def test_a_large_parameter_that_is_clipped_through_data_is_refused_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes_module, "LARGE", 1)
    model = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2))
    bound = float(model[0].weight.detach().abs().max())  # at the weights themselves nothing is clipped

    def closure() -> Tensor:
        model[0].weight.data.clamp_(-bound, bound)
        return loss_of(model)

    awp = WTAWP(model, rho=RHO, lam=LAM)
    with pytest.raises(ValueError, match=r"changed 0\.weight while it was perturbed.*call backward\(\) again"):
        awp.backward(closure)
    assert model[0].weight.grad is None
    awp.backward(closure)
    monkeypatch.setattr(passes_module, "LARGE", 1 << 20)
    stored = copy.deepcopy(model)

    def closure_of_stored() -> Tensor:
        stored[0].weight.data.clamp_(-bound, bound)
        return loss_of(stored)

    WTAWP(stored, rho=RHO, lam=LAM).backward(closure_of_stored)
    torch.testing.assert_close(model[0].weight.grad, stored[0].weight.grad)


def test_large_slices_of_one_tensor_share_a_version_and_are_not_taken_for_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    halves = torch.randn(8, 6, generator=torch.Generator().manual_seed(2)).chunk(2)
    gradients = []
    for large in (1, 1 << 20):
        monkeypatch.setattr(passes_module, "LARGE", large)
        model = nn.ModuleList([nn.Linear(6, 4, bias=False), nn.Linear(6, 4, bias=False)])
        for layer, half in zip(model, torch.cat(halves).chunk(2), strict=True):
            layer.weight = nn.Parameter(half)
        WTAWP(model, rho=RHO, lam=LAM, layers="all").backward(
            lambda model=model: (model[0](X).tanh() * model[1](X)).square().mean()
        )
        gradients.append([layer.weight.grad for layer in model])
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("compiled", [torch.jit.script, lambda model: torch.jit.trace(model, X)])
@pytest.mark.filterwarnings("ignore:.*torch.jit.* is deprecated", "ignore::torch.jit.TracerWarning")
def test_scripted_modules_are_trained_as_they_are(compiled: Callable[[nn.Module], nn.Module]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    scripted = compiled(copy.deepcopy(model))
    model.load_state_dict(scripted.state_dict())  # tracing has run it
    for m in (model, scripted):
        WTAWP(m, rho=RHO, lam=LAM, layers=["0.weight"]).backward(lambda m=m: m(X).square().mean())
    assert_is(scripted, model)
    for p, q in zip(model.parameters(), scripted.parameters(), strict=True):
        torch.testing.assert_close(q.grad, p.grad)


def test_the_weights_are_moved_from_where_they_were_and_come_back_bit_for_bit() -> None:
    model = nn.Linear(3, 2)
    state = ModelState(model, set())
    theta = model.weight.detach().clone()
    step = torch.full_like(theta, 1e-3)
    for _ in range(2):  # moved from theta, not from where they are
        state.move({model.weight: step})
        assert torch.equal(model.weight, theta + step)
    assert torch.equal(state.weights(of=[model.weight], copied=True)[model.weight], theta)
    state.restore_weights()
    assert torch.equal(model.weight, theta)
    assert state.name_of(model.weight) == "weight"
