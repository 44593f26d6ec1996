import pytest
import torch
from torch import nn

from wtawp.analysis.shifted_weights import shifted_weights


def test_weights_are_elsewhere_inside_and_back_bit_for_bit_outside() -> None:
    theta = {"a": nn.Parameter(torch.rand(4)), "b": nn.Parameter(torch.rand(3))}
    before = {n: p.detach().clone() for n, p in theta.items()}
    with pytest.raises(KeyError), shifted_weights(theta, {"a": torch.full((4,), 0.1)}):
        assert torch.equal(theta["a"], before["a"] + 0.1)
        assert torch.equal(theta["b"], before["b"])
        raise KeyError
    assert all(torch.equal(theta[n], before[n]) for n in theta)
