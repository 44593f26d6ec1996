from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric import nn as pyg
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader, NodeLoader, RandomNodeLoader
from torch_geometric.nn import GCNConv, global_mean_pool
from torch_geometric.sampler import BaseSampler, NodeSamplerInput, SamplerOutput

from wtawp.base import DataError, progress_receiver, rng
from wtawp.core import WTAWP, AwpConfig
from wtawp.graphs import (
    GcnWeights,
    NeighbourLists,
    NodeBatches,
    Split,
    citation,
    knn_edges,
    load,
    sample_neighbours,
    stratified,
)
from wtawp.models import GAT, GCN, MLP, GraphSAGE, PooledGCN
from wtawp.training import fit, fit_batches

AWP = AwpConfig(rho=0.5, lam=0.5, layers="first")


def graphs(count: int = 40) -> list[Data]:
    """Two classes: features around +1 and around -1, on graphs of three to seven nodes."""
    found = []
    for i in range(count):
        x = torch.randn(3 + i % 5, 4, generator=rng("x", i)) + (1.0 if i % 2 else -1.0)
        found.append(Data(x=x, edge_index=knn_edges(x, 2), y=torch.tensor([i % 2])))
    return found


GRAPHS = graphs()
SPLIT = stratified(torch.cat([g.y for g in GRAPHS]), seed=0, train=0.6, val=0.2)


def build(dropout: float = 0.0) -> nn.Module:
    return PooledGCN(4, 2, hidden=(8, 8), dropout=dropout, generator=rng("init"))


@pytest.mark.parametrize("awp", [None, AWP])
def test_one_batch_of_all_is_full_batch_training(awp: AwpConfig | None) -> None:
    whole, batch = build(), build()
    expected = fit(whole, GRAPHS, SPLIT, seed=0, awp=awp, epochs=8)
    found = fit_batches(batch, GRAPHS, SPLIT, seed=0, batch_size=1000, awp=awp, epochs=8)
    assert found.epoch == expected.epoch
    assert found.accuracy == pytest.approx(expected.accuracy)
    assert found.loss == pytest.approx(expected.loss, rel=1e-4)
    for name in ("train_loss", "val_loss", "val_accuracy"):
        assert found.history[name] == pytest.approx(expected.history[name], rel=1e-4)
    for (name, a), b in zip(whole.named_parameters(), batch.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-4, msg=name)


@pytest.mark.parametrize("accumulate", [1, 2, 5])
@pytest.mark.parametrize("projection", ["sphere", "ball"])
def test_it_is_the_loop_one_would_write(accumulate: int, projection: str) -> None:
    options = {"rho": 0.5, "lam": 0.5, "layers": "first", "projection": projection}
    model, naive = build().double(), build().double()
    some = [Data(x=g.x.double(), edge_index=g.edge_index, y=g.y) for g in GRAPHS]
    fit_batches(model, some, SPLIT, seed=3, batch_size=7, accumulate=accumulate, awp=AwpConfig(**options), epochs=2,
                select_on="last")  # fmt: skip

    awp, optimizer = WTAWP(naive, **options), torch.optim.Adam(naive.parameters(), lr=0.01, weight_decay=5e-4)
    chosen = [some[i] for i in SPLIT.train.tolist()]
    loader = DataLoader(chosen, batch_size=7, shuffle=True, generator=rng("batches", 3))
    for _ in range(2):
        batches = list(loader)
        for first in range(0, len(batches), accumulate):
            group, total = batches[first : first + accumulate], [torch.zeros_like(p) for p in naive.parameters()]
            for b in group:
                naive.zero_grad()
                awp.backward(lambda b=b: F.cross_entropy(naive(b.x, b.edge_index, b.batch), b.y))
                total = [t + p.grad for t, p in zip(total, naive.parameters(), strict=True)]
            for p, t in zip(naive.parameters(), total, strict=True):
                p.grad = t / len(group)
            optimizer.step()
    for a, b in zip(model.parameters(), naive.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-9)


