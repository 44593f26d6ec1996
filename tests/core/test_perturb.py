import pytest
import torch
from hypothesis import given, settings
from hypothesis.strategies import floats, just, one_of, sampled_from
from tied_model import Tied
from torch import Tensor, nn

from wtawp.base import rng
from wtawp.core import clip_relative_norm, copy_into, global_norm, mix, project, radii
from wtawp.core.perturb import ETA, isolated_buffers, mix_tensors, substituted_parameters


def matrices(*names: str, scale: float = 1.0, seed: int = 0) -> dict[str, Tensor]:
    g = rng("matrices", seed)
    return {n: scale * torch.randn(4, 3, generator=g, dtype=torch.float64) for n in names}


@given(
    rho=one_of(just(0.0), floats(1e-9, 8.0)),
    scale=floats(1e-3, 1e3),
    radius=sampled_from(["layer", "global", "adaptive"]),
)
@settings(deadline=None, max_examples=60)
def test_delta_lies_on_the_sphere_and_in_the_ball(rho: float, scale: float, radius: str) -> None:
    theta, step = matrices("a", "b"), matrices("a", "b", scale=scale, seed=1)

    def measured(delta: dict[str, Tensor]) -> list[float]:
        if radius == "layer":
            return [float(delta[n].norm() / theta[n].norm()) for n in delta]
        unit = {n: theta[n].abs() + ETA if radius == "adaptive" else torch.ones_like(theta[n]) for n in theta}
        return [float(torch.cat([(delta[n] / unit[n]).flatten() for n in delta]).norm())]

    on_sphere = measured(project(step, theta, rho=rho, radius=radius, onto="sphere"))
    in_ball = measured(project(step, theta, rho=rho, radius=radius, onto="ball"))
    assert on_sphere == pytest.approx([rho] * len(on_sphere), rel=1e-9)
    assert all(r <= rho * (1 + 1e-9) for r in in_ball)


def test_a_short_step_stays_as_it_is_in_the_ball() -> None:
    theta, step = matrices("a", "b"), matrices("a", "b", scale=1e-3, seed=1)
    for radius in ("layer", "global"):
        delta = project(step, theta, rho=1.0, radius=radius, onto="ball")
        assert all(torch.equal(delta[n], step[n]) for n in step)


