import pytest
import torch
from torch import Tensor, nn

from wtawp.attacks.checks import checked_labels, refuse_nan, refuse_without_weights
from wtawp.base import AttackError


class Anything(nn.Module):
    def forward(self, *given: Tensor) -> Tensor:
        return given[0]


def test_what_is_no_number_is_refused() -> None:
    refuse_nan(torch.tensor([0.0, 1.0]))
    for bad in (torch.nan, torch.inf):
        with pytest.raises(AttackError, match="NaN or infinite"):
            refuse_nan(torch.tensor([0.0, bad]))


def test_a_victim_must_take_edge_weights(weightless: nn.Module) -> None:
    refuse_without_weights(Anything(), "PGD")
    with pytest.raises(AttackError, match="Weightless takes no edge_weight, and PGD differentiates by it"):
        refuse_without_weights(weightless, "PGD")


def test_labels_are_whole_numbers_of_all_nodes() -> None:
    assert checked_labels(torch.tensor([1, 0], dtype=torch.int32), 2).dtype == torch.int64
    for bad in (torch.zeros(2), torch.zeros(3, dtype=torch.int64)):
        with pytest.raises(ValueError, match=r"one for each node, \[2\]"):
            checked_labels(bad, 2)
