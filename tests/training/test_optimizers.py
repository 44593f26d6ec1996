from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import lr_scheduler

from wtawp.base import rng
from wtawp.core import AwpConfig
from wtawp.graphs import load, stratified
from wtawp.models import MLP
from wtawp.training import Fit, fit, fit_many
from wtawp.training.optimizers import MemberOptimizers, StackedAdam, build_optimizer

DATA = load("wine")
SPLIT = stratified(DATA.y, seed=0)
Factory = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


class Small(nn.Module):
    """Two linear maps and a number, without dropout."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.first, self.last, self.scale = nn.Linear(13, 5), nn.Linear(5, 3), nn.Parameter(torch.tensor(1.0))
        with torch.no_grad():
            for i, p in enumerate(self.parameters()):
                p.copy_(torch.randn(p.shape, generator=rng("init", seed, i)) / 2)

    def forward(self, x: Tensor, _edge_index: Tensor) -> Tensor:
        return self.last(self.first(x).relu() * self.scale)


class Lars(torch.optim.Optimizer):
    """Each step is as long as a share of the norm of the parameter: it would mix the members of a stack."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {})

    @torch.no_grad()
    def step(self, closure: object = None) -> None:  # noqa: ARG002
        for p in self.param_groups[0]["params"]:
            p.data = p.data - 0.05 * p.norm() / p.grad.norm() * p.grad  # not in place


def matrices_decay(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """The usual two groups, by the number of dimensions, which a stack would change."""
    matrices, others = ([p for p in parameters if (p.dim() > 1) == yes] for yes in (True, False))
    return torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 1.0}, {"params": others, "weight_decay": 0.0}], lr=0.1
    )


ELEMENTWISE = ["ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD"]
FACTORIES: dict[str, Factory] = {name: getattr(torch.optim, name) for name in [*ELEMENTWISE, "Adafactor"]}
if hasattr(torch.optim, "Muon"):
    FACTORIES["Muon"] = lambda parameters: torch.optim.Muon([p for p in parameters if p.dim() == 2], lr=0.1)
FACTORIES |= {
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "amsgrad": lambda parameters: torch.optim.Adam(parameters, lr=0.1, amsgrad=True, foreach=True),
    "matrices decay": matrices_decay,
    "LARS": Lars,
}


def trained_by_hand(
    model: nn.Module, make: Factory, epochs: int, schedule: Callable[[Any], Any] | None = None
) -> nn.Module:
    """The loop of every tutorial, with the weights of the last epoch."""
    optimizer = make(list(model.parameters()))
    scheduler = None if schedule is None else schedule(optimizer)
    for _ in range(epochs):
        optimizer.zero_grad()
        F.cross_entropy(model(DATA.x, DATA.edge_index)[SPLIT.train], DATA.y[SPLIT.train]).backward()
        optimizer.step()
        if isinstance(scheduler, lr_scheduler.ReduceLROnPlateau):
            with torch.no_grad():
                loss = F.cross_entropy(model(DATA.x, DATA.edge_index)[SPLIT.val], DATA.y[SPLIT.val])
            scheduler.step(float(loss))
        elif scheduler is not None:
            scheduler.step()
    return model


def assert_close(one: nn.Module, other: nn.Module, tolerance: float = 1e-5) -> None:
    for p, q in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=tolerance, atol=tolerance)


def test_every_optimizer_of_torch_is_accepted_or_refused() -> None:
    known = {*FACTORIES, "LBFGS", "SparseAdam", "Optimizer"}
    assert {name for name, value in vars(torch.optim).items() if isinstance(value, type)} <= known


@pytest.mark.parametrize("name", FACTORIES)
def test_many_together_are_trained_as_each_alone_and_as_by_hand(name: str) -> None:
    options = {"epochs": 6, "select_on": "last", "optimizer": FACTORIES[name]}
    together, alone, by_hand = ([Small(i) for i in range(3)] for _ in range(3))
    fit_many(together, DATA, SPLIT, seeds=[0, 1, 2], **options)
    for i in range(3):
        fit(alone[i], DATA, SPLIT, seed=i, **options)
        assert_close(together[i], alone[i])
        assert_close(alone[i], trained_by_hand(by_hand[i], FACTORIES[name], 6))
        assert any(not torch.equal(p, q) for p, q in zip(alone[i].parameters(), Small(i).parameters(), strict=True))


SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "constant": lambda o: lr_scheduler.ConstantLR(o, 0.5, 3),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, 5),
    "restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "cyclic": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.5, 2),
    "exponential": lambda o: lr_scheduler.ExponentialLR(o, 0.7),
    "lambda": lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 0.8**epoch),
    "linear": lambda o: lr_scheduler.LinearLR(o),
    "steps": lambda o: lr_scheduler.MultiStepLR(o, [2, 4]),
    "one cycle": lambda o: lr_scheduler.OneCycleLR(o, 0.3, 8),
    "polynomial": lambda o: lr_scheduler.PolynomialLR(o, 8),
    "plateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, factor=0.1, patience=0, threshold=0.2),
    "chained": lambda o: lr_scheduler.ChainedScheduler([lr_scheduler.ExponentialLR(o, 0.9), lr_scheduler.LinearLR(o)]),
    "sequence": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.ConstantLR(o, 0.1), lr_scheduler.ExponentialLR(o, 0.9)], [3]
    ),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_step_once_an_epoch(name: str) -> None:
    def make(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.5, momentum=0.5)

    options = {"epochs": 8, "select_on": "last", "optimizer": make, "scheduler": SCHEDULERS[name]}
    together, by_hand, constant = ([Small(i) for i in range(2)] for _ in range(3))
    fit_many(together, DATA, SPLIT, seeds=[0, 1], **options)
    for i in range(2):
        assert_close(together[i], trained_by_hand(by_hand[i], make, 8, SCHEDULERS[name]))
        trained_by_hand(constant[i], make, 8)
        assert not torch.allclose(together[i].first.weight, constant[i].first.weight, atol=1e-4)


def test_members_have_learning_rates_of_their_own_on_a_plateau() -> None:
    rates: list[list[float]] = []

    def plateau(optimizer: torch.optim.Optimizer) -> lr_scheduler.LRScheduler:
        scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.1)
        rates.append([])
        step, own = scheduler.step, rates[-1]

        def recorded(metrics: float) -> None:
            step(metrics)
            own.append(optimizer.param_groups[0]["lr"])

        scheduler.step = recorded  # type: ignore[method-assign, assignment]
        return scheduler

    fit_many([Small(i) for i in range(3)], DATA, SPLIT, seeds=[0, 1, 2], epochs=12, lr=0.1, scheduler=plateau)
    assert len(rates) == 3
    assert len({tuple(r) for r in rates}) > 1
    assert all(r[0] == 0.1 for r in rates)


def test_a_scheduler_alone_changes_the_learning_rate_of_adam() -> None:
    model, plain, by_hand = Small(0), Small(0), Small(0)
    cosine = SCHEDULERS["cosine"]
    fit(model, DATA, SPLIT, seed=0, epochs=6, lr=0.1, weight_decay=0.0, select_on="last", scheduler=cosine)
    fit(plain, DATA, SPLIT, seed=0, epochs=6, lr=0.1, weight_decay=0.0, select_on="last")
    assert_close(model, trained_by_hand(by_hand, lambda p: torch.optim.Adam(p, lr=0.1), 6, cosine))
    assert not torch.allclose(model.first.weight, plain.first.weight, atol=1e-4)


@pytest.mark.parametrize("awp", [None, AwpConfig(rho=0.5, lam=0.5)])
def test_adam_as_an_optimizer_of_one_s_own_is_the_default(awp: AwpConfig | None) -> None:
    def adam(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=0.01, weight_decay=5e-4, fused=True)

    def train(**options: Any) -> tuple[Fit, nn.Module]:
        model = MLP(13, 3, generator=rng("init"))
        return fit(model, DATA, SPLIT, seed=0, awp=awp, epochs=15, **options), model

    (default, one), (own, other) = train(), train(optimizer=adam)
    assert_close(one, other, 1e-6)
    assert own.history["val_loss"] == pytest.approx(default.history["val_loss"], rel=1e-5)


