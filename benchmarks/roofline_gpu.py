"""How near trainings and votes come to what a GPU can do: bytes and operations that must move, over measured rates.

    python benchmarks/roofline_gpu.py [--splits 20] [--inits 10] [--epochs 60] [--samples 20000]

Counted are, for one WT-AWP epoch of all members of a cell of GCNs on Cora: the multiplications of X W and of its
backward products (three and two, over all nodes, as the splits together need nearly all of them), the fewest passes
over the first layer's weights, of which there are 15 (as in roofline.py), and the fewest passes over the hidden layer
[members, nodes, 64], of which there are 22: in each of three forward passes the product is written and read, and the
activations are written and read; in each of two backward passes the gradient is written and read, masked with the
activations, propagated (read and written) and read by the product. The rates are measured in the same run: products of
the same shapes with TF32 and, for votes, bfloat16, and a copy of the weights. Smaller products, norms of small tensors,
dropout masks and launches count as time that is lost.
"""

import argparse
from collections.abc import Callable

import torch
from torch_geometric.data import Data

from wtawp.base import rng
from wtawp.certificates import Noise, vote
from wtawp.core import AwpConfig
from wtawp.graphs import load, stratified
from wtawp.models import GCN
from wtawp.training import fit_many

NUMBER, HIDDEN = 4, 64  # bytes of a float32; hidden units
FORWARD, BACKWARD, WEIGHT_PASSES, HIDDEN_PASSES = 3, 2, 15, 22
NOISES = {"features": Noise(p_add=0.01, p_del=0.6), "edges": Noise(p_add=0.001, p_del=0.4)}


def milliseconds(work: Callable[[], object], repeats: int = 20) -> float:
    """The median time of one call on the GPU."""
    work()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        work()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return sorted(times)[repeats // 2]


def epoch_milliseconds(data: Data, splits: int, inits: int, epochs: int) -> float:
    """One epoch of a cell, from the difference of a long and a short training."""
    parts = [stratified(data.y, seed=split) for split in range(splits)]
    runs = [(split, init) for split in range(splits) for init in range(inits)]

    def train(length: int) -> float:
        models = [GCN(data.num_features, 7, generator=rng("init", *run)).cuda() for run in runs]
        chosen, seeds = [parts[split] for split, _ in runs], list(range(len(runs)))
        awp = AwpConfig(rho=1, lam=0.7)
        how = {"seeds": seeds, "awp": awp, "epochs": length, "tf32": True}
        return milliseconds(lambda: fit_many(models, data, chosen, **how), repeats=2)

    return min(train(epochs + 8) - train(8) for _ in range(3)) / epochs


def votes_work(data: Data, on: str) -> tuple[float, float]:
    """Bytes that a vote must move, and multiplications by matrix units."""
    nodes, features = int(data.num_nodes), data.num_features
    hidden = nodes * HIDDEN * NUMBER
    if on == "edges":
        pairs = data.num_edges // 2 * (1 - NOISES[on].p_del) + nodes * (nodes - 1) // 2 * NOISES[on].p_add
        return 3 * hidden + 2 * (2 * pairs + nodes) * 2 * NUMBER, 0.0  # X W read, activations; indices and values
    return 2 * nodes * features * 2 + 4 * hidden, nodes * features * 3 * HIDDEN  # X' in bfloat16, W in three parts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--inits", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--samples", type=int, default=20_000)
    options = parser.parse_args()
    data = load("cora").to("cuda")
    (nodes, features), members = data.x.shape, options.splits * options.inits
    weights = torch.randn(features, members * HIDDEN, device="cuda")
    copied, hidden = torch.empty_like(weights), torch.randn(nodes, members * HIDDEN, device="cuda")
    gemm = nodes * features * members * HIDDEN
    copies = 2 * weights.numel() * NUMBER / milliseconds(lambda: copied.copy_(weights))
    x, narrow = data.x.bfloat16().repeat(64, 1)[:, : features // 8 * 8], weights[: features // 8 * 8, : 3 * HIDDEN]
    narrow = narrow.bfloat16()
    votes_rate = x.numel() * narrow.shape[1] / milliseconds(lambda: x @ narrow)
    torch.set_float32_matmul_precision("high")  # TF32
    forward, backward = milliseconds(lambda: data.x @ weights), milliseconds(lambda: data.x.T @ hidden)
    torch.set_float32_matmul_precision("highest")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    print(f"X W of {members} models: {forward:.2f} ms, {gemm / forward / 1e9:.0f} T multiplications/s;", end=" ")
    print(f"X^T G: {backward:.2f} ms, {gemm / backward / 1e9:.0f}; copies move {copies / 1e9:.2f} TB/s;", end=" ")
    print(f"in bfloat16 {votes_rate / 1e9:.0f} T multiplications/s\n")
    print(
        "| work | moved, MB | G mult. | limit, ms | measured, ms | share of the limit |\n|---|---:|---:|---:|---:|---:|"
    )

    def show(name: str, moved: float, multiplied: float, limit: float, measured: float) -> None:
        sizes = f"{moved / 1e6:.1f} | {multiplied / 1e9:.2f} | {limit:.4f} | {measured:.4f}"
        print(f"| {name} | {sizes} | {limit / measured:.0%} |", flush=True)

    moved = WEIGHT_PASSES * weights.numel() * NUMBER + HIDDEN_PASSES * hidden.numel() * NUMBER
    limit = FORWARD * forward + BACKWARD * backward + moved / copies
    measured = epoch_milliseconds(data, options.splits, options.inits, options.epochs)
    show(f"GCN, an epoch of {members}", moved, (FORWARD + BACKWARD) * gemm, limit, measured)
    model = GCN(features, 7, generator=rng("votes")).cuda().eval()
    for on, noise in NOISES.items():
        moved, multiplied = votes_work(data, on)
        vote(data, model, **{on: noise}, samples=512, seed=0)
        how = {on: noise, "samples": options.samples, "seed": 0}
        measured = milliseconds(lambda how=how: vote(data, model, **how), repeats=3) / options.samples
        show(f"a vote under noise on {on}", moved, multiplied, moved / copies + multiplied / votes_rate, measured)


if __name__ == "__main__":
    main()
