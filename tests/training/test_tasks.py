"""Trainings on other targets than classes of nodes, against loops written by hand; and splits from masks."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GCNConv, global_mean_pool

from wtawp.base import DataError, rng
from wtawp.core import AwpConfig
from wtawp.graphs import Split, knn_edges, load, stratified
from wtawp.models import GCN, MLP, PooledGCN
from wtawp.training import dot_product, evaluate, fit, fit_many


def trained_by_hand(
    model: nn.Module, output_of: Callable[[nn.Module, str], tuple[Tensor, Tensor]], loss: Callable[..., Tensor]
) -> tuple[nn.Module, list[float]]:
    """Ten epochs of Adam, written out, with the weights of the last epoch; and the validation losses."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for _ in range(10):
        model.train()
        optimizer.zero_grad()
        loss(*output_of(model, "train")).backward()
        optimizer.step()
        model.eval()
        losses.append(float(loss(*output_of(model, "val")).detach()))
    return model, losses


LIKE_BY_HAND: dict[str, Any] = {"epochs": 10, "lr": 0.05, "weight_decay": 0.0, "select_on": "last"}


def assert_same_weights(one: nn.Module, other: nn.Module, tolerance: float = 1e-10) -> None:
    for p, q in zip(one.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=0, atol=tolerance)


def exact_match(output: Tensor, target: Tensor) -> Tensor:
    return ((output > 0) == (target > 0.5)).all(1).double().mean()


