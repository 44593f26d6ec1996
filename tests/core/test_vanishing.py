import warnings

import pytest
import torch

from wtawp.base import VanishingGradientWarning
from wtawp.core import VanishingGradientMonitor, VanishingMembersMonitor


def report(monitor: VanishingGradientMonitor, natural: float, perturbed: float, times: int, loss: float = 1.0) -> None:
    gradients = [torch.tensor([natural, 0.0])], [torch.tensor([0.0]), torch.tensor([perturbed])]
    for _ in range(times):
        monitor(*gradients, torch.tensor(loss, requires_grad=True), "rho=9")


# Negligible beside the natural gradient, a hundredth of the first perturbed one, and zero.
@pytest.mark.parametrize("perturbed", [1e-5, 0.05, 0.0])
@pytest.mark.parametrize("loss", [1.0, 0.9, -2.0])
def test_a_perturbed_gradient_that_vanishes_is_warned_of_once(perturbed: float, loss: float) -> None:
    monitor = VanishingGradientMonitor()
    report(monitor, 1.0, 5.0, 1, loss=-1.0 if loss < 0 else 1.0)
    report(monitor, 1.0, perturbed, 28, loss)
    with pytest.warns(VanishingGradientWarning, match="rho=9 is too much here: try a smaller rho") as caught:
        report(monitor, 1.0, perturbed, 100, loss)
    assert len(caught) == 1
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("natural", "perturbed", "loss"),
    [
        (1.0, 0.3, 1.0),
        (1.0, 6.0, 1.0),
        (0.01, 0.05, 1.0),
        (1.0, 0.0, 0.7),
        (float("nan"), 0.0, 1.0),
        (float("inf"), 0.0, 1.0),
        (0.0, 0.0, 1.0),
    ],
    ids=["shorter", "longer", "both vanish", "learnt", "no number", "infinite", "nothing"],
)
def test_healthy_gradients_and_models_that_learn_are_not_warned_of(
    natural: float, perturbed: float, loss: float
) -> None:
    monitor = VanishingGradientMonitor()
    report(monitor, 1.0, 5.0, 1)
    with warnings.catch_warnings(record=True, action="always") as caught:
        report(monitor, natural, perturbed, 100, loss)
    assert caught == []


def test_an_overflow_at_the_first_check_is_no_measure_of_what_follows() -> None:
    monitor = VanishingGradientMonitor()
    with warnings.catch_warnings(record=True, action="always") as caught:
        report(monitor, 1.0, float("inf"), 1)
        report(monitor, 1.0, 0.9, 100)
    assert caught == []


def test_checks_must_be_in_a_row_and_a_missing_gradient_is_not_checked() -> None:
    monitor = VanishingGradientMonitor()
    with warnings.catch_warnings(record=True, action="always") as caught:
        for _ in range(20):
            report(monitor, 1.0, 0.0, 19)
            report(monitor, 1.0, 3.0, 1)  # every second check
        monitor([], [], torch.tensor(1.0), "")
    assert caught == []
    assert monitor.steps == 401


def test_the_first_and_every_tenth_step_are_due() -> None:
    assert [step for step in range(1, 35) if VanishingGradientMonitor.is_due(step)] == [1, 10, 20, 30]


def test_one_model_is_warned_of_at_once_and_never_again() -> None:
    members = VanishingMembersMonitor([7], "rho=9")
    members.check(0, 1, 1.0, 0.0, 1.0)
    members.check(0, 10, 1.0, 0.0, 1.0)
    with pytest.warns(VanishingGradientWarning, match="^the gradient at the perturbed weights vanishes.*20 steps"):
        members.check(0, 20, 1.0, 0.0, 1.0)
    for step, perturbed in ((30, 5.0), (40, 0.0), (50, 0.0), (60, 0.0)):  # it recovers and vanishes again
        members.check(0, step, 1.0, perturbed, 1.0)
    members.warn()


def test_several_models_share_one_warning_at_the_end() -> None:
    members = VanishingMembersMonitor([7, 8, 9], "rho=9")
    for step in (1, 10, 20, 30):
        members.check(0, step, 1.0, 0.0 if step > 1 else 5.0, 1.0)
        members.check(1, step, 1.0, 0.9, 1.0)
        members.check(2, step, 1.0, 0.0, 1.0)
    with pytest.warns(
        VanishingGradientWarning, match="^2 of 3 models are affected, first the one with seed 9"
    ) as caught:
        members.warn()
    members.warn()
    assert len(caught) == 1
    assert caught[0].filename == __file__


def test_no_model_no_warning() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        VanishingMembersMonitor([1, 2], "rho=9").warn()
    assert caught == []
