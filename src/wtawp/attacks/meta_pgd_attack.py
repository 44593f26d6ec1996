"""Meta-PGD (Mujkanovic et al. 2022): an adaptive poisoning, by the gradient through the training of the defence itself.

`metattack` differentiates through the training of a linear GCN, and a defence meets flips that were found on another
model. Here the model that is trained inside the attack is the victim's own architecture (`unrolled_training`). Relaxed
flips of a random block of pairs, as in PRBCD, move along the meta-gradient within the budget.
"""

import math

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.attacks.block_ascent import check_block_options
from wtawp.attacks.checks import refuse_without_weights
from wtawp.attacks.flip_blocks import EPS, RESAMPLED, FlipBlock, draw_pairs
from wtawp.attacks.losses import Loss
from wtawp.attacks.projection import project_onto_budget
from wtawp.attacks.relaxed import RelaxedFlips, contains, target_of
from wtawp.attacks.unrolled_training import State, TrainingOptions, UnrolledTraining
from wtawp.base import AttackError, checked_seed, report_progress, rng
from wtawp.graphs.flips import EdgeFlips, budget_of
from wtawp.models.evaluation import evaluating

JUDGES = 2  # trainings, from different first weights, that compare sets of flips


def meta_pgd(
    data: Data,
    victim: nn.Module,
    *,
    budget: float | int,
    nodes: Tensor,
    labels: Tensor,
    seed: int,
    train: Tensor,
    steps: int = 60,
    training_steps: int = 20,
    lr: float | None = None,
    weight_decay: float = 5e-4,
    loss: Loss = "tanh_margin",
    block_size: int = 20_000,
    samples: int = 10,
    step_size: float = 0.2,
) -> EdgeFlips:
    """Find flips that lower the accuracy of a model of the victim's architecture that is trained on the flipped graph.

    Each step trains the architecture from new random weights on the relaxed graph, without dropout, differentiates the
    loss of `nodes` after that through the whole training, and moves the relaxed flips of a random block of pairs. The
    victim is not changed; of its weights, only their sizes count. There may be fewer flips than the budget allows.

    The trainings are in evaluation mode: batch norms use the means and variances that the victim has learned on the
    clean graph, where a real training would learn them anew. So a victim with batch norms must have been trained, and
    the flips are found for a training that is less like the real one than those of other victims.

    Args:
        data: The graph.
        victim: A model of the architecture to poison, trained or not, called as `victim(x, edge_index, edge_weight)`
            and twice differentiable.
        budget: The number of flips allowed: undirected edges (int) or a share of the graph's edges (float).
        nodes: The nodes whose loss is to rise after a training, as indices or a mask; usually all unlabelled ones.
        labels: The labels of all nodes, [n]: true on the training nodes and guessed on `nodes`; see
            `self_training_labels`.
        seed: The seed of all random draws.
        train: The training nodes, as indices or a mask.
        steps: The number of steps of the attack. The block changes in the first 80 % of them.
        training_steps: The number of steps of each training, gradient descent with momentum 0.9.
        lr: The learning rate of the trainings. None: of 0.5, 0.25, ... 0.0039, tried in this order until one does no
            better than the best before it, the one that leaves the lowest loss of the training nodes on the clean
            graph, as a mean over two starts. The provenance of the flips holds the rate that was used.
        weight_decay: The weight decay of the trainings.
        loss: The loss to raise, as for `pgd`.
        block_size: The number of draws of random pairs that make a block; time and memory grow with it.
        samples: The number of sets of flips drawn at the end, with the relaxed flips as probabilities. Of these sets,
            and of the set of the largest relaxed flips, the one is returned that leaves the lowest accuracy on `nodes`
            after a training, ties by the loss.
        step_size: How far a step moves the relaxed flips with the largest gradients, as many as the budget has, on
            average; at most 1. It falls in the last 20 % of the steps.

    Returns:
        The flips.

    Raises:
        ValueError: If the block is too small for the budget, or nodes, labels or options are not what they must be.
        AttackError: If the victim takes no edge_weight, ignores it, cannot be differentiated twice or is not finite, or
            if the trainings do not lower the loss of the training nodes.

    Example:
        >>> from wtawp.graphs import citation
        >>> from wtawp.models import GNNGuard
        >>> data, victim = citation(seed=0, num_nodes=60, num_words=20), GNNGuard(20, 7, generator=rng("victim"))
        >>> train, rest = torch.arange(20), torch.arange(20, 60)
        >>> len(meta_pgd(data, victim, budget=5, nodes=rest, labels=data.y, seed=0, train=train, steps=3))
        5
    """
    seed = checked_seed(seed)
    options = TrainingOptions(steps=training_steps, lr=lr, weight_decay=weight_decay)
    count, size = _checked_count(data, budget, block_size), int(data.num_nodes)
    check_block_options(loss, steps, samples, block_size, step_size)
    if step_size > 1:
        raise ValueError(f"step_size is the mean step of relaxed flips and must be at most 1, got {step_size}")
    refuse_without_weights(victim, "the attack")
    aim = target_of(data, [nodes], [labels], loss, victim=victim)
    training = target_of(data, [train], [labels], "ce", victim=victim)
    with evaluating(victim):
        unrolled = UnrolledTraining(victim, training, aim, options, seed=seed)
        flips = _Ascent(unrolled, count, block_size, seed).run(steps, step_size, samples)
    origin = {
        "attack": "meta-pgd", "budget": budget, "seed": seed, "steps": steps, "training_steps": training_steps,
        "lr": unrolled.rate, "weight_decay": weight_decay, "loss": loss, "block_size": block_size, "samples": samples,
        "step_size": step_size,
    }  # fmt: skip
    return EdgeFlips.of(flips, size, tuple((name, str(value)) for name, value in origin.items()))


