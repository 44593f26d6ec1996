from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCN, GCNConv

from wtawp.base import rng
from wtawp.models import ModelSpec
from wtawp.models.constructors import size_arguments


def call(constructor: Callable[..., Any], **options: object) -> dict[str, object]:
    """What a function that returns its arguments by name gets for 13 features and 3 classes."""
    positions, names = size_arguments(constructor, 13, 3, options)
    received: dict[str, object] = constructor(*positions, **names, **options)
    return received


def ours(d_in: int, d_out: int, hidden: int = 8) -> dict[str, object]:
    return locals()


def theirs(num_features: int, num_classes: int, out_dim: int = 5) -> dict[str, object]:
    return locals()


def unnamed(a: int, b: int) -> dict[str, object]:
    return locals()


def output_of_text(a: int, b: int, output: str = "logits") -> dict[str, object]:
    return locals()


def hidden_second(in_channels: int, hidden_channels: int = 64, out_channels: int = 7) -> dict[str, object]:
    return locals()


def by_name_alone(channels: object = None, *, in_channels: int = 0, out_channels: int = 0) -> dict[str, object]:
    return locals()


def swapped(n_classes: int, n_features: int) -> dict[str, object]:
    return locals()


def needs_more(
    in_channels: int, hidden_channels: int, num_layers: int, out_channels: object = None
) -> dict[str, object]:
    return locals()


def needs_hidden(nfeat: int, nhid: int, nclass: int) -> dict[str, object]:
    return locals()


def like_an_output(in_channels: int, classifier_hidden: int = 64, num_classes: int = 7) -> dict[str, object]:
    return locals()


def dropout_of_outputs(in_channels: int, out_dropout: float = 0.5, num_classes: int = 7) -> dict[str, object]:
    return locals()


@pytest.mark.parametrize(
    ("constructor", "options", "received"),
    [
        (like_an_output, {}, {"in_channels": 13, "classifier_hidden": 64, "num_classes": 3}),
        (dropout_of_outputs, {}, {"in_channels": 13, "out_dropout": 0.5, "num_classes": 3}),
        (ours, {"hidden": 4}, {"d_in": 13, "d_out": 3, "hidden": 4}),
        (theirs, {}, {"num_features": 13, "num_classes": 3, "out_dim": 5}),
        (unnamed, {}, {"a": 13, "b": 3}),
        (output_of_text, {}, {"a": 13, "b": 3, "output": "logits"}),
        (hidden_second, {}, {"in_channels": 13, "hidden_channels": 64, "out_channels": 3}),
        (hidden_second, {"hidden_channels": 16}, {"in_channels": 13, "hidden_channels": 16, "out_channels": 3}),
        (partial(hidden_second, hidden_channels=2), {}, {"in_channels": 13, "hidden_channels": 2, "out_channels": 3}),
        (by_name_alone, {}, {"channels": None, "in_channels": 13, "out_channels": 3}),
        (swapped, {}, {"n_classes": 3, "n_features": 13}),
        (needs_hidden, {"nhid": 4}, {"nfeat": 13, "nhid": 4, "nclass": 3}),
        (lambda *sizes: {"sizes": sizes}, {}, {"sizes": (13, 3)}),
        (lambda d, c, output=None: {"d": d, "c": c, "output": output}, {}, {"d": 13, "c": 3, "output": None}),
        (lambda d, k, n_out=1: {"d": d, "k": k, "n_out": n_out}, {}, {"d": 13, "k": 3, "n_out": 1}),
    ],
)
def test_the_number_of_classes_goes_where_the_names_say(
    constructor: Callable[..., Any], options: dict[str, object], received: dict[str, object]
) -> None:
    assert call(constructor, **options) == received


def test_a_model_of_torch_geometric_is_built_with_its_options() -> None:
    spec = ModelSpec(name="theirs", constructor=GCN)
    model = spec.build(13, 3, {"hidden_channels": 64, "num_layers": 2}, rng("init"))
    assert isinstance(model, GCN)
    assert [(conv.in_channels, conv.out_channels) for conv in model.convs] == [(13, 64), (64, 3)]
    with pytest.raises(ValueError, match=r"needs hidden_channels and num_layers, without default: pass --option hid"):
        spec.build(13, 3, {}, rng("init"))
    conv = ModelSpec(name="layer", constructor="torch_geometric.nn:GCNConv").build(13, 3, {}, rng("init"))
    assert isinstance(conv, GCNConv)
    assert conv.out_channels == 3


class Encoder(nn.Module):
    """The number of classes is no argument of it."""

    def __init__(self, in_channels: int, hidden_dim: int = 16) -> None:
        super().__init__()
        self.lin = nn.Linear(in_channels, hidden_dim)


def test_a_class_that_does_not_say_which_argument_is_the_number_of_classes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Encoder\(num_features, num_classes\), but.*the second one is hidden_dim"):
        ModelSpec(name="encoder", constructor=Encoder).build(13, 3, {}, rng("init"))

    def build(num_features: int, num_classes: int) -> nn.Module:  # what the message advises
        return nn.Sequential(Encoder(num_features), nn.Linear(16, num_classes))

    assert isinstance(ModelSpec(name="encoder", constructor=build).build(13, 3, {}, rng("init")), nn.Module)


def test_an_option_that_the_data_give_is_refused() -> None:
    for name in ("in_channels", "out_channels"):
        with pytest.raises(ValueError, match=f"{name} of hidden_second.* is given by the data; leave out the option"):
            call(hidden_second, **{name: 3})


def test_the_generator_is_passed_as_well() -> None:
    class Net(nn.Module):
        def __init__(self, in_channels: int, hidden: int, out_channels: int, generator: torch.Generator) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(in_channels, hidden, out_channels, generator=generator))

    model = ModelSpec(name="net", constructor=Net).build(4, 3, {"hidden": 2}, rng("init"))
    assert model.weight.shape == (4, 2, 3)
