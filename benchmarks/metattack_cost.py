"""Metattack on Cora against implementations in the structure of the released code, seconds a flip.

    python benchmarks/metattack_cost.py [--flips 20] [--steps 100]

The other two keep a dense n x n adjacency, normalise it by two products with diagonal matrices, train the surrogate
with torch's autograd (`create_graph`) and differentiate through all of it; features are dense in one and a sparse
tensor in the other. One flip is measured of each: with 100 steps they take minutes and several GiB; `--steps` makes
all of them smaller alike. Their gradient and ours are compared on the way. One thread each, in seconds of CPU time,
which a busy machine disturbs less.
"""

import argparse
import time

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp import load
from wtawp.attacks import metattack
from wtawp.attacks.meta_attack import MetaOptions, meta_gradients
from wtawp.attacks.meta_state import MetaState
from wtawp.graphs import stratified
from wtawp.models.inputs import features


def released_gradient(data: Data, x: Tensor, train: Tensor, weights: list[Tensor], steps: int) -> Tensor:
    """The meta-gradient of Meta-Self with respect to the changes of all pairs, dense."""
    n = int(data.num_nodes)
    adjacency = torch.zeros(n, n)
    adjacency[data.edge_index[0], data.edge_index[1]] = 1
    changes = torch.zeros(n, n, requires_grad=True)
    square = changes - torch.diag(changes.diag())
    modified = adjacency + (square + square.T).clamp(-1, 1) + torch.eye(n)
    scale = torch.diag(modified.sum(1).pow(-0.5))
    hat = scale @ modified @ scale
    rest = torch.ones(n, dtype=torch.bool)
    rest[train] = False

    def logits() -> Tensor:
        hidden = x
        for w in weights:
            hidden = hat @ torch.spmm(hidden, w) if x.is_sparse else hat @ hidden @ w
        return hidden

    speeds = [torch.zeros_like(w) for w in weights]
    weights = [w.requires_grad_() for w in weights]
    for _ in range(steps):
        loss = F.cross_entropy(logits()[train], data.y[train])
        slopes = torch.autograd.grad(loss, weights, create_graph=True)
        speeds = [0.9 * v + g for v, g in zip(speeds, slopes, strict=True)]
        weights = [w - 0.1 * v for w, v in zip(weights, speeds, strict=True)]
    (slope,) = torch.autograd.grad(F.cross_entropy(logits()[rest], data.y[rest]), changes)
    return slope


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--flips", type=int, default=20)
    parser.add_argument("--steps", type=int, default=100)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    data = load("cora")
    train = stratified(data.y, seed=0).train
    ours = {}
    for name, approximate in (("ours", False), ("A-Meta", True)):
        asked = {"train": train, "labels": data.y, "seed": 0, "steps": chosen.steps, "approximate": approximate}
        metattack(data, budget=1, **asked)  # compiled kernels
        start = time.process_time()
        metattack(data, budget=chosen.flips, **asked)
        ours[name] = (time.process_time() - start) / chosen.flips
        print(f"{name:7} {ours[name]:8.3f} s a flip", flush=True)
    state = MetaState(data, features(data.x), train, None, data.y, int(data.y.max()) + 1, 0, 0.0)
    options = MetaOptions(lam=0.0, approximate=False, likelihood_cutoff=None, steps=chosen.steps, hidden=16)
    with torch.no_grad():
        expected = meta_gradients([state], 0, options)[0].block(0, int(data.num_nodes))
    for name, x in (("sparse", data.x.to_sparse()), ("dense", data.x)):
        weights = list(state.first_weights(0, options.hidden))
        start = time.process_time()
        found = released_gradient(data, x, train, weights, chosen.steps)
        took = time.process_time() - start
        off = (found - expected).fill_diagonal_(0).norm() / expected.norm()
        print(f"{name:7} {took:8.3f} s a flip: {took / ours['ours']:.1f} times as long; gradients differ by {off:.1e}")


if __name__ == "__main__":
    main()
