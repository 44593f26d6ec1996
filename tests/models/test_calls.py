"""How modules of anybody are called: which inputs of edges they get, and what is said if something does not fit."""

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCN, GCNConv, GraphSAGE

from wtawp.base import DataError, rng
from wtawp.models import MLP
from wtawp.models.calls import (
    arguments_of,
    check_initialized,
    checked_call,
    checked_output,
    takes_edge_weight,
    warn_of_unused_edge_inputs,
)

EDGES = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])


def graph(**more: Tensor) -> Data:
    return Data(x=torch.ones(3, 2), edge_index=EDGES, y=torch.tensor([0, 1, 0]), **more)


class Called(nn.Module):
    """A module of which only the signature counts."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(2, 2)


class WithW(Called):
    def forward(self, x: Tensor, edge_index: Tensor, w: Tensor | None = None) -> Tensor: ...


class WithAttributes(Called):
    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor: ...


class WithOptionalAttributes(Called):
    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None) -> Tensor: ...


class WithData(Called):
    def forward(self, data: Data) -> Tensor: ...


class WithNames(Called):
    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor, time: Tensor) -> Tensor: ...


@pytest.mark.parametrize(
    ("model", "takes"),
    [
        (WithW(), True),
        (WithAttributes(), False),
        (WithData(), False),
        (GCNConv(2, 2), True),
        (GCN(2, 2, 1), True),
        (GraphSAGE(2, 2, 1), False),  # it has the argument and ignores it
        (MLP(2, 2, generator=rng("init")), True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_third_argument_is_recognised_as_weights_by_its_name(model: nn.Module, takes: bool) -> None:
    assert takes_edge_weight(model) is takes


def test_modules_get_the_inputs_of_edges_that_they_take_or_require() -> None:
    weighted, attributed = graph(edge_weight=torch.rand(4)), graph(edge_attr=torch.rand(4, 5))
    assert arguments_of(WithW(), weighted)[2] is weighted.edge_weight
    assert len(arguments_of(WithW(), graph())) == 2
    assert arguments_of(WithAttributes(), attributed)[2] is attributed.edge_attr
    assert len(arguments_of(WithOptionalAttributes(), attributed)) == 2
    assert len(arguments_of(GraphSAGE(2, 2, 1), weighted)) == 2


def test_what_is_not_used_is_said_and_what_is_used_is_not() -> None:
    with pytest.warns(
        UserWarning, match="the graph has edge_weight and edge_attr, which WithData.* is not called"
    ) as _:
        warn_of_unused_edge_inputs(
            _named("WithData", WithOptionalAttributes), graph(edge_weight=torch.rand(4), edge_attr=torch.rand(4, 1))
        )
    with pytest.warns(UserWarning, match="the graph has edge_weight, which GraphSAGE is not called with"):
        warn_of_unused_edge_inputs(GraphSAGE(2, 2, 1), graph(edge_weight=torch.rand(4)))
    with pytest.warns(UserWarning, match="the graph has edge_weight, which WithW is not called with"):
        warn_of_unused_edge_inputs(WithW(), [graph(), graph(edge_weight=torch.rand(4))])
    warn_of_unused_edge_inputs(WithW(), graph(edge_weight=torch.rand(4)))  # a warning would be an error
    warn_of_unused_edge_inputs(WithW(), graph())


def _named(name: str, kind: type[nn.Module]) -> nn.Module:
    return type(name, (kind,), {})()


def test_a_signature_that_does_not_fit_is_refused_with_the_adapter_to_write() -> None:
    with pytest.raises(DataError, match=r"forward takes \(data\).*Pass forward=lambda model, data: model\(data\)"):
        arguments_of(WithData(), graph())
    with pytest.raises(DataError, match=r"model\(data.x, data.edge_index, data.edge_type, data.time\)"):
        arguments_of(WithNames(), graph(edge_type=torch.zeros(4, dtype=torch.long)))
    with pytest.raises(
        DataError,
        match=r"model\(data.x, data.edge_index, data.edge_type, data.time\), after setting data.edge_type, which the g",
    ):
        arguments_of(WithNames(), graph())
    with pytest.raises(
        DataError, match="5 rows of edge_weight for 4 edges; if its edges were changed, as by an attack"
    ):
        arguments_of(WithW(), graph(edge_weight=torch.rand(5)))


class Abbreviating(Called):
    def forward(self, h: Tensor, ei: Tensor, edge_attr: Tensor) -> Tensor: ...


class WithTime(Called):
    def forward(self, h: Tensor, ei: Tensor, time: Tensor, w: Tensor) -> Tensor: ...


class EdgesFirst(Called):
    def forward(self, edge_index: Tensor, x: Tensor, time: Tensor) -> Tensor: ...


def test_what_the_graph_lacks_is_named_as_the_graph_names_it() -> None:
    lacking = (
        r"forward takes \(h, ei, edge_attr\): .*\. The graph has no edge_attr: set data.edge_attr, with one row for"
    )
    with pytest.raises(DataError, match=lacking):
        arguments_of(Abbreviating(), graph())
    assert len(arguments_of(Abbreviating(), graph(edge_attr=torch.rand(4, 1)))) == 3
    with pytest.raises(
        DataError, match=r"model\(data.x, data.edge_index, data.time, data.edge_weight\), after setting"
    ):
        arguments_of(WithTime(), graph())
    with pytest.raises(DataError, match=r"model\(data.edge_index, data.x, data.time\), or put"):
        arguments_of(EdgesFirst(), graph())


def test_outputs_that_are_not_one_tensor_are_refused_with_the_tensor_to_choose() -> None:
    model, rows = nn.Linear(2, 2), torch.ones(3, 2)
    assert checked_output(rows, model, 3) is rows
    with pytest.raises(DataError, match=r"got tuple; .* model\(data.x, data.edge_index\)\[0\]"):
        checked_output((rows, rows), model)
    with pytest.raises(DataError, match=r"got dict; .* model\(data.x, data.edge_index\)\[\"name\"\]"):
        checked_output({"logits": rows}, model)
    with pytest.raises(DataError, match=r"one row for each of 4 samples, got shape \[3, 2\]"):
        checked_output(rows, model, 4)


def test_a_failure_is_explained_by_what_the_module_was_called_with() -> None:
    with pytest.raises(
        DataError,
        match=r"Linear, whose weights are torch.float32, fails when it is called with .torch.float32 of shape \[3, 5\]",
    ):
        checked_call(nn.Linear(2, 2), (torch.ones(3, 5),))
    with pytest.raises(DataError, match="put a module around it that is called as model"):
        checked_call(nn.Linear(2, 2), (torch.ones(3, 2), EDGES))


def test_lazy_layers_without_weights_are_refused() -> None:
    model = nn.Sequential(nn.LazyLinear(3))
    with pytest.raises(
        DataError, match=r"0.weight, 0.bias of Sequential has no shape yet \(a lazy layer\); call the model"
    ):
        check_initialized(model)
    model(torch.ones(1, 2))
    check_initialized(model)
