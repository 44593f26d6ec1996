"""What looking at a GCN on Cora costs: a landscape of 51 x 51 points, the top eigenvalues, gradient norms by the graph.

    python benchmarks/flatness_cost.py [--threads 1]

Ratios are within one run: the same points one by one, and the
gradient by the graph formed as an n x n matrix.
"""

import argparse
import time

import numpy as np
import torch
from torch.nn import functional as F

from wtawp.analysis import (
    LossOn,
    input_gradient_norms,
    losses_on_plane,
    random_direction,
    spectral_density,
    top_eigenvalues,
)
from wtawp.base import rng
from wtawp.graphs import load, stratified
from wtawp.models import GCN
from wtawp.training import fit


def main() -> None:
    """Print seconds and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    torch.set_num_threads(parser.parse_args().threads)
    data = load("cora")
    split = stratified(data.y, seed=0)
    model = GCN(data.num_features, 7, generator=rng("init", 0, 0))
    fit(model, data, split, seed=0, epochs=100)
    loss = LossOn(model.eval(), data, split.train)
    u, v = (random_direction(model, seed=0, number=i, scale="filter") for i in (0, 1))
    ticks = np.linspace(-1, 1, 51).tolist()

    start = time.perf_counter()
    losses_on_plane(model, loss, u, v, ticks, ticks)
    plane = time.perf_counter() - start
    start = time.perf_counter()
    losses_on_plane(model, lambda: loss(), u, v, ticks[:2], ticks)
    one_by_one = (time.perf_counter() - start) * 51 / 2
    print(f"51 x 51 landscape: {plane:.2f} s as one ensemble; one by one {one_by_one:.2f} s, {one_by_one / plane:.1f}x")

    start = time.perf_counter()
    top_eigenvalues(model, loss, k=5)
    print(f"top-5 eigenvalues: {time.perf_counter() - start:.2f} s")
    start = time.perf_counter()
    spectral_density(model, loss, seed=0, probes=3)
    print(f"spectral density, 3 probes: {time.perf_counter() - start:.2f} s")

    start = time.perf_counter()
    input_gradient_norms([model], data, split.train, wrt="adjacency", seed=0, samples=3)
    thin = (time.perf_counter() - start) / 3
    size = len(data.y)
    dense = torch.zeros(size, size).index_put((data.edge_index[1], data.edge_index[0]), torch.ones(()))
    start = time.perf_counter()
    noisy = (dense + torch.eye(size) + 0.0005 * torch.randn(size, size, generator=rng("noise"))).requires_grad_()
    scale = noisy.sum(1).rsqrt()
    a_hat = scale[:, None] * noisy * scale
    hidden = (a_hat @ (data.x @ model.convs[0].weight) + model.convs[0].bias).relu()
    logits = a_hat @ (hidden @ model.convs[1].weight) + model.convs[1].bias
    (slope,) = torch.autograd.grad(F.cross_entropy(logits[split.train], data.y[split.train]), noisy)
    slope.norm()
    full = time.perf_counter() - start
    print(
        f"gradient by A at one noisy graph: {thin:.3f} s in thin factors; as a matrix {full:.3f} s, {full / thin:.1f}x"
    )


if __name__ == "__main__":
    main()
