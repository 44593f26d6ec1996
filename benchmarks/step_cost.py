"""What `awp.backward(closure)` costs against `closure().backward()`: time, and peak memory in a process of its own.

    python benchmarks/step_cost.py [--device cuda] [--no-memory] [--json FILE]

Time: the two are measured in turn, step by step, and the ratio is that of their medians. Memory: the peak of one step
above what the process held with model and data in place (resident set on the CPU, allocated bytes on CUDA).
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import GAT

from wtawp import WTAWP
from wtawp.base import rng
from wtawp.graphs import citation
from wtawp.models import GCN, MLP

# name: (nodes, features, model); the memory rows say what fills the memory
TIME = {
    "GCN 64, 2,485 nodes, 1,433 features (Cora's shape)": (2_485, 1_433, lambda d: GCN(d, 7, generator=rng("init"))),
    "GCN 64, 20,000 nodes, 800 features": (20_000, 800, lambda d: GCN(d, 7, generator=rng("init"))),
    "GAT 8x8 (PyG), 2,485 nodes, 1,433 features": (2_485, 1_433, lambda d: GAT(d, 64, 2, 7, heads=8, dropout=0.5)),
    "MLP 256-256, 10,000 rows, 800 features": (
        10_000,
        800,
        lambda d: MLP(d, 7, hidden=(256, 256), generator=rng("init")),
    ),
    "MLP 16, 100 rows, 8 features (all overhead)": (100, 8, lambda d: MLP(d, 7, hidden=(16,), generator=rng("init"))),
}
MEMORY = {
    "GCN 256, 200,000 nodes (activations)": (200_000, 32, lambda d: GCN(d, 7, hidden=(256,), generator=rng("init"))),
    "GAT 8x32 (PyG), 50,000 nodes (activations)": (50_000, 32, lambda d: GAT(d, 256, 2, 7, heads=8, dropout=0.5)),
    "MLP 512-512, 200,000 rows (activations)": (
        200_000,
        32,
        lambda d: MLP(d, 7, hidden=(512, 512), generator=rng("init")),
    ),
    "MLP 8192-8192, 64 rows (weights)": (64, 1024, lambda d: MLP(d, 7, hidden=(8192, 8192), generator=rng("init"))),
}


def setting(case: tuple[int, int, Callable[[int], nn.Module]], device: str) -> tuple[nn.Module, Callable[[], Tensor]]:
    nodes, features, build = case
    g = rng("benchmark")
    y = torch.randint(0, 7, (nodes,), generator=g)
    x = torch.randn(nodes, features, generator=g)
    edges = citation(seed=0, num_nodes=nodes, num_words=8).edge_index if nodes >= 1000 else torch.zeros(2, 0).long()
    model, x, y, edges = build(features).to(device), x.to(device), y.to(device), edges.to(device)
    return model, lambda: F.cross_entropy(model(x, edges), y)


def steps(model: nn.Module, closure: Callable[[], Tensor]) -> dict[str, Callable[[], object]]:
    awp = WTAWP(model, rho=1.0, lam=0.7)

    def plain() -> object:
        model.zero_grad()
        return closure().backward()

    def perturbed() -> object:
        model.zero_grad()
        return awp.backward(closure)

    return {"plain": plain, "WT-AWP": perturbed}


def seconds(work: Callable[[], object], device: str) -> float:
    start = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def time_of(name: str, device: str, repeats: int) -> dict[str, float]:
    both = steps(*setting(TIME[name], device))
    for work in both.values():
        for _ in range(5):
            work()
    taken: dict[str, list[float]] = {kind: [] for kind in both}
    for _ in range(repeats):
        for kind, work in both.items():
            taken[kind].append(seconds(work, device))
    return {kind: median(t) for kind, t in taken.items()}


def memory_of(name: str, kind: str, device: str) -> float:
    """Bytes at the peak of one step above what was there before; in a fresh process, for a peak cannot be undone."""
    model, closure = setting(MEMORY[name], device)
    with torch.no_grad():
        closure()  # builds the cached operator
    work = steps(model, closure)[kind]
    if device == "cuda":
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        work()
        return float(torch.cuda.max_memory_allocated() - before)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak starts from here
    before = resident("VmRSS")
    work()
    return resident("VmHWM") - before


def resident(field: str) -> float:
    if not Path("/proc/self/status").exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(float(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--no-memory", action="store_true", help="time only; memory takes some minutes")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        print(memory_of(*options.peak, options.device))
        return
    torch.manual_seed(0)
    chip = (
        torch.cuda.get_device_name()
        if options.device == "cuda"
        else f"{os.cpu_count()} CPU cores ({platform.machine()})"
    )
    print(f"{chip}, {torch.get_num_threads()} threads, torch {torch.__version__}, Python {platform.python_version()}\n")
    records = []
    print("| time of one step | plain, ms | WT-AWP, ms | ratio |\n|---|---:|---:|---:|")
    for name in TIME:
        t = time_of(name, options.device, options.repeats)
        records.append({"what": "time", "case": name, **t})
        print(
            f"| {name} | {1e3 * t['plain']:.2f} | {1e3 * t['WT-AWP']:.2f} | {t['WT-AWP'] / t['plain']:.2f} |",
            flush=True,
        )
    if not options.no_memory:
        print("\n| peak memory of one step | plain, MB | WT-AWP, MB | ratio |\n|---|---:|---:|---:|")
    for name in MEMORY if not options.no_memory else ():
        child = [sys.executable, __file__, "--device", options.device, "--peak", name]
        m = {}
        for kind in ("plain", "WT-AWP"):  # malloc's fragmentation differs from process to process: the median of three
            runs = [subprocess.run([*child, kind], capture_output=True, text=True, check=True) for _ in range(3)]
            m[kind] = median(float(run.stdout) for run in runs)
        records.append({"what": "memory", "case": name, **m})
        print(
            f"| {name} | {m['plain'] / 1e6:.0f} | {m['WT-AWP'] / 1e6:.0f} | {m['WT-AWP'] / m['plain']:.2f} |",
            flush=True,
        )
    if options.json:
        options.json.write_text("".join(json.dumps({"machine": chip, **r}) + "\n" for r in records), encoding="utf-8")


if __name__ == "__main__":
    main()
