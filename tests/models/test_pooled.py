import copy
import pickle

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, GINConv, SAGEConv, global_add_pool, global_mean_pool

from wtawp.base import DataError, rng
from wtawp.core import WTAWP
from wtawp.graphs import batched, knn_edges, sparse_features
from wtawp.models import GCN, Pooled, PooledGCN, PooledGIN, PooledSAGE
from wtawp.models.dropout import masks
from wtawp.models.inputs import prepare

KINDS = {"GCN": PooledGCN, "GIN": PooledGIN, "SAGE": PooledSAGE}
VARIANTS = {
    "dropout before the read-out": {"readout_dropout": 0.5},
    "sum": {"pooling": "sum"},
    "ReLU after the last convolution": {"last_relu": True},
    "jumping knowledge": {"jumps": True},
    "norm": {"norm": "layer"},
    "all": {"readout_dropout": 0.3, "pooling": "sum", "last_relu": True, "jumps": True, "norm": "layer"},
}


def graphs() -> list[Data]:
    """Twelve small graphs; one has a single node, one no edges."""
    found = []
    for i, size in enumerate((5, 9, 1, 6, 4, 7, 8, 5, 6, 3, 9, 5)):
        x = torch.randn(size, 4, generator=rng("x", i), dtype=torch.float64)
        edges = torch.zeros(2, 0, dtype=torch.int64) if i in (2, 4) else knn_edges(x, 2)
        found.append(Data(x=x, edge_index=edges, y=torch.tensor([i % 3])))
    return found


GRAPHS = graphs()
WHOLE = batched(GRAPHS)


class Theirs(nn.Module):
    """The same out of PyG's parts."""

    def __init__(self, kind: str) -> None:
        super().__init__()

        def conv(d_in: int, width: int) -> nn.Module:
            if kind == "GIN":
                return GINConv(nn.Sequential(nn.Linear(d_in, width), nn.ReLU(), nn.Linear(width, width)))
            return {"GCN": GCNConv, "SAGE": SAGEConv}[kind](d_in, width)

        self.conv1, self.conv2, self.lin = conv(4, 16), conv(16, 16), nn.Linear(16, 3)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        hidden = self.conv1(x, edge_index).relu()
        return self.lin(global_mean_pool(self.conv2(hidden, edge_index), batch))


NAMES = {
    "GCN": {"weight": "lin.weight", "bias": "bias"},
    "GIN": {"first_weight": "nn.0.weight", "first_bias": "nn.0.bias", "second_weight": "nn.2.weight",
            "second_bias": "nn.2.bias"},
    "SAGE": {"neighbour_weight": "lin_l.weight", "own_weight": "lin_r.weight", "bias": "lin_l.bias"},
}  # fmt: skip


def their_name(kind: str, ours: str) -> str:
    if ours.startswith("readout"):
        return ours.replace("readout", "lin")
    _, _, place, own = ours.split(".")
    return f"conv{int(place) + 1}.{NAMES[kind][own]}"


def twins(kind: str) -> tuple[Pooled, Theirs]:
    ours, theirs = KINDS[kind](4, 3, dropout=0.0, generator=rng("init")).double(), Theirs(kind).double()
    weights = {their_name(kind, n): p.detach().T if p.dim() == 2 else p for n, p in ours.named_parameters()}
    missed = theirs.load_state_dict(weights, strict=False)
    assert not missed.unexpected_keys
    assert all(name.endswith("eps") for name in missed.missing_keys)  # of GIN: a buffer, 0
    return ours, theirs


