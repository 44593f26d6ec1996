"""PRBCD on features: projected gradient ascent on a random block of entries of X, then sampling (Geisler et al. 2021).

`pgd_features` relaxes every entry of X. Here only the entries of a block are relaxed, and the features reach our models
as a sparse matrix of the ones and the block: memory grows with both, not with nodes times words. Any other model is
called with a dense X, which it needs anyway.
"""

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.attacks.block_ascent import BlockAscent, check_block_options
from wtawp.attacks.checks import refuse_whole_features
from wtawp.attacks.losses import Loss
from wtawp.attacks.projection import project_onto_budget
from wtawp.attacks.relaxed import RelaxedFlips, Target, target_of
from wtawp.base import checked_seed, isolated_rng, rng
from wtawp.graphs.feature_flips import FeatureFlips, binary_features, feature_budget_of
from wtawp.graphs.operator import Operator
from wtawp.graphs.structure import row_pointers
from wtawp.models.capabilities import Features, StackAware
from wtawp.models.evaluation import evaluating


def prbcd_features(
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
) -> FeatureFlips:
    """Find flips of binary features that raise a victim's loss, by projected gradient ascent on a random block of them.

    The weak half of the block is drawn anew at each step. There may be fewer flips than the budget allows, where fewer
    are worse for the victim. The victim is attacked in evaluation mode; its weights and their gradients are left as
    they are. Where it reads the features in a way that cannot be differentiated too, as a defence by their similarity
    does, that part of the gradient is left out.

    Args:
        data: The graph; its features must be binary.
        victim: The model, called as `victim(x, edge_index)`.
        budget: The number of flips allowed: entries of x (int) or a share of the ones in x (float).
        nodes: The nodes whose loss is to rise, as indices or a mask.
        labels: The labels of all nodes, [n], true or guessed; those of `nodes` are used.
        seed: The seed of all random draws.
        steps: The number of steps. The block changes in the first 80 % of them.
        loss: What is raised, one of the losses of `pgd`.
        block_size: The number of draws of random entries that make a block. If x has no more entries than that, the
            block is all of them.
        samples: The number of sets of flips drawn at the end. Of these sets, and of the set of the largest relaxed
            flips, the one with the highest loss is returned.
        step_size: The factor of the gradient, in the units of `prbcd`.

    Returns:
        The flips.

    Raises:
        ValueError: If the block is smaller than the budget, or nodes, labels or options are not what they must be.
        DataError: If the features are not binary.
        AttackError: If the victim ignores the features, or its outputs are not finite.

    Example:
        >>> from wtawp.graphs import citation
        >>> from wtawp.models import GCN
        >>> data, victim = citation(seed=0, num_nodes=60, num_words=20), GCN(20, 7, generator=rng("victim"))
        >>> attacked = {"nodes": torch.arange(10), "labels": data.y, "block_size": 500}
        >>> len(prbcd_features(data, victim, budget=5, seed=0, steps=5, **attacked))
        5
    """
    seed = checked_seed(seed)
    check_block_options(loss, steps, samples, block_size, step_size)
    count = feature_budget_of(data, budget)
    refuse_whole_features(data, "a gradient by features")
    if block_size < count:
        raise ValueError(f"{count} flips cannot be found in a block of {block_size} entries; raise block_size")
    generator = rng("attack", "prbcd-features", seed)
    space = _Entries(target_of(data, [nodes], [labels], loss, victim=victim), victim, count, block_size, generator)
    with evaluating(victim), isolated_rng("attack", "prbcd-features", "victim", seed):
        ascent = BlockAscent(space, block_size, data.x.dtype, generator)
        codes = ascent.run(steps, step_size * count / int(data.num_nodes), samples)
    origin = {
        "attack": "prbcd-features", "budget": budget, "seed": seed, "steps": steps, "loss": loss,
        "block_size": block_size, "samples": samples, "step_size": step_size,
    }  # fmt: skip
    provenance = tuple((name, str(value)) for name, value in origin.items())
    return FeatureFlips.of(space.entries(codes), *space.shape, provenance)


class _Entries:
    """The entries of X, the loss after relaxed flips of them, and the budget. The code of (i, j) is i d + j."""

    what = "features"
    least = 0.0  # an entry of 0 has a gradient
    flat = (
        "the gradient is zero for every feature in the block: the victim ignores the features, its loss is flat here,"
        " as a margin is once all attacked nodes are misclassified, or no entry drawn is near the attacked nodes (then"
        " raise block_size)"
    )

    def __init__(
        self, target: Target, victim: nn.Module, count: int, block_size: int, generator: torch.Generator
    ) -> None:
        self.target, self.victim, self.count = target, victim, count
        self.block_size, self.generator = block_size, generator
        self.x = binary_features(target.data)
        self.shape: tuple[int, int] = (self.x.shape[0], self.x.shape[1])
        i, j = self.x.nonzero(as_tuple=True)
        self.ones = i * self.shape[1] + j  # sorted

    def draw(self, draws: int) -> Tensor:
        """Codes of random entries, sorted; all of them if there are no more than `block_size`."""
        size = self.shape[0] * self.shape[1]
        if size <= self.block_size:
            return torch.arange(size, device=self.ones.device)
        codes: Tensor = torch.unique(torch.randint(0, size, (draws,), generator=self.generator))
        return codes.to(self.ones.device)

    def loss(self, flips: RelaxedFlips) -> Tensor:  # -> []
        """The loss after relaxed flips; its derivative is taken by their amounts alone."""
        logits: Tensor = self.victim(self._features(flips), self.target.data.edge_index)
        return self.target.losses(logits[None])[0]  # also refuses logits that are not finite

    def project(self, codes: Tensor, values: Tensor) -> Tensor:  # noqa: ARG002
        """The nearest amounts that keep the budget."""
        return project_onto_budget(values, self.count)

    def choose(self, codes: Tensor, order: Tensor) -> Tensor:  # noqa: ARG002
        """The first flips, as many as the budget allows."""
        return order[: self.count]

    def entries(self, codes: Tensor) -> Tensor:  # [k] -> [2, k]
        """The node and the feature of some entries."""
        return torch.stack([codes // self.shape[1], codes % self.shape[1]])

    def _features(self, flips: RelaxedFlips) -> Features:  # -> [n, d]
        """The features after relaxed flips: sparse for our models, dense for any other."""
        if not isinstance(self.victim, StackAware):
            return self.x.index_put(tuple(self.entries(flips.codes)), flips.applied_to(self.ones, flips.codes))
        codes = torch.unique(torch.cat([self.ones, flips.codes]))
        values = flips.applied_to(self.ones, codes).to(self.x.dtype)
        i, j = self.entries(codes)
        return Operator(self.shape, row_pointers(i, self.shape[0]), j.int(), values)
