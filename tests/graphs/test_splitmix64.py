import pytest
import torch

from wtawp.graphs import splitmix64 as module
from wtawp.graphs.splitmix64 import splitmix64


def reference(z: int) -> int:
    """The finaliser in plain Python integers."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
    return z ^ (z >> 31)


@pytest.mark.parametrize("is_compiled", [False, pytest.param(True, marks=pytest.mark.skipif(
    not module.HAS_NUMBA, reason="the extra `fast` is not installed"))])  # fmt: skip
def test_every_key_is_mapped_as_by_the_finaliser(is_compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HAS_NUMBA", is_compiled)
    keys = torch.tensor([[0, 1], [12345678901234567, -5]])
    for key in keys.flatten():
        assert int(splitmix64(key)) % 2**64 == reference(int(key) % 2**64)
    assert splitmix64(keys.T).tolist() == [[int(splitmix64(key)) for key in row] for row in keys.T]
    assert torch.func.vmap(splitmix64)(keys).tolist() == splitmix64(keys).tolist()
