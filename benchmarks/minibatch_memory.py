"""Peak memory and time of training GraphSAGE in minibatches on a generated graph that is too large for full batches.

    python benchmarks/minibatch_memory.py [--nodes 10000000] [--degree 10] [--folder DIR] [--num-workers 0]

The graph has 10^7 nodes and 10^8 directed edges. Features (32 numbers a node) stay on disk and are mapped; the edges
are neighbour lists in memory. Node i has class i mod 10; its features are the centre of its class with noise, and 60 %
of the edges into a node come from its class. 50,000 nodes are trained for one epoch, plain and with WT-AWP, each in a
process of its own, whose peak resident memory (VmHWM, mapped pages of the features included) is printed. Generated
files are removed at the end unless a folder is given.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data

from wtawp import AwpConfig, Split, rng
from wtawp.graphs import NeighbourLists
from wtawp.models import GraphSAGE
from wtawp.training import fit_batches

CLASSES, FEATURES, CHUNK = 10, 32, 1 << 18
METHODS = {"plain": None, "WT-AWP": AwpConfig(rho=0.5, lam=0.5)}


def generate(folder: Path, num_nodes: int, degree: int) -> None:
    """Write the graph, a chunk of the nodes at a time; the number of nodes must be a multiple of the classes."""
    random = np.random.default_rng(0)
    centres = random.normal(size=(CLASSES, FEATURES)).astype(np.float32)
    x = np.lib.format.open_memmap(folder / "x.npy", "w+", np.float32, (num_nodes, FEATURES))
    sources = np.lib.format.open_memmap(folder / "sources.npy", "w+", np.int32, (num_nodes * degree,))
    for first in range(0, num_nodes, CHUNK):
        labels = np.arange(first, min(first + CHUNK, num_nodes)) % CLASSES
        x[first : first + CHUNK] = centres[labels] + 3 * random.standard_normal((len(labels), FEATURES), np.float32)
        drawn = random.integers(num_nodes, size=(len(labels), degree), dtype=np.int32)
        alike = random.random(drawn.shape, np.float32) < 0.6
        drawn = np.where(alike, drawn - drawn % CLASSES + labels[:, None], drawn)
        sources[first * degree : first * degree + drawn.size] = drawn.ravel()
    x.flush()
    sources.flush()


def train(folder: Path, method: str, num_workers: int) -> dict[str, float]:
    """Train for one epoch and measure it."""
    sources = torch.from_numpy(np.load(folder / "sources.npy"))
    x = np.load(folder / "x.npy", mmap_mode="r")
    num_nodes = len(x)
    indptr = torch.arange(num_nodes + 1) * (len(sources) // num_nodes)
    data = Data(x=x, y=torch.arange(num_nodes) % CLASSES)
    order = torch.randperm(num_nodes, generator=rng("split"))
    sizes = [min(50_000, num_nodes // 2), min(5_000, num_nodes // 8), min(5_000, num_nodes // 8)]
    split = Split(*(part.sort().values for part in order[: sum(sizes)].split(sizes)))
    model = GraphSAGE(FEATURES, CLASSES, generator=rng("init"))
    start = time.perf_counter()
    result = fit_batches(
        model,
        data,
        split,
        seed=0,
        batch_size=1024,
        fanouts=(10, 10),
        neighbours=NeighbourLists(indptr, sources),
        num_workers=num_workers,
        awp=METHODS[method],
        epochs=1,
    )
    seconds = time.perf_counter() - start
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    peak = int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 2**20
    return {"peak_gib": peak, "seconds": seconds, "test_accuracy": result.accuracy["test"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=10_000_000)
    parser.add_argument("--degree", type=int, default=10)
    parser.add_argument("--folder", type=Path, default=None, help="where the graph is kept, and reused if it is there")
    parser.add_argument("--num-workers", type=int, default=0)
    parser.add_argument("--method", choices=METHODS, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.method is not None:
        print(json.dumps(train(options.folder, options.method, options.num_workers)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        if not (folder / "sources.npy").is_file():
            generate(folder, options.nodes, options.degree)
        size = len(np.load(folder / "x.npy", mmap_mode="r")), len(np.load(folder / "sources.npy", mmap_mode="r"))
        print("{:,} nodes, {:,} edges\n".format(*size))
        print("| method | peak memory, GiB | seconds | test accuracy |\n|---|---:|---:|---:|")
        for method in METHODS:
            command = [sys.executable, __file__, "--folder", str(folder), "--method", method]
            command += ["--num-workers", str(options.num_workers)]
            row = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            print(
                f"| {method} | {row['peak_gib']:.2f} | {row['seconds']:.0f} | {row['test_accuracy']:.3f} |", flush=True
            )


if __name__ == "__main__":
    main()
