import pytest
import torch
from torch import Tensor

from wtawp.base import rng
from wtawp.graphs import sparse_features, spmm
from wtawp.graphs.products import multiply


@pytest.mark.parametrize("stack", [(), (3,)])
@pytest.mark.parametrize("own_values", [False, True])
def test_products_and_both_gradients_by_dense_algebra(
    stack: tuple[int, ...], own_values: bool, random_matrix: Tensor
) -> None:
    operator = sparse_features(random_matrix)
    g = rng("product")
    x = torch.randn(*stack, 5, 4, generator=g, dtype=torch.float64, requires_grad=True)
    shape = (*stack, len(operator.values)) if own_values else (len(operator.values),)
    values = torch.randn(shape, generator=g, dtype=torch.float64, requires_grad=True)
    places = (operator.rows, operator.indices.long())
    matrix = torch.stack([v.new_zeros(7, 5).index_put(places, v) for v in values.reshape(-1, len(operator.values))])
    matrix = matrix if values.dim() == 2 else matrix[0]
    weight = torch.randn(*stack, 7, 4, generator=g, dtype=torch.float64)
    expected = torch.autograd.grad((matrix @ x * weight).sum(), (x, values))
    found = torch.autograd.grad((spmm(operator, x, values) * weight).sum(), (x, values))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradgradcheck(lambda x, v: spmm(operator, x, v), (x, values))


@pytest.mark.parametrize(("x_dim", "v_dim"), [(0, None), (1, None), (None, 0), (0, 1)])
def test_the_vmap_rule_equals_a_loop(x_dim: int | None, v_dim: int | None, random_matrix: Tensor) -> None:
    operator = sparse_features(random_matrix)
    g = rng("vmap")
    x = torch.randn(*([5, 4] if x_dim is None else [3, 5, 4]), generator=g, dtype=torch.float64)
    v = torch.randn(
        *([len(operator.values)] if v_dim is None else [3, len(operator.values)]), generator=g, dtype=torch.float64
    )
    moved_x, moved_v = (t if d is None else t.movedim(0, d) for t, d in ((x, x_dim), (v, v_dim)))
    mapped = torch.func.vmap(lambda x, v: spmm(operator, x, v), in_dims=(x_dim, v_dim))(moved_x, moved_v)
    loop = [spmm(operator, x if x_dim is None else x[i], v if v_dim is None else v[i]) for i in range(3)]
    torch.testing.assert_close(mapped, torch.stack(loop), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("width", [3, 20])
@pytest.mark.parametrize("stack", [(), (2,)])
@pytest.mark.parametrize("is_constant", [False, True])
def test_dense_products_and_their_derivatives_whatever_the_width(
    stack: tuple[int, ...], width: int, is_constant: bool
) -> None:
    g = rng("dense")
    left = torch.randn(*(() if is_constant else stack), 6, 5, generator=g, dtype=torch.float64)
    left.requires_grad_(not is_constant)
    right = torch.randn(*stack, 5, width, generator=g, dtype=torch.float64, requires_grad=True)
    wanted = [t for t in (left, right) if t.requires_grad]
    upstream = torch.randn(*stack, 6, width, generator=g, dtype=torch.float64)
    out, expected = multiply(left, right), left @ right
    torch.testing.assert_close(out, expected, rtol=1e-13, atol=1e-13)
    gradients = [torch.autograd.grad(t, wanted, upstream) for t in (out, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-13, atol=1e-13)
    assert torch.autograd.gradgradcheck(
        lambda *some: multiply(*((left, *some) if is_constant else some)), tuple(wanted)
    )


def test_a_narrow_product_of_variables_can_be_mapped() -> None:
    left, right = (torch.randn(3, *shape, generator=rng("map"), dtype=torch.float64) for shape in ((6, 5), (5, 2)))
    left.requires_grad_()
    mapped = torch.func.vmap(multiply)(left, right)
    torch.testing.assert_close(mapped, left @ right, rtol=1e-13, atol=1e-13)


def test_a_backward_pass_inside_of_autocast_is_not_rounded() -> None:
    left, right = (torch.randn(shape, generator=rng("autocast")) for shape in ((64, 32), (32, 7)))
    left.requires_grad_()
    upstream = torch.randn(64, 7, generator=rng("upstream"))
    with torch.autocast("cpu", torch.bfloat16):
        gradient = torch.autograd.grad(multiply(left, right), left, upstream)[0]
    torch.testing.assert_close(gradient, upstream @ right.T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("own_values", [False, True])
def test_a_stack_over_an_operator_without_entries_is_multiplied_to_zeros(own_values: bool) -> None:
    operator = sparse_features(torch.zeros(4, 0, dtype=torch.float64))
    x = torch.ones(2, 0, 3, dtype=torch.float64, requires_grad=True)
    values = torch.ones(2, 0, dtype=torch.float64) if own_values else None
    product = spmm(operator, x, values)
    assert torch.equal(product, torch.zeros(2, 4, 3, dtype=torch.float64))
    assert torch.autograd.grad(product.sum(), x)[0].shape == (2, 0, 3)
