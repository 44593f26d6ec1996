import pytest
import torch
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.loader import RandomNodeLoader

from wtawp.base import DataError, rng
from wtawp.graphs import NodeBatches, citation, stratified
from wtawp.models import GCN, PooledGCN
from wtawp.training import evaluate
from wtawp.training.batch_tasks import GraphTask, NodeTask, TaskContext
from wtawp.training.objective import Objective

DATA = citation(seed=0, num_nodes=120, num_words=8)
SPLIT = stratified(DATA.y, seed=0, train=0.2, val=0.2)
CONTEXT = TaskContext(0, torch.device("cpu"), Objective())
OPTIONS = {"batch_size": 5, "neighbours": None, "num_workers": 0}


def model() -> GCN:
    return GCN(8, 7, dropout=0.0, generator=rng("init"))


def test_the_scores_of_nodes_are_those_of_the_whole_graph() -> None:
    gcn = model()
    task = NodeTask(gcn, DATA, SPLIT, CONTEXT, fanouts=(2, 2), loader=None, **OPTIONS)
    scores = task.scores(("val", "test"))
    for part in ("val", "test"):
        assert scores[part] == pytest.approx(evaluate(gcn, DATA, getattr(SPLIT, part)), rel=1e-5)


def test_the_scores_of_graphs_are_those_of_evaluate() -> None:
    graphs = [Data(x=torch.randn(3, 4, generator=rng(i)), edge_index=torch.tensor([[0], [1]]), y=torch.tensor([i % 2]))
              for i in range(20)]  # fmt: skip
    split = stratified(torch.arange(20) % 2, seed=0, train=0.5, val=0.2)
    pooled = PooledGCN(4, 2, generator=rng("init"))
    task = GraphTask(pooled, graphs, split, CONTEXT, batch_size=4)
    assert task.scores(["test"])["test"] == evaluate(pooled, [graphs[i] for i in split.test], torch.arange(6))


def test_the_loss_of_a_batch_is_that_of_its_seeds() -> None:
    gcn = model()
    task = NodeTask(gcn, DATA, SPLIT, CONTEXT, fanouts=(-1, -1), loader=None, **OPTIONS)
    for batch in task.batches:
        closure, seeds = task.closure(batch), batch.n_id[: batch.batch_size]
        assert closure is not None
        expected = F.cross_entropy(gcn(DATA.x, DATA.edge_index)[seeds], DATA.y[seeds])
        torch.testing.assert_close(closure(), expected)


def test_only_training_nodes_of_a_loader_s_batches_count() -> None:
    data = DATA.clone()
    data.n_id = torch.arange(120)
    gcn, is_train = model(), torch.zeros(120, dtype=torch.bool)
    is_train[SPLIT.train] = True
    for loader in (
        RandomNodeLoader(data, num_parts=30),
        NodeBatches(DATA, torch.arange(120), (3, 3), batch_size=4, seed=0),  # has seeds of all parts
    ):
        task = NodeTask(gcn, DATA, SPLIT, CONTEXT, fanouts=None, loader=loader, **OPTIONS)
        count = 0
        for batch in loader:
            seeds = batch.n_id[:4]
            rows, closure = is_train[seeds].nonzero()[:, 0], task.closure(batch)
            assert (closure is None) == (not len(rows))
            count += len(rows)
            if closure is not None:
                logits = task.runner.logits(task.runner.prepare(batch))
                torch.testing.assert_close(closure(), F.cross_entropy(logits[rows], batch.y[rows]))
        assert count == len(SPLIT.train)


def test_batches_without_numbers_need_a_mask_that_is_the_split() -> None:
    def closures(data: Data) -> list[object]:
        task = NodeTask(model(), data, SPLIT, CONTEXT, fanouts=None, loader=RandomNodeLoader(data, 4), **OPTIONS)
        return [task.closure(batch) for batch in task.batches]

    data = DATA.clone()
    for name in ("train_mask", "val_mask", "test_mask"):
        data.pop(name, None)
    with pytest.raises(DataError, match="neither n_id nor train_mask"):
        closures(data)
    data.train_mask = torch.zeros(120, dtype=torch.bool)
    with pytest.raises(DataError, match=r"data.train_mask and split.train are different nodes"):
        closures(data)
    data.train_mask[SPLIT.train] = True
    assert any(closure is not None for closure in closures(data))
