"""Interrupt steps of WT-AWP at random moments, as Ctrl-C does, and check what they leave behind.

    python benchmarks/interrupts.py [--interrupts 10_000] [--seed 0] [--form backward]

A timer raises KeyboardInterrupt at a random moment of a step. Afterwards the weights must be the old ones bit for bit,
the model must hold its own parameters and buffers, gradients must be enabled, no thread may hold the model's lock, and
`.grad` and the buffers must have what they had before the step, or what the complete step gives them. Plain
`closure().backward()` is interrupted as well, to show what torch alone leaves behind.
"""

import argparse
import gc
import platform
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wtawp import WTAWP

FORMS = ("backward", "several steps", "hooks of parameters", "loss", "exact backward", "exact loss", "plain")


class Body(nn.Module):
    """Two layers, batch norm, and a function in Python, inside which an interrupt can come during a backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.norm(self.first(x))
        hidden.register_hook(lambda g: g * 1.0)
        return self.last(torch.tanh(hidden))


def hold(_p: Tensor) -> None:
    """A hook that takes some time, in which an interrupt can come."""
    list(range(200))


class State:
    """What a step may change."""

    def __init__(self, model: nn.Module) -> None:
        self.parameters = list(model.parameters())
        self.places = [(slots, dict(slots)) for m in model.modules() for slots in (m._parameters, m._buffers)]
        self.weights = [p.detach().clone() for p in self.parameters]
        self.gradients = [None if p.grad is None else p.grad.clone() for p in self.parameters]
        self.buffers = [b.clone() for b in model.buffers()]

    def restore(self, model: nn.Module) -> None:
        for slots, tensors in self.places:
            slots.update(tensors)
        with torch.no_grad():
            for p, w in zip(self.parameters, self.weights, strict=True):
                p.copy_(w)
            for b, values in zip(model.buffers(), self.buffers, strict=True):
                b.copy_(values)
        for p, g in zip(self.parameters, self.gradients, strict=True):
            p.grad = None if g is None else g.clone()


def build(form: str) -> tuple[nn.Module, Callable[[], object]]:
    """A model with accumulated gradients, and one step of a form of the method on it."""
    torch.manual_seed(0)
    model, x, y = Body(), torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])

    def closure() -> Tensor:
        return F.cross_entropy(model(x), y)

    closure().backward()
    options: dict[str, Any] = {"exact": form.startswith("exact"), "steps": 3 if form == "several steps" else 1}
    awp = WTAWP(model, rho=0.5, lam=0.7, **options)
    if form == "hooks of parameters":
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(hold)
    if form == "plain":
        return model, lambda: closure().backward()
    if form.endswith("loss"):
        return model, lambda: awp.loss(closure)
    return model, lambda: awp.backward(closure)


def seconds(step: Callable[[], object], before: State, model: nn.Module) -> float:
    taken = []
    for _ in range(20):
        before.restore(model)
        start = time.perf_counter()
        step()
        taken.append(time.perf_counter() - start)
    return sorted(taken)[len(taken) // 2]


def interrupt(step: Callable[[], object], after: float) -> bool:
    """Run a step and interrupt it; whether the interrupt came before it had ended."""
    try:
        signal.setitimer(signal.ITIMER_REAL, after)
        step()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        return True
    return False


def faults(model: nn.Module, before: State, complete: State) -> list[str]:
    """What is neither as before the step nor as after a complete one."""
    found = []
    if not torch.is_grad_enabled():
        found.append("gradients disabled")
    torch.set_grad_enabled(True)
    if any(slots.get(n) is not t for slots, tensors in before.places for n, t in tensors.items()):
        found.append("foreign tensors in the model")
    now = State(model) if "foreign tensors in the model" not in found else before
    if not all(map(torch.equal, now.weights, before.weights)):
        found.append("weights")
    sides = (before, complete)
    if not any(same(now.gradients, side.gradients) for side in sides):
        found.append("gradients")
    if not any(same(now.buffers, side.buffers) for side in sides):
        found.append("buffers")
    return found


def same(these: list[Tensor | None], those: list[Tensor | None]) -> bool:
    return all(
        (a is None and b is None) or (a is not None and b is not None and torch.equal(a, b))
        for a, b in zip(these, those, strict=True)
    )


def trial(form: str, interrupts: int, seed: int) -> tuple[int, Counter[str]]:
    """Interrupt a form of the step.

    Args:
        form: One of `FORMS`.
        interrupts: Number of steps that must be interrupted before they end.
        seed: Of the moments.

    Returns:
        The number of interrupted steps, and how often each fault was found.
    """
    moments, found = random.Random(f"{form} {seed}"), Counter[str]()
    model, step = build(form)
    before = State(model)
    step()
    complete = State(model)
    longest = 1.1 * seconds(step, before, model)
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    gc.disable()  # Python drops an interrupt that comes inside a destructor
    try:
        done = tried = 0
        while done < interrupts and tried < 5 * interrupts:
            before.restore(model)
            tried += 1
            done += interrupt(step, max(moments.random() * longest, 1e-6))
            found.update(faults(model, before, complete))
            if tried % 500 == 0:
                gc.collect()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        gc.enable()
    return done, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--interrupts", type=int, default=10_000, help="of each form")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--form", choices=FORMS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, Python {platform.python_version()}, {platform.machine()}\n")
    print("| form | interrupted | faults |\n|---|---:|---|")
    for form in [options.form] if options.form else FORMS:
        done, found = trial(form, options.interrupts, options.seed)
        print(f"| {form} | {done:,} | {', '.join(f'{what}: {n}' for what, n in found.items()) or 'none'} |", flush=True)


if __name__ == "__main__":
    main()
