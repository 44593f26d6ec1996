"""Steps that are interrupted, and steps of one model in several threads. The benchmark interrupts far more often."""

import importlib.util
import signal
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from wtawp import WTAWP
from wtawp.core.exact import add_to_gradients


def load_benchmark() -> ModuleType:
    path = Path(__file__).parents[1] / "benchmarks" / "interrupts.py"
    spec = importlib.util.spec_from_file_location("interrupts", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="NOT CHECKED: this system has no timer that interrupts")
@pytest.mark.parametrize(
    "form", ["backward", "several steps", "hooks of parameters", "loss", "exact backward", "exact loss"]
)
def test_an_interrupt_at_any_moment_leaves_everything_as_before_or_complete(form: str) -> None:
    interrupted, faults = load_benchmark().trial(form, interrupts=85, seed=1)
    assert interrupted == 85
    assert not faults


def test_the_trial_notices_what_plain_training_leaves_half_done() -> None:
    benchmark = load_benchmark()
    model, step = benchmark.build("plain")
    before = benchmark.State(model)
    step()
    complete = benchmark.State(model)
    assert benchmark.faults(model, before, complete) == []
    with torch.no_grad():
        model.first.weight[0, 0] += 1
    model.last.bias.grad = model.last.bias.grad * 2
    model.norm.running_mean.add_(1)
    torch.set_grad_enabled(False)
    assert benchmark.faults(model, before, complete) == ["gradients disabled", "weights", "gradients", "buffers"]
    model.first.weight = nn.Parameter(torch.zeros(8, 4))
    assert benchmark.faults(model, before, complete)[0] == "foreign tensors in the model"


@pytest.mark.parametrize("exact", [False, True])
def test_steps_of_one_model_in_several_threads_wait_for_each_other(exact: bool) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).double(), torch.randn(5, 4).double()
    weights = [p.detach().clone() for p in model.parameters()]
    started, steps, failures = threading.Barrier(4), 15, []

    def closure() -> Tensor:
        loss = model(x).square().mean()
        threading.Event().wait(1e-4)  # another thread has its turn
        return loss

    def work() -> None:
        awp = WTAWP(model, rho=1.0, lam=0.7, exact=exact)
        started.wait()
        try:
            for _ in range(steps):
                awp.backward(closure)
        except Exception as error:
            failures.append(error)

    WTAWP(model, rho=1.0, lam=0.7, exact=exact).backward(closure)
    once = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=60)
    finally:
        sys.setswitchinterval(interval)
    assert not failures
    assert all(torch.equal(p, w) for p, w in zip(model.parameters(), weights, strict=True))
    for p, g in zip(model.parameters(), once, strict=True):
        torch.testing.assert_close(p.grad, 4 * steps * g)


def test_a_refused_step_leaves_the_grad_mode_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))
    for exact in (False, True):
        awp = WTAWP(model, rho=1.0, lam=0.7, exact=exact)
        with torch.no_grad():
            with pytest.raises(ValueError, match="detached"):
                awp.backward(lambda: model(torch.ones(2, 4)).sum())
            assert not torch.is_grad_enabled()


def test_gradients_that_cannot_all_be_added_are_not_added_at_all() -> None:
    one, two, three = (nn.Parameter(torch.ones(2)) for _ in range(3))
    one.grad = prior = torch.full((2,), 5.0)
    with pytest.raises(RuntimeError):
        add_to_gradients([(one, torch.ones(2)), (two, torch.ones(2)), (three, torch.ones(7))])
    assert one.grad is prior
    assert prior.tolist() == [5.0, 5.0]
    assert two.grad is None
    assert three.grad is None