def test_frozen_parameters_are_not_given_to_the_optimizer() -> None:
    model, sizes = Small(0), []
    model.first.weight.requires_grad_(False)
    before = model.first.weight.clone()

    def make(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        sizes.append([tuple(p.shape) for p in parameters])
        return torch.optim.SGD(parameters, lr=0.1, weight_decay=0.1)

    fit(model, DATA, SPLIT, seed=0, epochs=3, optimizer=make)
    assert sizes == [[(), (5,), (3, 5), (3,)]]
    assert torch.equal(model.first.weight, before)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"optimizer": torch.optim.LBFGS},
            r"LBFGS evaluates the loss several times a step \(its `step` needs a closure",
        ),
        ({"optimizer": torch.optim.SparseAdam}, "SparseAdam needs sparse gradients, but training computes dense ones"),
        (
            {"optimizer": lambda _: torch.optim.SGD(Small(0).parameters())},
            "5 are not among those .* not model.parameters",
        ),
        (
            {"optimizer": lambda _: None},
            "from a list of parameters to a torch.optim.Optimizer, .* it returned NoneType",
        ),
        ({"optimizer": torch.optim.SGD, "lr": 0.1}, "lr=0.1 is an option of Adam, but optimizer= was passed too"),
        ({"optimizer": torch.optim.SGD, "weight_decay": 0.0}, "weight_decay=0.0 is an option of Adam"),
        ({"scheduler": lambda _: 3}, "scheduler must be a function from an optimizer .* it returned int"),
        (
            {"scheduler": lambda _: lr_scheduler.StepLR(torch.optim.SGD(Small(0).parameters()), 1)},
            "the scheduler StepLR changes another optimizer",
        ),
    ],
)
def test_what_cannot_train_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fit(Small(0), DATA, SPLIT, seed=0, epochs=2, **options)


def test_one_adam_trains_a_stack_unless_the_caller_brings_something() -> None:
    theta = {"w": torch.ones(2, 3, requires_grad=True)}
    options = {"lr": 0.1, "weight_decay": 0.0}
    stacked = build_optimizer(theta, optimizer=None, scheduler=None, **options)
    assert isinstance(stacked, StackedAdam)
    assert stacked.can_replay
    own = build_optimizer(theta, optimizer=torch.optim.SGD, scheduler=SCHEDULERS["cosine"], **options)
    assert isinstance(own, MemberOptimizers)
    assert not own.can_replay
    own.step({"w": torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 1000.0]])})
    torch.testing.assert_close(theta["w"].detach(), torch.tensor([[0.999, 0.998, 0.997], [1.0, 1.0, 0.0]]))
    description = own.describe()
    assert "SGD" in str(description["optimizer"])
    assert "'T_max': 5" in str(description["scheduler"])


def test_the_state_of_an_optimizer_is_saved_and_loaded() -> None:
    gradients = [torch.randn(2, 3, generator=rng("gradient", i)) for i in range(6)]
    options = {"lr": 0.1, "weight_decay": 0.0}
    for own in ({}, {"optimizer": FACTORIES["momentum"], "scheduler": SCHEDULERS["cosine"]}):
        options = {"lr": 0.1, "weight_decay": 0.0, "optimizer": None, "scheduler": None, **own}
        straight, first = (build_optimizer({"w": torch.ones(2, 3, requires_grad=True)}, **options) for _ in range(2))
        for gradient in gradients[:3]:
            for each in (straight, first):
                each.step({"w": gradient})
                each.end_epoch(torch.ones(2))
        weights = first.theta["w"].detach().clone().requires_grad_()
        second = build_optimizer({"w": weights}, **options)
        second.load_state_dict(first.state_dict())
        for gradient in gradients[3:]:
            for each in (straight, second):
                each.step({"w": gradient})
                each.end_epoch(torch.ones(2))
        assert torch.equal(straight.theta["w"], second.theta["w"])


def test_the_adam_of_a_stack_is_torchs_own_bit_for_bit_also_where_a_gradient_is_missing_and_after_loading() -> None:
    start = {"a": torch.randn(3, 4, 5, generator=rng("a")), "b": torch.randn(3, 2, generator=rng("b"))}
    stacks = [{name: t.clone().requires_grad_() for name, t in start.items()} for _ in range(2)]
    stacked = StackedAdam(stacks[0], lr=0.1, weight_decay=0.01)
    reference = torch.optim.Adam(stacks[1].values(), lr=0.1, weight_decay=0.01, fused=True)
    for step in range(6):
        gradient = {name: torch.randn(t.shape, generator=rng(name, step)) for name, t in start.items()}
        if step in (0, 3):
            del gradient["b"]
        if step == 4:
            saved = stacked.state_dict()
            stacked = StackedAdam(stacks[0], lr=0.1, weight_decay=0.01)
            stacked.load_state_dict(saved)
        stacked.step(gradient)
        for name, weight in stacks[1].items():
            weight.grad = gradient.get(name)
        reference.step()
        assert all(torch.equal(stacks[0][name], stacks[1][name]) for name in start)
