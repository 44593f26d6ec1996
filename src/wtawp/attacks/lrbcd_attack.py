"""LR-BCD (Gosch et al. 2023, arXiv 2306.15427): PRBCD with a budget for each node beside that of the graph.

A global budget alone lets an attack change most edges of a few nodes, which no longer are the nodes they were. Here no
node has more than a share of its degree flipped. Blocks are drawn among the pairs that may be flipped at all.
"""

import math

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.attacks.checks import refuse_nan, refuse_without_weights
from wtawp.attacks.local_budgets import legal_flips, local_budgets, project_onto_budgets
from wtawp.attacks.losses import Loss, loss_spec
from wtawp.attacks.relaxed import RelaxedFlips, target_of
from wtawp.base import AttackError, isolated_rng, report_progress, rng
from wtawp.graphs.flips import EdgeFlips, budget_of
from wtawp.models.capabilities import StackAware
from wtawp.models.evaluation import evaluating
from wtawp.models.inputs import features

RESAMPLED = 0.8  # share of the steps in which the block is drawn anew, as in `prbcd`
EPS = 1e-7  # the least relaxed flip, so that every pair of the block is in the graph and has a gradient


def lrbcd(
    data: Data,
    victim: nn.Module,
    *,
    budget: float | int,
    nodes: Tensor,
    labels: Tensor,
    seed: int,
    local_budget: float = 0.5,
    steps: int = 125,
    loss: Loss = "tanh_margin",
    block_size: int = 250_000,
    samples: int = 20,
    step_size: float = 1000.0,
) -> EdgeFlips:
    """Find flips that raise a victim's loss, none of whose nodes has more than a share of its degree flipped.

    Projected gradient ascent on a random block of pairs, as in `prbcd`, with a projection onto both budgets. There may
    be fewer flips than the budget allows, where local budgets are used up or fewer flips are worse for the victim. The
    victim is attacked in evaluation mode; its weights and their gradients are left as they are.

    Args:
        data: The graph.
        victim: The model, called as `victim(x, edge_index, edge_weight)`.
        budget: The number of flips allowed: undirected edges (int) or a share of the graph's edges (float).
        nodes: The nodes whose loss is to rise, as indices or a mask.
        labels: The labels of all nodes, [n].
        seed: The seed of all random draws.
        local_budget: The share of a node's degree that may be flipped, in (0, 1], rounded down to whole flips. Nodes
            for which that is less than one flip keep all their edges and get none.
        steps: The number of steps. The block changes in the first 80 % of them.
        loss: What is raised, one of the losses of `pgd`.
        block_size: The number of draws of random pairs that make a block. If there are no more pairs that may be
            flipped than that, the block is all of them.
        samples: The number of sets of flips drawn at the end. Of these sets, and of the set of the largest relaxed
            flips, the one with the highest loss is returned.
        step_size: The factor of the gradient, in the units of `prbcd`.

    Returns:
        The flips.

    Raises:
        ValueError: If the local budget leaves no legal flip, or nodes, labels or options are not what they must be.
        AttackError: If the victim takes no edge_weight or ignores it, or its outputs are not finite.

    Example:
        >>> from wtawp.base import rng
        >>> from wtawp.graphs import citation
        >>> from wtawp.models import GCN
        >>> data, victim = citation(seed=0, num_nodes=60, num_words=20), GCN(20, 7, generator=rng("victim"))
        >>> len(lrbcd(data, victim, budget=5, nodes=torch.arange(10), labels=data.y, seed=0, steps=5))
        5
    """
    loss_spec(loss)
    for name, value, least in (("steps", steps, 1), ("samples", samples, 0), ("block_size", block_size, 1)):
        if value < least:
            raise ValueError(f"{name} must be >= {least}, got {value}")
    if not 0 < step_size < float("inf"):
        raise ValueError(f"step_size must be positive and finite, got {step_size}")
    count, local = budget_of(data, budget), local_budgets(data, local_budget)
    refuse_without_weights(victim, "the attack")
    objective = _Objective(data, victim, nodes, labels, loss)
    ascent = _Ascent(objective, count, local, block_size, rng("attack", "lrbcd", seed))
    with evaluating(victim), isolated_rng("attack", "lrbcd", "victim", seed):
        flips = ascent.run(steps, step_size * count / int(data.num_nodes), samples)
    origin = {
        "attack": "lrbcd", "budget": budget, "seed": seed, "local_budget": local_budget, "steps": steps, "loss": loss,
        "block_size": block_size, "samples": samples, "step_size": step_size,
    }  # fmt: skip
    return EdgeFlips.of(flips, int(data.num_nodes), tuple((name, str(value)) for name, value in origin.items()))


