"""How near trainings and votes come to what one core can do: bytes and operations that must move, over measured rates.

    OMP_NUM_THREADS=1 python benchmarks/roofline.py [--epochs 60] [--members 10] [--samples 400]

Counted are, for one WT-AWP epoch of each member: the rows that sparse products read (entries x width x 4 bytes, for two
forward and two backward passes over the training part and a forward pass over the validation part), the multiplications
of dense products, and the fewest passes over the first layer's weights, of which there are 15 (both gradients written,
two norms, the shifted weights, mixing and Adam in one pass, the best weights kept). The rates are measured in the same
run: sparse products on the same matrix in a loop of their own, a dense product of the same shape, and a copy of the
weights of all members. Passes over activations, dropout, and the overhead of Python count as time that is lost.
"""

import argparse
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch_geometric.data import Data

from wtawp.base import rng
from wtawp.certificates import Noise, vote
from wtawp.core import AwpConfig
from wtawp.graphs import Operator, Split, load, spmm, stratified
from wtawp.models import GCN, PPNP
from wtawp.training import fit_many

NUMBER = 4  # bytes of a float32
PASSES = {"train": 4, "val": 1}  # forward and backward passes of an epoch over each part
WEIGHT_PASSES = 15
NOISES = {"features": Noise(p_add=0.01, p_del=0.6), "edges": Noise(p_add=0.001, p_del=0.4)}


@dataclass(frozen=True)
class Rates:
    """What the machine does: bytes a second of sparse products and of copies, multiplications a second."""

    sparse: float
    copied: float
    dense: float


@dataclass(frozen=True)
class Work:
    """What must be done: bytes that sparse products read, bytes of weights, multiplications of dense products."""

    sparse: float
    weights: float
    dense: float

    def seconds(self, rates: Rates) -> float:
        return self.sparse / rates.sparse + self.weights / rates.copied + self.dense / rates.dense


def fastest(work: Callable[[], object], repeats: int = 200) -> float:
    """The smallest CPU time of one call."""
    times = []
    for _ in range(repeats):
        start = time.thread_time()
        work()
        times.append(time.thread_time() - start)
    return min(times)


def measured_rates(data: Data, split: Split, members: int) -> Rates:
    x, _ = GCN(data.num_features, 7, generator=rng("rates")).prepare(data.x, data.edge_index, split.train)
    assert isinstance(x, Operator)
    weight = torch.randn(x.shape[1], 64)
    weights = torch.randn(members, x.shape[1], 64)
    rows = torch.randn(len(split.train), int(data.num_nodes))
    logits = torch.randn(int(data.num_nodes), 7 * members)
    copied = torch.empty_like(weights)
    return Rates(
        sparse=len(x.indices) * 64 * NUMBER / fastest(lambda: spmm(x, weight)),
        copied=2 * weights.numel() * NUMBER / fastest(lambda: copied.copy_(weights)),
        dense=rows.numel() * logits.shape[1] / fastest(lambda: rows @ logits),
    )


def gcn_work(data: Data, split: Split) -> Work:
    model, sparse = GCN(data.num_features, 7, generator=rng("work")), 0.0
    for part, passes in PASSES.items():
        x, blocks = model.prepare(data.x, data.edge_index, getattr(split, part))
        entries = len(x.indices) + sum(len(o.indices) for o in blocks.operators)
        sparse += passes * entries * 64 * NUMBER
    return Work(sparse, WEIGHT_PASSES * data.num_features * 64 * NUMBER, 0.0)


def ppnp_work(data: Data, split: Split) -> Work:
    nodes, entries = int(data.num_nodes), int(data.x.count_nonzero())
    sparse = sum(PASSES.values()) * entries * 64 * NUMBER
    dense = sum(p * nodes * 7 * (64 + len(getattr(split, part))) for part, p in PASSES.items())
    return Work(sparse, WEIGHT_PASSES * data.num_features * 64 * NUMBER, dense)


def votes_work(data: Data, on: str) -> Work:
    """Rows read for X' W (features only), A_hat (X W) and A_hat H, whose 7 columns are padded to 16."""
    noise, ones = NOISES[on], int(data.x.count_nonzero()) if on == "features" else data.num_edges // 2
    nodes = int(data.num_nodes)
    cells = nodes * data.num_features if on == "features" else nodes * (nodes - 1) // 2
    entries = ones * (1 - noise.p_del) + (cells - ones) * noise.p_add
    edges = nodes + (data.num_edges if on == "features" else 2 * entries)
    rows = (entries * 64 if on == "features" else 0.0) + edges * (64 + 16)
    return Work(rows * NUMBER, 0.0, nodes * 64 * 7)


def epoch_seconds(kind: type, data: Data, split: Split, members: int, epochs: int) -> float:
    """CPU seconds of one epoch of all members, from the difference of a long and a short training."""

    def train(length: int) -> float:
        models = [kind(data.num_features, 7, generator=rng("init", i)) for i in range(members)]
        start = time.thread_time()
        fit_many(
            models, data, [split] * members, seeds=list(range(members)), awp=AwpConfig(rho=1, lam=0.7), epochs=length
        )
        return time.thread_time() - start

    train(3)
    return min(train(epochs + 5) - train(5) for _ in range(3)) / epochs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument("--samples", type=int, default=400)
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = load("cora")
    split = stratified(data.y, seed=0)
    rates = measured_rates(data, split, options.members)
    print(f"One core ({platform.machine()}), torch {torch.__version__}")
    print(f"Sparse products read {rates.sparse / 1e9:.0f} GB/s, copies move {rates.copied / 1e9:.0f} GB/s,", end=" ")
    print(f"dense products {rates.dense / 1e9:.0f} G multiplications/s\n")
    print("| work | sparse, MB | weights, MB | dense, M mult. | limit, ms | measured, ms | share of the limit |")
    print("|---|---:|---:|---:|---:|---:|---:|")

    def show(name: str, work: Work, times: int, seconds: float) -> None:
        limit = times * work.seconds(rates)
        sizes = (f"{times * amount / 1e6:.1f}" for amount in (work.sparse, work.weights, work.dense))
        print(
            f"| {name} | {' | '.join(sizes)} | {limit * 1e3:.2f} | {seconds * 1e3:.2f} | {limit / seconds:.0%} |",
            flush=True,
        )

    for kind, work in ((GCN, gcn_work(data, split)), (PPNP, ppnp_work(data, split))):
        for members in (1, options.members):
            seconds = epoch_seconds(kind, data, split, members, options.epochs)
            show(f"{kind.__name__}, an epoch of {members}", work, members, seconds)
    model = GCN(data.num_features, 7, generator=rng("votes")).eval()
    for on, noise in NOISES.items():
        vote(data, model, **{on: noise}, samples=8, seed=0)
        seconds = fastest(
            lambda on=on, noise=noise: vote(data, model, **{on: noise}, samples=options.samples, seed=0), 3
        )
        show(f"a vote under noise on {on}", votes_work(data, on), 1, seconds / options.samples)


if __name__ == "__main__":
    main()
