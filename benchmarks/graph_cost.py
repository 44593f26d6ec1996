"""What classifying whole graphs costs: a cell of tab:graphclass, beside the loop one would write with PyG.

    python benchmarks/graph_cost.py [--dataset proteins] [--splits 1] [--inits 10] [--epochs 20] [--device cuda]

Trains PooledGCN with WT-AWP full batch, splits x inits at once through `fit_many`, then one model out of PyG's parts
(GCNConv, global_mean_pool) with `WTAWP.backward` in an ordinary loop, validated each epoch. Seconds are of wall clock
and, on the CPU, of processor time (which other work on the machine does not stretch), for each model's epoch without
the set-up; the last line scales them to the cell: 10 splits x 10 initialisations of 200 epochs. One thread.
"""

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv, global_mean_pool

from wtawp.base import rng
from wtawp.core import WTAWP, AwpConfig
from wtawp.graphs import Split, batched, load, select_graphs, stratified
from wtawp.models import PooledGCN
from wtawp.training import fit_many

AWP = AwpConfig(rho=0.5, lam=0.3, layers="first")


class Theirs(nn.Module):
    """The same out of PyG's parts, with torch's dropout."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.conv1, self.conv2, self.lin = GCNConv(d_in, 16), GCNConv(16, 16), nn.Linear(16, d_out)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        hidden = F.dropout(self.conv1(x, edge_index).relu(), 0.5, self.training)
        return self.lin(global_mean_pool(self.conv2(hidden, edge_index), batch))


def seconds(work: Callable[[], object], device: str) -> tuple[float, float]:
    """Wall clock and processor time."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - wall, time.process_time() - cpu


def together(data: Data, splits: list[Split], inits: int, epochs: int, device: str) -> None:
    sizes = data.num_features, int(data.y.max()) + 1
    places = [(s, i) for s in range(len(splits)) for i in range(inits)]
    models = [PooledGCN(*sizes, generator=rng("init", s, i)).to(device) for s, i in places]
    fit_many(models, data, [splits[s] for s, _ in places], seeds=[1000 * s + i for s, i in places], awp=AWP,
             epochs=epochs, select_on="accuracy")  # fmt: skip


def alone(data: Data, split: Split, epochs: int, device: str) -> None:
    train, val = (select_graphs(data, part).to(device) for part in (split.train, split.val))
    model = Theirs(data.num_features, int(data.y.max()) + 1).to(device)
    awp, optimizer = WTAWP(model, **vars(AWP)), torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(epochs):
        model.train()
        optimizer.zero_grad()
        awp.backward(lambda: F.cross_entropy(model(train.x, train.edge_index, train.batch), train.y))
        optimizer.step()
        with torch.no_grad():
            model.eval()(val.x, val.edge_index, val.batch)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="proteins")
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--inits", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--device", default="cpu")
    told = parser.parse_args()
    torch.set_num_threads(1)
    data = batched(load(told.dataset))
    splits = [stratified(data.y, seed=s, train=0.8, val=0.1) for s in range(told.splits)]
    each = {
        "fit_many": (lambda epochs: together(data, splits, told.inits, epochs, told.device), told.splits * told.inits),
        "PyG, one by one": (lambda epochs: alone(data, splits[0], epochs, told.device), 1),
    }
    found = {}
    for name, (work, count) in each.items():
        work(5)  # compiles, and records the graph of a GPU
        short = seconds(lambda work=work: work(5), told.device)
        full = seconds(lambda work=work: work(5 + told.epochs), told.device)
        wall, cpu = (1000 * (b - a) / told.epochs / count for a, b in zip(short, full, strict=True))
        found[name] = wall, cpu
        print(f"{name}: {wall:.2f} ms wall, {cpu:.2f} ms of processor for a model's epoch")
    wall, cpu = (theirs / ours for ours, theirs in zip(*found.values(), strict=True))
    print(f"ratio: {wall:.1f} by wall clock, {cpu:.1f} by processor")
    wall, cpu = (number * 100 * 200 / 1000 for number in found["fit_many"])
    print(f"the cell of 100 trainings: {wall:.0f} s wall, {cpu:.0f} s of processor, on one core or one GPU")


if __name__ == "__main__":
    main()
