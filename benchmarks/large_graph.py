"""Train a GCN on one large generated graph in full batch, plain and with WT-AWP: seconds an epoch and peak memory.

    python benchmarks/large_graph.py --nodes 10_000_000 --edges 100_000_000 --device cuda [--json FILE]

The graph is drawn by `power_law` on the device itself, with the classes in random order, so a random 10 / 10 / 80 split
is a stratified one. Setup is what `fit` does before the first epoch, an epoch is the median of those after the first
ones, and the end is what `fit` does after the last: see benchmarks/growth.py, whose clocks are used here. Peak memory
is that inside `fit` and includes the graph: allocated bytes on CUDA; on the CPU the resident set, libraries included.
"""

import argparse
import json
import platform
from itertools import pairwise
from pathlib import Path
from statistics import median

import torch
from growth import WARM, forget_peak, now, peak
from torch import nn
from torch_geometric.data import Data

from wtawp.base import rng
from wtawp.core import AwpConfig
from wtawp.graphs import Split, power_law
from wtawp.models import GCN
from wtawp.training import fit

METHODS = {"plain": None, "WT-AWP": AwpConfig(rho=1.0, lam=0.7)}


def make_graph(nodes: int, edges: int, features: int, device: str) -> tuple[Data, Split]:
    """The graph with about `edges` directed edges, and its split."""
    data = power_law(num_nodes=nodes, mean_degree=edges / nodes, num_features=features, seed=0, device=device)
    shuffled = torch.randperm(nodes, generator=rng("large graph", device=device), device=device)
    tenth = nodes // 10
    parts = shuffled[:tenth], shuffled[tenth : 2 * tenth], shuffled[2 * tenth :]
    return data, Split(*(part.sort().values for part in parts))


def train(data: Data, split: Split, awp: AwpConfig | None, hidden: int, device: str, epochs: int) -> dict[str, float]:
    """Fit one model in full batch and report seconds, bytes and accuracy."""
    model = GCN(data.num_features, int(data.y.max()) + 1, hidden=(hidden,), generator=rng("init")).to(device)
    forget_peak(device)
    ends: list[float] = []

    def observe(_model: nn.Module, _epoch: int) -> None:
        ends.append(now(device))

    began = now(device)
    run = fit(model, data, split, seed=0, awp=awp, epochs=WARM + epochs, observe=observe)
    finished = now(device)
    epoch = median([b - a for a, b in pairwise(ends)][WARM - 1 :])
    return {
        "setup": max(ends[0] - began - epoch, 0.0),
        "epoch": epoch,
        "end": finished - ends[-1],
        "peak": peak(device),
        "test_accuracy": 100 * run.accuracy["test"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=1_000_000, help="directed entries, twice the undirected edges")
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=5, help=f"timed ones, after {WARM} others")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    train(*make_graph(1000, 10_000, 8, options.device), METHODS["WT-AWP"], 8, options.device, 1)  # compiles
    start = now(options.device)
    data, split = make_graph(options.nodes, options.edges, options.features, options.device)
    made = now(options.device) - start
    chip = torch.cuda.get_device_name() if options.device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    clock = "wall clock" if options.device == "cuda" else "CPU seconds"
    print(f"{chip} ({platform.machine()}), {clock}, torch {torch.__version__}")
    print(f"{data.num_nodes:,} nodes, {data.num_edges:,} edges, {data.num_features} features, made in {made:.1f} s\n")
    print("| method | setup, s | epoch, s | end, s | peak, GB | test accuracy |\n|---|" + "---:|" * 5)
    records = []
    for method, awp in METHODS.items():
        r = train(data, split, awp, options.hidden, options.device, options.epochs)
        records.append({"method": method, "nodes": data.num_nodes, "edges": data.num_edges, "graph made": made, **r})
        figures = f"{r['setup']:.2f} | {r['epoch']:.4f} | {r['end']:.2f} | {r['peak'] / 1e9:.2f}"
        print(f"| {method} | {figures} | {r['test_accuracy']:.1f} |", flush=True)
    if options.json:
        lines = [json.dumps({"machine": chip, "torch": torch.__version__, **r}) + "\n" for r in records]
        options.json.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
