"""Flips between 0 and 1 of one graph or of many copies of it, each attacked on its own, side by side.

Copy b of the pair (i, j), i < j, is the code b n^2 + i n + j: sorted codes lie copy by copy.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.attacks.checks import checked_dtype, checked_labels
from wtawp.attacks.losses import Loss, loss_spec, misclassified
from wtawp.base import AttackError, DataError
from wtawp.graphs.flips import undirected_pairs
from wtawp.graphs.row_choices import checked_rows


@dataclass(frozen=True, eq=False)
class RelaxedFlips:
    """Relaxed flips, between 0 and 1, as a sparse list of those that are not 0."""

    codes: Tensor  # [k] int64, sorted
    amounts: Tensor  # [k]

    @staticmethod
    def of(codes: Tensor, amounts: Tensor) -> "RelaxedFlips":
        """From codes in any order; flips of 0 are dropped."""
        kept = amounts > 0
        codes, order = codes[kept].sort()
        return RelaxedFlips(codes, amounts[kept][order])

    def at(self, codes: Tensor) -> Tensor:
        """The relaxed flips of some pairs, 0 for those that are not in the list."""
        if len(self.codes) == 0:
            return torch.zeros(len(codes), dtype=self.amounts.dtype, device=codes.device)
        position = torch.searchsorted(self.codes, codes).clamp_max(len(self.codes) - 1)
        return torch.where(self.codes[position] == codes, self.amounts[position], 0)

    def applied_to(self, ones: Tensor, codes: Tensor) -> Tensor:  # [m], [k] -> [k]
        """The values of some codes after the flips: 1 - p for those among the sorted `ones`, p for any other."""
        amounts = self.at(codes)
        return torch.where(contains(ones, codes), 1 - amounts, amounts)


@dataclass(frozen=True, eq=False)
class Target:
    """The aim of an attack: copies of the graph, the nodes and labels that count in each, and the loss to raise."""

    data: Data
    size: int  # n; used often, and PyG counts the nodes anew at each call
    copies: int
    edges: Tensor  # [b m], codes of the undirected edges, sorted
    loops: Tensor  # [2, b l], self-loops, which stay
    nodes: Tensor  # [b, k]; where a copy has fewer, its first one again
    share: Tensor  # [b, k], the weight of each node in the loss: 1 over their number, or 0
    labels: Tensor  # [b, k], of `nodes`
    loss: Loss
    first_victim: int | None  # the number of the first copy's victim among all victims; None: there is only one
    dtype: torch.dtype  # of relaxed flips and weights of edges: that of the features, if these are floating

    def no_flips(self) -> RelaxedFlips:
        """An empty list of flips."""
        return RelaxedFlips(self.edges[:0], torch.zeros(0, dtype=self.dtype, device=self.edges.device))

    def copy_of(self, codes: Tensor) -> Tensor:
        """The copy that each pair belongs to."""
        return codes // self.size**2

    def ends(self, codes: Tensor) -> tuple[Tensor, Tensor]:
        """The two nodes of each pair, in one graph of b n nodes."""
        first = self.copy_of(codes) * self.size
        return first + codes // self.size % self.size, first + codes % self.size

    def positions(self, codes: Tensor) -> tuple[Tensor, Tensor]:  # [k] -> [k], [k]
        """The copy of each pair, and its position among the pairs of that copy."""
        copy = self.copy_of(codes)
        counts, ranks = torch.bincount(copy, minlength=self.copies), torch.arange(len(codes), device=codes.device)
        first = torch.empty_like(ranks)
        first[copy.argsort(stable=True)] = ranks
        return copy, first - (counts.cumsum(0) - counts)[copy]

    def padded(self, values: Tensor, codes: Tensor) -> Tensor:  # [k], [k] -> [b, most]
        """The values of each copy as one row, padded with zeros."""
        if self.copies == 1 or len(codes) == 0:
            return values.expand(self.copies, -1)
        copy, position = self.positions(codes)
        rows = values.new_zeros(self.copies, int(position.max()) + 1)
        rows[copy, position] = values
        return rows

    def losses(self, logits: Tensor) -> Tensor:  # [b, n, c] -> [b]
        """The loss that the attack raises."""
        return loss_spec(self.loss).value(self._checked(logits), self.labels, self.share)

    def lost(self, logits: Tensor) -> Tensor:  # [b, n, c] -> [b]
        """The share of the attacked nodes that are misclassified."""
        return misclassified(self._checked(logits), self.labels, self.share)

    def _checked(self, logits: Tensor) -> Tensor:  # [b, n, c] -> [b, k, c]
        """The logits of the attacked nodes, which must be finite and have a class for each label."""
        logits = logits.take_along_dim(self.nodes[..., None], 1)
        broken = ~torch.isfinite(logits.detach()).flatten(1).all(1)
        if bool(broken.any()):
            raise AttackError(f"{self.describe(broken)} returns NaN or infinite logits, which no attack can raise")
        if int(self.labels.max()) >= logits.shape[2]:
            raise ValueError(f"labels go up to {int(self.labels.max())}, but the logits have {logits.shape[2]} classes")
        return logits

    def describe(self, which: Tensor) -> str:  # [b] bool
        """Some of the victims, in words, for errors."""
        if self.first_victim is None:
            return "the victim"
        return "a victim, number " + ", ".join(str(self.first_victim + b) for b in which.nonzero()[:, 0].tolist()) + ","

    def directed_edges(self, codes: Tensor) -> Tensor:  # [k] -> [2, 2 k + b l]
        """Pairs as edges in both directions, followed by the self-loops, in one graph of b n nodes."""
        i, j = self.ends(codes)
        return torch.cat([torch.stack([torch.cat([i, j]), torch.cat([j, i])]), self.loops], dim=1)

    def pair_weights(self, codes: Tensor, flips: RelaxedFlips) -> Tensor:
        """The relaxed adjacency of some pairs: 1 - p for an edge of the graph, p for any other pair."""
        return flips.applied_to(self.edges, codes)

    def directed_weights(self, weight: Tensor) -> Tensor:
        """The weights of `directed_edges`, from those of the pairs."""
        return torch.cat([weight, weight, weight.new_ones(self.loops.shape[1])])

    def graph(self, flips: RelaxedFlips) -> tuple[Tensor, Tensor]:  # -> [2, e], [e]
        """The relaxed graph, as edges and their weights."""
        codes = torch.unique(torch.cat([self.edges, flips.codes]))
        return self.directed_edges(codes), self.directed_weights(self.pair_weights(codes, flips))


def target_of(
    data: Data,
    nodes: Sequence[Tensor],
    labels: Sequence[Tensor],
    loss: Loss,
    first_victim: int | None = None,
    *,
    victim: nn.Module | None = None,
) -> Target:
    """The target with one copy of the graph for each entry of `nodes` (indices or a mask) and `labels` [n].

    Where features are whole numbers, the `victim` says in which type of numbers to attack.
    """
    dtype = checked_dtype(data, victim)
    size, device, copies = int(data.num_nodes), data.edge_index.device, len(nodes)
    chosen = [checked_rows(each, size).to(device) for each in nodes]
    wanted = [_labels_at(checked_labels(each, size).to(device), at) for each, at in zip(labels, chosen, strict=True)]
    most = max(map(len, chosen))
    share = torch.zeros(copies, most, dtype=dtype, device=device)
    for row, at in zip(share, chosen, strict=True):
        row[: len(at)] = 1 / len(at)
    i, j = undirected_pairs(data).to(device)
    first = torch.arange(copies, device=device)[:, None]
    edges = (first * size**2 + i * size + j).flatten()
    loops = data.edge_index[:, data.edge_index[0] == data.edge_index[1]]
    if len(loops[0].unique()) < loops.shape[1]:  # the gradient assumes that the diagonal of A + I is 1
        raise DataError("the graph holds the same self-loop more than once; see coalesce in PyG")
    loops = (first * size + loops[:, None]).flatten(1)
    rows = [torch.stack([torch.cat([t, t[:1].expand(most - len(t))]) for t in each]) for each in (chosen, wanted)]
    return Target(data, size, copies, edges, loops, rows[0], share, rows[1], loss, first_victim, dtype)


def _labels_at(labels: Tensor, nodes: Tensor) -> Tensor:  # [n], [k] -> [k]
    """The labels of the attacked nodes, which must be known."""
    chosen = labels[nodes]
    if int(chosen.min()) < 0:
        raise ValueError("labels of the attacked nodes must be known (>= 0); leave the others out of `nodes`")
    return chosen


def contains(sorted_codes: Tensor, codes: Tensor) -> Tensor:
    """Whether each of the codes is among the sorted ones."""
    if len(sorted_codes) == 0:
        return torch.zeros_like(codes, dtype=torch.bool)
    position = torch.searchsorted(sorted_codes, codes).clamp_max(len(sorted_codes) - 1)
    return sorted_codes[position] == codes
