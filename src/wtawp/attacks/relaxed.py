"""Flips between 0 and 1 of one graph or of many copies of it, each attacked on its own, side by side.

Copy b of the pair (i, j), i < j, is the code b n^2 + i n + j: sorted codes lie copy by copy.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp.base import AttackError, DataError
from wtawp.graphs.flips import undirected_pairs

Loss = Literal["ce", "margin"]


@dataclass(frozen=True, eq=False)
class Relaxed:
    """The flips that are not 0."""

    codes: Tensor  # [k] int64, sorted
    amounts: Tensor  # [k]

    @staticmethod
    def of(codes: Tensor, amounts: Tensor) -> "Relaxed":
        """From codes in any order; what is 0 goes."""
        kept = amounts > 0
        codes, order = codes[kept].sort()
        return Relaxed(codes, amounts[kept][order])

    def at(self, codes: Tensor) -> Tensor:
        """The relaxed flips of some pairs, 0 where there is none."""
        if len(self.codes) == 0:
            return torch.zeros(len(codes), dtype=self.amounts.dtype, device=codes.device)
        place = torch.searchsorted(self.codes, codes).clamp_max(len(self.codes) - 1)
        return torch.where(self.codes[place] == codes, self.amounts[place], 0)


@dataclass(frozen=True, eq=False)
class Target:
    """What is attacked: copies of the graph, the nodes and labels that count in each, and the loss to raise."""

    data: Data
    size: int  # n, asked for so often that PyG's counting would take a while
    copies: int
    edges: Tensor  # [b m], codes of the undirected edges, sorted
    loops: Tensor  # [2, b l], self-loops, which stay
    nodes: Tensor  # [b, k]; where a copy has fewer, its first one again
    share: Tensor  # [b, k], what each counts in the loss: 1 over their number, or 0
    labels: Tensor  # [b, k], of `nodes`
    kind: Loss
    number: int | None  # of the first copy's victim among all victims; None: there is but one

    def nothing(self) -> Relaxed:
        """No flips at all."""
        return Relaxed(self.edges[:0], torch.zeros(0, dtype=self.data.x.dtype, device=self.edges.device))

    def copy_of(self, codes: Tensor) -> Tensor:
        """Which copy each pair is of."""
        return codes // self.size**2

    def ends(self, codes: Tensor) -> tuple[Tensor, Tensor]:
        """The two nodes of each pair, in one graph of b n nodes."""
        first = self.copy_of(codes) * self.size
        return first + codes // self.size % self.size, first + codes % self.size

    def places(self, codes: Tensor) -> tuple[Tensor, Tensor]:  # [k] -> [k], [k]
        """The copy of each pair, and which of the copy's own it is."""
        copy = self.copy_of(codes)
        counts, ranks = torch.bincount(copy, minlength=self.copies), torch.arange(len(codes), device=codes.device)
        first = torch.empty_like(ranks)
        first[copy.argsort(stable=True)] = ranks
        return copy, first - (counts.cumsum(0) - counts)[copy]

    def padded(self, values: Tensor, codes: Tensor) -> Tensor:  # [k], [k] -> [b, most]
        """The values of each copy in a row of its own, filled up with zeros."""
        if self.copies == 1 or len(codes) == 0:
            return values.expand(self.copies, -1)
        copy, place = self.places(codes)
        rows = values.new_zeros(self.copies, int(place.max()) + 1)
        rows[copy, place] = values
        return rows

    def losses(self, logits: Tensor) -> Tensor:  # [b, n, c] -> [b]
        """What the attack raises, a mean over nodes; "margin" is satisfied with a node once it is misclassified."""
        logits = logits.take_along_dim(self.nodes[..., None], 1)
        broken = ~torch.isfinite(logits.detach()).flatten(1).all(1)
        if bool(broken.any()):
            raise AttackError(f"{self.who(broken)} returns NaN or infinite logits; an attack has nothing to climb")
        if int(self.labels.max()) >= logits.shape[2]:
            raise ValueError(f"labels go up to {int(self.labels.max())}, but logits are of {logits.shape[2]} classes")
        if self.kind == "ce":
            rows = F.cross_entropy(logits.mT, self.labels, reduction="none")
        else:
            own = logits.gather(2, self.labels[..., None])[..., 0]
            best_other = logits.scatter(2, self.labels[..., None], -math.inf).amax(2)
            rows = (best_other - own).clamp_max(0)
        return (self.share * rows).sum(1)

    def who(self, are: Tensor) -> str:  # [b] bool
        """The victims that something is true of, in words."""
        if self.number is None:
            return "the victim"
        return "a victim, number " + ", ".join(str(self.number + b) for b in are.nonzero()[:, 0].tolist()) + ","

    def both_ways(self, codes: Tensor) -> Tensor:  # [k] -> [2, 2 k + b l]
        """Pairs as edges in both directions of one graph of b n nodes, and the self-loops behind them."""
        i, j = self.ends(codes)
        return torch.cat([torch.stack([torch.cat([i, j]), torch.cat([j, i])]), self.loops], dim=1)

    def weights(self, codes: Tensor, flips: Relaxed) -> Tensor:
        """The relaxed adjacency of some pairs: of an edge 1 - p, of another pair p."""
        amounts = flips.at(codes)
        return torch.where(contains(self.edges, codes), 1 - amounts, amounts)

    def both_weights(self, weight: Tensor) -> Tensor:
        """Weights in the order of `both_ways`."""
        return torch.cat([weight, weight, weight.new_ones(self.loops.shape[1])])

    def graph(self, flips: Relaxed) -> tuple[Tensor, Tensor]:  # -> [2, e], [e]
        """The relaxed graph, as edges and their weights."""
        codes = torch.unique(torch.cat([self.edges, flips.codes]))
        return self.both_ways(codes), self.both_weights(self.weights(codes, flips))


