"""Lightning, Fabric and accelerate: their own backward is handed to the step, on one process and on two."""

import copy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from process_pair import run_pair
from reference_step import Named, gradients_of, reference_step, relative_error, same_bits, weights_of
from small_training import X, Y, assert_step, loss_of, network, setting_of
from torch import Tensor, nn
from torch.nn import functional as F

from wtawp.core import WTAWP

FOREIGN_WARNINGS = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:lightning"),
]
pytestmark = FOREIGN_WARNINGS


@pytest.fixture
def accelerate() -> Iterator[Any]:
    """The library, whose global state is forgotten before and after."""
    library = pytest.importorskip("accelerate")
    library.state.AcceleratorState._reset_state(reset_partial_state=True)
    library.state.GradientState._reset_state()
    yield library
    library.state.AcceleratorState._reset_state(reset_partial_state=True)
    library.state.GradientState._reset_state()


@pytest.mark.parametrize("projection", ["sphere", "ball"])
def test_accelerate_with_accumulation(accelerate: Any, projection: str) -> None:
    """Its backward divides by the number of micro-batches, and so must ours; the optimizer steps after the last one."""
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=4)
    model = network()
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    awp = WTAWP(model, rho=0.2, lam=0.7, projection=projection)
    start, expected = weights_of(model), {}
    for number in range(4):
        rows = slice(3 * number, 3 * number + 3)
        closure = loss_of(model, X[rows], Y[rows])
        expected = reference_step(
            model, closure, setting_of(awp), scaled=lambda loss: loss / 4, prior=expected
        ).gradient
        with accelerator.accumulate(model):
            awp.backward(closure, backward=accelerator.backward)
            assert relative_error(gradients_of(model), expected) < 1e-12
            optimizer.step()
            assert number == 3 or same_bits(weights_of(model), start)
            optimizer.zero_grad()
    updated = {n: w - 0.1 * expected[n] for n, w in start.items()}
    assert relative_error(weights_of(model), updated) < 1e-12


def test_accelerate_in_bfloat16(accelerate: Any) -> None:
    accelerator = accelerate.Accelerator(cpu=True, mixed_precision="bf16")
    model = network().float()
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    awp = WTAWP(model, rho=0.2, lam=0.7)

    def closure() -> Tensor:
        return F.cross_entropy(model(X.float()), Y)

    for _ in range(2):
        optimizer.zero_grad()
        visited: list[dict[str, Tensor]] = []
        awp.backward(
            lambda visited=visited: visited.append(weights_of(model)) or closure(), backward=accelerator.backward
        )
        expected = reference_step(model, closure, setting_of(awp), visited=visited)
        assert expected.error_of(gradients_of(model)) < 1e-7
        optimizer.step()


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("accumulation", [1, 3])
def test_fabric(precision: str, accumulation: int) -> None:
    fabric = pytest.importorskip("lightning.fabric").Fabric(accelerator="cpu", devices=1, precision=precision)
    inner = network(nn.BatchNorm1d(6)).float()
    model, optimizer = fabric.setup(inner, torch.optim.Adam(inner.parameters(), lr=0.01))
    awp = WTAWP(model, rho=0.2, lam=0.7)
    setting = setting_of(awp, ("0.weight", "3.weight"))
    for _ in range(2):
        for number in range(accumulation):
            x, y = X[4 * number : 4 * number + 4].float(), Y[4 * number : 4 * number + 4]
            prior, before, visited = gradients_of(inner), copy.deepcopy(inner.state_dict()), []

            def closure(x: Tensor = x, y: Tensor = y, visited: list[Named] = visited) -> Tensor:
                visited.append(weights_of(inner))
                return F.cross_entropy(model(x), y)

            def plain_loss(x: Tensor = x, y: Tensor = y) -> Tensor:
                with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16-mixed"):
                    logits = inner(x)
                return F.cross_entropy(logits.float(), y)

            awp.backward(closure, backward=lambda loss: fabric.backward(loss / accumulation))
            after = copy.deepcopy(inner.state_dict())
            inner.load_state_dict(before)
            reference = reference_step(
                inner, plain_loss, setting, scaled=lambda loss: loss / accumulation, prior=prior, visited=visited
            )
            inner.load_state_dict(after)
            assert reference.error_of(gradients_of(inner)) < 1e-7
            assert max(map(relative_error, visited, reference.points)) < 5e-7
            assert same_bits(after, before | reference.buffers)  # the weights of before, the buffers of one pass
        optimizer.step()
        optimizer.zero_grad()


def test_lightning_manual_on_one_process() -> None:
    lightning = pytest.importorskip("lightning")

    class Manual(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False
            self.network, self.errors = network(), []
            self.awp = WTAWP(self.network, rho=0.3, lam=0.7)

        def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> None:
            closure = loss_of(self.network, *batch)
            optimizer = self.optimizers()
            optimizer.zero_grad()
            expected = reference_step(self.network, closure, setting_of(self.awp)).gradient
            self.awp.backward(closure, backward=self.manual_backward)
            self.errors.append(relative_error(gradients_of(self.network), expected))
            optimizer.step()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=0.01)

    model = Manual()
    start = weights_of(model)
    trainer_of(lightning).fit(model, batches())
    assert len(model.errors) == 3
    assert max(model.errors) < 1e-12
    assert relative_error(weights_of(model), start) > 1e-3


def test_lightning_automatic_through_the_loss_form() -> None:
    """Lightning calls backward itself, and divides by the number of accumulated batches."""
    lightning = pytest.importorskip("lightning")

    class Automatic(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.network, self.expected, self.errors = network(), {}, []
            self.awp = WTAWP(self.network, rho=0.3, lam=0.7)

        def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
            closure = loss_of(self.network, *batch)
            self.expected = reference_step(
                self.network, closure, setting_of(self.awp), scaled=lambda loss: loss / 3, prior=self.expected
            ).gradient
            return self.awp.loss(closure)

        def on_after_backward(self) -> None:
            self.errors.append(relative_error(gradients_of(self.network), self.expected))

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=0.01)

    model = Automatic()
    trainer_of(lightning, accumulate_grad_batches=3).fit(model, batches())
    assert len(model.errors) == 3
    assert max(model.errors) < 1e-12


def trainer_of(lightning: Any, **options: Any) -> Any:
    return lightning.Trainer(accelerator="cpu", devices=1, max_epochs=1, barebones=True, **options)


def batches() -> torch.utils.data.DataLoader:
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), batch_size=4)


@pytest.mark.skipif(sys.platform != "linux", reason="NOT CHECKED: the processes meet over the loopback of Linux")
def test_lightning_manual_on_two_processes() -> None:
    pytest.importorskip("lightning")
    reports = run_pair(Path(__file__).parent / "support" / "lightning_cases.py", ["manual"], limit=120)
    for report in reports["manual"]:
        assert "failed" not in report, report["failed"]
        assert report["error"] < 1e-6
        assert report["agree"]
        assert report["moved"] > 1e-3


def test_a_step_that_is_compared_by_these_tests_notices_plain_training() -> None:
    model = network()
    awp = WTAWP(model, rho=0.3, lam=0.7)
    with pytest.raises(AssertionError):
        assert_step(model, loss_of(model), awp, run=lambda: loss_of(model)().backward())