class WithBatchNorm(nn.Module):
    """Somebody's own, with a batch norm over graphs and torch's dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.lin = GCNConv(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        pooled = global_mean_pool(self.conv(x, edge_index), batch)
        return self.lin(F.dropout(self.norm(pooled).relu(), 0.2, self.training))


def with_batch_norm() -> WithBatchNorm:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return WithBatchNorm()


def test_every_epoch_is_reported() -> None:
    shares: list[float] = []
    with progress_receiver(shares.append, interval=0.0):
        fit_batches(PooledGCN(4, 2, generator=rng("init")), GRAPHS, SPLIT, seed=0, batch_size=8, epochs=4)
        fit(PooledGCN(4, 2, generator=rng("init")), GRAPHS, SPLIT, seed=0, epochs=2)
    assert shares == [0.25, 0.5, 0.75, 1.0, 0.5, 1.0]


def test_a_batch_norm_sees_every_batch_once() -> None:
    model = with_batch_norm()
    result = fit_batches(model, GRAPHS, SPLIT, seed=0, batch_size=8, awp=AWP, epochs=4, select_on="last")
    assert int(model.norm.num_batches_tracked) == 4 * 3  # 24 graphs train
    assert result.history["train_loss"][-1] < result.history["train_loss"][0]


def test_the_best_epoch_s_weights_and_statistics_come_back() -> None:
    model = with_batch_norm()
    result = fit_batches(model, GRAPHS, SPLIT, seed=0, batch_size=8, epochs=12, lr=0.1, select_on="accuracy")
    losses, accuracies = result.history["val_loss"], result.history["val_accuracy"]
    assert result.epoch == accuracies.index(max(accuracies)) < 11
    batch = Batch.from_data_list([GRAPHS[i] for i in SPLIT.val.tolist()])
    seen = model.eval()(batch.x, batch.edge_index, batch.batch)
    assert float(F.cross_entropy(seen, batch.y).detach()) == pytest.approx(losses[result.epoch], rel=1e-5)


def test_equal_seeds_give_equal_weights_and_the_caller_s_randomness_is_left_alone() -> None:
    state = torch.get_rng_state()
    models = [build(dropout=0.5) for _ in range(3)]
    for model, seed in zip(models, (0, 0, 1), strict=True):
        fit_batches(model, GRAPHS, SPLIT, seed=seed, batch_size=8, awp=AWP, epochs=2)
    assert torch.equal(models[0].readout.weight, models[1].readout.weight)
    assert not torch.equal(models[0].readout.weight, models[2].readout.weight)
    assert torch.equal(state, torch.get_rng_state())


def test_the_model_is_left_in_evaluation_mode() -> None:
    of_graphs, of_nodes = build(), node_model("GCN")
    fit_batches(of_graphs, GRAPHS, SPLIT, seed=0, batch_size=8, epochs=1)
    fit_batches(of_nodes, NODES, PARTS, seed=0, batch_size=8, fanouts=(2, 2), epochs=1)
    assert not any(module.training for model in (of_graphs, of_nodes) for module in model.modules())


def test_bad_arguments_say_what_is_wrong() -> None:
    for name in ("epochs", "batch_size", "accumulate"):
        with pytest.raises(ValueError, match=rf"{name} must be .*>= 1, got 0"):
            fit_batches(build(), GRAPHS, SPLIT, seed=0, **{"batch_size": 4, name: 0})
    with pytest.raises(DataError, match="GCN classifies nodes"):
        fit_batches(GCN(4, 2, generator=rng("init")), GRAPHS, SPLIT, seed=0, batch_size=4)
    with pytest.raises(ValueError, match="ReLU has no parameters"):
        fit_batches(nn.ReLU(), GRAPHS, SPLIT, seed=0, batch_size=4)
    data = load("wine")
    split = Split(*(torch.arange(3) + 3 * i for i in range(3)))
    with pytest.raises(DataError, match="Pooled classifies whole graphs and this is one graph"):
        fit_batches(build(), data, split, seed=0, batch_size=4)  # type: ignore[arg-type]


NODES = citation(seed=0, num_nodes=150, num_words=10)
PARTS = stratified(NODES.y, seed=0, train=0.2, val=0.2)


def node_model(name: str) -> nn.Module:
    """A model of ours, or of PyG, without dropout."""
    ours = {"GCN": GCN, "GraphSAGE": GraphSAGE, "GAT": GAT, "MLP": MLP}
    if name in ours:
        return ours[name](10, 7, dropout=0.0, generator=rng("init"))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return getattr(pyg, name.removeprefix("PyG "))(10, 8, 2, 7)


@pytest.mark.parametrize("name", ["GCN", "GraphSAGE", "GAT", "MLP", "PyG GCN", "PyG GraphSAGE", "PyG GAT"])
@pytest.mark.parametrize("awp", [None, AWP])
def test_one_batch_of_all_nodes_and_neighbours_is_full_batch_training(name: str, awp: AwpConfig | None) -> None:
    whole, batch = node_model(name), node_model(name)
    expected = fit(whole, NODES, PARTS, seed=0, awp=awp, epochs=4)
    found = fit_batches(batch, NODES, PARTS, seed=0, batch_size=1000, fanouts=(-1, -1), awp=awp, epochs=4)
    assert found.epoch == expected.epoch
    assert found.accuracy == pytest.approx(expected.accuracy)
    assert found.loss == pytest.approx(expected.loss, rel=1e-4)
    for key in ("train_loss", "val_loss", "val_accuracy"):
        assert found.history[key] == pytest.approx(expected.history[key], rel=1e-4)
    for (key, a), b in zip(whole.named_parameters(), batch.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-4, msg=key)


@pytest.mark.parametrize("accumulate", [1, 3])
def test_training_on_sampled_nodes_is_the_loop_one_would_write(accumulate: int) -> None:
    data, (model, naive) = NODES.clone(), (node_model("PyG GCN").double() for _ in range(2))
    data.x = data.x.double()
    options = {"rho": 0.5, "lam": 0.5, "layers": "first"}
    fit_batches(model, data, PARTS, seed=3, batch_size=4, fanouts=(3, 2), accumulate=accumulate,
                awp=AwpConfig(**options), epochs=2, select_on="last")  # fmt: skip

    batches = NodeBatches(data, PARTS.train, (3, 2), batch_size=4, seed=3)
    weights = GcnWeights(batches.neighbours)
    for conv in naive.convs:
        conv.normalize = False
    awp, optimizer = WTAWP(naive, **options), torch.optim.Adam(naive.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(2):
        epoch = [weights(batch) for batch in batches]
        for first in range(0, len(epoch), accumulate):
            group = epoch[first : first + accumulate]
            for b in group:
                size = b.batch_size
                awp.backward(lambda b=b, size=size: F.cross_entropy(
                    naive(b.x, b.edge_index, b.edge_weight)[:size], b.y[:size]))  # fmt: skip
            for p in naive.parameters():
                p.grad /= len(group)
            optimizer.step()
            optimizer.zero_grad()
    for a, b in zip(model.parameters(), naive.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-9)


def test_workers_do_not_change_the_training() -> None:
    models = [node_model("GCN") for _ in range(2)]
    results = [
        fit_batches(m, NODES, PARTS, seed=0, batch_size=6, fanouts=(3, 3), awp=AWP, epochs=3, num_workers=workers)
        for m, workers in zip(models, (0, 2), strict=True)
    ]
    assert results[0] == results[1]
    assert all(torch.equal(a, b) for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True))


def test_loaders_of_pyg_can_be_used() -> None:
    data = NODES.clone()
    data.n_id = torch.arange(150)
    for numbered in (data, Data(x=data.x, y=data.y, edge_index=data.edge_index, train_mask=mask_of(PARTS.train))):
        results = []
        for _ in range(2):
            loader = RandomNodeLoader(numbered, num_parts=3, shuffle=True)
            model = node_model("GraphSAGE")
            results.append(fit_batches(model, numbered, PARTS, seed=0, loader=loader, awp=AWP, epochs=8, lr=0.05))
        assert results[0] == results[1]  # the seed determines the order that the loader draws
        assert results[0].history["train_loss"][-1] < results[0].history["train_loss"][0]


def mask_of(nodes: Tensor) -> Tensor:
    mask = torch.zeros(150, dtype=torch.bool)
    mask[nodes] = True
    return mask


def test_loss_and_metric_are_arguments() -> None:
    data = NODES.clone()
    data.y = F.one_hot(NODES.y, 7).float()  # several labels a node
    seen = []

    def metric(logits: Tensor, y: Tensor) -> Tensor:
        seen.append(logits.shape)
        return ((logits > 0) == (y > 0)).float().mean()

    result = fit_batches(node_model("GCN"), data, PARTS, seed=0, batch_size=6, fanouts=(3, 3), epochs=3,
                         loss=F.binary_cross_entropy_with_logits, metric=metric)  # fmt: skip
    assert len(seen) == 3 + 3
    assert result.history["train_loss"][-1] < result.history["train_loss"][0]
    assert 0.5 < result.scores["test"] <= 1
    assert (result.metric, len(result.history["val_score"])) == ("metric", 3)
    with pytest.raises(AttributeError, match="measured metric and not the accuracy"):
        result.accuracy  # noqa: B018
    with pytest.raises(ValueError, match='but metric= was passed; write select_on="metric"'):
        fit_batches(build(), GRAPHS, SPLIT, seed=0, batch_size=8, metric=metric, select_on="accuracy")
    graphs_result = fit_batches(build(), GRAPHS, SPLIT, seed=0, batch_size=8, epochs=2, loss=F.cross_entropy,
                                metric=lambda logits, y: (logits.argmax(1) == y).float().mean())  # fmt: skip
    default = fit_batches(build(), GRAPHS, SPLIT, seed=0, batch_size=8, epochs=2)
    assert (graphs_result.epoch, graphs_result.loss) == (default.epoch, default.loss)
    assert graphs_result.scores == default.accuracy
    assert graphs_result.history["val_score"] == default.history["val_accuracy"]


def test_bad_arguments_for_nodes_say_what_is_wrong() -> None:
    model = node_model("GCN")
    with pytest.raises(ValueError, match=r"pass fanouts=\(10, 10\)"):
        fit_batches(model, NODES, PARTS, seed=0, batch_size=4)
    with pytest.raises(ValueError, match="batch_size must be a whole number >= 1, got None"):
        fit_batches(model, NODES, PARTS, seed=0, fanouts=(3, 3))
    with pytest.raises(ValueError, match="GCN has 2 layers and needs as many fan-outs, got 1"):
        fit_batches(model, NODES, PARTS, seed=0, batch_size=4, fanouts=(3,))
    with pytest.raises(ValueError, match="fanouts, num_workers: for batches of nodes"):
        fit_batches(build(), GRAPHS, SPLIT, seed=0, batch_size=4, fanouts=(3,), num_workers=2)
    with pytest.raises(ValueError, match="select_on must be one of"):
        fit_batches(model, NODES, PARTS, seed=0, batch_size=4, fanouts=(3, 3), select_on="never")
    held_out = NodeBatches(NODES, PARTS.test, (3, 3), batch_size=50, seed=0)
    with pytest.raises(DataError, match="no batch of this epoch has a training node"):
        fit_batches(model, NODES, PARTS, seed=0, loader=held_out)


class SamplerForPyg(BaseSampler):
    """Our sampler behind the interface of PyG's, so that PyG makes the batches as its `NeighborLoader` does."""

    def __init__(self, data: Data) -> None:
        self.lists = NeighbourLists.from_edges(data.edge_index, data.num_nodes)

    @property
    def edge_permutation(self) -> None:
        return None

    def sample_from_nodes(self, inputs: NodeSamplerInput, **_: object) -> SamplerOutput:
        sample = sample_neighbours(self.lists, inputs.node, (-1, -1), key=0)
        edges = sample.positions if self.lists.edge_ids is None else self.lists.edge_ids[sample.positions]
        return SamplerOutput(
            node=sample.nodes, row=sample.edge_index[0], col=sample.edge_index[1], edge=edges, batch=None,
            num_sampled_nodes=list(sample.num_nodes), num_sampled_edges=list(sample.num_edges),
            metadata=(inputs.input_id, inputs.time),
        )  # fmt: skip

    def sample_from_edges(self, *_: object, **__: object) -> SamplerOutput:
        raise NotImplementedError


