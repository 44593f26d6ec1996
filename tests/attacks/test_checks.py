import pytest
import torch
from torch import Tensor, nn

from wtawp.attacks.checks import refuse_nan, refuse_without_weights
from wtawp.base import AttackError


class Weightless(nn.Module):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # noqa: ARG002
        return x


class Anything(nn.Module):
    def forward(self, *given: Tensor) -> Tensor:
        return given[0]


def test_what_is_no_number_is_refused() -> None:
    refuse_nan(torch.tensor([0.0, 1.0]))
    for bad in (torch.nan, torch.inf):
        with pytest.raises(AttackError, match="NaN or infinite"):
            refuse_nan(torch.tensor([0.0, bad]))


def test_a_victim_must_take_edge_weights() -> None:
    refuse_without_weights(Anything(), "PGD")
    with pytest.raises(AttackError, match="Weightless takes no edge_weight, and PGD differentiates by it"):
        refuse_without_weights(Weightless(), "PGD")
