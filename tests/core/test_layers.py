import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm
from torch.optim.swa_utils import AveragedModel
from torch_geometric.nn import GINConv, SAGEConv

from wtawp.core.layers import find_layers, unwrapped


class Doubly(nn.Module):
    """A network that is registered by itself and inside of the convolution that uses it."""

    def __init__(self, *, network_first: bool) -> None:
        super().__init__()
        network = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
        if network_first:
            self.network = network
        self.conv = GINConv(network)
        if not network_first:
            self.network = network
        self.head = nn.Linear(4, 3)


def test_layers_are_the_outermost_modules_with_parameters_and_know_their_matrices() -> None:
    model = nn.Sequential(
        SAGEConv(4, 4), nn.LayerNorm((2, 4)), nn.Sequential(nn.GRU(4, 4), nn.ReLU()), weight_norm(nn.Linear(4, 4))
    )
    found = [(layer.name, type(layer.module), layer.matrices) for layer in find_layers(model)]
    assert [(name, matrices) for name, _, matrices in found] == [
        ("0", ("0.lin_l.weight", "0.lin_r.weight")),
        ("2.0", ()),
        ("3", ("3.parametrizations.weight.original1",)),
    ]
    assert found[0][1] is SAGEConv


@pytest.mark.parametrize("network_first", [True, False])
def test_a_module_inside_a_layer_is_no_layer_of_its_own(network_first: bool) -> None:
    conv, head = find_layers(Doubly(network_first=network_first))
    assert (conv.name, head.name) == ("conv", "head")
    assert [name.split(".", 1)[0] for name in conv.matrices] == ["network" if network_first else "conv"] * 2


def test_wrappers_are_looked_through_and_a_bare_layer_is_one() -> None:
    assert [layer.name for layer in find_layers(nn.DataParallel(nn.Sequential(nn.Linear(2, 2))))] == ["module.0"]
    (bare,) = find_layers(nn.Linear(2, 2))
    assert (bare.name, bare.matrices) == ("", ("weight",))


class Encoded(nn.Module):
    """A model of which a part has the name that wrappers use."""

    def __init__(self, name: str, encoder: object) -> None:
        super().__init__()
        setattr(self, name, encoder)
        self.head = nn.Linear(4, 3)


@pytest.mark.parametrize("name", ["module", "encoder", "_orig_mod"])
def test_a_part_of_a_model_may_have_the_name_that_wrappers_use(name: str) -> None:
    model = Encoded(name, nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)))
    assert [layer.name for layer in find_layers(model)] == [f"{name}.0", f"{name}.2", "head"]
    assert unwrapped(Encoded("module", "gcn")).head.out_features == 3


def test_wrappers_of_wrappers_are_looked_through() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    for wrapped in (nn.DataParallel(model), AveragedModel(model), torch.compile(nn.DataParallel(model))):
        assert type(unwrapped(wrapped)) is nn.Sequential
        assert len(find_layers(wrapped)) == 2


def test_a_convolution_that_a_model_calls_its_module_is_one_layer() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = SAGEConv(4, 4)

    (layer,) = find_layers(Net())
    assert layer.matrices == ("module.lin_l.weight", "module.lin_r.weight")
