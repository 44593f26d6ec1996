import pytest
import torch

from wtawp.base import rng
from wtawp.models import dropout_kernels

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")),
]


def naive(x: list[list[float]], key: int, positions: list[int], p: float) -> list[list[float]]:
    """The hash in plain Python integers."""
    out = []
    for i, row in enumerate(x):
        line = []
        for k, value in enumerate(row):
            h = ((positions[i] * len(row) + k) * 0x9E3779B1 + key) % 2**32
            h = ((h ^ (h >> 16)) * 0x21F0AAAD + (key >> 32)) % 2**32
            h = ((h ^ (h >> 15)) * 0x735A2D97) % 2**32
            h ^= h >> 15
            line.append(value / (1 - p) if h >= int(p * 2**32) else 0.0)
        out.append(line)
    return out


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shared", [False, True])
def test_all_kernels_agree_with_plain_integers(device: str, compiled: bool, dtype: torch.dtype, shared: bool) -> None:
    keys = torch.tensor([0, -1, 2**62 + 12345], device=device)
    positions = torch.tensor([0, 5, 123456, 2**31 + 7], device=device)
    x = torch.rand(1 if shared else 3, 4, 7, generator=rng("x"), dtype=dtype)
    found = dropout_kernels.apply(x.to(device), keys, positions, 0.3, compiled=compiled).cpu()
    expected = [
        naive(x[0 if shared else b].tolist(), int(k) % 2**64, positions.tolist(), 0.3) for b, k in enumerate(keys)
    ]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=dtype))
    assert found.dtype == dtype
