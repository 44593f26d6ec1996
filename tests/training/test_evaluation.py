import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp.base import DataError, rng
from wtawp.graphs import load
from wtawp.models import GCN, PooledGCN
from wtawp.training import dot_product, evaluate


def test_loss_and_accuracy_are_those_of_the_softmax_without_dropout() -> None:
    data, rows = load("wine"), torch.arange(0, 60, 2)
    model = GCN(13, 3, generator=rng("init")).train()
    loss, accuracy = evaluate(model, data, rows)
    p = model.eval()(data.x, data.edge_index).detach().double().softmax(1)[rows]
    y = data.y[rows]
    assert loss == pytest.approx(float(-p[torch.arange(len(y)), y].log().mean()), rel=1e-5)
    assert accuracy == pytest.approx(float((p.argmax(1) == y).double().mean()))


def test_each_module_keeps_its_own_mode() -> None:
    data = load("wine")
    model = GCN(13, 3, norm="batch", generator=rng("init")).train()
    norm = next(module for module in model.modules() if "Norm" in type(module).__name__)
    norm.eval()  # as somebody does who freezes the statistics of a trained norm
    before = [module.training for module in model.modules()]
    assert {True, False} == set(before)
    evaluate(model, data, torch.arange(50))
    assert [module.training for module in model.modules()] == before
    with pytest.raises(RuntimeError, match="no metric of 50"):
        evaluate(model, data, torch.arange(50), metric=failing_metric)
    assert [module.training for module in model.modules()] == before
    model.eval()
    evaluate(model, data, torch.arange(50))
    assert not any(module.training for module in model.modules())


def failing_metric(output: Tensor, target: Tensor) -> float:
    raise RuntimeError(f"no metric of {len(output)} outputs and {len(target)} targets")


def test_dropout_stays_on_in_a_loop_that_evaluates() -> None:
    data, model = load("wine"), torch.nn.Sequential(torch.nn.Linear(13, 3), torch.nn.Dropout(0.5))
    for _ in range(2):
        outputs = [model(data.x) for _ in range(2)]
        assert not torch.equal(*outputs)
        evaluate(model, data, torch.arange(50), forward=lambda model, data: model(data.x))


def test_a_mask_chooses_as_indices_do() -> None:
    data = load("wine")
    model, mask = GCN(13, 3, generator=rng("init")), data.y == 1
    assert evaluate(model, data, mask) == evaluate(model, data, mask.nonzero()[:, 0])


def test_nodes_and_graphs_are_not_mistaken_for_each_other() -> None:
    graph = Data(x=torch.ones(3, 4), edge_index=torch.tensor([[0, 1], [1, 0]]), y=torch.tensor([1]))
    with pytest.raises(DataError, match="Pooled classifies whole graphs"):
        evaluate(PooledGCN(13, 3, generator=rng("init")), load("wine"), torch.arange(3))
    with pytest.raises(DataError, match="GCN classifies nodes and these are graphs"):
        evaluate(GCN(4, 3, generator=rng("init")), [graph, graph], torch.arange(2))


def mean_error(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).abs().mean()


def test_other_losses_metrics_and_samples_are_evaluated() -> None:
    data, rows = load("wine"), torch.arange(0, 60, 2)
    data.y = torch.randn(178, 3, generator=rng("y"))
    model = GCN(13, 3, generator=rng("init"))
    found = evaluate(model, data, rows, loss=F.mse_loss, metric=mean_error)
    output = model.eval()(data.x, data.edge_index).detach()[rows]
    assert found[0] == pytest.approx(float((output - data.y[rows]).square().mean()), rel=1e-6)
    assert found[1] == pytest.approx(float((output - data.y[rows]).abs().mean()), rel=1e-6)
    data.edge_label_index, data.edge_label = torch.tensor([[0, 1, 2], [3, 4, 5]]), torch.tensor([1.0, 0.0, 1.0])
    pairs = torch.tensor([2, 0])
    options = {"loss": F.binary_cross_entropy_with_logits, "metric": mean_error, "decoder": dot_product}
    found = evaluate(model, data, pairs, **options)
    rows_of = model(data.x, data.edge_index).detach()
    scores = torch.stack([rows_of[2] @ rows_of[5], rows_of[0] @ rows_of[3]])
    assert found == pytest.approx((float(-scores.sigmoid().log().mean()), float((scores - 1).abs().mean())), rel=1e-5)
    with pytest.raises(DataError, match="cross-entropy and accuracy need class numbers"):
        evaluate(model, data, rows)


def test_a_graph_without_pairs_cannot_be_asked_for_links() -> None:
    data, model = load("wine"), GCN(13, 3, generator=rng("init"))
    with pytest.raises(DataError, match=r"the graph needs edge_label_index \[2, p\] and edge_label \[p\]"):
        evaluate(model, data, torch.arange(3), decoder=dot_product, loss=F.mse_loss, metric=F.mse_loss)
    data.edge_label_index, data.edge_label = torch.tensor([[0, 1], [2, 178]]), torch.ones(2)
    with pytest.raises(DataError, match="edge_label_index must name nodes 0 to 177, got 0 to 178"):
        evaluate(model, data, torch.arange(2), decoder=dot_product, loss=F.mse_loss, metric=F.mse_loss)


def test_a_mask_of_numbers_is_not_taken_for_indices() -> None:
    data = load("wine")
    model = GCN(13, 3, generator=rng("init"))
    mask = torch.arange(178) < 50
    assert evaluate(model, data, mask) == evaluate(model, data, torch.arange(50))
    with pytest.raises(DataError, match=r"rows holds 178 numbers, all of them 0 or 1: a mask must be of type bool"):
        evaluate(model, data, mask.long())