@pytest.mark.parametrize("name", ["GCN", "GraphSAGE", "PyG GCN", "PyG GAT"])
def test_batches_that_pyg_s_loader_makes_are_trained_as_ours_are(name: str) -> None:
    one, other = node_model(name), node_model(name)
    loader = NodeLoader(NODES, SamplerForPyg(NODES), input_nodes=PARTS.train, batch_size=1000)
    found = fit_batches(one, NODES, PARTS, seed=0, loader=loader, awp=AWP, epochs=4)
    expected = fit(other, NODES, PARTS, seed=0, awp=AWP, epochs=4)
    assert found.loss == pytest.approx(expected.loss, rel=1e-4)
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-4)


def test_counts_of_batches_are_whole_numbers() -> None:
    for options in ({"accumulate": 1.5}, {"accumulate": 0}, {"batch_size": 8.5}, {"batch_size": None}):
        (name,) = options
        with pytest.raises(ValueError, match=f"{name} must be a whole number >= 1, got"):
            fit_batches(PooledGCN(4, 2, generator=rng("init")), GRAPHS, SPLIT, seed=0, **{"batch_size": 8, **options})
    data = load("wine")
    with pytest.raises(ValueError, match=r"fanouts must hold a number for each layer, such as \(10, 10\), got 5"):
        model, split = GCN(13, 3, generator=rng("init")), stratified(data.y, seed=0)
        fit_batches(model, data, split, seed=0, batch_size=8, fanouts=5)


