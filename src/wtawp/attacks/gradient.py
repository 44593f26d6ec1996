"""The gradient of a loss with respect to the flip of every pair of nodes, and a step along it within the budget.

For victims that support a factored gradient it is a product of thin factors, evaluated in blocks of rows, so that
nothing of size n x n is kept, and many victims of one architecture are attacked at once. Any other victim is
differentiated with respect to the weights of all pairs: one at a time, small graphs only.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from wtawp.attacks.checks import refuse_without_weights
from wtawp.attacks.projection import thresholds
from wtawp.attacks.recording_operators import recording_operator_of
from wtawp.attacks.relaxed import RelaxedFlips, Target, contains
from wtawp.base import AttackError, DataError
from wtawp.models.capabilities import Features, FiltersEdges, NormalisedAdjacency, PairFilter, SupportsFactoredGradient
from wtawp.models.ensemble import Ensemble
from wtawp.models.inputs import features
from wtawp.models.recording_operator import RecordingOperator

MOST_NODES = 1000  # for a black-box victim, which is called with all pairs as edges
BLOCK = {"cpu": 1 << 20, "cuda": 1 << 28}  # entries of the gradient that are computed at once


def entries_at_once(device: torch.device) -> int:
    """How many entries of the gradient are computed at once."""
    return BLOCK.get(device.type, BLOCK["cpu"])


@dataclass(frozen=True, eq=False)
class FactoredGradient:
    """The gradient with respect to the flip of any pair: sign_ij <left_i, right_j>, the sign -1 for the graph's edges.

    It is symmetric in i and j: it is the gradient of the pair, not of one direction.
    """

    target: Target
    left: Tensor  # [b, n, 2 f + 2]: u, v, t, ones
    right: Tensor  # [b, n, 2 f + 2]: v, u, ones, t
    passes: PairFilter | None = None  # pairs that can be joined; None: all

    def at(self, codes: Tensor) -> Tensor:  # [k] -> [k]
        """The gradient of some pairs."""
        left, right = self.left.flatten(0, 1), self.right.flatten(0, 1)
        some = max(1, entries_at_once(left.device) // left.shape[1])  # to bound the memory
        ends = zip(*(torch.split(end, some) for end in self.target.ends(codes)), strict=True)
        unsigned = torch.cat([(left[i] * right[j]).sum(1) for i, j in ends])
        return torch.where(contains(self.target.edges, codes), -unsigned, unsigned)

    def rows(self, nodes: Tensor) -> Tensor:  # [k] -> [k, n]
        """The gradient of the pairs of some nodes with all nodes, of one graph; 0 for pairs that are filtered."""
        block = self.left[0, nodes] @ self.right[0].mT
        codes = codes_of_rows(nodes, self.target.size)
        block = torch.where(contains(self.target.edges, codes), -block, block)
        if self.passes is not None:
            kept = torch.cat([self.passes(node, node + 1) for node in nodes.tolist()])
            block.masked_fill_(~kept, 0)
        return block

    def is_zero(self) -> Tensor:  # -> [b]
        """Whether the gradient of each copy is zero: each column of one factor meets a column of zeros."""
        return ~((self.left != 0).any(1) & (self.right != 0).any(1)).any(1)

    def ascend(self, flips: RelaxedFlips, step: float, budget: int) -> RelaxedFlips:
        """One step of projected gradient ascent: project(p + step * gradient).

        The graph's edges and the flips so far are projected first. Any other pair must exceed the threshold of that
        projection, which can only rise as more pairs come in: few do.
        """
        target = self.target
        known = codes = torch.unique(torch.cat([target.edges, flips.codes]))
        values = flips.at(codes) + step * self.at(codes)
        least = thresholds(target.padded(values, codes), budget)
        rows = max(1, entries_at_once(self.left.device) // (target.copies * target.size))
        for first in range(0, target.size, rows):
            block = self._unknown(first, rows, known)
            if not bool(
                least.all()
            ):  # raise it by the best of every 32 pairs, or else nearly all pairs that help would come in
                best = step * F.max_pool1d(block, 32, ceil_mode=True).flatten(1)
                least = thresholds(torch.cat([target.padded(values, codes), best], 1), budget, least)
            copy, i, j = (block > (least / step).to(block)[:, None, None]).nonzero(as_tuple=True)
            if len(i):
                added = (copy * target.size + i + first) * target.size + j + first
                codes, values = torch.cat([codes, added]), torch.cat([values, step * block[copy, i, j]])
                least = thresholds(target.padded(values, codes), budget, least)
                kept = values > least[target.copy_of(codes)]
                codes, values = codes[kept], values[kept]
        return RelaxedFlips.of(codes, (values - least[target.copy_of(codes)]).clamp(0, 1).to(values))

    def _unknown(self, first: int, rows: int, known: Tensor) -> Tensor:  # -> [b, rows, n - first]
        """The gradient of the pairs i < j with i in a block of rows; 0 for known pairs and filtered ones."""
        block = (self.left[:, first : first + rows] @ self.right[:, first:].mT).triu_(1)
        i, j = known // self.target.size % self.target.size, known % self.target.size
        inside = (i >= first) & (i < first + rows)
        block[self.target.copy_of(known[inside]), i[inside] - first, j[inside] - first] = 0
        if self.passes is not None:
            block.masked_fill_(~self.passes(first, first + block.shape[1])[:, first:], 0)
        return block


@dataclass(frozen=True, eq=False)
class FullGradient:
    """The gradient with respect to the flip of each pair of one graph, all of them or some, in a list."""

    codes: Tensor  # [n (n - 1) / 2], or fewer; sorted
    values: Tensor  # likewise
    size: int  # n

    def rows(self, nodes: Tensor) -> Tensor:  # [k] -> [k, n]
        """The gradient of the pairs of some nodes with all nodes; 0 for pairs that are not in the list."""
        codes = codes_of_rows(nodes, self.size)
        position = torch.searchsorted(self.codes, codes).clamp_max(len(self.codes) - 1)
        return torch.where(self.codes[position] == codes, self.values[position], 0)

    def is_zero(self) -> Tensor:  # -> [1]
        """Whether the gradient is zero for every pair."""
        return ~(self.values != 0).any()[None]

    def ascend(self, flips: RelaxedFlips, step: float, budget: int) -> RelaxedFlips:
        """One step of projected gradient ascent: project(p + step * gradient)."""
        values = flips.at(self.codes) + step * self.values
        return RelaxedFlips.of(self.codes, (values - thresholds(values[None], budget)).clamp(0, 1).to(values))


def victims_at_once(victim: nn.Module, size: int, device: torch.device) -> int:
    """How many victims are attacked at once: as many as one block of the gradient has room for, or one."""
    operators = victim.graph_operators() if isinstance(victim, SupportsFactoredGradient) else ()
    if not operators or not all(isinstance(operator, NormalisedAdjacency) for operator in operators):
        return 1
    return max(1, entries_at_once(device) // size**2)


def attacked_by_gradient(
    target: Target, victims: Sequence[nn.Module], ends: Tensor | None = None
) -> "FactoredVictims | BlackBoxVictim":
    """The victims as `FactoredVictims` if their class supports it, else the only one as `BlackBoxVictim`.

    Where only pairs with one end among `ends` matter, a `BlackBoxVictim` is differentiated with respect to these alone.
    """
    if isinstance(victims[0], SupportsFactoredGradient) and victims[0].graph_operators():
        return FactoredVictims(target, victims)
    (victim,) = victims
    return BlackBoxVictim(target, victim, ends)


def codes_of_rows(nodes: Tensor, size: int) -> Tensor:  # [k] -> [k, n]
    """The codes of the pairs of some nodes with all nodes of one graph; a node with itself has no meaning."""
    others = torch.arange(size, device=nodes.device)
    return torch.minimum(nodes[:, None], others) * size + torch.maximum(nodes[:, None], others)


class FactoredVictims:
    """Victims of one architecture that support factored gradients, each on its own copy of the graph."""

    def __init__(self, target: Target, victims: Sequence[nn.Module]) -> None:
        self.target, self.ensemble = target, Ensemble(victims)
        named = self.ensemble.parameters()
        self.weights = [p for p in named.values() if p.requires_grad]  # copies: training them changes no victim
        self.parameters = {name: p.requires_grad_(False) for name, p in named.items()}
        self.buffers = self.ensemble.buffers()
        self.x: Features = features(target.data.x)
        self.passes: PairFilter | None = None
        if isinstance(victims[0], FiltersEdges):  # a pair that it filters out is no edge to it, and cannot become one
            self.passes = victims[0].pair_filter(self.x)
            edges = target.edges[_passing(target, self.passes)]
            if len(edges) == 0:
                raise DataError(f"{type(victims[0]).__name__} filters out every edge of this graph: nothing to attack")
            self.target = replace(target, edges=edges)

    def logits(self, flips: RelaxedFlips) -> tuple[Tensor, list[RecordingOperator]]:  # -> [b, n, c]
        """The logits on the relaxed graphs, and the operators through which the victims saw the graphs."""
        template = self.ensemble.template
        assert isinstance(template, SupportsFactoredGradient)
        operators = [recording_operator_of(self.target, flips, each) for each in template.graph_operators()]
        arguments = template.forward_args(self.x, tuple(operators))
        return self.ensemble.logits(self.parameters, self.buffers, arguments, None), operators

    @torch.no_grad()
    def flipped_logits(self, flips: RelaxedFlips) -> Tensor:  # -> [b, n, c]
        """The logits on the graphs with these pairs flipped."""
        return self.logits(flips)[0]

    def losses(self, flips: RelaxedFlips) -> Tensor:  # -> [b]
        """The loss that the attack raises, for each victim."""
        return self.target.losses(self.flipped_logits(flips))

    def gradient(self, flips: RelaxedFlips) -> FactoredGradient:
        """The gradient of the loss with respect to the flip of each pair."""
        with torch.enable_grad():
            logits, operators = self.logits(flips)
            value = self.target.losses(logits).sum()
            products = [product for operator in operators for product in operator.products]
            at_products = iter(torch.autograd.grad(value, products, allow_unused=True, materialize_grads=True))
        with torch.no_grad():
            parts = [
                operator.adjacency_gradient_factors([next(at_products) for _ in operator.products])
                for operator in operators
            ]
            u, v = (torch.cat([part[k] for part in parts], 2) for k in (0, 1))
            t = torch.stack([part[2] for part in parts]).sum(0)
            ones = torch.ones_like(t)
            left, right = torch.cat([u, v, t, ones], 2), torch.cat([v, u, ones, t], 2)
            gradient = FactoredGradient(self.target, left, right, self.passes)
        _refuse_nan(self.target, gradient.left)
        return gradient


class BlackBoxVictim:
    """One victim of which only the forward pass is known."""

    def __init__(self, target: Target, victim: nn.Module, ends: Tensor | None = None) -> None:
        named = f"all pairs of {target.size} nodes" if ends is None else f"the pairs of {len(ends)} nodes"
        ends = torch.arange(target.size, device=target.edges.device) if ends is None else ends
        if len(ends) * target.size > MOST_NODES**2:
            raise AttackError(
                f"{type(victim).__name__} shows no factors of its gradient (see SupportsFactoredGradient), so it would"
                f" have to be called with {named} as edges, and is for up to {MOST_NODES} nodes. Use prbcd, or find the"
                " flips on a GCN and apply them (wtawp attack --no-adaptive)"
            )
        refuse_without_weights(victim, "PGD")
        self.target, self.victim = target, victim
        self.weights = [p for p in victim.parameters() if p.requires_grad]  # the victim's own
        codes = codes_of_rows(ends, target.size)
        itself = codes // target.size == codes % target.size
        self.codes = torch.unique(torch.cat([codes[~itself], target.edges]))
        self.edges = target.directed_edges(self.codes)
        self.sign = torch.where(contains(target.edges, self.codes), -1, 1)

    def logits(self, flips: RelaxedFlips) -> tuple[Tensor, list[RecordingOperator]]:  # -> [1, n, c]
        """The logits on the relaxed graph; there are no recording operators."""
        edges, weight = self.target.graph(flips)
        return self.victim(self.target.data.x, edges, weight)[None], []

    @torch.no_grad()
    def flipped_logits(self, flips: RelaxedFlips) -> Tensor:  # -> [1, n, c]
        """The logits on the graph with these pairs flipped; pairs of weight 0 are left out."""
        edges, weight = self.target.graph(flips)
        logits: Tensor = self.victim(self.target.data.x, edges[:, weight > 0])
        return logits[None]

    def losses(self, flips: RelaxedFlips) -> Tensor:  # -> [1]
        """The loss that the attack raises, on the graph with these pairs flipped."""
        return self.target.losses(self.flipped_logits(flips))

    def gradient(self, flips: RelaxedFlips) -> FullGradient:
        """The gradient of the loss with respect to the flip of each pair."""
        with torch.enable_grad():
            weight = self.target.pair_weights(self.codes, flips).requires_grad_()
            logits = self.victim(self.target.data.x, self.edges, self.target.directed_weights(weight))
            value = self.target.losses(logits[None]).sum()
            (to_weight,) = torch.autograd.grad(value, weight, allow_unused=True) if value.requires_grad else (None,)
        to_weight = torch.zeros_like(weight) if to_weight is None else to_weight
        _refuse_nan(self.target, to_weight[None])
        return FullGradient(self.codes, self.sign * to_weight, self.target.size)


def _passing(target: Target, passes: PairFilter) -> Tensor:  # -> [b m]
    """Whether the victim's filter keeps each of the graph's edges."""
    i, j = target.edges // target.size % target.size, target.edges % target.size
    kept, rows = torch.zeros_like(i, dtype=torch.bool), max(1, entries_at_once(i.device) // target.size)
    for first in range(0, target.size, rows):
        inside = ((i >= first) & (i < first + rows)).nonzero()[:, 0]
        kept[inside] = passes(first, min(first + rows, target.size))[i[inside] - first, j[inside]]
    return kept


def _refuse_nan(target: Target, gradient: Tensor) -> None:  # [b, ...]
    """Refuse a gradient with entries that are NaN or infinite, and name its victim."""
    broken = ~torch.isfinite(gradient).flatten(1).all(1)
    if bool(broken.any()):
        raise AttackError(f"the gradient of {target.describe(broken)} with respect to edges is NaN or infinite")
