import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.attacks.checks import checked_dtype, checked_labels, refuse_nan, refuse_without_weights
from wtawp.base import AttackError, DataError, rng
from wtawp.models import GCN


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


def test_labels_may_be_a_list_or_an_array_and_must_not_be_missing() -> None:
    for labels in ([1, 0], np.array([1, 0]), (1, 0)):
        assert torch.equal(checked_labels(labels, 2), torch.tensor([1, 0]))
    with pytest.raises(DataError, match="the graph has no labels y; pass labels="):
        checked_labels(None, 2)
    for bad in ([[1], [2, 3]], ["a", "b"]):
        with pytest.raises(DataError, match="labels must be a tensor, an array or a list"):
            checked_labels(bad, 2)


def test_whole_features_are_attacked_in_the_type_of_the_victims_weights() -> None:
    data = Data(x=torch.tensor([[1], [0]]), edge_index=torch.tensor([[0, 1], [1, 0]]))
    assert checked_dtype(data, nn.Linear(1, 2).double()) == torch.float64
    assert checked_dtype(data, nn.Identity()) == checked_dtype(data, None) == torch.get_default_dtype()
    with pytest.raises(DataError, match=r"GCN takes floating-point features, and data\.x is torch\.int64"):
        checked_dtype(data, GCN(1, 2, generator=rng("init")))
    with pytest.raises(DataError, match="graph has no features x"):
        checked_dtype(Data(edge_index=data.edge_index, num_nodes=2), None)