def test_a_loss_that_is_not_finite_is_warned_of() -> None:
    model = PooledGCN(4, 2, generator=rng("init"))
    with pytest.warns(UserWarning, match="training loss of 1 of 1 models is NaN or infinite, from epoch 0 on"):
        fit_batches(model, GRAPHS, SPLIT, seed=0, batch_size=8, epochs=2,
                    loss=lambda out, y: F.cross_entropy(out, y) * float("nan"))  # fmt: skip


def test_weights_of_edges_that_only_some_graphs_have_are_warned_of() -> None:
    some = [graph.clone() for graph in GRAPHS]
    some[7].edge_weight = torch.ones(some[7].edge_index.shape[1])
    for train, options in ((fit_batches, {"batch_size": 8}), (fit, {})):
        with pytest.warns(UserWarning, match="edge_weight, which Pooled is not called with"):
            train(PooledGCN(4, 2, generator=rng("init")), some, SPLIT, seed=0, epochs=1, **options)


def test_gradients_of_the_caller_do_not_count() -> None:
    clean, loaded = build(), build()
    for p in loaded.parameters():
        p.grad = torch.full_like(p, 100.0)
    expected, found = (fit_batches(model, GRAPHS, SPLIT, seed=0, batch_size=8, epochs=1) for model in (clean, loaded))
    assert found.history == expected.history


