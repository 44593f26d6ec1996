import pytest
import torch

from wtawp.graphs.operator import Operator
from wtawp.models import fused
from wtawp.models.dropout import masks

pytest.importorskip("triton", reason="Triton comes with CUDA builds of torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
KEYS = torch.tensor([3, 4, 5])


def operator(dtype: torch.dtype) -> Operator:  # [20, 30]
    g = torch.Generator().manual_seed(1)
    kept = torch.rand(20, 30, generator=g) < 0.3
    kept[:, 0] = True
    rows, cols = kept.nonzero(as_tuple=True)
    return Operator.from_entries(rows, cols, torch.rand(len(rows), generator=g, dtype=dtype), (20, 30))


@pytest.mark.parametrize(("dtype", "close"), [(torch.float32, 1e-5), (torch.float64, 1e-11)])
@pytest.mark.parametrize("p", [0.0, 0.3])
@pytest.mark.parametrize(("heads", "width"), [(8, 8), (1, 7), (3, 5)])
def test_the_gpu_gives_what_the_cpu_gives(dtype: torch.dtype, close: float, p: float, heads: int, width: int) -> None:
    g = torch.Generator().manual_seed(0)
    shapes = [(3, 30, heads * width), (3, heads * width), (3, 30, heads, width), (3, 30, heads), (3, 20, heads)]
    drawn = [torch.randn(s, generator=g, dtype=dtype) for s in shapes]
    results = []
    for device in ("cpu", "cuda"):
        inputs = [t.to(device).requires_grad_() for t in drawn]
        structure = operator(dtype).to(device)
        entries = structure.rows * 30 + structure.indices.long()
        with masks(KEYS.to(device)):
            hidden = fused.propagate(structure, *inputs[:2], p=p, training=True)
            out = fused.attend(structure, *inputs[2:], p=p, training=True, entries=entries)
        grads = torch.autograd.grad(hidden.square().sum() + out.square().sum(), inputs)
        results.append([t.cpu() for t in (hidden.detach(), out.detach(), *grads)])
    torch.testing.assert_close(results[0], results[1], rtol=10 * close, atol=10 * close)
