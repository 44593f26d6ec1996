"""Every combination of precision, accumulation, batch norm, optimizer, compilation, projection and steps."""

import copy
import shutil
from collections.abc import Callable, Iterator
from itertools import product

import pytest
import torch
from reference_step import Setting, gradients_of, reference_step, relative_error, same_bits, weights_of
from torch import Tensor, nn
from torch.nn import functional as F

from wtawp.base import rng
from wtawp.core import WTAWP

PRECISIONS = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01),
}
RHO = {"sphere": 0.3, "ball": 0.2}  # in the ball one of the two matrices has a gradient shorter than its radius
PERTURBED = ("0.weight", "3.weight")
G = rng("test_training_matrix")
X, Y = torch.randn(48, 6, generator=G), torch.randint(0, 3, (48,), generator=G)
INNER = list(product([1, 4], OPTIMIZERS, ["sphere", "ball"], [1, 2]))  # accumulation, optimizer, projection, steps


def network(norm: str) -> nn.Sequential:
    model = nn.Sequential(
        nn.Linear(6, 8),
        nn.BatchNorm1d(8) if norm == "batch norm" else nn.Identity(),
        nn.Tanh(),
        nn.Linear(8, 8),
        nn.Tanh(),
        nn.Linear(8, 3),
    )
    g = rng("weights")
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.7 * torch.randn(p.shape, generator=g))
    return model


def micro_batches(step: int, accumulation: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of four rows, so that one compiled graph serves every accumulation."""
    for number in range(accumulation):
        rows = slice(16 * step + 4 * number, 16 * step + 4 * number + 4)
        yield X[rows], Y[rows]


class Case:
    """One training loop beside its reference, on one model."""

    def __init__(self, model: nn.Module, call: Callable[[Tensor], Tensor], precision: str) -> None:
        self.model, self.call, self.dtype = model, call, PRECISIONS[precision]
        self.tolerance = 1.6e-2 if precision == "fp16" else 1e-7
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, enabled=precision == "fp16")

    def loss(self, x: Tensor, y: Tensor, dtype: torch.dtype | None) -> Tensor:
        with torch.autocast("cpu", dtype or torch.bfloat16, enabled=dtype is not None):
            return F.cross_entropy(self.call(x).float(), y)

    def micro_step(self, awp: WTAWP, x: Tensor, y: Tensor, accumulation: int, prior: dict[str, Tensor]) -> None:
        """One call of `backward`, compared with the reference: weights of each pass, gradient, loss, buffers."""
        start, before, visited = weights_of(self.model), copy.deepcopy(self.model.state_dict()), []

        def closure() -> Tensor:
            visited.append(weights_of(self.model))
            return self.loss(x, y, self.dtype)

        def scaled(loss: Tensor) -> Tensor:
            return self.scaler.scale(loss / accumulation)

        is_default = accumulation == 1 and not self.scaler.is_enabled()
        options = {} if is_default else {"backward": lambda loss: scaled(loss).backward()}
        found = awp.backward(closure, **options)
        assert same_bits(weights_of(self.model), start), "the weights were not restored"
        gradient, after = gradients_of(self.model), copy.deepcopy(self.model.state_dict())
        self.model.load_state_dict(before)
        c = awp.config
        reference = reference_step(
            self.model,
            lambda: self.loss(x, y, None if self.dtype == torch.float16 else self.dtype),
            Setting(rho=c.rho, lam=c.lam, perturbed=PERTURBED, projection=c.projection, steps=c.steps),
            scaled=scaled,
            prior=prior,
            visited=visited,
        )
        self.model.load_state_dict(after)
        assert len(visited) == c.steps + 1
        for point, expected in zip(visited, reference.points, strict=True):
            assert relative_error(point, expected) <= max(self.tolerance, 5e-7)
        error = reference.error_of(gradient)
        assert error <= self.tolerance, f"the gradient is off by {error:.1e}"
        assert not found.requires_grad
        assert float(found) == pytest.approx(float(reference.loss), rel=max(self.tolerance, 1e-6))
        buffers = dict(self.model.named_buffers())
        assert relative_error(buffers, reference.buffers) <= self.tolerance if buffers else not reference.buffers

    def assert_equals_reference(
        self, accumulation: int, optimizer: str, projection: str, steps: int, updates: int = 3
    ) -> None:
        model = self.model
        awp = WTAWP(model, rho=RHO[projection], lam=0.7, projection=projection, steps=steps)
        twin = {n: nn.Parameter(w) for n, w in weights_of(model).items()}
        ours, theirs = OPTIMIZERS[optimizer](model.parameters()), OPTIMIZERS[optimizer](twin.values())
        for update in range(updates):
            ours.zero_grad()
            for x, y in micro_batches(update, accumulation):
                self.micro_step(awp, x, y, accumulation, gradients_of(model))
            scale = self.scaler.get_scale() if self.scaler.is_enabled() else 1.0
            for n, g in gradients_of(model).items():  # compared above with the reference, micro-batch by micro-batch
                twin[n].grad = g / scale
            self.scaler.step(ours)
            self.scaler.update()
            theirs.step()
            assert relative_error(weights_of(model), {n: w.detach() for n, w in twin.items()}) <= 1e-7


@pytest.mark.parametrize(("accumulation", "optimizer", "projection", "steps"), INNER)
@pytest.mark.parametrize("norm", ["batch norm", "no norm"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_step_equals_the_reference(
    precision: str, norm: str, accumulation: int, optimizer: str, projection: str, steps: int
) -> None:
    model = network(norm)
    Case(model, model, precision).assert_equals_reference(accumulation, optimizer, projection, steps)


@pytest.mark.parametrize("norm", ["batch norm", "no norm"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_step_of_a_compiled_model_equals_the_reference(precision: str, norm: str) -> None:
    """One graph, compiled once and warmed up, runs every other combination without being compiled again."""
    assert_compiled_equals_reference(network(norm), precision, "aot_eager", INNER)


@pytest.mark.skipif(shutil.which("g++") is None, reason="NOT CHECKED: torch.compile needs a C++ compiler here")
def test_the_step_of_a_model_compiled_to_machine_code_equals_the_reference() -> None:
    assert_compiled_equals_reference(
        network("batch norm"), "fp32", "inductor", [(4, "Adam", "sphere", 2), (1, "SGD", "ball", 1)]
    )


def assert_compiled_equals_reference(
    model: nn.Module, precision: str, backend: str, inner: list[tuple[int, str, str, int]]
) -> None:
    torch._dynamo.reset()
    compiled, initial = torch.compile(model, backend=backend), copy.deepcopy(model.state_dict())
    if precision == "fp16":  # its reference is computed in float32, by a graph of its own
        Case(model, compiled, "fp32").assert_equals_reference(1, "SGD", "sphere", 1, updates=1)
    Case(model, compiled, precision).assert_equals_reference(1, "SGD", "sphere", 1, updates=1)
    with torch.compiler.set_stance("fail_on_recompile"):
        for combination in inner:
            model.load_state_dict(initial)
            Case(model, compiled, precision).assert_equals_reference(*combination, updates=2)


@pytest.mark.parametrize("norm", ["batch norm", "no norm"])
def test_the_ball_of_these_tests_holds_one_step_and_shortens_another(norm: str) -> None:
    model = network(norm)
    F.cross_entropy(model(X[:4]), Y[:4]).backward()
    lengths = {n: p.grad.norm() / p.detach().norm() for n, p in model.named_parameters() if n in PERTURBED}
    assert min(lengths.values()) < RHO["ball"] < max(lengths.values())
