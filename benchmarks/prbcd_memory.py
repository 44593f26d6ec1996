"""Memory and time of PRBCD on a generated graph, beside what the graph and one training step of the victim need.

    python benchmarks/prbcd_memory.py --nodes 1000000 --edges 10000000 --steps 5

Each line is measured in a process of its own (on the CPU: the peak of its resident memory, less what the process held
before the graph was made; on a GPU: the peak of what torch allocated).
"""

import argparse
import resource
import subprocess
import sys
import time

import torch
from torch.nn import functional as F

from wtawp.attacks import grbcd, prbcd
from wtawp.base import rng
from wtawp.graphs import power_law
from wtawp.models import GCN

CLASSES = 8
WORK = ("graph", "training step", "prbcd", "grbcd")


def peak(device: str) -> float:
    """In MiB, of this process so far."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(work: str, chosen: argparse.Namespace) -> None:
    torch.set_num_threads(chosen.threads)
    GCN(4, 2, hidden=(4,), generator=rng("warm"))(torch.zeros(3, 4), torch.tensor([[0, 1], [1, 0]]))  # compiles
    before = peak(chosen.device)
    data = power_law(
        num_nodes=chosen.nodes, mean_degree=2 * chosen.edges / chosen.nodes, num_features=chosen.features,
        num_classes=CLASSES, seed=0, device=chosen.device,
    )  # fmt: skip
    model = GCN(chosen.features, CLASSES, hidden=(chosen.hidden,), generator=rng("init")).to(chosen.device)
    nodes = torch.arange(chosen.nodes) < chosen.nodes // 10
    options = {"budget": chosen.budget, "nodes": nodes, "labels": data.y, "seed": 0, "steps": chosen.steps}
    start = time.perf_counter()
    said = ""
    if work == "training step":
        F.cross_entropy(model(data.x, data.edge_index), data.y).backward()
    elif work == "prbcd":
        flips = prbcd(data, model, samples=0, block_size=chosen.block_size, progress=chosen.progress, **options)
        said = f", {len(flips)} flips in {chosen.steps} steps, blocks of {chosen.block_size}"
    elif work == "grbcd":
        flips = grbcd(data, model, block_size=chosen.block_size, progress=chosen.progress, **options)
        said = f", {len(flips)} flips in {chosen.steps} steps, blocks of {chosen.block_size}"
    seconds = time.perf_counter() - start
    held = sum(t.numel() * t.element_size() for t in (data.x, data.y, data.edge_index)) / 2**20
    print(
        f"{work:14} {peak(chosen.device) - before:7.0f} MiB at the peak, {seconds:7.1f} s after the graph is there"
        f" (its tensors: {held:.0f} MiB, {data.edge_index.shape[1] // 2} edges){said}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--edges", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=16)
    parser.add_argument("--hidden", type=int, default=16)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--budget", type=float, default=0.005)
    parser.add_argument("--block-size", type=int, default=250_000)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--progress", action="store_true")
    parser.add_argument("--work", choices=WORK, nargs="+", default=WORK)
    parser.add_argument("--here", action="store_true", help="measure in this process (for one kind of work)")
    chosen = parser.parse_args()
    if chosen.here:
        measure(chosen.work[0], chosen)
        return
    for work in chosen.work:
        subprocess.run([sys.executable, __file__, *sys.argv[1:], "--work", work, "--here"], check=True)


if __name__ == "__main__":
    main()
