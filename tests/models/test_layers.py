import math
from collections.abc import Callable

import pytest
import torch

from wtawp.base import rng
from wtawp.graphs import gcn_operator, sparse_features
from wtawp.models import GAT, GCN, GCNSVD, GIN, MLP, PPNP, RGCN, GNNGuard, GraphSAGE, PooledGCN, SimPGCN
from wtawp.models.layers import GraphConvolution, Linear

EDGES = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])


@pytest.mark.parametrize(("layer", "fan"), [(GraphConvolution, 25), (Linear, 400)])
def test_initial_weights_fill_their_interval_and_follow_the_generator(layer: type, fan: int) -> None:
    one, two, other = (layer(400, 25, generator=rng("init", i)) for i in (0, 0, 1))
    bound = 1 / math.sqrt(fan)
    for p in (one.weight, one.bias):
        assert p.abs().max() <= bound
    assert one.weight.abs().max() > 0.99 * bound
    assert torch.equal(one.weight, two.weight)
    assert not torch.equal(one.weight, other.weight)


def test_a_convolution_multiplies_operator_features_and_weights() -> None:
    layer = GraphConvolution(4, 2, generator=rng("init"))
    x, operator = torch.randn(3, 4, generator=rng("x")), gcn_operator(EDGES, None, 3)
    expected = operator.to_dense() @ x @ layer.weight + layer.bias
    torch.testing.assert_close(layer(x, operator), expected)


def test_a_linear_layer_is_torch_s() -> None:
    layer, x = Linear(4, 2, generator=rng("init")), torch.randn(3, 4, generator=rng("x"))
    torch.testing.assert_close(layer(x), torch.nn.functional.linear(x, layer.weight.T, layer.bias))


def test_sparse_features_give_what_dense_ones_do() -> None:
    x = torch.randn(3, 4, generator=rng("x")).relu()
    for layer, rest in (
        (Linear(4, 2, generator=rng("init")), ()),
        (GraphConvolution(4, 2, generator=rng("init")), (gcn_operator(EDGES, None, 3),)),
    ):
        torch.testing.assert_close(layer(sparse_features(x), *rest), layer(x, *rest))


@pytest.mark.parametrize("kind", [GCN, GAT, PPNP, MLP, GraphSAGE, GIN, RGCN, SimPGCN, GCNSVD])
def test_widths_and_dropout_that_make_no_model_are_refused(kind: type) -> None:
    with pytest.raises(ValueError, match=r"dropout must lie in \[0, 1\), got 1.5"):
        kind(4, 3, dropout=1.5, generator=rng("init"))
    with pytest.raises(ValueError, match=r"widths must be >= 1, got d_in=4, .*d_out=0"):
        kind(4, 0, generator=rng("init"))
    if kind not in (GAT, PPNP, SimPGCN):
        with pytest.raises(
            ValueError, match=r"hidden must be a tuple with the width of each hidden layer, such as \(8,\), got 8"
        ):
            kind(4, 3, hidden=8, generator=rng("init"))


@pytest.mark.parametrize(
    ("build", "name"),
    [(GCN, "residual"), (GCN, "linear"), (MLP, "linear"), (GIN, "train_eps"), (RGCN, "sample"), (GAT, "residual"),
     (GraphSAGE, "residual"), (PooledGCN, "jumps"), (PooledGCN, "last_relu"), (GNNGuard, "reuses_pruned")],
)  # fmt: skip
@pytest.mark.parametrize("value", ["no", 0])
def test_an_option_that_is_on_or_off_takes_nothing_else(build: Callable[..., object], name: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{name} must be True or False, got {value!r}"):
        build(4, 2, generator=rng("init"), **{name: value})


def test_a_rate_of_dropout_is_a_number() -> None:
    for rate in ("0.5", 1.0, -0.1):
        with pytest.raises(ValueError, match=r"dropout must lie in \[0, 1\), got"):
            GCN(4, 2, dropout=rate, generator=rng("init"))
