"""Graphs, targets and splits that cannot be trained with are refused, each with a sentence that says what to do."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GCNConv, SGConv, global_mean_pool

from wtawp.base import CheckpointError, DataError, WtawpError, rng
from wtawp.graphs import Split, load, stratified
from wtawp.models import GCN, PooledGCN, SimPGCN, registry
from wtawp.models.capabilities import StackAware
from wtawp.training import dot_product, evaluate, fit, fit_batches, fit_many
from wtawp.training.checks import targets_of

WINE = load("wine")
SPLIT = stratified(WINE.y, seed=0)
NONE = torch.tensor([], dtype=torch.int64)


def changed(**attributes: object) -> Data:
    data = WINE.clone()
    for name, value in attributes.items():
        data[name] = value
    return data


def with_nan() -> Tensor:
    x = WINE.x.clone()
    x[3, 3] = float("nan")
    return x


def by_fit(data: Any, split: Split) -> object:
    return fit(GCN(13, 3, generator=rng("init")), data, split, seed=0, epochs=1)


def by_batches(data: Any, split: Split) -> object:
    model = GCN(13, 3, generator=rng("init"))
    return fit_batches(model, data, split, seed=0, epochs=1, batch_size=8, fanouts=(3, 3))


@pytest.mark.parametrize("train", [by_fit, by_batches])
@pytest.mark.parametrize(
    ("data", "split", "message"),
    [
        (WINE, replace(SPLIT, train=NONE), "the train part of the split must hold one or more of the nodes, got none"),
        (WINE, replace(SPLIT, test=NONE), "the test part of the split must hold one or more of the nodes"),
        (WINE, replace(SPLIT, val=SPLIT.train), "must be disjoint, but 17 nodes occur more than once"),
        (WINE, replace(SPLIT, train=SPLIT.train[WINE.y[SPLIT.train] > 0]), "the training part has nothing of class 0"),
        (WINE, replace(SPLIT, train=SPLIT.train + 170), "must lie in 0 to 177, the nodes there are, got 172 to 342"),
        (WINE, replace(SPLIT, train=SPLIT.train.float()), r"indices \[k\], or a boolean mask \[178\], of the nodes"),
        (changed(x=with_nan()), SPLIT, "1 numbers of x are NaN or infinite, the first in row 3; fill them in first"),
        (changed(x=WINE.x.double()), SPLIT, r"data.x = data.x.to\(torch.float32\)"),
        (changed(y=WINE.y - 1), SPLIT, r"6 nodes of the train part have no label \(-1\); leave them out"),
        (changed(y=WINE.y + 1), SPLIT, "returns 3 logits for each sample, and the labels are 0 to 3; build it with 4"),
        (changed(y=WINE.y[:, None]), SPLIT, r"data.y = data.y.squeeze\(1\)"),
        (changed(y=WINE.x[:, 0]), SPLIT, "pass loss= and metric= for other targets .loss=F.mse_loss"),
        (changed(y=torch.ones(178, 2)), SPLIT, "F.binary_cross_entropy_with_logits"),
        (HeteroData(), SPLIT, "forward=lambda model, data: model.data.x_dict, data.edge_index_dict"),
        ("cora", SPLIT, r"takes a PyG Data, or a list .*, got str; load it first: load\('cora'\)"),
    ],
)  # fmt: skip
def test_what_cannot_be_trained_is_refused(
    train: Callable[[Any, Split], object], data: Any, split: Split, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        train(data, split)


def test_masks_and_lists_and_small_integers_are_as_good_as_indices_and_int64() -> None:
    masks = [torch.zeros(178, dtype=torch.bool) for _ in range(3)]
    for mask, part in zip(masks, (SPLIT.train, SPLIT.val, SPLIT.test), strict=True):
        mask[part] = True
    expected = by_fit(WINE, SPLIT)
    assert by_fit(WINE, Split(*masks)) == expected
    assert by_fit(WINE, Split(SPLIT.train.tolist(), SPLIT.val, SPLIT.test)) == expected  # type: ignore[arg-type]
    assert by_fit(changed(y=WINE.y.int()), SPLIT) == expected
    assert evaluate(GCN(13, 3, generator=rng("init")), WINE, [5]) == evaluate(
        GCN(13, 3, generator=rng("init")), WINE, torch.tensor([5])
    )


@pytest.mark.parametrize("name", registry.model_names())
@pytest.mark.parametrize("width", [12, 14, 16])
def test_models_of_another_width_are_refused_and_do_not_drop_features(name: str, width: int) -> None:
    model = registry.model_spec(name).build(width, 3, {}, rng("init"))
    graph = (WINE.x, WINE.edge_index) if isinstance(model, StackAware) else (WINE.x, WINE.edge_index, WINE.y)
    with pytest.raises(DataError, match=f"the features have 13 columns, but the layer takes {width}; build the model"):
        model(*graph)
    if isinstance(model, StackAware):
        with pytest.raises(DataError, match="the features have 13 columns"):
            fit(model, WINE, SPLIT, seed=0, epochs=1)


@pytest.mark.parametrize("name", [n for n in registry.model_names() if not n.startswith("Pooled")])
def test_weights_of_edges_are_used_by_every_model_of_ours(name: str) -> None:
    g = rng("weights")
    weight = torch.rand(WINE.num_edges, generator=g)
    spec = registry.model_spec(name)
    without_dropout = {option: 0.0 for option in spec.options() if option == "dropout"}

    def trained(edge_weight: Tensor | None, count: int) -> list[nn.Module]:
        models = [spec.build(13, 3, without_dropout, rng("init", i)) for i in range(count)]
        data = changed(edge_weight=edge_weight) if edge_weight is not None else WINE
        fit_many(models, data, SPLIT, seeds=range(count), epochs=3, weight_decay=0.0, select_on="last")
        return models

    def logits(model: nn.Module, edge_weight: Tensor | None = None) -> Tensor:
        return model.eval()(WINE.x, WINE.edge_index, edge_weight).detach()

    plain, ones, weighted = trained(None, 1), trained(torch.ones(WINE.num_edges), 1), trained(weight, 2)
    torch.testing.assert_close(logits(ones[0]), logits(plain[0]), rtol=1e-3, atol=1e-4)
    assert name == "MLP" or not torch.allclose(logits(weighted[0], weight), logits(plain[0]), atol=1e-3)
    alone = trained(weight, 1)
    torch.testing.assert_close(logits(alone[0], weight), logits(weighted[0], weight), rtol=1e-3, atol=1e-4)
    score = evaluate(alone[0], changed(edge_weight=weight), SPLIT.test)[1]
    assert score == pytest.approx(float((logits(alone[0], weight).argmax(1) == WINE.y)[SPLIT.test].float().mean()))


class Own(nn.Module):
    """Somebody's model of PyG's layers."""

    def __init__(self, layer: type[nn.Module] = GCNConv, *, cached: bool = False) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.conv, self.lin = layer(13, 8, cached=cached), nn.Linear(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.lin(self.conv(x, edge_index, edge_weight).relu())


@pytest.mark.parametrize("layer", [GCNConv, SGConv])
def test_layers_that_cache_their_graph_are_measured_on_the_graph_that_is_passed(layer: type[nn.Module]) -> None:
    cached, fresh = Own(layer, cached=True), Own(layer)
    other = changed(x=WINE.x.flip(0), edge_index=torch.tensor([[0, 1], [1, 0]]))
    assert evaluate(cached, WINE, SPLIT.test) == evaluate(fresh, WINE, SPLIT.test)
    cached(WINE.x, WINE.edge_index)  # now the layer has a graph in its cache
    assert evaluate(cached, other, SPLIT.test) == evaluate(fresh, other, SPLIT.test)
    assert cached.conv.cached is True
    assert torch.equal(cached(WINE.x, WINE.edge_index), fresh(WINE.x, WINE.edge_index))


@pytest.mark.parametrize("layer", [GCNConv, SGConv])
@pytest.mark.parametrize("is_augmented", [False, True])
def test_layers_that_cache_their_graph_are_trained_as_others(layer: type[nn.Module], is_augmented: bool) -> None:
    def fewer_edges(data: Data, epoch: int) -> Data:
        return Data(x=data.x, y=data.y, edge_index=data.edge_index[:, epoch::2])

    cached, fresh = [Own(layer, cached=True) for _ in range(3)], Own(layer)
    cached[0](WINE.x[:5], torch.tensor([[0], [1]]))  # another graph in the cache
    how: dict[str, Any] = {"epochs": 6, "augment": fewer_edges if is_augmented else None}
    expected = fit(fresh, WINE, SPLIT, seed=0, **how)
    assert fit(cached[0], WINE, SPLIT, seed=0, **how) == expected
    both = fit_many(cached[1:], WINE, SPLIT, seeds=[0, 0], **how)
    assert [r.scores for r in both] == [expected.scores] * 2
    assert torch.equal(cached[0](WINE.x, WINE.edge_index), fresh(WINE.x, WINE.edge_index))


def test_caches_are_emptied_after_an_error_too_and_unknown_ones_are_refused() -> None:
    model = Own(cached=True)

    def fails(_data: Data, _epoch: int) -> Data:
        raise KeyError("stop")

    with pytest.raises(KeyError):
        fit(model, WINE, SPLIT, seed=0, epochs=1, augment=fails)
    assert model.conv.cached is True
    assert model.conv._cached_edge_index is None
    model.lin.cached = True  # a layer of which nothing more is known
    with pytest.raises(WtawpError, match=r"a Linear, keeps the graph it saw first \(cached=True\)"):
        evaluate(model, WINE, SPLIT.test)


def test_graphs_in_batches_are_not_trained_with_a_cache() -> None:
    graphs = [
        Data(x=WINE.x[i : i + 4], edge_index=torch.tensor([[0, 1], [1, 0]]), y=WINE.y[i : i + 1]) for i in range(90)
    ]
    split = Split(torch.arange(0, 90, 3), torch.arange(1, 90, 3), torch.arange(2, 90, 3))
    with pytest.raises(WtawpError, match="keeps the graph it saw first"):
        fit_batches(Own(cached=True), graphs, split, seed=0, epochs=1, batch_size=8)


def test_weights_that_a_model_does_not_take_are_said_to_be_unused() -> None:
    class Without(Own):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(x, edge_index)

    weighted = changed(edge_weight=torch.rand(WINE.num_edges, generator=rng("weights")))
    with pytest.warns(UserWarning, match="the graph has edge_weight, which Without is not called with"):
        fit(Without(), weighted, SPLIT, seed=0, epochs=1)
    with pytest.raises(DataError, match=r"the edges have weights, which Without does not take as model\(x, edge_index"):
        fit_batches(Without(), weighted, SPLIT, seed=0, epochs=1, batch_size=8, fanouts=(3,))
    taken, ignored = Own(), Own()
    fit(taken, weighted, SPLIT, seed=0, epochs=3)
    fit(ignored, WINE, SPLIT, seed=0, epochs=3)
    assert not torch.equal(taken.lin.weight, ignored.lin.weight)


def test_the_targets_of_a_heterogeneous_graph_are_those_of_its_only_labelled_type() -> None:
    data = HeteroData()
    data["paper"].y, data["author"].x = torch.tensor([0, 1]), torch.ones(3, 1)
    assert targets_of(data).tolist() == [0, 1]
    data["author"].y = torch.tensor([0, 1, 0])
    with pytest.raises(DataError, match="exactly one type of nodes must have targets y, got paper, author"):
        targets_of(data)


def test_a_training_without_a_finite_loss_is_announced() -> None:
    class Broken(Own):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(x, edge_index) * float("nan")

    with pytest.warns(UserWarning, match="training loss of 1 of 1 models is NaN or infinite, from epoch 0 on"):
        fit(Broken(), WINE, SPLIT, seed=0, epochs=2)


class OfData(nn.Module):
    """A classifier of graphs that takes the whole batch and returns more than the logits."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.conv, self.lin = GCNConv(13, 8), nn.Linear(8, 3)

    def forward(self, data: Data) -> tuple[Tensor, Tensor]:
        hidden = self.conv(data.x, data.edge_index).relu()
        return self.lin(global_mean_pool(hidden, data.batch)), hidden