class WithoutBatch(nn.Module):
    """Somebody's own classifier of nodes."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.conv, self.lin = GCNConv(13, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.lin(self.conv(x, edge_index).relu())


@pytest.mark.parametrize("build", [
    lambda i: GCN(13, 2, dropout=0.0, generator=rng("init", i)).double(),
    lambda i: WithoutBatch(i).double(),
])  # fmt: skip
def test_several_labels_of_a_node_are_learned_as_by_hand(build: Callable[[int], nn.Module]) -> None:
    data = load("wine")
    split = stratified(data.y, seed=0)
    data.x, data.y = data.x.double(), torch.stack([data.y == 0, data.x[:, 0] > 0], 1).double()
    loss = F.binary_cross_entropy_with_logits

    def output_of(model: nn.Module, part: str) -> tuple[Tensor, Tensor]:
        return model(data.x, data.edge_index)[getattr(split, part)], data.y[getattr(split, part)]

    models = [build(i) for i in range(2)]
    results = fit_many(models, data, split, seeds=[0, 1], loss=loss, metric=exact_match, **LIKE_BY_HAND)
    for i, (model, result) in enumerate(zip(models, results, strict=True)):
        by_hand, losses = trained_by_hand(build(i), output_of, loss)
        assert_same_weights(model, by_hand)
        assert result.history["val_loss"] == pytest.approx(losses, rel=1e-6)
        output, target = output_of(by_hand, "test")
        assert result.loss["test"] == pytest.approx(float(loss(output, target).detach()))
        assert result.scores["test"] == pytest.approx(float(exact_match(output, target)))
        assert result.history["val_score"][-1] == pytest.approx(result.scores["val"])
        assert (result.metric, "val_accuracy" in result.history) == ("exact_match", False)
        with pytest.raises(
            AttributeError, match="measured exact_match and not the accuracy; its values are in `scores`"
        ):
            result.accuracy  # noqa: B018


def squared_error(output: Tensor, target: Tensor) -> Tensor:
    return F.mse_loss(output[:, 0], target)


def absolute_error(output: Tensor, target: Tensor) -> float:
    return float((output.detach()[:, 0] - target).abs().mean())


def graphs_with_numbers() -> list[Data]:
    """Small graphs, each with the mean of the sums of its features."""
    graphs = []
    for i in range(45):
        x = torch.randn(1 if i == 7 else 3 + i % 5, 4, generator=rng("x", i), dtype=torch.float64)
        edges = torch.zeros(2, 0, dtype=torch.int64) if i in (7, 11) else knn_edges(x, 2)
        graphs.append(Data(x=x, edge_index=edges, y=x.sum(1).mean().reshape(1)))
    return graphs


@pytest.mark.parametrize("form", ["list", "batch"])
def test_a_number_of_each_graph_is_learned_as_by_hand(form: str) -> None:
    graphs = graphs_with_numbers()
    y = torch.cat([graph.y for graph in graphs])
    split = Split(torch.arange(0, 25), torch.arange(25, 35), torch.arange(35, 45))

    def build(i: int) -> nn.Module:
        return PooledGCN(4, 1, hidden=(6,), dropout=0.0, generator=rng("init", i)).double()

    def output_of(model: nn.Module, part: str) -> tuple[Tensor, Tensor]:
        rows = getattr(split, part)
        batch = Batch.from_data_list([graphs[i] for i in rows.tolist()])
        return model(batch.x, batch.edge_index, batch.batch), y[rows]

    models = [build(i) for i in range(2)]
    results = fit_many(
        models, graphs if form == "list" else Batch.from_data_list(graphs), split, seeds=[0, 1],
        loss=squared_error, metric=absolute_error, lower_is_better=True, **LIKE_BY_HAND,
    )  # fmt: skip
    for i, (model, result) in enumerate(zip(models, results, strict=True)):
        by_hand, losses = trained_by_hand(build(i), output_of, squared_error)
        assert_same_weights(model, by_hand)
        assert result.history["val_loss"] == pytest.approx(losses, rel=1e-6)
        assert result.scores["test"] == pytest.approx(absolute_error(*output_of(by_hand, "test")))
    again = evaluate(models[0], graphs, split.test, loss=squared_error, metric=absolute_error)
    assert again == pytest.approx((results[0].loss["test"], results[0].scores["test"]))


def test_a_model_with_one_number_for_each_graph_needs_no_second_dimension() -> None:
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(4, 1).double()

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:  # noqa: ARG002
            return self.lin(global_mean_pool(x, batch))[:, 0]

    split = Split(torch.arange(0, 25), torch.arange(25, 35), torch.arange(35, 45))
    result = fit(Flat(), graphs_with_numbers(), split, seed=0, loss=F.mse_loss, metric=F.l1_loss, lower_is_better=True,
                 epochs=150, lr=0.1, select_on="metric")  # fmt: skip
    assert result.scores["test"] < 0.1  # the mean of the sums is linear
    scores = result.history["val_score"]
    assert result.epoch == scores.index(min(scores))


def links() -> tuple[Data, Split]:
    """Pairs of the karate club: half are its edges, one in four of them held out, and half are not."""
    data, g = load("karate"), rng("pairs")
    upper = data.edge_index[:, data.edge_index[0] < data.edge_index[1]]
    upper = upper[:, torch.randperm(upper.shape[1], generator=g)]
    is_edge = torch.zeros(34, 34, dtype=torch.bool)
    is_edge[tuple(data.edge_index)] = True
    absent = (~is_edge).triu(1).nonzero().T
    absent = absent[:, torch.randperm(absent.shape[1], generator=g)][:, : upper.shape[1]]
    size, seen = upper.shape[1], upper[:, : upper.shape[1] // 2]
    graph = Data(
        x=torch.eye(34, dtype=torch.float64),
        edge_index=torch.cat([seen, seen.flip(0)], 1),
        edge_label_index=torch.cat([upper, absent], 1),
        edge_label=torch.tensor([1.0] * size + [0.0] * size, dtype=torch.float64),
    )
    parts = [torch.arange(a, b) for a, b in ((0, size // 2), (size // 2, 3 * size // 4), (3 * size // 4, size))]
    return graph, Split(*(torch.cat([part, part + size]) for part in parts))


def share_right(output: Tensor, target: Tensor) -> Tensor:
    return ((output > 0) == (target > 0.5)).double().mean()


@pytest.mark.parametrize("awp", [None, AwpConfig(rho=0.3, lam=0.5)])
def test_links_are_learned_as_by_hand(awp: AwpConfig | None) -> None:
    data, split = links()
    loss = F.binary_cross_entropy_with_logits

    def build(i: int) -> nn.Module:
        return GCN(34, 4, hidden=(8,), dropout=0.0, generator=rng("init", i)).double()

    def output_of(model: nn.Module, part: str) -> tuple[Tensor, Tensor]:
        rows, embeddings = getattr(split, part), model(data.x, data.edge_index)
        first, second = data.edge_label_index[:, rows]
        return (embeddings[first] * embeddings[second]).sum(1), data.edge_label[rows]

    models, options = [build(i) for i in range(2)], {"decoder": dot_product, "loss": loss, "metric": share_right}
    results = fit_many(models, data, split, seeds=[0, 1], awp=awp, **options, **LIKE_BY_HAND)
    for i, (model, result) in enumerate(zip(models, results, strict=True)):
        score = float(share_right(*output_of(model, "test")))
        assert (result.scores["test"], evaluate(model, data, split.test, **options)[1]) == (score, score)
        if awp is None:
            by_hand, losses = trained_by_hand(build(i), output_of, loss)
            assert_same_weights(model, by_hand)
            assert result.history["val_loss"] == pytest.approx(losses, rel=1e-6)
        else:
            alone = build(i)
            fit(alone, data, split, seed=i, awp=awp, **options, **LIKE_BY_HAND)
            assert_same_weights(model, alone)
            assert min(result.history["gap"]) > 0


def test_members_with_splits_of_their_own_learn_links() -> None:
    data, split = links()
    other = Split(split.train, split.test, split.val)
    models = [GCN(34, 4, generator=rng("init")).double() for _ in range(2)]
    options = {"decoder": dot_product, "loss": F.binary_cross_entropy_with_logits, "metric": share_right, "epochs": 3}
    one, two = fit_many(models, data, [split, other], seeds=[0, 0], **options, select_on="last")
    assert (one.scores["val"], one.scores["test"]) == (two.scores["test"], two.scores["val"])


def test_the_masks_of_a_graph_are_its_split() -> None:
    data = load("wine")
    split = stratified(data.y, seed=0)
    for name in ("train", "val", "test"):
        data[f"{name}_mask"] = torch.zeros(178, dtype=torch.bool)
        data[f"{name}_mask"][getattr(split, name)] = True
    models = [MLP(13, 3, generator=rng("init")) for _ in range(4)]
    expected = fit(models[0], data, split, seed=0, epochs=5)
    assert fit(models[1], data, seed=0, epochs=5) == expected
    assert fit_many([models[2]], data, seeds=[0], epochs=5) == [expected]
    for name in ("train_mask", "val_mask", "test_mask"):
        data[name] = torch.stack([data[name].roll(1), data[name]], 1)
    assert fit(models[3], data, seed=0, epochs=5, split_index=1) == expected
    assert torch.equal(models[0].lins[0].weight, models[3].lins[0].weight)


def test_without_split_and_masks_there_is_a_clear_error() -> None:
    data, model = load("wine"), MLP(13, 3, generator=rng("init"))
    with pytest.raises(DataError, match=r"the graph has no train_mask, val_mask, test_mask: .* or pass a split"):
        fit(model, data, seed=0)
    with pytest.raises(DataError, match=r"several graphs have no masks; pass a split of them"):
        fit(PooledGCN(4, 3, generator=rng("init")), graphs_with_numbers(), seed=0)
    with pytest.raises(DataError, match="a link prediction needs a split of the pairs"):
        fit(model, links()[0], seed=0, decoder=dot_product)
    with pytest.raises(
        ValueError, match="split_index=1 chooses among the masks of a graph, but a split was passed too"
    ):
        fit(model, data, stratified(data.y, seed=0), seed=0, split_index=1)


def test_options_that_contradict_each_other_are_refused() -> None:
    data, model = load("wine"), MLP(13, 3, generator=rng("init"))
    split = stratified(data.y, seed=0)
    with pytest.raises(ValueError, match='but metric= was passed; write select_on="metric"'):
        fit(model, data, split, seed=0, metric=share_right, select_on="accuracy")
    data.y = data.y.float()
    with pytest.raises(DataError, match="cross-entropy and accuracy need class numbers"):
        fit(model, data, split, seed=0)
    with pytest.raises(DataError, match=r"graph 0 needs one class number as its label y .* got torch\.float64"):
        fit(PooledGCN(4, 1, generator=rng("init")), graphs_with_numbers(), split, seed=0)


def test_the_metric_selects_the_epoch_also_where_lower_is_better() -> None:
    data = load("wine")
    split = stratified(data.y, seed=0)

    def entropy(output: Tensor, target: Tensor) -> Tensor:  # noqa: ARG001
        p = output.softmax(1)
        return (-p * p.log()).sum(1).mean()

    for lower in (True, False):
        model = MLP(13, 3, generator=rng("init"))
        result = fit(model, data, split, seed=0, epochs=12, metric=entropy, lower_is_better=lower, select_on="metric")
        values = result.history["val_score"]
        assert result.epoch == values.index((min if lower else max)(values))
        assert result.scores["val"] == pytest.approx(values[result.epoch], rel=1e-6)
    assert result.loss["val"] == pytest.approx(evaluate(model, data, split.val)[0], rel=1e-6)


def test_a_metric_that_is_not_a_number_for_a_while_does_not_end_the_selection() -> None:
    data = load("wine")
    values = iter([0.1, math.nan, 0.3, 0.2, *[0.0] * 9])
    result = fit(MLP(13, 3, generator=rng("init")), data, stratified(data.y, seed=0), seed=0, epochs=4,
                 metric=lambda *_: next(values), select_on="metric")  # fmt: skip
    assert result.epoch == 2


def test_the_examples_of_the_documentation_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 7
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for block in blocks:
            exec(block, names)
    assert (tmp_path / "wine.pt").is_file()
    assert names["result"].accuracy["test"] > 0.8
