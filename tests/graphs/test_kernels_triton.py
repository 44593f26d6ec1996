import pytest
import torch

from wtawp.graphs import kernels
from wtawp.graphs.operator import Operator

pytest.importorskip("triton", reason="Triton comes with CUDA builds of torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("batch", "width"), [(1, 64), (3, 7), (5, 300)])
@pytest.mark.parametrize("own", [False, True])
def test_it_is_the_torch_product(dtype: torch.dtype, batch: int, width: int, own: bool) -> None:
    g = torch.Generator().manual_seed(0)
    rows, cols = (torch.rand(40, 30, generator=g) < 0.3).nonzero(as_tuple=True)
    operator = Operator.from_entries(rows, cols, torch.rand(len(rows), generator=g, dtype=dtype), (40, 30)).to("cuda")
    values = torch.rand(len(rows), batch, generator=g, dtype=dtype).cuda().T if own else operator.values[None]
    dense = torch.randn(30, batch, width, generator=g, dtype=dtype).cuda().transpose(0, 1)  # strides of its own
    structure = operator.indptr, operator.indices
    expected = kernels.multiply(*structure, values, dense, compiled=False)
    torch.testing.assert_close(kernels.multiply(*structure, values, dense), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("own", [False, True])
def test_int64_pointers_give_the_products_of_int32_ones(own: bool) -> None:
    g = torch.Generator().manual_seed(0)
    rows, cols = (torch.rand(40, 30, generator=g) < 0.3).nonzero(as_tuple=True)
    operator = Operator.from_entries(rows, cols, torch.rand(len(rows), generator=g), (40, 30)).to("cuda")
    values = torch.rand(3, len(rows), generator=g).cuda() if own else operator.values[None]
    dense = torch.randn(3, 30, 64, generator=g).cuda()
    for compiled in (False, True):
        narrow, wide = (
            kernels.multiply(indptr, operator.indices, values, dense, compiled=compiled)
            for indptr in (operator.indptr, operator.indptr.long())
        )
        torch.testing.assert_close(narrow, wide, rtol=1e-6, atol=1e-6)  # sums in parallel may round differently