class OfGraphs(OfData):
    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(Data(x=x, edge_index=edge_index, batch=batch))[0]


def test_an_adapter_classifies_graphs_and_is_part_of_what_a_checkpoint_belongs_to(tmp_path: Path) -> None:
    graphs = [
        Data(x=WINE.x[i : i + 2], edge_index=torch.tensor([[0, 1], [1, 0]]), y=WINE.y[i : i + 1]) for i in range(177)
    ]
    split = Split(torch.arange(0, 177, 3), torch.arange(1, 177, 3), torch.arange(2, 177, 3))
    how: dict[str, Any] = {"epochs": 4, "checkpoint": tmp_path / "run.pt"}
    model = OfData()
    result = fit(model, graphs, split, seed=0, forward=lambda m, d: m(d)[0], **how)
    plain = OfGraphs()
    assert fit(plain, graphs, split, seed=0, epochs=4) == result
    assert evaluate(model, graphs, split.test, forward=lambda m, d: m(d)[0])[1] == pytest.approx(result.scores["test"])
    with pytest.raises(CheckpointError, match="forward"):
        fit(OfData(), graphs, split, seed=0, forward=lambda m, d: -m(d)[0], **how)
    with pytest.raises(ValueError, match="SimPGCN has a loss of its own, which forward= would leave out"):
        fit(SimPGCN(13, 3, generator=rng("init")), WINE, SPLIT, seed=0, forward=lambda m, d: m(d.x, d.edge_index))