@pytest.mark.parametrize("kind", KINDS)
def test_logits_and_gradients_equal_pyg_s(kind: str) -> None:
    ours, theirs = twins(kind)
    batch = Batch.from_data_list(GRAPHS)
    found = [model(batch.x, batch.edge_index, batch.batch) for model in (ours, theirs)]
    torch.testing.assert_close(*found, rtol=0, atol=1e-12)
    for logits in found:
        F.cross_entropy(logits, batch.y).backward()
    their_grads = {n: p.grad for n, p in theirs.named_parameters()}
    for name, p in ours.named_parameters():
        expected = their_grads[their_name(kind, name)]
        torch.testing.assert_close(p.grad, expected.T if p.dim() == 2 else expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_the_batches_of_pyg_s_loader_give_the_rows_of_the_whole_collection(kind: str) -> None:
    ours, theirs = twins(kind)
    whole = ours(WHOLE.x, WHOLE.edge_index, WHOLE.batch)
    batches = [(b.x, b.edge_index, b.batch) for b in DataLoader(GRAPHS, batch_size=5)]
    for model in (ours, theirs):
        torch.testing.assert_close(torch.cat([model(*b) for b in batches]), whole, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [None, [7, 2, 0, 4], [3]])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_prepared_rows_have_the_loss_gradients_and_masks_of_the_whole(
    kind: str, rows: list[int] | None, is_sparse: bool
) -> None:
    model = KINDS[kind](4, 3, generator=rng("init")).double()  # with dropout
    data = copy.copy(WHOLE)
    if is_sparse:  # few enough non-zeros for the features to become an operator
        data.x = F.one_hot(torch.arange(len(data.x)) % 8, 8).double()
        model = KINDS[kind](8, 3, generator=rng("init")).double()
    wanted = None if rows is None else torch.tensor(rows)
    arguments, left = prepare(model, data, wanted)
    assert left is None
    found = []
    taken = slice(None) if wanted is None else wanted
    for given, part in ((arguments, slice(None)), ((data.x, data.edge_index, data.batch), taken)):
        model.zero_grad()
        with masks(torch.tensor(12345)):
            loss = model(*given)[part].logsumexp(1).sum()
        loss.backward()
        found.append([loss.detach(), *(p.grad.clone() for p in model.parameters())])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize("rows", [None, [7, 2, 0, 4]])
def test_prepared_rows_of_variants_have_the_loss_gradients_and_masks_of_the_whole(
    options: dict[str, object], rows: list[int] | None
) -> None:
    model = PooledGCN(4, 3, **options, generator=rng("init")).double()
    wanted = None if rows is None else torch.tensor(rows)
    arguments, _ = prepare(model, WHOLE, wanted)
    found = []
    for given, part in ((arguments, slice(None)), ((WHOLE.x, WHOLE.edge_index, WHOLE.batch), wanted)):
        model.zero_grad()
        with masks(torch.tensor(12345)):
            logits = model(*given)
        loss = (logits if part is None else logits[part]).logsumexp(1).sum()
        loss.backward()
        found.append([loss.detach(), *(p.grad.clone() for p in model.parameters())])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


def test_variants_equal_the_same_out_of_pyg_s_parts() -> None:
    _, theirs = twins("GCN")
    first = theirs.conv1(WHOLE.x, WHOLE.edge_index).relu()
    last = theirs.conv2(first, WHOLE.edge_index)
    pools = {"sum": global_add_pool, "mean": global_mean_pool}
    hidden = {(False, False): last, (True, False): last.relu(), (False, True): torch.cat([first, last.relu()], 1)}
    for (last_relu, jumps), nodes in hidden.items():
        for pooling, pool in pools.items():
            options = {"last_relu": last_relu, "jumps": jumps, "pooling": pooling}
            model = PooledGCN(4, 3, dropout=0.0, **options, generator=rng("init")).double()
            readout = model.readout
            expected = pool(nodes, WHOLE.batch) @ readout.weight + readout.bias
            found = model(WHOLE.x, WHOLE.edge_index, WHOLE.batch)
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_the_share_of_pooled_features_is_dropped_in_training_alone() -> None:
    model = PooledGCN(4, 3, dropout=0.0, readout_dropout=0.9, generator=rng("init")).double()
    inputs = WHOLE.x, WHOLE.edge_index, WHOLE.batch
    plain = PooledGCN(4, 3, dropout=0.0, generator=rng("init")).double()(*inputs)
    assert not torch.allclose(model(*inputs), plain)
    torch.testing.assert_close(model.eval()(*inputs), plain, rtol=0, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_words_for_layers_choose_convolutions_and_the_read_out(kind: str) -> None:
    ours, theirs = twins(kind)
    for layers in ("first", "all-but-last", "last"):
        found, expected = (WTAWP(m, rho=0.5, lam=0.5, layers=layers).perturbed for m in (ours, theirs))
        assert [their_name(kind, n) for n in found] == list(expected)
    if kind == "GCN":
        assert list(WTAWP(ours, rho=0.5, lam=0.5, layers="first").perturbed) == ["encoder.convs.0.weight"]
        both = WTAWP(ours, rho=0.5, lam=0.5).perturbed
        assert list(both) == ["encoder.convs.0.weight", "encoder.convs.1.weight"]


def test_one_convolution_or_three_will_do() -> None:
    for hidden in ((5,), (6, 5, 4)):
        model = PooledGCN(4, 3, hidden=hidden, dropout=0.0, generator=rng("init")).double()
        arguments, _ = prepare(model, WHOLE, torch.tensor([1, 0]))
        expected = model(WHOLE.x, WHOLE.edge_index, WHOLE.batch)[[1, 0]]
        torch.testing.assert_close(model(*arguments), expected, rtol=0, atol=1e-12)


def test_a_graph_of_one_node_is_its_node_and_edges_are_not_needed() -> None:
    model, _ = twins("GCN")
    first, second = model.encoder.convs
    hidden = (GRAPHS[2].x @ first.weight + first.bias).relu() @ second.weight + second.bias
    expected = hidden @ model.readout.weight + model.readout.bias
    torch.testing.assert_close(model(WHOLE.x, WHOLE.edge_index, WHOLE.batch)[2:3], expected)
    for kind in KINDS:
        ours, _ = twins(kind)
        assert ours(WHOLE.x, WHOLE.edge_index[:, :0], WHOLE.batch).isfinite().all()


def test_sparse_features_may_stand_in_and_a_model_can_be_copied() -> None:
    model, _ = twins("GCN")
    expected = model(WHOLE.x, WHOLE.edge_index, WHOLE.batch)
    torch.testing.assert_close(model(sparse_features(WHOLE.x), WHOLE.edge_index, WHOLE.batch), expected)
    for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(again(WHOLE.x, WHOLE.edge_index, WHOLE.batch), expected)


def test_bad_arguments_say_what_is_wrong() -> None:
    with pytest.raises(
        ValueError, match=r"hidden must hold the width of one convolution or more, such as \(16, 16\), got \(\)"
    ):
        PooledGCN(4, 3, hidden=(), generator=rng("init"))
    with pytest.raises(ValueError, match=r"must be a node-level model of wtawp\.models, got Linear"):
        Pooled(nn.Linear(4, 16), 16, 3, generator=rng("init"))
    with pytest.raises(ValueError, match="pooling must be one of mean, sum, got 'max'"):
        PooledGCN(4, 3, pooling="max", generator=rng("init"))
    with pytest.raises(ValueError, match=r"width of one convolution or more, such as \(16, 16\), got 16"):
        PooledGCN(4, 3, hidden=16, generator=rng("init"))
    with pytest.raises(ValueError, match=r"dropout must lie in \[0, 1\), got 1"):
        PooledGCN(4, 3, readout_dropout=1, generator=rng("init"))
    model, _ = twins("GCN")
    with pytest.raises(DataError, match="Pooled classifies whole graphs and this is one graph"):
        prepare(model, GRAPHS[0], None)
    with pytest.raises(DataError, match="GCN classifies nodes and these are graphs to classify; take PooledGCN"):
        prepare(GCN(4, 3, generator=rng("init")), WHOLE, None)
