"""PRBCD and GRBCD (Geisler et al. 2021): gradient attacks that look at a random block of pairs at a time.

So memory grows with the edges and the block, not with n x n: the attacks for large graphs. Both are PyG's own
implementation (`torch_geometric.contrib.nn`); here it is fenced in and speaks in `EdgeFlips`.
"""

import math
import warnings
from typing import Literal

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.attacks.checks import refuse_nan, refuse_without_weights
from wtawp.attacks.relaxed import Target, target_of
from wtawp.base import AttackError, isolated_rng
from wtawp.graphs.flips import EdgeFlips, budget_of
from wtawp.models.capabilities import StackAware
from wtawp.models.evaluation import evaluating
from wtawp.models.inputs import features

with warnings.catch_warnings(action="ignore", category=UserWarning):  # PyG calls all of `contrib` experimental
    from torch_geometric.contrib.nn import GRBCDAttack, PRBCDAttack

Loss = Literal["ce", "masked_ce", "margin", "prob_margin", "tanh_margin"]
PYG_LOSS = {"masked_ce": "masked", "prob_margin": "prob_margin", "tanh_margin": "tanh_margin"}
RESAMPLED = 0.8  # share of PRBCD's steps in which the block is drawn anew; in the others it stays: 100 of PyG's 125
ENOUGH = 16  # draws for each pair of nodes: all but one in e^16 are then in the block


def prbcd(
    data: Data,
    victim: nn.Module,
    *,
    budget: float | int,
    nodes: Tensor,
    labels: Tensor,
    seed: int,
    steps: int = 125,
    loss: Loss = "tanh_margin",
    block_size: int = 250_000,
    samples: int = 20,
    step_size: float = 1000.0,
    progress: bool = False,
) -> EdgeFlips:
    """Flips that raise the victim's loss on `nodes` (indices or a mask; one will do) against `labels` [n].

    Projected gradient ascent on the relaxed flips of `block_size` random pairs, whose weak half is drawn anew at each
    step. Of `samples` draws at the end, and of the largest flips, those with the highest loss are returned: at most
    the budget, fewer where fewer are worse for the victim. `step_size` is PyG's `lr`, in its own units.

    "ce" and "margin" are the losses of `pgd`; "masked_ce" is the cross-entropy of the nodes that are still classified
    correctly (PyG's "masked"); "prob_margin" is the margin of probabilities and "tanh_margin" the tanh of that of
    their logarithms. PyG's own "margin", which goes on pushing nodes that are lost already, is left out. The victim is
    attacked as in evaluation mode; its weights and their gradients are left alone.
    """
    if samples < 0:
        raise ValueError(f"samples must be >= 0, got {samples}")
    if not 0 < step_size < float("inf"):
        raise ValueError(f"step_size must be positive and finite, got {step_size}")
    plan = _Plan(data, victim, budget, nodes, labels, seed, steps, loss, block_size, greedy=False)
    attack = PRBCDAttack(
        plan.victim, plan.block_size, steps, max(1, round(RESAMPLED * steps)), plan.loss, lr=step_size, log=progress
    )
    attack.coeffs = {**PRBCDAttack.coeffs, "max_final_samples": samples + 1}  # of this one: PyG's are of the class
    return plan.run_plans(attack, "prbcd", samples=samples, step_size=step_size)


def grbcd(
    data: Data,
    victim: nn.Module,
    *,
    budget: float | int,
    nodes: Tensor,
    labels: Tensor,
    seed: int,
    steps: int = 125,
    loss: Loss = "masked_ce",
    block_size: int = 250_000,
    progress: bool = False,
) -> EdgeFlips:
    """The greedy one: each of `steps` steps flips those pairs of a new random block that have the largest gradient.

    Fewer steps if the budget has fewer flips. A pair that is flipped twice is not flipped, so that there may be fewer
    flips than the budget allows. Everything else is as with `prbcd`.
    """
    plan = _Plan(data, victim, budget, nodes, labels, seed, steps, loss, block_size, greedy=True)
    attack = GRBCDAttack(plan.victim, plan.block_size, steps, plan.loss, log=progress)
    return plan.run_plans(attack, "grbcd")