def test_the_masks_of_the_labelled_type_are_the_split_of_a_heterogeneous_graph() -> None:
    data = HeteroData()
    data["wine"].x, data["wine"].y = WINE.x, WINE.y
    data["wine", "like", "wine"].edge_index = WINE.edge_index
    for name in ("train", "val", "test"):
        mask = torch.zeros(178, dtype=torch.bool)
        mask[getattr(SPLIT, name)] = True
        data["wine"][f"{name}_mask"] = mask

    def forward(model: nn.Module, graph: HeteroData) -> Tensor:
        return model(graph["wine"].x, graph["wine", "like", "wine"].edge_index)

    assert fit(Own(), data, seed=0, epochs=3, forward=forward) == fit(Own(), WINE, SPLIT, seed=0, epochs=3)
    with pytest.raises(DataError, match="links of a heterogeneous graph are not trained by fit"):
        fit(Own(), data, SPLIT, seed=0, forward=forward, decoder=dot_product)


def test_several_graphs_with_targets_of_nodes_are_refused_with_the_way_to_join_them() -> None:
    graphs = [Data(x=WINE.x[:4], edge_index=torch.tensor([[0], [1]]), y=WINE.y[:4])] * 9
    with pytest.raises(
        DataError, match=r"graph 0 of the list has a target for each of its 4 nodes.*Batch.from_data_list"
    ):
        fit(Own(), graphs, Split(torch.arange(3), torch.arange(3, 6), torch.arange(6, 9)), seed=0)


