"""Algorithm 1 on a quadratic loss, where every gradient is known in closed form."""

from collections.abc import Mapping
from functools import partial

import pytest
import torch
from torch import Tensor

from wtawp.core import AwpConfig, algorithm, compute_delta, compute_gradient
from wtawp.core.algorithm import combine_gradients

CURVATURE = {"a": torch.tensor([1.0, 4.0], dtype=torch.float64), "b": torch.tensor([2.0], dtype=torch.float64)}
THETA = {"a": torch.tensor([3.0, 1.0], dtype=torch.float64), "b": torch.tensor([-2.0], dtype=torch.float64)}


def gradient_at(step: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Of the sum of c * w^2 / 2, at THETA + step."""
    return {n: CURVATURE[n] * (w + step[n] if n in step else w) for n, w in THETA.items()}


def never(_: Mapping[str, Tensor]) -> dict[str, Tensor]:
    raise AssertionError("one step needs no further gradient")


def test_one_step_is_the_projected_gradient_of_the_chosen_parameters() -> None:
    config = AwpConfig(rho=0.5, lam=1.0)
    delta = compute_delta(gradient_at({}), theta=THETA, perturbed=("a",), config=config, gradient_at=never)
    assert list(delta) == ["a"]
    expected = CURVATURE["a"] * THETA["a"]
    expected = expected / expected.norm() * 0.5 * THETA["a"].norm()
    torch.testing.assert_close(delta["a"], expected)


def test_several_steps_move_all_parameters_and_keep_the_chosen_ones() -> None:
    steps: list[dict[str, Tensor]] = []

    def recorded(step: Mapping[str, Tensor]) -> dict[str, Tensor]:
        steps.append(dict(step))
        return gradient_at(step)

    config = AwpConfig(rho=100.0, lam=1.0, projection="ball", steps=3, step_size=0.1)
    delta = compute_delta(gradient_at({}), theta=THETA, perturbed=("a",), config=config, gradient_at=recorded)
    assert [sorted(step) for step in steps] == [["a", "b"], ["a", "b"]]
    torch.testing.assert_close(delta["a"], ((1 + 0.1 * CURVATURE["a"]) ** 3 - 1) * THETA["a"])


def test_parameters_without_a_gradient_are_left_out() -> None:
    config = AwpConfig(rho=0.5, lam=1.0)
    assert compute_delta({}, theta=THETA, perturbed=("a",), config=config, gradient_at=never) == {}


@pytest.mark.parametrize("balance", [None, 0.5])
def test_the_two_gradients_are_clipped_mixed_and_released(balance: float | None) -> None:
    config, natural = AwpConfig(rho=0.5, lam=0.3, balance=balance), gradient_at({})
    perturbed = {n: 3 * g for n, g in natural.items()} | {"c": torch.ones(1, dtype=torch.float64)}
    norm, long = (torch.cat(list(g.values())).norm() for g in (natural, perturbed))
    scale = 1.0 if balance is None else balance * norm / long
    expected = {n: 0.3 * scale * perturbed[n] + 0.7 * natural.get(n, 0) for n in perturbed}
    mixed = compute_gradient(
        natural,
        theta=THETA,
        perturbed=("a",),
        config=config,
        gradient_at=never,
        perturbed_gradient=lambda _: dict(perturbed),
    )
    for name, gradient in mixed:
        torch.testing.assert_close(gradient, expected.pop(name))
    assert expected == {}
    assert natural == {}


def test_the_ascent_may_start_with_another_gradient_than_the_natural_one() -> None:
    deltas: list[dict[str, Tensor]] = []

    def perturbed_gradient(delta: Mapping[str, Tensor]) -> dict[str, Tensor]:
        deltas.append(dict(delta))
        return gradient_at(delta)

    config = AwpConfig(rho=1.0, lam=0.5, radius="global")
    ascent = {"a": torch.tensor([0.0, 1.0], dtype=torch.float64)}
    run = partial(compute_gradient, theta=THETA, perturbed=("a",), config=config, gradient_at=never)
    dict(run(gradient_at({}), perturbed_gradient=perturbed_gradient, ascent_gradient=ascent))
    torch.testing.assert_close(deltas[0]["a"], ascent["a"])


def test_members_of_a_stack_are_projected_by_their_own_norms() -> None:
    config = AwpConfig(rho=1.0, lam=0.5, balance=0.1)
    theta = {"a": torch.tensor([[3.0, 4.0], [0.0, 1.0]])}
    step = {"a": torch.tensor([[1.0, 0.0], [0.0, 2.0]])}
    delta = compute_delta(
        step, theta=theta, perturbed=("a",), config=config, gradient_at=never, map_members=torch.func.vmap
    )
    torch.testing.assert_close(delta["a"], torch.tensor([[5.0, 0.0], [0.0, 1.0]]))


@pytest.mark.parametrize("elements", [1, 5, 1 << 20])
def test_gradients_that_are_mixed_together_are_those_mixed_alone(
    monkeypatch: pytest.MonkeyPatch, elements: int
) -> None:
    monkeypatch.setattr(algorithm, "CHUNK", elements)
    g = torch.Generator().manual_seed(0)
    sides = [
        {
            "a": torch.randn(3, 2, generator=g),
            "b": torch.randn(4, generator=g).double(),
            "c": torch.randn(2, generator=g),
        }
        for _ in range(2)
    ]
    natural, perturbed = sides[0] | {"n": torch.ones(2)}, {"p": torch.ones(2)} | sides[1]
    natural["c"], perturbed["c"] = (side["c"].bfloat16() for side in sides)
    expected = {n: torch.lerp(natural[n], perturbed[n], 0.3) for n in "abc"}
    expected |= {"n": natural["n"] * 0.7, "p": perturbed["p"] * 0.3}
    mixed = dict(combine_gradients(natural, perturbed, AwpConfig(rho=1.0, lam=0.3)))
    assert mixed.keys() == expected.keys()
    assert all(torch.equal(mixed[n], expected[n]) and mixed[n].dtype == expected[n].dtype for n in mixed)
    assert not natural
    assert not perturbed