class _Objective:
    """The loss that is raised, as a function of relaxed flips."""

    def __init__(self, data: Data, victim: nn.Module, nodes: Tensor, labels: Tensor, loss: Loss) -> None:
        self.target = target_of(data, [nodes], [labels], loss)
        self.victim, self.is_first = victim, True
        self.features = features(data.x) if isinstance(victim, StackAware) else data.x

    def value(self, codes: Tensor, amounts: Tensor) -> Tensor:  # [k], [k] -> []
        """The loss of the graph after relaxed flips, whose codes are sorted."""
        edges, weight = self.target.graph(RelaxedFlips(codes, amounts))
        logits: Tensor = self.victim(self.features, edges, weight)
        return self.target.losses(logits[None])[0]  # also refuses logits that are not finite

    def gradient(self, codes: Tensor, amounts: Tensor) -> Tensor:  # -> [k]
        """The derivative of the loss by each relaxed flip."""
        with torch.enable_grad():
            amounts = amounts.detach().requires_grad_()
            value = self.value(codes, amounts) + 0 * amounts.sum()  # so that a victim without weights is checked too
            gradient = torch.autograd.grad(value, amounts)[0]
        refuse_nan(gradient)
        if self.is_first and not bool((gradient != 0).any()):
            raise AttackError(
                "the gradient is zero for every pair that may be flipped: the victim ignores the graph (or"
                " edge_weight), its loss is flat here, or no such pair is near the attacked nodes (then raise"
                " local_budget or block_size)"
            )
        self.is_first = False
        return gradient


class _Ascent:
    """The block of pairs, their relaxed flips, and the best block so far."""

    def __init__(
        self, objective: _Objective, count: int, local: Tensor, block_size: int, generator: torch.Generator
    ) -> None:
        self.objective, self.count, self.local, self.generator = objective, count, local, generator
        self.block_size, self.size, self.device = block_size, len(local), objective.target.edges.device
        self.free = (local > 0).nonzero()[:, 0]  # the nodes that may have a pair flipped
        self.codes = self._drawn(block_size).to(self.device)
        self.amounts = torch.full((len(self.codes),), EPS, dtype=objective.target.data.x.dtype, device=self.device)

    def run(self, steps: int, rate: float, samples: int) -> Tensor:  # -> [2, k]
        """Ascend, then draw sets of flips, and return the best of them."""
        changing, highest = max(1, round(RESAMPLED * steps)), -math.inf
        best = (self.codes, self.amounts)
        for step in range(steps):
            report_progress(step / steps)
            gradient = self.objective.gradient(self.codes, self.amounts)
            raised = self.amounts + rate / math.sqrt(max(0, step - changing) + 1) * gradient
            projected = project_onto_budgets(raised, self._pairs(), self.count, self.local.to(self.device))
            self.amounts = projected.clamp(EPS, 1 - EPS)
            value = self._value_of(self._largest())
            if value > highest:
                highest, best = value, (self.codes, self.amounts)
            if step < changing - 1:
                self._resample()
            elif step == changing - 1:
                self.codes, self.amounts = best
        self.codes, self.amounts = best
        chosen = self._best_of([self._largest(), *(self._sampled() for _ in range(samples))])
        return self._pairs()[:, chosen]

    def _pairs(self) -> Tensor:  # -> [2, k]
        """The nodes of the pairs in the block."""
        return torch.stack([self.codes // self.size, self.codes % self.size])

    def _drawn(self, draws: int) -> Tensor:
        """Codes of pairs that may be flipped, sorted; all of them if there are no more than `block_size`."""
        count = len(self.free)
        if count * (count - 1) // 2 <= self.block_size:
            i, j = torch.triu_indices(count, count, 1)
        else:
            ends = torch.randint(0, count, (2, draws), generator=self.generator)
            i, j = ends[:, ends[0] != ends[1]].sort(0).values
        codes: Tensor = torch.unique(self.free[i] * self.size + self.free[j])
        return codes

    def _resample(self) -> None:
        """Keep the larger half of the block, without flips of 0, and draw the rest anew."""
        order = self.amounts.argsort(descending=True)[: len(self.amounts) // 2]
        kept = order[self.amounts[order] > EPS]
        drawn = self._drawn(max(1, self.block_size - len(kept))).to(self.device)
        relaxed = RelaxedFlips.of(self.codes[kept], self.amounts[kept])
        self.codes = torch.unique(torch.cat([relaxed.codes, drawn]))
        self.amounts = relaxed.at(self.codes).clamp_min(EPS)

    def _largest(self) -> Tensor:  # -> [<= count], positions in the block
        """The largest relaxed flips that keep both budgets."""
        order = self.amounts.argsort(descending=True, stable=True)
        return legal_flips(self._pairs(), order[: max(1, int((self.amounts > EPS).sum()))], self.count, self.local)

    def _sampled(self) -> Tensor:
        """Flips drawn with the relaxed ones as probabilities; the larger ones first where a budget is exceeded."""
        drawn = torch.rand(len(self.amounts), generator=self.generator).to(self.amounts) < self.amounts
        drawn &= self.amounts > EPS
        order = self.amounts.argsort(descending=True, stable=True)
        return legal_flips(self._pairs(), order[drawn[order]], self.count, self.local)

    @torch.no_grad()
    def _value_of(self, chosen: Tensor) -> float:
        """The loss after some flips of the block."""
        codes = self.codes[chosen].sort().values
        return float(self.objective.value(codes, torch.ones_like(codes, dtype=self.amounts.dtype)))

    def _best_of(self, sets: list[Tensor]) -> Tensor:
        """The set of flips with the highest loss, of those that are not empty."""
        some = [chosen for chosen in sets if len(chosen)]
        values = [self._value_of(chosen) for chosen in some]
        return some[values.index(max(values))]