def test_boolean_labels_are_two_classes() -> None:
    data = changed(y=WINE.y > 0)
    split = stratified(data.y, seed=0)
    assert by_fit(data, split)
    assert by_batches(data, split)
    with pytest.raises(DataError, match="the training part has nothing of class 0"):
        by_batches(data, replace(split, train=split.train[data.y[split.train]]))


def test_graphs_of_a_list_may_have_boolean_labels() -> None:
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    y = torch.arange(40) % 2 == 0
    graphs = [Data(x=torch.ones(3, 2) * i, edge_index=edges, y=y[i : i + 1]) for i in range(40)]
    split = stratified(y, seed=0)
    for train in (fit, fit_batches):
        options = {"batch_size": 8} if train is fit_batches else {}
        assert train(PooledGCN(2, 2, generator=rng("init")), graphs, split, seed=0, epochs=1, **options)


@pytest.mark.parametrize("name", ["loss", "metric", "scheduler", "augment", "observe", "decoder", "forward"])
def test_what_is_no_function_is_refused_with_how_it_would_be_called(name: str) -> None:
    model = GCN(13, 3, generator=rng("init"))
    with pytest.raises(ValueError, match=rf"{name} must be a function, called as {name}\(.*; got 'mse' \(str\)$"):
        fit(model, WINE, SPLIT, seed=0, epochs=2, **{name: "mse"})
    if name in ("loss", "metric"):
        with pytest.raises(ValueError, match=f"{name} must be a function"):
            fit_batches(model, WINE, SPLIT, seed=0, batch_size=8, fanouts=(2, 2), epochs=1, **{name: "mse"})
    if name in ("loss", "metric", "decoder", "forward"):
        with pytest.raises(ValueError, match=f"{name} must be a function"):
            evaluate(model, WINE, SPLIT.test, **{name: 1})


def test_a_class_is_not_its_object() -> None:
    with pytest.raises(ValueError, match=r"got the class MSELoss; build it: loss=MSELoss\(\)"):
        fit(GCN(13, 3, generator=rng("init")), WINE, SPLIT, seed=0, loss=nn.MSELoss)
