"""How many edges a second the neighbour sampler draws on one core, and batches with features are prepared.

    OMP_NUM_THREADS=1 python benchmarks/sampler_cost.py [--nodes 1000000] [--degree 20] [--repeats 5]

The graph is directed and random: the edges into each node come from uniformly random nodes, and the number of edges is
either the same for all nodes or has a heavy tail (a Pareto distribution with exponent 2). A sample starts from 1,024
random nodes. CPU seconds of this thread; the best of the repeats, because other processes only make it slower.
"""

import argparse
import time

import numpy as np
import torch
from torch_geometric.data import Data

from wtawp.base import rng
from wtawp.graphs import NeighbourLists, NodeBatches, sample_neighbours

FANOUTS = ((10, 10), (5, 5, 5), (25, 10), (-1, -1))
SEEDS, SAMPLES = 1024, 20


def graph(num_nodes: int, degree: int, *, heavy_tail: bool) -> NeighbourLists:
    """A random graph with `degree` edges into a node on average."""
    random = np.random.default_rng(0)
    degrees = np.full(num_nodes, degree, dtype=np.int64)
    if heavy_tail:
        drawn = random.pareto(2.0, num_nodes) + 1  # the mean is 2
        degrees = np.minimum(drawn * degree / 2, num_nodes // 10).astype(np.int64)
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    sources = random.integers(num_nodes, size=int(indptr[-1]), dtype=np.int32)
    return NeighbourLists(torch.from_numpy(indptr), torch.from_numpy(sources))


def edges_a_second(
    lists: NeighbourLists, fanouts: tuple[int, ...], repeats: int, *, compiled: bool
) -> tuple[float, int]:
    """The best rate over the repeats, and the size of a sample."""
    order = torch.randperm(lists.num_nodes, generator=rng("seeds"))
    seeds = [order[i * SEEDS : (i + 1) * SEEDS] for i in range(SAMPLES)]
    sample_neighbours(lists, seeds[0], fanouts, key=0, compiled=compiled)  # compiles
    rates, size = [], 0
    for repeat in range(repeats):
        start = time.thread_time()
        drawn = sum(
            len(sample_neighbours(lists, s, fanouts, key=repeat * SAMPLES + i, compiled=compiled).positions)
            for i, s in enumerate(seeds)
        )
        rates.append(drawn / (time.thread_time() - start))
        size = drawn // SAMPLES
    return max(rates), size


def batches_a_second(lists: NeighbourLists, num_workers: int) -> float:
    """How many batches with 64 features are prepared a second of wall time, after the first two of an epoch."""
    data = Data(x=torch.zeros(lists.num_nodes, 64), y=torch.zeros(lists.num_nodes, dtype=torch.long))
    nodes = torch.randperm(lists.num_nodes, generator=rng("seeds"))[: 40 * SEEDS]
    batches = NodeBatches(data, nodes, (10, 10), batch_size=SEEDS, seed=0, neighbours=lists, num_workers=num_workers)
    start = 0.0
    for number, _ in enumerate(batches):
        if number == 1:
            start = time.perf_counter()
    return (len(batches) - 2) / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--degree", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    edges = torch.randint(options.nodes, (2, options.nodes * options.degree), generator=rng("edges"))
    NeighbourLists.from_edges(edges[:, :100], options.nodes)  # compiles
    start = time.thread_time()
    NeighbourLists.from_edges(edges, options.nodes)
    print(f"lists of {edges.shape[1]:,} unsorted edges: {time.thread_time() - start:.2f} s\n")
    print("| degrees | fan-outs | edges in a sample | numba, edges/s | numpy, edges/s |")
    print("|---|---|---:|---:|---:|")
    for heavy_tail in (False, True):
        lists = graph(options.nodes, options.degree, heavy_tail=heavy_tail)
        for fanouts in FANOUTS:
            fast, size = edges_a_second(lists, fanouts, options.repeats, compiled=True)
            slow, _ = edges_a_second(lists, fanouts, options.repeats, compiled=False)
            name = "heavy tail" if heavy_tail else "all equal"
            print(f"| {name} | {fanouts} | {size:,} | {fast / 1e6:.1f}e6 | {slow / 1e6:.1f}e6 |", flush=True)
    lists = graph(options.nodes, options.degree, heavy_tail=False)
    for num_workers in (0, 1, 2):
        print(f"batches of {SEEDS} nodes, (10, 10), 64 features, {num_workers} workers: "
              f"{batches_a_second(lists, num_workers):.1f} a second")  # fmt: skip


if __name__ == "__main__":
    main()