def frozen() -> nn.Module:
    model = build()
    model.requires_grad_(False)
    return model


def vector_metric(logits: Tensor, y: Tensor) -> Tensor:
    return (logits.argmax(1) == y).float()


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (build, {"awp": {"rho": 1.0}}, r"awp takes the options of the method, AwpConfig\(rho=..., lam=...\), got dict"),
        (dict, {}, "fit_batches takes a torch.nn.Module, got dict"),
        (frozen, {}, "all parameters of Pooled are frozen"),
        (build, {"metric": vector_metric}, r"metric must return one number, got shape \[\d+\]"),
    ],
)
def test_what_fit_refuses_is_refused_here_in_the_same_words(model: type, options: dict[str, Any], message: str) -> None:
    for train in (fit, fit_batches):
        batches = {"batch_size": 8} if train is fit_batches else {}
        with pytest.raises((ValueError, DataError), match=message.replace("fit_batches", train.__name__)):
            train(model(), GRAPHS, SPLIT, seed=0, epochs=1, **batches, **options)


def test_a_small_learning_rate_with_auto_is_warned_of_as_in_fit() -> None:
    with pytest.warns(UserWarning, match=r"confirmed with lr=0\.01, and counts epochs: with lr=0\.001"):
        fit_batches(build(), GRAPHS, SPLIT, seed=0, batch_size=8, epochs=1, lr=0.001,
                    awp=AwpConfig(rho=1.0, lam="auto", layers="first"))  # fmt: skip


def test_a_loader_is_read_once_an_epoch() -> None:
    data = load("wine")
    model, split = GCN(13, 3, generator=rng("init")), stratified(data.y, seed=0)
    with pytest.raises(ValueError, match="generator is an iterator, which is empty after the first one; pass what it"):
        fit_batches(model, data, split, seed=0, loader=(data for _ in range(2)), epochs=2)

    class StartsAnew:
        """An iterator that begins again whenever it is asked to."""

        def __iter__(self) -> "StartsAnew":
            self.num_read = 0
            return self

        def __next__(self) -> Data:
            self.num_read += 1
            if self.num_read > 2:
                raise StopIteration
            batch = data.clone()
            batch.n_id = torch.arange(data.num_nodes)
            return batch

    result = fit_batches(model, data, split, seed=0, loader=StartsAnew(), epochs=3)
    assert len(result.history["train_loss"]) == 3