@pytest.mark.parametrize("radius", ["layer", "global", "adaptive"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_nothing_in_nothing_out(radius: str, dtype: torch.dtype) -> None:
    zero, weight = torch.zeros(3, 2, dtype=dtype), torch.ones(3, 2, dtype=dtype)
    for step, theta in ((zero, weight), (weight, zero), (zero, zero)):
        delta = project({"w": step}, {"w": theta}, rho=2.0, radius=radius)["w"]
        assert delta.isfinite().all()
        assert delta.dtype == dtype
    assert not project({"w": zero}, {"w": weight}, rho=2.0, radius=radius)["w"].any()


def test_a_gradient_too_small_to_square_is_not_blown_past_the_radius() -> None:
    step = torch.full((3, 2), 1e-25)  # its squares underflow in float32, as they do under a saturated softmax
    assert project({"w": step}, {"w": torch.ones(3, 2)}, rho=1.0)["w"].norm() < 1e-6


@pytest.mark.parametrize("radius", ["layer", "global", "adaptive"])
@pytest.mark.parametrize("onto", ["sphere", "ball"])
def test_under_vmap_each_model_keeps_its_own_norms(radius: str, onto: str) -> None:
    g = rng("vmap")
    theta = {n: torch.randn(5, 4, 3, generator=g, dtype=torch.float64) for n in "ab"}
    step = {n: torch.randn(5, 4, 3, generator=g, dtype=torch.float64) for n in "ab"}
    scale = torch.tensor([0.0, 1e-3, 1.0, 1e3, 1.0], dtype=torch.float64)[:, None, None]
    step = {n: scale * s for n, s in step.items()}

    def delta(step: dict[str, Tensor], theta: dict[str, Tensor]) -> dict[str, Tensor]:
        d = project(step, theta, rho=0.5, radius=radius, onto=onto)
        return mix(theta, clip_relative_norm(d, theta, 0.5), lam=0.3)

    together = torch.func.vmap(delta)(step, theta)
    for i in range(5):
        alone = delta({n: s[i] for n, s in step.items()}, {n: t[i] for n, t in theta.items()})
        for n in "ab":
            torch.testing.assert_close(together[n][i], alone[n], rtol=1e-12, atol=1e-14)


def test_radii_are_relative_per_layer_and_shared_otherwise() -> None:
    theta = matrices("a", "b")
    assert float(radii(theta, rho=0.5)["b"]) == pytest.approx(0.5 * float(theta["b"].norm()))
    assert {float(r) for r in radii(theta, rho=0.5, radius="global").values()} == {0.5}


def test_mix_counts_a_missing_gradient_as_zero() -> None:
    one = torch.ones(2)
    mixed = mix({"a": one, "b": one}, {"b": 3 * one, "c": one}, lam=0.25)
    assert {n: float(g[0]) for n, g in mixed.items()} == {"a": 0.75, "b": 1.5, "c": 0.25}
    with pytest.raises(ValueError, match="one gradient at least"):
        mix_tensors(None, None, lam=0.25)


@pytest.mark.parametrize("value", [torch.inf, -torch.inf])
def test_an_infinite_perturbed_gradient_is_dropped_by_balance_and_nan_is_not_hidden(value: float) -> None:
    one = torch.ones(2)
    assert torch.equal(clip_relative_norm({"a": one * value}, {"a": one}, 1.0)["a"], torch.zeros(2))
    assert clip_relative_norm({"a": one * torch.nan}, {"a": one}, 1.0)["a"].isnan().all()
    assert clip_relative_norm({}, {"a": one}, 1.0) == {}


def test_the_global_norm_takes_tensors_of_different_types() -> None:
    assert float(global_norm(torch.tensor([3.0]), torch.tensor([4.0], dtype=torch.float64))) == 5.0


def test_the_global_norm_is_that_of_the_concatenation() -> None:
    parts = list(matrices("a", "b").values())
    assert float(global_norm(*parts)) == pytest.approx(float(torch.cat([p.flatten() for p in parts]).norm()), rel=1e-14)


@pytest.mark.parametrize("is_grad_enabled", [True, False])
def test_the_global_norm_takes_complex_tensors(is_grad_enabled: bool) -> None:
    tensors = torch.tensor([3 + 4j]), torch.tensor([12.0])
    with torch.set_grad_enabled(is_grad_enabled):
        assert float(global_norm(*tensors)) == 13


def test_copied_weights_are_the_values_bit_for_bit() -> None:
    theta = {n: nn.Parameter(t.float()) for n, t in matrices("a", "b").items()}
    before = {n: p.detach().clone() for n, p in theta.items()}
    copy_into(theta, {"a": torch.full((4, 3), torch.nan)})
    assert theta["a"].isnan().all()
    assert theta["a"].is_leaf
    copy_into(theta, before)
    assert all(torch.equal(theta[n], before[n]) for n in theta)


def test_a_shared_parameter_is_substituted_in_all_its_places() -> None:
    model = Tied()
    x, other = torch.ones(1, 4), torch.randn(4, 4, generator=rng("other"))
    weight = model.embed.weight
    with substituted_parameters(model, {weight: other}):
        assert model.embed.weight is other
        assert model.out.weight is other
        swapped = model(x)
    assert model.embed.weight is weight
    assert not torch.equal(swapped, model(x))


def test_buffers_are_copies_inside_and_the_same_objects_outside() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3))
    model.register_buffer("nothing", None)
    mean = model[0].running_mean
    with isolated_buffers(model):
        model(torch.ones(4, 3))
        assert model[0].running_mean.any()
    assert model[0].running_mean is mean
    assert not mean.any()
    assert model[0].num_batches_tracked == 0
