import pytest
import torch

pytest.importorskip("triton", reason="Triton comes with CUDA builds of torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


def test_every_element_is_written_once() -> None:
    from wtawp.models import dropout_triton

    x = torch.rand(3, 1237, 65, device="cuda") + 1
    out = dropout_triton.apply(x, torch.arange(3, device="cuda"), torch.arange(1237, device="cuda"), 2**31, 2.0)
    assert (((out == 0) | (out == 2 * x)).all()).item()
    assert float((out == 0).float().mean()) == pytest.approx(0.5, abs=0.01)
