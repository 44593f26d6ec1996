"""LR-BCD (Gosch et al. 2023, arXiv 2306.15427): PRBCD with a budget for each node beside that of the graph.

A global budget alone lets an attack change most edges of a few nodes, which no longer are the nodes they were. Here no
node has more than a share of its degree flipped. Blocks are drawn among the pairs that may be flipped at all.
"""

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.attacks.block_ascent import BlockAscent, check_block_options
from wtawp.attacks.checks import refuse_without_weights
from wtawp.attacks.flip_blocks import EPS, draw_pairs
from wtawp.attacks.local_budgets import legal_flips, local_budgets, project_onto_budgets
from wtawp.attacks.losses import Loss
from wtawp.attacks.relaxed import RelaxedFlips, Target, target_of
from wtawp.base import checked_seed, isolated_rng, rng
from wtawp.graphs.flips import EdgeFlips, budget_of
from wtawp.models.capabilities import StackAware
from wtawp.models.evaluation import evaluating
from wtawp.models.inputs import features


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
    seed = checked_seed(seed)
    check_block_options(loss, steps, samples, block_size, step_size)
    count, local = budget_of(data, budget), local_budgets(data, local_budget)
    refuse_without_weights(victim, "the attack")
    generator = rng("attack", "lrbcd", seed)
    target = target_of(data, [nodes], [labels], loss, victim=victim)
    space = _LegalPairs(target, victim, count, local, block_size, generator)
    with evaluating(victim), isolated_rng("attack", "lrbcd", "victim", seed):
        ascent = BlockAscent(space, block_size, target.dtype, generator)
        codes = ascent.run(steps, step_size * count / int(data.num_nodes), samples)
    origin = {
        "attack": "lrbcd", "budget": budget, "seed": seed, "local_budget": local_budget, "steps": steps, "loss": loss,
        "block_size": block_size, "samples": samples, "step_size": step_size,
    }  # fmt: skip
    return EdgeFlips.of(
        space.pairs(codes), int(data.num_nodes), tuple((name, str(value)) for name, value in origin.items())
    )


class _LegalPairs:
    """The pairs that may be flipped at all, the loss after relaxed flips of them, and both budgets."""

    what = "edges"
    least = EPS
    flat = (
        "the gradient is zero for every pair that may be flipped: the victim ignores the graph (or edge_weight), its"
        " loss is flat here, or no such pair is near the attacked nodes (then raise local_budget or block_size)"
    )

    def __init__(
        self, target: Target, victim: nn.Module, count: int, local: Tensor, block_size: int, generator: torch.Generator
    ) -> None:
        self.target, self.victim, self.count, self.local = target, victim, count, local
        self.block_size, self.generator, self.device = block_size, generator, target.edges.device
        self.features = features(target.data.x) if isinstance(victim, StackAware) else target.data.x
        self.free = (local > 0).nonzero()[:, 0]  # the nodes that may have a pair flipped

    def draw(self, draws: int) -> Tensor:
        """Codes of pairs that may be flipped, sorted; all of them if there are no more than `block_size`."""
        return draw_pairs(self.free, self.target.size, draws, self.block_size, self.generator).to(self.device)

    def loss(self, flips: RelaxedFlips) -> Tensor:  # -> []
        """The loss of the graph after relaxed flips."""
        edges, weight = self.target.graph(flips)
        logits: Tensor = self.victim(self.features, edges, weight)
        return self.target.losses(logits[None])[0]  # also refuses logits that are not finite

    def project(self, codes: Tensor, values: Tensor) -> Tensor:  # [k], [k] -> [k]
        """The nearest amounts that keep both budgets."""
        return project_onto_budgets(values, self.pairs(codes), self.count, self.local.to(self.device))

    def choose(self, codes: Tensor, order: Tensor) -> Tensor:  # [k], [r] -> [<= count]
        """Those flips that keep both budgets, in their order."""
        return legal_flips(self.pairs(codes), order, self.count, self.local)

    def pairs(self, codes: Tensor) -> Tensor:  # [k] -> [2, k]
        """The nodes of some pairs."""
        return torch.stack([codes // self.target.size, codes % self.target.size])
