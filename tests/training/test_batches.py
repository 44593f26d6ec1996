import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GCNConv, global_mean_pool

from wtawp.base import DataError, rng
from wtawp.core import WTAWP, AwpConfig
from wtawp.graphs import Split, knn_edges, load, stratified
from wtawp.models import GCN, PooledGCN
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


def test_bad_arguments_say_what_is_wrong() -> None:
    for name in ("epochs", "batch_size", "accumulate"):
        with pytest.raises(ValueError, match=f"{name} must be >= 1, got 0"):
            fit_batches(build(), GRAPHS, SPLIT, seed=0, **{"batch_size": 4, name: 0})
    with pytest.raises(DataError, match="GCN classifies nodes"):
        fit_batches(GCN(4, 2, generator=rng("init")), GRAPHS, SPLIT, seed=0, batch_size=4)
    with pytest.raises(ValueError, match="ReLU has no parameters"):
        fit_batches(nn.ReLU(), GRAPHS, SPLIT, seed=0, batch_size=4)
    data = load("wine")
    split = Split(*(torch.arange(3) + 3 * i for i in range(3)))
    with pytest.raises(DataError, match="Pooled classifies whole graphs and this is one graph"):
        fit_batches(build(), data, split, seed=0, batch_size=4)  # type: ignore[arg-type]
