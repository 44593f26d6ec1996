"""PRBCD and GRBCD (Geisler et al. 2021): gradient attacks that consider a random block of pairs at a time.

So memory grows with the edges and the block, not with n x n: the attacks for large graphs. Both are PyG's
implementation (`torch_geometric.contrib.nn`), wrapped so that arguments are checked, random state is isolated and the
result is `EdgeFlips`.
"""

import math
import warnings

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.attacks.checks import checked_labels, refuse_nan, refuse_without_weights
from wtawp.attacks.losses import Loss, loss_spec
from wtawp.attacks.relaxed import Target, target_of
from wtawp.base import AttackError, checked_seed, isolated_rng, report_progress
from wtawp.graphs.flips import EdgeFlips, budget_of
from wtawp.models.capabilities import StackAware
from wtawp.models.evaluation import evaluating
from wtawp.models.inputs import features

with warnings.catch_warnings(action="ignore", category=UserWarning):  # PyG calls all of `contrib` experimental
    from torch_geometric.contrib.nn import GRBCDAttack, PRBCDAttack

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
    """Find flips that raise a victim's loss by projected gradient ascent on a random block of pairs.

    The weak half of the block is drawn anew at each step. There may be fewer flips than the budget allows, where fewer
    are worse for the victim. The victim is attacked in evaluation mode; its weights and their gradients are left as
    they are.

    Args:
        data: The graph.
        victim: The model, called as `victim(x, edge_index, edge_weight)`.
        budget: The number of flips allowed: undirected edges (int) or a share of the graph's edges (float).
        nodes: The nodes whose loss is to rise, as indices or a mask; a single node is enough.
        labels: The labels of all nodes, [n].
        seed: The seed of all random draws.
        steps: The number of steps. 125 is PyG's: the block changes in the first 80 % of them.
        loss: The losses are those of `pgd`. "masked_ce" is PyG's "masked"; PyG's "margin", which goes on pushing nodes
            that are already misclassified, is left out.
        block_size: The number of draws of random pairs that make a block.
        samples: The number of sets of flips drawn at the end. Of these sets, and of the set of the largest relaxed
            flips, the one with the highest loss is returned.
        step_size: PyG's `lr`, in its own units.
        progress: Whether to show PyG's progress bar.

    Returns:
        The flips.

    Raises:
        ValueError: If the block is too small for the budget, or nodes, labels or options are not what they must be.
        AttackError: If the victim takes no edge_weight or ignores it, or its outputs are not finite.

    Example:
        >>> from wtawp.base import rng
        >>> from wtawp.graphs import citation
        >>> from wtawp.models import GCN
        >>> data, victim = citation(seed=0, num_nodes=60, num_words=20), GCN(20, 7, generator=rng("victim"))
        >>> len(prbcd(data, victim, budget=5, nodes=torch.arange(10), labels=data.y, seed=0, steps=5, block_size=500))
        5
    """
    seed = checked_seed(seed)
    if samples < 0:
        raise ValueError(f"samples must be >= 0, got {samples}")
    if not 0 < step_size < float("inf"):
        raise ValueError(f"step_size must be positive and finite, got {step_size}")
    block_attack = _BlockAttack(data, victim, budget, nodes, labels, seed, steps, loss, block_size, greedy=False)
    pyg_attack = PRBCDAttack(
        block_attack.victim,
        block_attack.block_size,
        steps,
        max(1, round(RESAMPLED * steps)),
        block_attack.loss,
        lr=step_size,
        log=progress,
    )
    pyg_attack.coeffs = {
        **PRBCDAttack.coeffs,
        "max_final_samples": samples + 1,
    }  # of this object alone: PyG's belong to the class
    return block_attack.run(pyg_attack, "prbcd", samples=samples, step_size=step_size)


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
    """Find flips that raise a victim's loss greedily: those pairs of a random block with the largest gradient.

    Each step draws a new block and flips some of its pairs; there are fewer steps if the budget has fewer flips. A pair
    that is flipped twice is not flipped, so there may be fewer flips than the budget allows.

    Args:
        data: The graph.
        victim: The model, called as `victim(x, edge_index, edge_weight)`.
        budget: The number of flips allowed: undirected edges (int) or a share of the graph's edges (float).
        nodes: The nodes whose loss is to rise, as indices or a mask.
        labels: The labels of all nodes, [n].
        seed: The seed of all random draws.
        steps: The number of steps.
        loss: The loss to raise, as for `prbcd`.
        block_size: The number of draws of random pairs that make a block.
        progress: Whether to show PyG's progress bar.

    Returns:
        The flips.

    Raises:
        ValueError: If the block is too small for the budget, or nodes, labels or options are not what they must be.
        AttackError: If the victim takes no edge_weight or ignores it, or its outputs are not finite.
    """
    seed = checked_seed(seed)
    block_attack = _BlockAttack(data, victim, budget, nodes, labels, seed, steps, loss, block_size, greedy=True)
    pyg_attack = GRBCDAttack(block_attack.victim, block_attack.block_size, steps, block_attack.loss, log=progress)
    return block_attack.run(pyg_attack, "grbcd")


