"""The PGD topology attack (Xu et al. 2019): projected gradient ascent on edges between 0 and 1, then rounding by lot.

The relaxed flips p in [0, 1] of all n (n - 1) / 2 pairs move along the gradient of the victim's loss and are projected
onto a sum of at most the budget, which leaves most of them 0; they are kept as a sparse list. For a victim that
`Traces` its convolutions the gradient is a product of thin factors, looked at in blocks of rows, so that nothing of
size n x n is kept. Any other victim is differentiated with respect to the weights of all pairs: small graphs only.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp.attacks.checks import evaluating, refuse_nan, refuse_without_weights
from wtawp.attacks.projection import threshold
from wtawp.base import AttackError, rng
from wtawp.graphs.flips import EdgeFlips, budget_of, undirected_pairs
from wtawp.graphs.operators import gcn_operator, multiply
from wtawp.models.adapter import Features, Traces, features

Loss = Literal["ce", "margin"]
STEP_SIZE = {"ce": 200.0, "margin": 20.0}  # the first is the released code's
MOST_NODES = 1000  # of a victim that shows no factors: all pairs are then edges with messages of their own
BLOCK = 1 << 20  # entries of the gradient that are looked at together


@dataclass(frozen=True, eq=False)
class Relaxed:
    """Flips between 0 and 1, those that are not 0: pair (i, j) as the code i n + j, sorted, and its amount."""

    codes: Tensor  # [k] int64
    amounts: Tensor  # [k]


@dataclass(frozen=True, eq=False)
class Target:
    """What is attacked: the graph's own edges, the nodes and labels that count, and the loss to raise."""

    data: Data
    edges: Tensor  # [m], codes of the undirected edges, sorted
    loops: Tensor  # [2, l], self-loops, which stay
    nodes: Tensor
    labels: Tensor  # of `nodes`
    kind: Loss

    def loss(self, logits: Tensor) -> Tensor:
        """What the attack raises, a mean over nodes; "margin" is satisfied with a node once it is misclassified."""
        logits = logits[self.nodes]
        if not bool(torch.isfinite(logits.detach()).all()):
            raise AttackError("the victim returns NaN or infinite logits; an attack has nothing to climb")
        if int(self.labels.max()) >= logits.shape[1]:
            raise ValueError(f"labels go up to {int(self.labels.max())}, but logits are of {logits.shape[1]} classes")
        if self.kind == "ce":
            return F.cross_entropy(logits, self.labels)
        own = logits.gather(1, self.labels[:, None])[:, 0]
        best_other = logits.scatter(1, self.labels[:, None], -math.inf).amax(1)
        return (best_other - own).clamp_max(0).mean()

    def both_ways(self, codes: Tensor) -> Tensor:  # [k] -> [2, 2 k + l]
        """Pairs as edges in both directions, and the self-loops behind them."""
        size = int(self.data.num_nodes)
        i, j = codes // size, codes % size
        return torch.cat([torch.stack([torch.cat([i, j]), torch.cat([j, i])]), self.loops], dim=1)

    def weights(self, codes: Tensor, flips: Relaxed) -> Tensor:
        """The relaxed adjacency of some pairs: of an edge 1 - p, of another pair p."""
        amounts = amounts_at(flips, codes)
        return torch.where(_contains(self.edges, codes), 1 - amounts, amounts)

    def both_weights(self, weight: Tensor) -> Tensor:
        """Weights in the order of `both_ways`."""
        return torch.cat([weight, weight, weight.new_ones(self.loops.shape[1])])


