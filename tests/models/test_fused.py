from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.func import vmap

from wtawp.graphs.operator import Operator
from wtawp.graphs.products import spmm
from wtawp.models import fused
from wtawp.models.dropout import dropout, masks

KEYS = torch.tensor([3, 4])
POSITIONS = torch.tensor([30, 2, 17, 5, 8, 9])


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).requires_grad_()


@cache
def operator() -> Operator:  # [6, 7]
    g = torch.Generator().manual_seed(1)
    kept = torch.rand(6, 7, generator=g) < 0.5
    kept[:, 0] = True
    rows, cols = kept.nonzero(as_tuple=True)
    return Operator.from_entries(rows, cols, torch.rand(len(rows), generator=g, dtype=torch.float64), (6, 7))


def propagated(dense: Tensor, bias: Tensor, key: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    with masks(key):
        return fused.propagate(operator(), dense, bias, p=p, training=training, positions=POSITIONS)


@pytest.mark.parametrize(("p", "training"), [(0.5, True), (0.0, True), (0.5, False), (0.3, True)])
def test_propagate_is_product_bias_relu_and_dropout(p: float, training: bool) -> None:
    dense, bias = draw(2, 7, 70), draw(2, 70, seed=1)
    with masks(KEYS):
        steps = dropout((spmm(operator(), dense) + bias[:, None]).relu(), p, training, positions=POSITIONS)
    once = propagated(dense, bias, KEYS, p, training)
    torch.testing.assert_close(once, steps, rtol=1e-12, atol=1e-12)
    upstream = draw(*once.shape, seed=2).detach()
    for ours, theirs in zip(*(torch.autograd.grad(t, (dense, bias), upstream) for t in (once, steps)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_propagate_alone_stacked_and_mapped_is_the_same() -> None:
    dense, bias = draw(2, 7, 5), draw(2, 5, seed=1)
    alone = torch.stack([propagated(dense[i], bias[i], KEYS[i]) for i in range(2)])
    torch.testing.assert_close(propagated(dense, bias, KEYS), alone, rtol=0, atol=1e-14)
    torch.testing.assert_close(vmap(propagated)(dense, bias, KEYS), alone, rtol=0, atol=1e-14)


def test_propagate_can_be_differentiated_twice_and_by_its_entries() -> None:
    dense, bias, values = draw(7, 3), draw(3, seed=1), operator().values.clone().requires_grad_()
    assert gradcheck(lambda x, b: propagated(x, b, KEYS[0]), (dense, bias))
    assert gradgradcheck(lambda x, b: propagated(x, b, KEYS[0]), (dense, bias))
    weighted = replace(operator(), values=values)
    with masks(KEYS[0]):
        fused.propagate(weighted, dense, bias, p=0.5, training=True, positions=POSITIONS).sum().backward()
    assert values.grad is not None
    assert values.grad.abs().sum() > 0


@cache
def words() -> Operator:  # [7, 9]
    g = torch.Generator().manual_seed(5)
    rows, cols = (torch.rand(7, 9, generator=g) < 0.4).nonzero(as_tuple=True)
    return Operator.from_entries(rows, cols, torch.rand(len(rows), generator=g, dtype=torch.float64), (7, 9))


def convolved(weight: Tensor, bias: Tensor, key: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    with masks(key):
        return fused.convolve(words(), weight, operator(), bias, p=p, training=training, positions=POSITIONS)


@pytest.mark.parametrize(("p", "training"), [(0.5, True), (0.0, True), (0.5, False)])
def test_convolve_is_a_product_and_propagate(p: float, training: bool) -> None:
    weight, bias = draw(2, 9, 70), draw(2, 70, seed=1)
    once, steps = convolved(weight, bias, KEYS, p, training), propagated(spmm(words(), weight), bias, KEYS, p, training)
    assert torch.equal(once, steps)
    upstream = draw(*once.shape, seed=2).detach()
    for ours, theirs in zip(*(torch.autograd.grad(t, (weight, bias), upstream) for t in (once, steps)), strict=True):
        assert torch.equal(ours, theirs)


def test_convolve_alone_stacked_and_mapped_is_the_same() -> None:
    weight, bias = draw(2, 9, 5), draw(2, 5, seed=1)
    alone = torch.stack([convolved(weight[i], bias[i], KEYS[i]) for i in range(2)])
    torch.testing.assert_close(convolved(weight, bias, KEYS), alone, rtol=0, atol=1e-14)
    torch.testing.assert_close(vmap(convolved)(weight, bias, KEYS), alone, rtol=0, atol=1e-14)


def test_convolve_can_be_differentiated_twice_and_by_its_entries() -> None:
    weight, bias = draw(9, 3), draw(3, seed=1)
    assert gradcheck(lambda w, b: convolved(w, b, KEYS[0]), (weight, bias))
    assert gradgradcheck(lambda w, b: convolved(w, b, KEYS[0]), (weight, bias))
    for of_words in (True, False):
        values = (words() if of_words else operator()).values.clone().requires_grad_()
        inputs = replace(words(), values=values) if of_words else words()
        graph = operator() if of_words else replace(operator(), values=values)
        with masks(KEYS[0]):
            out = fused.convolve(inputs, weight, graph, bias, p=0.5, training=True, positions=POSITIONS)
        assert torch.autograd.grad(out.sum(), values)[0].abs().sum() > 0


def attended(projected: Tensor, source: Tensor, target: Tensor, key: Tensor, p: float = 0.5) -> Tensor:
    structure = operator()
    entries = POSITIONS[structure.rows] * 100 + structure.indices
    with masks(key):
        return fused.attend(structure, projected, source, target, p=p, training=True, entries=entries)


@pytest.mark.parametrize(("heads", "width"), [(8, 8), (1, 7), (3, 1)])
@pytest.mark.parametrize("p", [0.0, 0.5])
def test_attention_is_what_its_steps_give(heads: int, width: int, p: float) -> None:
    inputs = draw(2, 7, heads, width), draw(2, 7, heads, seed=1), draw(2, 6, heads, seed=2)
    once = attended(*inputs, KEYS, p)
    structure = operator()
    keys = torch.stack([next_of(k) for k in KEYS]) if p else None
    entries = POSITIONS[structure.rows] * 100 + structure.indices
    steps = fused.attend_in_steps(*inputs, keys, structure, entries, p)
    torch.testing.assert_close(once, steps, rtol=1e-11, atol=1e-12)
    upstream = draw(*once.shape, seed=3).detach()
    for ours, theirs in zip(*(torch.autograd.grad(t, inputs, upstream) for t in (once, steps)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-12)


def next_of(key: Tensor) -> Tensor:
    from wtawp.models.dropout import next_key

    with masks(key):
        return next_key(key.device)


def test_attention_weights_are_a_softmax() -> None:
    """With the same projected row everywhere, and nothing dropped, the weighted mean is that row."""
    row = draw(1, 3, 4).detach()
    out = attended(row.expand(7, 3, 4).contiguous(), draw(7, 3, seed=1), draw(6, 3, seed=2), KEYS[0], p=0.0)
    torch.testing.assert_close(out, row.expand(6, 3, 4), rtol=1e-12, atol=1e-12)
    huge = 1e4 * draw(7, 3, seed=1)
    assert attended(row.expand(7, 3, 4).contiguous(), huge, draw(6, 3, seed=2), KEYS[0], p=0.0).isfinite().all()


def test_attention_alone_stacked_and_mapped_is_the_same() -> None:
    inputs = draw(2, 7, 2, 3), draw(2, 7, 2, seed=1), draw(2, 6, 2, seed=2)
    alone = torch.stack([attended(*(t[i] for t in inputs), KEYS[i]) for i in range(2)])
    torch.testing.assert_close(attended(*inputs, KEYS), alone, rtol=0, atol=1e-14)
    torch.testing.assert_close(vmap(attended)(*inputs, KEYS), alone, rtol=0, atol=1e-14)


def test_attention_can_be_differentiated_twice() -> None:
    inputs = draw(7, 2, 3), draw(7, 2, seed=1), draw(6, 2, seed=2)
    assert gradcheck(lambda *t: attended(*t, KEYS[0]), inputs)
    assert gradgradcheck(lambda *t: attended(*t, KEYS[0]), inputs)


def test_without_a_compiler_the_numbers_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    dense, bias = draw(7, 3), draw(3, seed=1)
    inputs = draw(7, 2, 3), draw(7, 2, seed=1), draw(6, 2, seed=2)
    weight = draw(9, 3, seed=3)
    compiled = propagated(dense, bias, KEYS[0]), attended(*inputs, KEYS[0]), convolved(weight, bias, KEYS[0])
    monkeypatch.setattr(fused, "is_compiled", lambda _: False)
    plain = propagated(dense, bias, KEYS[0]), attended(*inputs, KEYS[0]), convolved(weight, bias, KEYS[0])
    torch.testing.assert_close(compiled, plain, rtol=1e-11, atol=1e-12)


def test_a_convolution_passes_on_many_gradients_at_once() -> None:
    weight, bias = draw(9, 3), draw(3, seed=1)
    out = convolved(weight, bias, KEYS[0])
    each = torch.stack([torch.autograd.grad(t, weight, retain_graph=True)[0] for t in out.flatten()])
    basis = torch.eye(out.numel(), dtype=out.dtype).view(-1, *out.shape)
    mapped = vmap(lambda v: torch.autograd.grad(out, weight, v, retain_graph=True)[0])(basis)
    torch.testing.assert_close(mapped, each, rtol=1e-12, atol=1e-12)
    with torch.no_grad():
        jacobian = torch.func.jacrev(lambda w: convolved(w, bias, KEYS[0]))(weight)
    torch.testing.assert_close(jacobian.flatten(0, 1), each, rtol=1e-12, atol=1e-12)


def test_a_derivative_by_the_features_is_never_dropped() -> None:
    weight, bias, values = draw(9, 3).detach(), draw(3, seed=1).detach(), words().values

    def by_values(v: Tensor) -> Tensor:
        with masks(KEYS[0]):
            inputs = replace(words(), values=v)
            return fused.convolve(inputs, weight, operator(), bias, p=0.5, training=True, positions=POSITIONS)

    with pytest.raises(NotImplementedError):  # not zero
        torch.func.jvp(by_values, (values,), (values,))
    stack = torch.stack([values, 2 * values])
    torch.testing.assert_close(vmap(by_values)(stack), torch.stack([by_values(v) for v in stack]))


def test_features_that_do_not_match_the_operator_are_refused() -> None:
    with pytest.raises(ValueError, match=r"must have shape \[6, 9\]"):
        fused.convolve(words(), draw(9, 3), operator().T, draw(3), p=0.0, training=False)
    with pytest.raises(ValueError, match=r"must have shape \[7, 8\]"):
        fused.convolve(words(), draw(8, 3), operator(), draw(3), p=0.0, training=False)