def target_of(
    data: Data, nodes: Sequence[Tensor], labels: Sequence[Tensor], loss: Loss, number: int | None = None
) -> Target:
    """One copy of the graph for each of the `nodes` (indices or a mask) and `labels` [n]."""
    size, device, copies = int(data.num_nodes), data.edge_index.device, len(nodes)
    chosen = [_checked_nodes(each, size).to(device) for each in nodes]
    wanted = [_checked_labels(each.to(device), at, size) for each, at in zip(labels, chosen, strict=True)]
    most = max(map(len, chosen))
    share = torch.zeros(copies, most, dtype=data.x.dtype, device=device)
    for row, at in zip(share, chosen, strict=True):
        row[: len(at)] = 1 / len(at)
    i, j = undirected_pairs(data).to(device)
    first = torch.arange(copies, device=device)[:, None]
    edges = (first * size**2 + i * size + j).flatten()
    loops = data.edge_index[:, data.edge_index[0] == data.edge_index[1]]
    if len(loops[0].unique()) < loops.shape[1]:  # the gradient takes the diagonal of A + I for 1
        raise DataError("the graph holds the same self-loop more than once; see coalesce in PyG")
    loops = (first * size + loops[:, None]).flatten(1)
    rows = [torch.stack([torch.cat([t, t[:1].expand(most - len(t))]) for t in each]) for each in (chosen, wanted)]
    return Target(data, size, copies, edges, loops, rows[0], share, rows[1], loss, number)


def _checked_nodes(nodes: Tensor, size: int) -> Tensor:
    if nodes.dtype == torch.bool and nodes.shape == (size,):
        nodes = nodes.nonzero()[:, 0]
    if nodes.dim() != 1 or nodes.dtype != torch.int64 or len(nodes) == 0:
        raise ValueError(f"nodes must be one or more indices, or a mask of all {size}, got {list(nodes.shape)}")
    if int(nodes.min()) < 0 or int(nodes.max()) >= size:
        raise ValueError(f"nodes must lie in 0 to {size - 1}, got {int(nodes.min())} to {int(nodes.max())}")
    return nodes


def _checked_labels(labels: Tensor, nodes: Tensor, size: int) -> Tensor:
    if labels.shape != (size,) or labels.is_floating_point():
        raise ValueError(f"labels must be whole numbers, one a node, [{size}]; got {labels.dtype} {list(labels.shape)}")
    wanted = labels.long()[nodes]
    if int(wanted.min()) < 0:
        raise ValueError("labels of the attacked nodes must be known (>= 0); leave the others out of `nodes`")
    return wanted


def contains(sorted_codes: Tensor, codes: Tensor) -> Tensor:
    """Which codes are among the others."""
    if len(sorted_codes) == 0:
        return torch.zeros_like(codes, dtype=torch.bool)
    place = torch.searchsorted(sorted_codes, codes).clamp_max(len(sorted_codes) - 1)
    return sorted_codes[place] == codes