class _Plan:
    """Checked arguments, in PyG's form."""

    def __init__(
        self,
        data: Data,
        victim: nn.Module,
        budget: float | int,
        nodes: Tensor,
        labels: Tensor,
        seed: int,
        steps: int,
        loss: Loss,
        block_size: int,
        *,
        greedy: bool,
    ) -> None:
        if loss not in ("ce", "margin", *PYG_LOSS):
            raise ValueError(f"loss must be one of 'ce', 'margin', {', '.join(map(repr, PYG_LOSS))}, got {loss!r}")
        if steps < 1:
            raise ValueError(f"steps must be >= 1, got {steps}")
        count, size = budget_of(data, budget), int(data.num_nodes)
        pairs = size * (size - 1) // 2
        if count >= pairs:
            raise ValueError(f"a budget of {count} is all {pairs} pairs of nodes; ask for fewer")
        needed = math.ceil(count / steps) if greedy else count  # flips out of one block
        if (found := _different(min(max(block_size, 0), ENOUGH * pairs), pairs)) <= needed:
            raise ValueError(
                f"{block_size} draws may give no more than {found:.0f} different pairs of {pairs}, and {needed} flips"
                " must be found among them; raise block_size"
            )
        refuse_without_weights(victim, "the attack")
        self.target = target_of(data, [nodes], [labels], "margin" if loss == "margin" else "ce")
        self.victim = _Victim(victim, self.target)
        self.loss = PYG_LOSS.get(loss, lambda prediction, *_: self.target.losses(prediction[None])[0])
        self.data, self.count, self.block_size, self.seed = data, count, min(block_size, ENOUGH * pairs), seed
        self.labels = labels.to(data.edge_index.device).long()
        self.origin = {"budget": budget, "seed": seed, "steps": steps, "loss": loss, "block_size": block_size}

    def run_plans(self, attack: PRBCDAttack, name: str, **more: float) -> EdgeFlips:
        """Run PyG's attack; the caller's random state and the victim's modes are as before."""
        data, size = self.data, int(self.data.num_nodes)
        with evaluating(self.victim), isolated_rng("attack", name, self.seed):
            _, flipped = attack.attack(data.x, data.edge_index, self.labels, self.count, self.target.nodes[0])
        codes, times = torch.unique(flipped.amin(0) * size + flipped.amax(0), return_counts=True)
        codes = codes[times % 2 == 1]
        origin = {"attack": name, **self.origin, **more}
        provenance = tuple((key, str(value)) for key, value in origin.items())
        return EdgeFlips.of(torch.stack([codes // size, codes % size]), size, provenance)


def _different(draws: int, pairs: int) -> float:
    """So many different pairs are among `draws` with replacement, five standard deviations below the mean.

    A block with too few would be drawn again, and there PyG mixes up the weights.
    """
    missed = math.exp(-draws / pairs)  # the chance of one pair
    variance = pairs * missed * max(0.0, 1 - (1 + draws / pairs) * missed)  # rounding may give a little less than 0
    return pairs * -math.expm1(-draws / pairs) - 5 * math.sqrt(variance)


class _Victim(nn.Module):
    """The victim as PyG's losses want it, giving logarithms of probabilities, and watched."""

    def __init__(self, victim: nn.Module, target: Target) -> None:
        super().__init__()
        self.victim, self.target, self.is_first = victim, target, True
        self.features = features(target.data.x) if isinstance(victim, StackAware) else target.data.x

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        logits: Tensor = self.victim(self.features, edge_index, edge_weight.to(x.dtype))
        self.target.losses(logits.detach()[None])  # refuses what is not a number, and labels that are no classes
        if edge_weight.requires_grad:
            edge_weight.register_hook(self._check)  # type: ignore[no-untyped-call]
            logits = logits + 0 * edge_weight.sum()  # a victim that does not use them gets to the check too
        return logits.log_softmax(1)

    def _check(self, gradient: Tensor) -> None:
        refuse_nan(gradient)
        if self.is_first and not bool((gradient != 0).any()):
            raise AttackError(
                "the gradient is zero for every edge and every pair in the block: the victim ignores the graph (or"
                " edge_weight), its loss is flat here, as a margin is once all attacked nodes are misclassified, or no"
                " edge and no pair drawn is near the attacked nodes (then raise block_size)"
            )
        self.is_first = False
