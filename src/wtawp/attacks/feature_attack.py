"""PGD on features: projected gradient ascent on relaxed flips of binary features, then sampling.

The relaxed flips p in [0, 1] of all entries of X move along the gradient of the victim's loss at X + (1 - 2 X) p and
are projected onto a sum of at most the budget, as those of edges are in PGD.
"""

import math

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.attacks.checks import refuse_nan, refuse_whole_features
from wtawp.attacks.losses import Loss
from wtawp.attacks.pgd_attack import checked_step_size
from wtawp.attacks.projection import thresholds
from wtawp.attacks.relaxed import Target, target_of
from wtawp.base import AttackError, checked_seed, report_progress, rng
from wtawp.graphs.feature_flips import FeatureFlips, binary_features, feature_budget_of
from wtawp.models.evaluation import evaluating

FEW = 50_000  # values among which the threshold of the projection is found by sorting
TOLERANCE = 1e-6  # relative, of the threshold where more values are left: the budget is kept


def pgd_features(
    data: Data,
    victim: nn.Module,
    *,
    budget: float | int,
    nodes: Tensor,
    labels: Tensor,
    seed: int,
    steps: int = 100,
    loss: Loss = "tanh_margin",
    samples: int = 20,
    step_size: float | None = None,
) -> FeatureFlips:
    """Find flips of binary features that raise a victim's loss, by projected gradient ascent on relaxed flips.

    The victim is attacked in evaluation mode; its weights and their gradients are left as they are. Where it reads the
    features in a way that cannot be differentiated too, as a defence by their similarity does, that part of the
    gradient is left out; the flips that are returned are still the best of those that were tried on it.

    Args:
        data: The graph; its features must be binary.
        victim: The model, called as `victim(x, edge_index)`.
        budget: The number of flips allowed: entries of x (int) or a share of the ones in x (float).
        nodes: The nodes whose loss is to rise, as indices or a mask.
        labels: The labels of all nodes, [n], true or guessed; those of `nodes` are used.
        seed: The seed of the final draws.
        steps: The number of steps of gradient ascent.
        loss: What is raised, one of the losses of `pgd`. "tanh_margin", the default, hardly moves for nodes that are
            far from being misclassified, or already are.
        samples: The number of sets of flips drawn at the end, with the relaxed flips as probabilities. Of these sets,
            and of the set of the largest relaxed flips, the one with the highest loss is returned.
        step_size: Step t is `step_size` / sqrt(t + 1) times the gradient. None: that of `pgd` for the loss.

    Returns:
        The flips.

    Raises:
        ValueError: If nodes, labels or options are not what they must be.
        DataError: If the features are not binary.
        AttackError: If the victim ignores the features, its outputs are not finite, or no flip raises the loss.

    Example:
        >>> from wtawp.graphs import citation
        >>> from wtawp.models import GCN
        >>> data, victim = citation(seed=0, num_nodes=60, num_words=20), GCN(20, 7, generator=rng("victim"))
        >>> attacked = {"nodes": torch.arange(10), "labels": data.y, "loss": "ce"}
        >>> len(pgd_features(data, victim, budget=5, seed=0, steps=3, **attacked))
        5
    """
    seed = checked_seed(seed)
    count, x = feature_budget_of(data, budget), binary_features(data)
    refuse_whole_features(data, "a gradient by features")
    step_size = checked_step_size(steps, loss, samples, step_size)
    with evaluating(victim):
        attacked = _FeatureVictim(victim, target_of(data, [nodes], [labels], loss, victim=victim), x)
        flips = torch.zeros_like(x)
        for t in range(steps):
            gradient = attacked.gradient(flips)
            if t == 0 and not bool((gradient != 0).any()):
                raise AttackError(
                    "the gradient is zero for every feature: the victim ignores the features, or its loss is flat here,"
                    " as a margin is once all attacked nodes are misclassified"
                )
            values = flips + step_size / math.sqrt(t + 1) * gradient
            flips = _projected(values, count)
            report_progress((t + 1) / steps)
        entries = _best_sample(attacked, flips, count, samples, rng("attack", "pgd-features", seed))
    origin = {"attack": "pgd-features", "budget": budget, "seed": seed, "steps": steps, "loss": loss}
    origin |= {"samples": samples, "step_size": step_size}
    provenance = tuple((name, str(value)) for name, value in origin.items())
    return FeatureFlips.of(entries, x.shape[0], x.shape[1], provenance)


def _projected(values: Tensor, budget: int) -> Tensor:  # [n, d] -> [n, d]
    """The nearest relaxed flips within the budget, as `project_onto_budget` finds them, by bisection of the threshold.

    Sorting all entries of a large feature matrix would take longer than the gradient. Values below the threshold are
    dropped on the way; once few are left, the threshold is computed exactly.
    """
    kept, low = values[values > 0], 0.0
    high = float(kept.max()) if len(kept) else 0.0
    if float(kept.clamp_max(1).sum()) <= budget:
        return values.clamp(0, 1)
    while len(kept) > FEW and high - low > TOLERANCE * high:
        middle = (low + high) / 2
        if float((kept - middle).clamp(0, 1).sum()) > budget:
            low, kept = middle, kept[kept > middle]
        else:
            high = middle
    if len(kept) <= FEW:
        high = float(thresholds(kept[None], budget))
    return (values - high).clamp(0, 1)


class _FeatureVictim:
    """A victim as a function of relaxed flips of features."""

    def __init__(self, victim: nn.Module, target: Target, x: Tensor) -> None:
        self.victim, self.target, self.x = victim, target, x
        self.sign = 1 - 2 * x  # of the change that a flip makes

    def loss(self, flips: Tensor) -> Tensor:  # [n, d] -> []
        """The loss that the attack raises."""
        logits: Tensor = self.victim(self.x + self.sign * flips, self.target.data.edge_index)
        return self.target.losses(logits[None])[0]

    def gradient(self, flips: Tensor) -> Tensor:  # [n, d] -> [n, d]
        """The gradient of the loss with respect to each flip."""
        with torch.enable_grad():
            flips = flips.detach().requires_grad_()
            value = self.loss(flips)
            (gradient,) = torch.autograd.grad(value, flips, allow_unused=True) if value.requires_grad else (None,)
        if gradient is None:
            return torch.zeros_like(self.x)
        refuse_nan(gradient, "features")
        return gradient


@torch.no_grad()
def _best_sample(
    attacked: _FeatureVictim, flips: Tensor, budget: int, samples: int, g: torch.Generator
) -> Tensor:  # [n, d] -> [2, k]
    """The best set of flips: the largest relaxed ones, or one of `samples` draws by their amounts."""
    entries = (flips > 0).nonzero().T
    amounts = flips[entries[0], entries[1]]
    draws = torch.rand(samples, len(amounts), generator=g).to(amounts)
    best, highest = None, -math.inf
    for uniform in (torch.zeros_like(amounts), *draws):
        top = (amounts - uniform).topk(min(budget, len(amounts)))
        chosen = entries[:, top.indices[top.values > 0]]
        if chosen.shape[1] == 0:
            continue
        whole = torch.zeros_like(flips)
        whole[chosen[0], chosen[1]] = 1
        value = float(attacked.loss(whole))
        if value > highest:
            best, highest = chosen, value
    if best is None:
        raise AttackError("no flip of a feature raises the loss; try a larger step_size or more steps")
    return best