def pgd(
    data: Data,
    victim: nn.Module,
    *,
    budget: float | int,
    nodes: Tensor,
    labels: Tensor,
    seed: int,
    steps: int = 200,
    loss: Loss = "ce",
    samples: int = 20,
    step_size: float | None = None,
) -> EdgeFlips:
    """Flips that raise the victim's loss on `nodes` (indices or a mask) against `labels` [n], true or guessed.

    Step t is `step_size` / sqrt(t + 1) times the gradient. Of the `samples` flips drawn at the end with the relaxed
    ones as probabilities, and of the largest of these, the flips with the highest loss are returned: the seed decides
    that draw alone. The victim is attacked as in evaluation mode; its weights and their gradients are left alone.
    """
    count, size = budget_of(data, budget), int(data.num_nodes)
    step_size = STEP_SIZE.get(loss) if step_size is None else step_size
    _check_options(steps, loss, samples, step_size)
    assert step_size is not None
    target = target_of(data, nodes, labels, loss)
    with evaluating(victim):
        gradient: Callable[[Relaxed], FactoredGradient | FullGradient]
        gradient = _traced(target, victim) if isinstance(victim, Traces) else _all_pairs(target, victim)
        flips = Relaxed(target.edges[:0], torch.zeros(0, dtype=data.x.dtype, device=data.x.device))
        for t in range(steps):
            slope = gradient(flips)
            if t == 0 and slope.is_zero():
                raise AttackError(
                    "the gradient is zero for every pair of nodes: the victim ignores the graph (or edge_weight), or"
                    " its loss is flat here, as a margin is once all attacked nodes are misclassified"
                )
            flips = slope.climb(flips, step_size / math.sqrt(t + 1), count)
        best = _round(target, victim, flips, count, samples, rng("attack", "pgd", seed))
    origin = {"attack": "pgd", "budget": budget, "seed": seed, "steps": steps, "loss": loss, "samples": samples}
    provenance = tuple((name, str(value)) for name, value in {**origin, "step_size": step_size}.items())
    return EdgeFlips.of(torch.stack([best // size, best % size]), size, provenance)


@dataclass(frozen=True, eq=False)
class FactoredGradient:
    """The gradient with respect to the flip of any pair: sign_ij <left_i, right_j>, the sign -1 for the graph's edges.

    Symmetric in i and j: it is of the pair, not of one direction. `factored_gradient` says what the columns are.
    """

    left: Tensor  # [n, 2 f + 2]: u, v, t, ones
    right: Tensor  # [n, 2 f + 2]: v, u, ones, t
    edges: Tensor  # [m], codes

    def at(self, codes: Tensor) -> Tensor:  # [k] -> [k]
        """The gradient of some pairs."""
        size = len(self.left)
        slope = (self.left[codes // size] * self.right[codes % size]).sum(1)
        return torch.where(_contains(self.edges, codes), -slope, slope)

    def is_zero(self) -> bool:
        """Whether each column of one factor meets a column of zeros, but for the two of t and ones."""
        half = self.left.shape[1] // 2 - 1
        u, v = (self.left[:, :half] != 0).any(0), (self.left[:, half : 2 * half] != 0).any(0)
        return not bool((u & v).any())

    def climb(self, flips: Relaxed, step: float, budget: int) -> Relaxed:
        """One step of projected gradient ascent: project(p + step * gradient).

        The graph's edges and the flips so far are looked at first. Any other pair must exceed the threshold found up
        to there, which can only rise as more pairs come in: few do.
        """
        size = len(self.left)
        codes = torch.unique(torch.cat([self.edges, flips.codes]))
        values = amounts_at(flips, codes) + step * self.at(codes)
        known, least = codes, threshold(values, budget)
        rows = max(1, BLOCK // size)
        for first in range(0, size, rows):
            block = self.left[first : first + rows] @ self.right[first:].T  # columns from `first` on
            block[:, : len(block)].masked_fill_(torch.ones_like(block[:, : len(block)], dtype=torch.bool).tril(), 0)
            ends = torch.tensor([first * size, (first + rows) * size], device=known.device)
            low, high = torch.searchsorted(known, ends).tolist()
            inside = known[low:high]
            block[inside // size - first, inside % size - first] = 0
            i, j = (block > least / step).nonzero(as_tuple=True)
            if len(i):
                codes = torch.cat([codes, (i + first) * size + j + first])
                values = torch.cat([values, step * block[i, j]])
                least = max(least, threshold(values, budget))
                kept = values > least
                codes, values = codes[kept], values[kept]
        return _sparse(codes, (values - least).clamp(0, 1))


@dataclass(frozen=True, eq=False)
class FullGradient:
    """The gradient with respect to the flip of each pair, all of them in a list."""

    codes: Tensor  # [n (n - 1) / 2]
    slope: Tensor  # likewise

    def is_zero(self) -> bool:
        """Whether no pair matters."""
        return not bool((self.slope != 0).any())

    def climb(self, flips: Relaxed, step: float, budget: int) -> Relaxed:
        """One step of projected gradient ascent: project(p + step * gradient)."""
        values = amounts_at(flips, self.codes) + step * self.slope
        return _sparse(self.codes, (values - threshold(values, budget)).clamp(0, 1))


def factored_gradient(target: Target, victim: Traces, x: Features, flips: Relaxed) -> FactoredGradient:
    """Through A_hat = S (A + I) S, S = D^-1/2: P = dL/dA_hat is U V^T, and D depends on A too.

    dL/dA_ij + dL/dA_ji = s_i s_j (P_ij + P_ji) + t_i + t_j, where t = dL/dd is -1/(2 d_i) times the sums of P * A_hat
    over row i and over column i.
    """
    size = int(target.data.num_nodes)
    codes = torch.unique(torch.cat([target.edges, flips.codes]))
    weight = target.both_weights(target.weights(codes, flips))
    operator = gcn_operator(target.both_ways(codes), weight, size, target.data.x.dtype)
    with torch.enable_grad():
        logits, steps = victim.trace(x, operator)
        grads = torch.autograd.grad(target.loss(logits), [product for _, product in steps])
    with torch.no_grad():
        u, v = torch.cat(grads, 1), torch.cat([factor for factor, _ in steps], 1)  # [n, f] each
        product = torch.cat([product for _, product in steps], 1)  # A_hat V
        diagonal = operator.values[operator.rows == operator.indices]  # 1 / d_i, as the diagonal of A + I is 1
        t = -0.5 * diagonal * ((u * product).sum(1) + (multiply(operator, u) * v).sum(1))  # A_hat is symmetric
        scale = diagonal.sqrt()[:, None]
        u, v, t = scale * u, scale * v, t[:, None]
        ones = torch.ones_like(t)
        return FactoredGradient(torch.cat([u, v, t, ones], 1), torch.cat([v, u, ones, t], 1), target.edges)


def _traced(target: Target, victim: Traces) -> Callable[[Relaxed], FactoredGradient]:
    x = features(target.data.x)

    def gradient(flips: Relaxed) -> FactoredGradient:
        found = factored_gradient(target, victim, x, flips)
        refuse_nan(found.left)
        return found

    return gradient


def _all_pairs(target: Target, victim: nn.Module) -> Callable[[Relaxed], FullGradient]:
    data, size = target.data, int(target.data.num_nodes)
    if size > MOST_NODES:
        raise AttackError(
            f"{type(victim).__name__} shows no factors of its gradient (see Traces), so PGD would give it all pairs of"
            f" {size} nodes as edges; it does so for up to {MOST_NODES} nodes"
        )
    refuse_without_weights(victim, "PGD")
    i, j = torch.triu_indices(size, size, 1, device=data.edge_index.device)
    codes = i * size + j
    edge_index, sign = target.both_ways(codes), torch.where(_contains(target.edges, codes), -1, 1)

    def gradient(flips: Relaxed) -> FullGradient:
        with torch.enable_grad():
            weight = target.weights(codes, flips).requires_grad_()
            value = target.loss(victim(data.x, edge_index, target.both_weights(weight)))
            (slope,) = torch.autograd.grad(value, weight, allow_unused=True) if value.requires_grad else (None,)
        slope = torch.zeros_like(weight) if slope is None else slope
        refuse_nan(slope)
        return FullGradient(codes, sign * slope)

    return gradient


def _round(
    target: Target, victim: nn.Module, flips: Relaxed, budget: int, samples: int, g: torch.Generator
) -> Tensor:  # -> codes
    """The best of the largest amounts and of `samples` draws; what a draw has too many of goes, least likely first."""
    size, best, highest = int(target.data.num_nodes), flips.codes[:0], -math.inf
    for draw in range(samples + 1):
        luck = torch.rand(len(flips.codes), generator=g).to(flips.amounts) if draw else torch.zeros_like(flips.amounts)
        ahead = flips.amounts - luck
        chosen = ahead.topk(min(budget, len(ahead))).indices
        codes = flips.codes[chosen[ahead[chosen] > 0]]
        if len(codes) == 0:
            continue
        changed = EdgeFlips.of(torch.stack([codes // size, codes % size]), size).apply(target.data)
        with torch.no_grad():
            value = float(target.loss(victim(changed.x, changed.edge_index)))
        if value > highest:
            best, highest = codes, value
    if len(best) == 0:
        raise AttackError("PGD found no flip that raises the loss; try a larger step_size or more steps")
    return best


def target_of(data: Data, nodes: Tensor, labels: Tensor, loss: Loss) -> Target:
    size, device = int(data.num_nodes), data.edge_index.device
    nodes = nodes.to(device)
    if nodes.dtype == torch.bool and nodes.shape == (size,):
        nodes = nodes.nonzero()[:, 0]
    if nodes.dim() != 1 or nodes.dtype != torch.int64 or len(nodes) == 0:
        raise ValueError(f"nodes must be one or more indices, or a mask of all {size}, got {list(nodes.shape)}")
    if int(nodes.min()) < 0 or int(nodes.max()) >= size:
        raise ValueError(f"nodes must lie in 0 to {size - 1}, got {int(nodes.min())} to {int(nodes.max())}")
    if labels.shape != (size,) or labels.is_floating_point():
        raise ValueError(f"labels must be whole numbers, one a node, [{size}]; got {labels.dtype} {list(labels.shape)}")
    wanted = labels.to(device).long()[nodes]
    if int(wanted.min()) < 0:
        raise ValueError("labels of the attacked nodes must be known (>= 0); leave the others out of `nodes`")
    i, j = undirected_pairs(data).to(device)
    loops = data.edge_index[:, data.edge_index[0] == data.edge_index[1]]
    return Target(data, i * size + j, loops, nodes, wanted, loss)


def _check_options(steps: int, loss: str, samples: int, step_size: float | None) -> None:
    if loss not in STEP_SIZE:
        raise ValueError(f"loss must be one of {', '.join(map(repr, STEP_SIZE))}, got {loss!r}")
    if steps < 1 or samples < 0:
        raise ValueError(f"steps must be >= 1 and samples >= 0, got {steps} and {samples}")
    if step_size is None or not 0 < step_size < math.inf:
        raise ValueError(f"step_size must be positive and finite, got {step_size}")


def _sparse(codes: Tensor, amounts: Tensor) -> Relaxed:
    kept = amounts > 0
    codes, order = codes[kept].sort()
    return Relaxed(codes, amounts[kept][order])


def _contains(sorted_codes: Tensor, codes: Tensor) -> Tensor:
    if len(sorted_codes) == 0:
        return torch.zeros_like(codes, dtype=torch.bool)
    place = torch.searchsorted(sorted_codes, codes).clamp_max(len(sorted_codes) - 1)
    return sorted_codes[place] == codes


def amounts_at(flips: Relaxed, codes: Tensor) -> Tensor:
    """The relaxed flips of some pairs, 0 where there is none."""
    if len(flips.codes) == 0:
        return torch.zeros(len(codes), dtype=flips.amounts.dtype, device=codes.device)
    place = torch.searchsorted(flips.codes, codes).clamp_max(len(flips.codes) - 1)
    return torch.where(flips.codes[place] == codes, flips.amounts[place], 0)
