"""PGD on Cora's GCN against a dense implementation in the structure of the released code, second by second.

    python benchmarks/pgd_cost.py [--dense-steps 5] [--same-steps 0]

The dense one keeps the upper triangle of an n x n relaxed adjacency as a parameter, normalises and multiplies dense
matrices, differentiates by autograd and projects by bisection. Most of its time goes into normalising by two products
with diagonal matrices, as the released code does; "lean" is the same with rows and columns scaled instead.

One thread each. Seconds a step are medians for the
dense one and the whole attack, its final draws included, over its steps for ours. With --same-steps N both also run N
steps, and the losses reached on the attacked nodes are compared.
"""

import argparse
import time
from statistics import median

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp import fit, load
from wtawp.attacks import pgd
from wtawp.base import rng
from wtawp.graphs import EdgeFlips, budget_of, stratified
from wtawp.models import GCN
from wtawp.training import evaluate


def dense_pgd(
    data: Data, model: GCN, budget: int, nodes: Tensor, *, steps: int, samples: int = 20, lean: bool = False
) -> tuple[EdgeFlips, list[float]]:
    """The flips of the best of `samples` draws, and the seconds of each step."""
    n, seconds = int(data.num_nodes), []
    i, j = torch.triu_indices(n, n, 1)
    adjacency = torch.zeros(n, n)
    adjacency[data.edge_index[0], data.edge_index[1]] = 1
    flips = torch.zeros(len(i), requires_grad=True)

    def loss(changes: Tensor) -> Tensor:
        upper = torch.zeros(n, n).index_put((i, j), changes)
        eye = torch.eye(n)
        changed = (torch.ones(n, n) - eye - 2 * adjacency) * (upper + upper.T) + adjacency + eye
        scale = changed.sum(1).pow(-0.5)
        hat = scale[:, None] * changed * scale if lean else torch.diag(scale) @ changed @ torch.diag(scale)
        x = data.x
        for layer, conv in enumerate(model.convs):
            x = hat @ (x @ conv.weight) + conv.bias
            x = x.relu() if layer + 1 < len(model.convs) else x
        return F.cross_entropy(x[nodes], data.y[nodes])

    for t in range(steps):
        start = time.perf_counter()
        (slope,) = torch.autograd.grad(loss(flips), flips)
        with torch.no_grad():
            moved = flips + 200 / (t + 1) ** 0.5 * slope
            flips = bisected(moved, budget).requires_grad_()
        seconds.append(time.perf_counter() - start)
    best, highest, g = torch.zeros(len(i), dtype=torch.bool), -1.0, rng("dense draws")
    with torch.no_grad():
        for _ in range(samples):
            drawn = torch.rand(len(i), generator=g) < flips
            if 0 < int(drawn.sum()) <= budget and (value := float(loss(drawn.float()))) > highest:
                best, highest = drawn, value
    return EdgeFlips.of(torch.stack([i[best], j[best]]), n), seconds


def bisected(values: Tensor, budget: int, epsilon: float = 1e-5) -> Tensor:
    if values.clamp(0, 1).sum() <= budget:
        return values.clamp(0, 1)
    low, high = float((values - 1).min()), float(values.max())
    while high - low >= epsilon:
        middle = (low + high) / 2
        total = float((values - middle).clamp(0, 1).sum())
        if total == budget:
            break
        low, high = (middle, high) if total > budget else (low, middle)
    return (values - (low + high) / 2).clamp(0, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", type=float, default=0.05)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--dense-steps", type=int, default=5)
    parser.add_argument("--same-steps", type=int, default=0)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    data = load("cora")
    split = stratified(data.y, seed=0)
    model = GCN(data.num_features, int(data.y.max()) + 1, generator=rng("init", 0))
    fit(model, data, split, seed=0)
    model.eval()

    def ours(steps: int) -> tuple[EdgeFlips, float]:
        start = time.perf_counter()
        flips = pgd(data, model, budget=chosen.budget, nodes=split.test, labels=data.y, seed=0, steps=steps)
        return flips, time.perf_counter() - start

    ours(2)  # compiled kernels
    flips, whole = ours(chosen.steps)
    count = budget_of(data, chosen.budget)
    (clean_loss, clean), (loss, attacked) = (evaluate(model, d, split.test) for d in (data, flips.apply(data)))
    print(f"ours   {whole:7.2f} s for {chosen.steps} steps, {whole / chosen.steps:.4f} s a step")
    for name, lean in (("dense", False), ("lean", True)):
        took = dense_pgd(data, model, count, split.test, steps=chosen.dense_steps, samples=0, lean=lean)[1]
        print(f"{name:6} {median(took):7.4f} s a step: {median(took) * chosen.steps / whole:.1f} times as long")
    print(f"test accuracy {100 * clean:.2f} -> {100 * attacked:.2f}, loss {clean_loss:.4f} -> {loss:.4f}")
    if chosen.same_steps:
        one = evaluate(model, ours(chosen.same_steps)[0].apply(data), split.test)
        other = evaluate(
            model, dense_pgd(data, model, count, split.test, steps=chosen.same_steps)[0].apply(data), split.test
        )
        print(f"after {chosen.same_steps} steps: loss {one[0]:.4f} ours, {other[0]:.4f} dense")


if __name__ == "__main__":
    main()
