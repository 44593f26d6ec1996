"""Metattack on Cora against implementations in the structure of the released code, seconds a flip.

    python benchmarks/metattack_cost.py [--flips 20] [--steps 100]

The other two keep a dense n x n adjacency, normalise it by two products with diagonal matrices, train the surrogate
with torch's autograd (`create_graph`) and differentiate through all of it; features are dense in one and a sparse tensor
in the other. One flip is measured of each: with 100 steps they take minutes and several GiB; `--steps` makes all of them
smaller alike. Their gradient and ours are compared on the way. One thread each.
"""

import argparse
import time

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp import load
from wtawp.attacks import metattack
from wtawp.attacks.metattack import Member, Options, slopes
from wtawp.graphs import stratified
from wtawp.models.adapter import features


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
        hidden = torch.sparse.mm(x, weights[0]) if x.is_sparse else None
        hidden = hat @ x @ weights[0] if hidden is None else hat @ hidden  # as released: the features go first
        return hat @ hidden @ weights[1] if hidden.is_sparse else hat @ (hidden @ weights[1])

    speeds = [torch.zeros_like(w) for w in weights]
    weights = [w.requires_grad_() for w in weights]
    for _ in range(steps):
        loss = F.cross_entropy(logits()[train], data.y[train])
        slopes = torch.autograd.grad(loss, weights, create_graph=True)
        speeds = [0.9 * v + g for v, g in zip(speeds, slopes, strict=True)]
        weights = [w - 0.1 * v for w, v in zip(weights, speeds, strict=True)]
    (slope,) = torch.autograd.grad(F.cross_entropy(logits()[rest], data.y[rest]), changes)
    return slope