def _checked_count(data: Data, budget: float | int, block_size: int) -> int:
    """The number of flips allowed, of which a block must hold more."""
    count, size = budget_of(data, budget), int(data.num_nodes)
    if block_size < 2 * count and block_size < size * (size - 1) // 2:
        raise ValueError(f"block_size must be at least twice the budget of {count} flips, got {block_size}")
    return count


class _Ascent:
    """The block of pairs with their relaxed flips, and the graph that they make."""

    def __init__(self, unrolled: UnrolledTraining, count: int, block_size: int, seed: int) -> None:
        self.unrolled, self.aim, self.count, self.seed = unrolled, unrolled.aim, count, seed
        size, generator, device = self.aim.size, rng("attack", "meta-pgd", seed), self.aim.edges.device

        def draw(draws: int) -> Tensor:
            return draw_pairs(torch.arange(size), size, draws, block_size, generator).to(device)

        self.block = FlipBlock(draw, block_size, generator, dtype=self.aim.dtype, least=EPS)

    def run(self, steps: int, step_size: float, samples: int) -> Tensor:  # -> [2, k]
        """Ascend, then draw sets of flips, and return the best of them."""
        changing = max(1, round(RESAMPLED * steps))
        starts = [self._start("judge", judge) for judge in range(JUDGES)]
        clean = self.aim.graph(self.aim.no_flips())
        self.unrolled.choose_rate(starts, clean)
        self.unrolled.damage(starts[0], clean)  # refuses labels that are no classes of the victim's
        for step in range(steps):
            report_progress(step / (steps + 1))
            self._move(step, step_size / math.sqrt(max(0, step - changing) + 1))
            if step < changing - 1:
                self.block.resample()
        sets = [self.block.largest(), *(self.block.sampled() for _ in range(samples))]
        some = [chosen[: self.count] for chosen in sets if len(chosen)]
        values = [self._value_of(chosen) for chosen in some] if len(some) > 1 else [(0.0, 0.0)]
        report_progress(1.0)
        codes = self.block.codes[some[values.index(max(values))]]
        return torch.stack([codes // self.aim.size, codes % self.aim.size])

    def _move(self, step: int, length: float) -> None:
        """One step along the meta-gradient, which is divided by the mean of its largest entries."""
        block = self.block
        graph = self.aim.graph(RelaxedFlips(block.codes, block.amounts))
        to_weights = self.unrolled.gradient(self._start("step", step), graph)
        gradient = self._by_flips(graph[0], to_weights)
        largest = gradient.topk(min(self.count, len(gradient))).values.clamp_min(0).mean()
        if not bool(largest > 0):
            if step == 0:
                raise AttackError(
                    "no pair of the block raises the loss: the victim ignores the graph (or edge_weight), its loss is"
                    " flat here, or no pair drawn is near the attacked nodes (then raise block_size)"
                )
            return
        block.move(project_onto_budget(block.amounts + length / largest * gradient, self.count))

    def _by_flips(self, edges: Tensor, to_weights: Tensor) -> Tensor:  # [2, e], [e] -> [k]
        """The gradient by relaxed flips, from that by the weights of edges, both directions of a pair together."""
        codes = edges.amin(0) * self.aim.size + edges.amax(0)
        positions = torch.searchsorted(self.block.codes, codes).clamp_max(len(self.block.codes) - 1)
        is_in_block = self.block.codes[positions] == codes
        sums = torch.zeros_like(self.block.amounts).index_add(0, positions[is_in_block], to_weights[is_in_block])
        return torch.where(contains(self.aim.edges, self.block.codes), -sums, sums)

    def _start(self, *names: str | int) -> State:
        """First weights, drawn anew for each use."""
        return self.unrolled.first_weights(rng("attack", "meta-pgd", self.seed, *names))

    def _value_of(self, chosen: Tensor) -> tuple[float, float]:
        """What is lost, and the loss, after trainings on the graph with some pairs of the block flipped."""
        graph = self.aim.graph(self.block.whole(chosen))
        trained = [self.unrolled.train(self._start("judge", judge), graph)[-1] for judge in range(JUDGES)]
        values = [self.unrolled.damage(state, graph) for state in trained]
        return sum(lost for lost, _ in values), sum(loss for _, loss in values)
