"""Votes under noise on Cora's GCN against a sampler in the structure of the released script: ms a sample.

    python benchmarks/votes_cost.py [--samples 2000] [--naive-samples 24] [--device cpu]

The naive one draws a batch of samples as lists of indices (ones kept by lot, as many random cells as a binomial says,
sorted to be rid of repetitions), makes sparse matrices of them and calls the model on the batch side by side, with its
edges normalised each time. Its milliseconds stand beside those measured with the released script itself on another
machine (12 for features, 5 for edges), so that a slow one here cannot flatter us. On the CPU it is CPU time of one
thread, the median of rounds; on a GPU wall-clock time. Last, the grid of certified radii for all nodes.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from statistics import median

import torch
from torch import Tensor
from torch_geometric.data import Data

from wtawp import load
from wtawp.base import rng
from wtawp.certificates import Noise, certificate_of, vote
from wtawp.graphs import undirected_pairs
from wtawp.models import GCN

NOISES = {"features": Noise(p_add=0.01, p_del=0.6), "edges": Noise(p_add=0.001, p_del=0.4)}
RELEASED = {"features": 12.0, "edges": 5.0}  # ms a sample
BATCH, ROUNDS = 8, 5


def naive_flips(ones: Tensor, size: int, noise: Noise, batch: int, g: torch.Generator) -> Tensor:
    """Sorted cells of a batch, each sample `size` further on."""
    kept = torch.rand(batch, len(ones), generator=g, device=ones.device) >= noise.p_del
    sample, which = kept.nonzero(as_tuple=True)
    zeros = torch.full((batch,), float(size - len(ones)), device=ones.device)
    number = torch.binomial(zeros, torch.full_like(zeros, noise.p_add), generator=g).long()
    added = torch.randint(0, size, (int(number.sum()),), generator=g, device=ones.device)
    owner = torch.repeat_interleave(torch.arange(batch, device=ones.device), number)
    return torch.unique(torch.cat([sample * size + ones[which], owner * size + added]))


def normalised(edges: Tensor, size: int) -> Tensor:
    """A_hat as torch's own sparse matrix."""
    loops = torch.arange(size, device=edges.device)
    both = torch.cat([edges, torch.stack([loops, loops])], 1)
    scale = torch.bincount(both[0], minlength=size).float().rsqrt()
    return torch.sparse_coo_tensor(both, scale[both[0]] * scale[both[1]], (size, size)).coalesce()


def naive_votes(data: Data, model: GCN, on: str, samples: int, g: torch.Generator) -> Tensor:
    (w1, b1), (w2, b2) = model.convolution_weights()
    (n, d), device = data.x.shape, data.x.device
    counts = torch.zeros(n, len(b2), dtype=torch.int64, device=device)
    rows, columns = data.x.nonzero(as_tuple=True)
    i, j = undirected_pairs(data).to(device)
    for _ in range(0, samples, BATCH):
        shift = torch.arange(BATCH, device=device) * n
        if on == "features":
            cells = naive_flips(rows * d + columns, n * d, NOISES[on], BATCH, g)
            entries = torch.stack([cells // d, cells % d])
            edges = (data.edge_index[:, None] + shift[:, None]).flatten(1)
        else:
            cells = naive_flips(i * n + j, n * n, Noise(p_add=NOISES[on].p_add / 2, p_del=NOISES[on].p_del), BATCH, g)
            ends = torch.stack([cells // n, cells // (n * n) * n + cells % n])
            edges = torch.cat([ends, ends.flip(0)], 1)
            entries = torch.stack([(rows[None] + shift[:, None]).flatten(), columns.repeat(BATCH)])
        x = torch.sparse_coo_tensor(entries, torch.ones(entries.shape[1], device=device), (BATCH * n, d))
        hat = normalised(edges, BATCH * n)
        logits = hat @ ((hat @ (x @ w1) + b1).relu() @ w2) + b2
        place = torch.arange(n, device=device).repeat(BATCH) * len(b2) + logits.argmax(1)
        counts += torch.bincount(place, minlength=counts.numel()).view_as(counts)
    return counts


def milliseconds(work: Callable[[], object], device: str) -> float:
    """Of one call, after one that compiles."""
    work()
    spent = []
    for _ in range(ROUNDS):
        if device == "cuda":
            torch.cuda.synchronize()
        clock = time.perf_counter if device == "cuda" else time.thread_time
        start = clock()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        spent.append(clock() - start)
    return 1000 * median(spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--naive-samples", type=int, default=24)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--min-confidence", type=float, default=0.0, help="count only votes of this confidence")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")  # torch calls its sparse matrices a beta
    torch.set_num_threads(1)
    data = load("cora").to(chosen.device)
    model = GCN(data.num_features, int(data.y.max()) + 1, generator=rng("votes")).to(chosen.device).eval()
    print("on        naive ms   ours ms   naive / ours   released / ours")
    for on, noise in NOISES.items():
        g = rng("naive", device=chosen.device)
        slow = partial(naive_votes, data, model, on, chosen.naive_samples, g)
        how = {on: noise, "samples": chosen.samples, "seed": 0, "min_confidence": chosen.min_confidence}
        fast = partial(vote, data, model, **how)
        with torch.no_grad():
            naive = milliseconds(slow, chosen.device) / chosen.naive_samples
        ours = milliseconds(fast, chosen.device) / chosen.samples
        print(f"{on:<9} {naive:8.2f} {ours:9.3f} {naive / ours:14.1f} {RELEASED[on] / ours:17.1f}")
    counts = vote(data, model, features=NOISES["features"], samples=1000, seed=0).counts
    certificate = certificate_of(100 * counts, {"features": NOISES["features"]})
    spent = milliseconds(lambda: certificate.certified_ratio(data.y.cpu()), "cpu")
    print(f"the grid of {certificate.deletions().shape[1]} additions for all nodes: {spent:.1f} ms")


if __name__ == "__main__":
    main()