class _BlockAttack:
    """The checked arguments of an attack, in PyG's form."""

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
        loss_spec(loss)
        if steps < 1:
            raise ValueError(f"steps must be >= 1, got {steps}")
        count, size = budget_of(data, budget), int(data.num_nodes)
        pairs = size * (size - 1) // 2
        if count >= pairs:
            raise ValueError(f"a budget of {count} is all {pairs} pairs of nodes; choose a smaller one")
        needed = math.ceil(count / steps) if greedy else count  # flips out of one block
        if (distinct := _distinct_pairs(min(max(block_size, 0), ENOUGH * pairs), pairs)) <= needed:
            raise ValueError(
                f"{block_size} draws may give no more than {distinct:.0f} different pairs of {pairs}, and {needed}"
                " flips must be found among them; raise block_size"
            )
        refuse_without_weights(victim, "the attack")
        self.target = target_of(data, [nodes], [labels], loss, victim=victim)
        self.victim = _Victim(victim, self.target, steps)
        self.loss = lambda prediction, *_: self.target.losses(prediction[None])[0]
        self.data, self.count, self.block_size, self.seed = data, count, min(block_size, ENOUGH * pairs), seed
        self.labels = checked_labels(labels, size).to(data.edge_index.device)
        self.origin = {"budget": budget, "seed": seed, "steps": steps, "loss": loss, "block_size": block_size}

    def run(self, attack: PRBCDAttack, name: str, **more: float) -> EdgeFlips:
        """Run PyG's attack, with the caller's random state and the victim's modes restored afterwards."""
        data, size = self.data, int(self.data.num_nodes)
        with evaluating(self.victim), isolated_rng("attack", name, self.seed), torch.enable_grad():
            _, flipped = attack.attack(data.x, data.edge_index, self.labels, self.count, self.target.nodes[0])
        codes, times = torch.unique(flipped.amin(0) * size + flipped.amax(0), return_counts=True)
        codes = codes[times % 2 == 1]
        origin = {"attack": name, **self.origin, **more}
        provenance = tuple((key, str(value)) for key, value in origin.items())
        return EdgeFlips.of(torch.stack([codes // size, codes % size]), size, provenance)


def _distinct_pairs(draws: int, pairs: int) -> float:
    """The number of different pairs in `draws` with replacement: the mean less five standard deviations.

    A block with too few pairs would be drawn again, and there PyG mixes up the weights.
    """
    missed = math.exp(-draws / pairs)  # the chance of one pair
    variance = pairs * missed * max(0.0, 1 - (1 + draws / pairs) * missed)  # rounding may give a little less than 0
    return pairs * -math.expm1(-draws / pairs) - 5 * math.sqrt(variance)


class _Victim(nn.Module):
    """The victim as PyG's losses expect it, returning log-probabilities, with checks of its logits and gradients."""

    def __init__(self, victim: nn.Module, target: Target, steps: int) -> None:
        super().__init__()
        self.steps, self.steps_begun = steps, 0
        self.victim, self.target, self.is_first = victim, target, True
        self.features = features(target.data.x) if isinstance(victim, StackAware) else target.data.x

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:  # noqa: ARG002, as PyG calls it
        logits: Tensor = self.victim(self.features, edge_index, edge_weight.to(self.target.dtype))
        self.target.losses(logits.detach()[None])  # refuses logits that are not finite, and labels that are no classes
        if edge_weight.requires_grad:
            report_progress(min(1.0, self.steps_begun / self.steps))
            self.steps_begun += 1
            edge_weight.register_hook(self._check)  # type: ignore[no-untyped-call]
            logits = logits + 0 * edge_weight.sum()  # so that a victim that does not use the weights is checked too
        return logits.log_softmax(1)

    def _check(self, gradient: Tensor) -> None:
        """Refuse a gradient that is not finite, or zero at the first step."""
        refuse_nan(gradient)
        if self.is_first and not bool((gradient != 0).any()):
            raise AttackError(
                "the gradient is zero for every edge and every pair in the block: the victim ignores the graph (or"
                " edge_weight), its loss is flat here, as a margin is once all attacked nodes are misclassified, or no"
                " edge and no pair drawn is near the attacked nodes (then raise block_size)"
            )
        self.is_first = False
