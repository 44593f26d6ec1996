import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wtawp.base import DataError, rng
from wtawp.graphs import load, stratified
from wtawp.models import GCN
from wtawp.training import evaluate, fit, fit_batches
from wtawp.training.broadcasting import call_checked, could_broadcast

OUTPUT = torch.randn(6, 1, generator=rng("output"))
TARGET = torch.randn(6, generator=rng("target")).sign().clamp_min(0)


def share_right(output: Tensor, target: Tensor) -> Tensor:
    return ((output > 0) == (target > 0.5)).float().mean()


def share_right_of_columns(output: Tensor, target: Tensor) -> Tensor:
    return share_right(output.reshape(-1), target.reshape(-1))


def pairwise_ranks(output: Tensor, target: Tensor) -> Tensor:
    """Compares all pairs, of outputs and of targets, as a ranking loss does."""
    scores, labels = output.reshape(-1, 1), target.reshape(-1)
    return ((scores - scores.reshape(-1)) * (labels[:, None] - labels)).relu().mean()


def looped(output: Tensor, target: Tensor) -> float:
    pairs = zip(output.flatten().tolist(), target.flatten().tolist(), strict=True)
    return sum((a > 0) == (b > 0.5) for a, b in pairs) / len(output)


BROADCASTING = [
    share_right, F.mse_loss, F.l1_loss, F.smooth_l1_loss, nn.HuberLoss(), torch.nn.MSELoss(),
    lambda output, target: (output - target).square().mean(),
    lambda output, target: (target - output.double()).abs().max(),
    lambda output, target: torch.where(target > 0, output, -output).mean(),
    lambda output, target: -(F.logsigmoid(output) * target.detach().clone()).sum(),
]  # fmt: skip
FINE = [
    share_right_of_columns, pairwise_ranks, looped,
    lambda output, target: F.mse_loss(output.flatten(), target.flatten()),
    lambda output, target: F.mse_loss(output.view_as(target), target),
    lambda output, target: F.mse_loss(output.squeeze(), target.squeeze()),
    lambda output, target: (output.mean() - target.mean()).square(),
    lambda output, target: torch.outer(output.flatten(), target.flatten()).diagonal().mean(),
    lambda output, target: F.cross_entropy(torch.cat([-output, output], 1), target.long())
    if output.dim() == 2 else output.mean(),
]  # fmt: skip


@pytest.mark.parametrize("function", BROADCASTING)
@pytest.mark.parametrize("is_flipped", [False, True])
def test_a_function_that_compares_each_output_with_all_targets_is_refused(
    function: Callable[[Tensor, Tensor], Tensor], *, is_flipped: bool
) -> None:
    output, target = (OUTPUT[:, 0], TARGET[:, None]) if is_flipped else (OUTPUT, TARGET)
    assert could_broadcast(output, target)
    advice = r"Write target\[:, 0\] .* data.y\[:, 0\]" if is_flipped else r"Write output\[:, 0\] .* data.y\[:, None\]"
    with pytest.raises(DataError, match=rf"^metric is called .* torch makes \[6, 6\]: every .*{advice}"):
        call_checked(function, output.requires_grad_(), target, "metric")


@pytest.mark.parametrize("function", FINE)
@pytest.mark.parametrize("is_flipped", [False, True])
def test_a_function_that_handles_both_shapes_is_called_as_it_is(
    function: Callable[[Tensor, Tensor], Tensor], *, is_flipped: bool
) -> None:
    output, target = (OUTPUT[:, 0], TARGET[:, None]) if is_flipped else (OUTPUT, TARGET)
    output = output.detach().clone().requires_grad_()
    expected, value = function(output, target), call_checked(function, output, target, "loss")
    assert float(torch.as_tensor(value).detach()) == float(torch.as_tensor(expected).detach())
    if isinstance(value, Tensor) and value.requires_grad:
        gradients = [torch.autograd.grad(each, output)[0] for each in (expected, value)]
        assert torch.equal(*gradients)


def test_other_shapes_and_single_samples_are_no_case_of_it() -> None:
    shapes = [((6, 1), (6, 1)), ((6,), (6,)), ((6, 2), (6,)), ((6, 1, 1), (6,)), ((1, 1), (1,)), ((6, 3), (6, 3))]
    assert not any(could_broadcast(torch.zeros(a), torch.zeros(b)) for a, b in shapes)


@pytest.mark.parametrize("function", BROADCASTING[:8])
def test_the_matrix_is_not_computed(function: Callable[[Tensor, Tensor], Tensor]) -> None:
    size = 3_000_000  # of which all pairs have no place in any memory
    with pytest.raises(DataError, match="metric is called"):
        call_checked(function, torch.ones(size, 1), torch.ones(size), "metric")


def test_a_function_that_catches_exceptions_is_refused_too() -> None:
    def careful(output: Tensor, target: Tensor) -> float:
        try:
            return float(share_right(output, target))
        except Exception:
            return 0.0

    with pytest.raises(DataError, match="metric is called"):
        call_checked(careful, OUTPUT, TARGET, "metric")


def test_compiled_functions_are_followed_too() -> None:
    assert float(call_checked(torch.compile(share_right_of_columns, backend="eager"), OUTPUT, TARGET, "metric")) >= 0
    with pytest.raises(DataError, match="metric is called"):
        call_checked(torch.compile(share_right, backend="eager"), OUTPUT, TARGET, "metric")


def test_errors_of_the_function_reach_the_caller() -> None:
    with pytest.raises(ValueError, match="Target size"):
        call_checked(F.binary_cross_entropy_with_logits, OUTPUT, TARGET, "loss")


def test_fit_and_evaluate_refuse_it_and_accept_what_they_advise() -> None:
    data = load("wine")
    data.y = (data.y == 0).float()
    split = stratified(data.y, seed=0)

    def loss(output: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(output.flatten(), target.flatten())

    def build() -> nn.Module:
        return GCN(13, 1, generator=rng("init"))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DataError, match=r"metric is called .* \[18, 1\]"):
            fit(build(), data, split, seed=0, epochs=2, loss=loss, metric=share_right)
        with pytest.raises(DataError, match="loss is called"):
            fit(build(), data, split, seed=0, epochs=2, loss=F.mse_loss, metric=share_right_of_columns)
        for wrong in ({"loss": loss, "metric": share_right}, {"loss": F.mse_loss, "metric": looped}):
            with pytest.raises(DataError, match="is called with an output of shape"):
                evaluate(build(), data, split.test, **wrong)
            with pytest.raises(DataError, match="is called with an output of shape"):
                fit_batches(build(), data, split, seed=0, batch_size=8, fanouts=(3, 3), epochs=1, **wrong)
    model = build()
    result = fit(model, data, split, seed=0, epochs=4, loss=loss, metric=share_right_of_columns)
    output = model(data.x, data.edge_index)[:, 0]
    assert result.scores["test"] == pytest.approx(float(((output > 0) == (data.y > 0.5))[split.test].float().mean()))
    data.y = data.y[:, None]
    again = fit(build(), data, split, seed=0, epochs=4, loss=loss, metric=share_right)
    assert again.scores == result.scores
