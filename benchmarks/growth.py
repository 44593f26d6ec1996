"""How the cost of WT-AWP training grows with the graph: setup, epoch, the end of `fit` and memory against edges.

    python benchmarks/growth.py [--largest 1e7] [--device cuda] [--json FILE]

A GCN (hidden 64) on `power_law` graphs of mean degree 10, trained by `fit` with its 10 / 10 / 80 split. Each size has
two processes of its own, one for time and one for memory. An epoch is the median time between the ends of two epochs;
setup is what `fit` does before the first: operator, blocks, features; the end is what it does after the last one: it
evaluates the selected weights on all parts of the split, and builds the blocks of the test nodes for that. Memory is
the peak inside `fit`, above what there was before the graph was made (resident set on the CPU, allocated bytes on
CUDA), so it includes the graph; "in training" is the peak up to the end of the last epoch. Slopes are of log-log fits
from 1e5 edges on.

The CPU's allocator is told what to do, unless the caller's environment already does (see ALLOCATOR): torch asks for
huge pages where time is measured, and glibc returns what is freed at once where memory is. Otherwise small graphs keep
what they have freed, and large ones spend near half of an epoch on page faults: both bend the curves.
"""

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from statistics import linear_regression, median

import torch
from torch import nn

from wtawp.base import rng
from wtawp.core import AwpConfig
from wtawp.graphs import power_law, stratified
from wtawp.models import GCN
from wtawp.training import fit

DEGREE = 10
ALLOCATOR = {"time": {"THP_MEM_ALLOC_ENABLE": "1"}, "memory": {"MALLOC_MMAP_THRESHOLD_": "65536"}}
WARM = 4  # epochs that are not timed; on CUDA the fourth is recorded as a graph


def train(num_edges: float, device: str, epochs: int) -> dict[str, float]:
    """Fit one graph and report; everything is in seconds and bytes."""
    before = held(device)
    start = now(device)
    data = power_law(num_nodes=round(num_edges / DEGREE), mean_degree=DEGREE, seed=0, device=device)
    made = now(device)
    split = stratified(data.y, seed=0)
    model = GCN(data.num_features, int(data.y.max()) + 1, generator=rng("init")).to(device)
    forget_peak(device)
    ends: list[float] = []
    peaks: list[float] = []

    def observe(_model: nn.Module, _epoch: int) -> None:
        ends.append(now(device))
        peaks.append(peak(device))

    began = now(device)
    run = fit(model, data, split, seed=0, awp=AwpConfig(rho=1.0, lam=0.7), epochs=WARM + epochs, observe=observe)
    finished = now(device)
    each = [b - a for a, b in pairwise(ends)][WARM - 1 :]
    return {
        "edges": data.num_edges,
        "nodes": data.num_nodes,
        "generate": made - start,
        "setup": (setup := max(ends[0] - began - median(each), 0.0)),
        "epoch": median(each),
        "end": (end := finished - ends[-1]),
        "setup and end": setup + end,
        "peak in training": peaks[-1] - before,
        "peak": peak(device) - before,
        "test_accuracy": 100 * run.accuracy["test"],
    }


def now(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


def held(device: str) -> float:
    return float(torch.cuda.memory_allocated()) if device == "cuda" else resident("VmRSS")


def peak(device: str) -> float:
    return float(torch.cuda.max_memory_allocated()) if device == "cuda" else resident("VmHWM")


def forget_peak(device: str) -> None:
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    else:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def resident(field: str) -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(float(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def apart(num_edges: float, what: str, device: str, epochs: int) -> dict[str, float]:
    """`train` in a fresh process."""
    command = [sys.executable, __file__, "--device", device, "--epochs", str(epochs), "--size", str(num_edges)]
    environment = {**ALLOCATOR[what], **os.environ}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    report: dict[str, float] = json.loads(done.stdout)
    return report


def slope(records: list[dict[str, float]], what: str) -> float:
    """Of a straight line through log(what) against log(edges): 1 is linear growth."""
    logs = [(math.log(r["edges"]), math.log(r[what])) for r in records]
    return linear_regression(*zip(*logs, strict=True)).slope


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--smallest", type=float, default=1e4, help="directed entries")
    parser.add_argument("--largest", type=float, default=1e7)
    parser.add_argument("--epochs", type=int, default=5, help="timed ones")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--size", type=float, help=argparse.SUPPRESS)  # what `apart` asks for
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.size:
        train(1e4, options.device, 1)  # compiles
        print(json.dumps(train(options.size, options.device, options.epochs)))
        return
    chip = torch.cuda.get_device_name() if options.device == "cuda" else f"1 of {os.cpu_count()} CPU cores"
    clock = "wall clock" if options.device == "cuda" else "CPU seconds"
    versions = f"torch {torch.__version__}, Python {platform.python_version()}"
    print(f"{chip} ({platform.machine()}), {clock}, {versions}\n")
    print("| edges | nodes | graph made, s | setup, s | epoch, s | end, s | peak in training, MB | peak, MB |", end="")
    print(" bytes an edge | test accuracy |")
    print("|" + "---:|" * 10)
    records: list[dict[str, float]] = []
    for power in range(round(math.log10(options.smallest)), round(math.log10(options.largest)) + 1):
        r = apart(10.0**power, "time", options.device, options.epochs)
        memory = apart(10.0**power, "memory", options.device, 1)
        r.update({name: memory[name] for name in ("peak in training", "peak")})
        records.append(r)
        print(
            f"| {r['edges']:,} | {r['nodes']:,} | {r['generate']:.2f} | {r['setup']:.3f} | {r['epoch']:.4f} |"
            f" {r['end']:.3f} | {r['peak in training'] / 1e6:.1f} |"
            f" {r['peak'] / 1e6:.1f} | {r['peak'] / r['edges']:.0f} | {r['test_accuracy']:.1f} |",
            flush=True,
        )
    large = [r for r in records if r["edges"] > 0.9e5]
    if len(large) > 1:
        slopes = {what: slope(large, what) for what in ("epoch", "setup", "end", "setup and end", "peak")}
        print("\nSlopes from 1e5 edges on: " + ", ".join(f"{what} {s:.2f}" for what, s in slopes.items()))
    if options.json:
        lines = [json.dumps({"machine": chip, "versions": versions, **r}) + "\n" for r in records]
        options.json.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
