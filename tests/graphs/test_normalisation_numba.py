from dataclasses import replace

import pytest
import torch

from wtawp.base import rng
from wtawp.graphs import Operator, normalisation

pytest.importorskip("wtawp.graphs.normalisation_numba", reason="the extra `fast` is not installed")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_compiled_sums_and_products_round_as_torch_s(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    g = rng("normalisation")
    rows, cols = torch.randint(50, (2, 4000), generator=g)
    operator = Operator.from_entries(rows, cols, torch.rand(4000, generator=g, dtype=dtype), (50, 50))
    scale = torch.rand(50, generator=g, dtype=dtype)
    doomed = replace(operator, values=operator.values.clone())  # the compiled product overwrites its values
    compiled = normalisation.row_sums(operator), normalisation.scaled_values(doomed, scale)
    monkeypatch.setattr(normalisation, "HAS_NUMBA", False)
    plain = normalisation.row_sums(operator), normalisation.scaled_values(operator, scale)
    assert all(torch.equal(a, b) for a, b in zip(compiled, plain, strict=True))
    dense = operator.to_dense()
    torch.testing.assert_close(compiled[0], dense.sum(1))
    expected = (torch.diag(scale) @ dense @ torch.diag(scale))[operator.rows, operator.indices.long()]
    torch.testing.assert_close(compiled[1], expected)
