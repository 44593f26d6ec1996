"""The order of layers against graphs whose order is known by construction."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from wtawp.core.autograd_graph import nodes_of
from wtawp.core.layer_order import LayerCalls, tensors_in

X = torch.ones(2, 3)


def layers(number: int) -> list[nn.Linear]:
    return [nn.Linear(3, 3) for _ in range(number)]


def order_of(function: Callable[..., Tensor], modules: list[nn.Linear]) -> dict[int, set[int]]:
    calls = LayerCalls(modules)
    return calls.read_order(nodes_of(calls.recording(lambda: function(*modules))()))


def residual(a: nn.Module, b: nn.Module) -> Tensor:
    h = a(X).relu()
    return (b(h) + h).sum()


def jumping(a: nn.Module, b: nn.Module, c: nn.Module) -> Tensor:
    one = a(X)
    two = b(one.relu_())
    return c(torch.maximum(one, two)).sum()


def auxiliary(a: nn.Module, b: nn.Module) -> Tensor:
    return b(a(X)).sum() + a(2 * X).square().sum()


def recurrent(a: nn.Module, b: nn.Module, c: nn.Module) -> Tensor:
    h = X
    for _ in range(3):
        h = b(a(h)).tanh()
    return c(h).sum()


def recycled(a: nn.Module, b: nn.Module) -> Tensor:
    return b(a(b(a(X)))).sum()


def detached(a: nn.Module, b: nn.Module, c: nn.Module) -> Tensor:
    return c(a(X)).sum() + b(a(X).detach()).sum()


@pytest.mark.parametrize(
    ("function", "number", "expected"),
    [
        (lambda a, b, c: c(b(a(X))).sum(), 3, {0: {1, 2}, 1: {2}, 2: set()}),
        (lambda a, b, c: a(b(X) + c(X)).sum(), 3, {0: set(), 1: {0}, 2: {0}}),
        (lambda a, b, c: b(a(X)).sum() + c(a(X)).sum(), 3, {0: {1, 2}, 1: set(), 2: set()}),
        (residual, 2, {0: {1}, 1: set()}),
        (jumping, 3, {0: {1, 2}, 1: {2}, 2: set()}),
        (auxiliary, 2, {0: {1}, 1: set()}),
        (recurrent, 3, {0: {1, 2}, 1: {2}, 2: set()}),
        (recycled, 2, {0: {1}, 1: set()}),
        (detached, 3, {0: {2}, 1: set(), 2: set()}),
        (lambda a, b: a(X).sum() + 0 * len(b(X)), 2, {0: set()}),
        (lambda a, b: b(X).sum() + (a.weight**2).sum(), 2, {1: set()}),
    ],
    ids=["chain", "head first", "two heads", "residual", "jumping knowledge", "auxiliary", "recurrent", "recycled",
         "detached", "unused", "weight decay"],
)  # fmt: skip
def test_a_layer_comes_after_those_whose_outputs_it_uses(
    function: Callable[..., Tensor], number: int, expected: dict[int, set[int]]
) -> None:
    assert order_of(function, layers(number)) == expected


def test_frozen_layers_in_front_come_before_those_in_the_graph() -> None:
    modules = layers(3)
    modules[1].requires_grad_(False)
    assert order_of(lambda a, b, c: c(a(b(X))).sum(), modules) == {0: {2}, 1: {0, 2}, 2: set()}
    assert order_of(lambda a, b, c: c(b(a(X))).sum(), modules) == {0: {1, 2}, 1: {2}, 2: set()}


def test_only_the_first_call_is_recorded_and_nothing_is_kept() -> None:
    modules = layers(2)
    calls = LayerCalls(modules)
    function = calls.recording(lambda: modules[1](modules[0](X)).sum())
    nodes = nodes_of(function())
    assert calls.read_order(nodes) == {0: {1}, 1: set()}
    assert calls.read_order(nodes_of(function())) == {}


def test_the_order_of_random_graphs_is_that_of_reachability() -> None:
    """Layers that read random earlier ones, in a random order of registration; the truth is a depth-first search."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        size = 7
        reads = [[j for j in range(i) if torch.rand((), generator=generator) < 0.4] for i in range(size)]
        place = torch.randperm(size, generator=generator).tolist()  # where the layer of each step is registered

        def function(*modules: nn.Module, reads: list[list[int]] = reads, place: list[int] = place) -> Tensor:
            outputs: list[Tensor] = []
            for i, earlier in enumerate(reads):
                outputs.append(modules[place[i]](sum((outputs[j] for j in earlier), start=X)).tanh())
            return torch.stack(outputs).sum()

        def reachable(i: int, reads: list[list[int]] = reads) -> set[int]:
            readers = [k for k, earlier in enumerate(reads) if i in earlier]
            return set(readers).union(*(reachable(k) for k in readers))

        expected = {place[i]: {place[k] for k in reachable(i)} for i in range(size)}
        assert order_of(function, layers(size)) == expected


def test_tensors_are_found_in_nested_outputs() -> None:
    one, two = torch.ones(1), torch.ones(2)
    assert [t is u for t, u in zip(tensors_in([{"a": (one, None, "b")}, two]), (one, two), strict=True)] == [True] * 2
