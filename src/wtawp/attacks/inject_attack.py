"""Node injection: new nodes that are joined to a graph, with features chosen to mislead a model (as TDGIA does).

Zou et al. (KDD 2021) inject nodes a few at a time: first the edges, where the topology is weak, then the features, by
gradient ascent on a smooth loss. So does this attack. Edges go where the margin is small and the degree is low, counted
over the neighbourhood as a graph convolution does, and one injected node gets nodes that are to be pushed to one class.
The edges and features of the graph itself stay as they are.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.attacks.checks import check_graph, check_victim, refuse_nan
from wtawp.attacks.losses import Loss
from wtawp.attacks.projection import thresholds
from wtawp.attacks.relaxed import Target, target_of
from wtawp.base import AttackError, DataError, checked_seed, isolated_rng, report_progress, rng
from wtawp.graphs.flips import undirected_pairs
from wtawp.graphs.injected_nodes import InjectedNodes, injection_budget_of
from wtawp.graphs.normalisation import gcn_operator
from wtawp.graphs.products import spmm
from wtawp.models.evaluation import evaluating

WIDTH = 2.0  # margins of log-probabilities within which a node is worth an edge
LEAST = 1e-6  # the worth of a node with a large margin, beside 1 for one at the decision boundary


def inject_nodes(
    data: Data,
    victim: nn.Module,
    *,
    budget: float | int,
    nodes: Tensor,
    labels: Tensor,
    seed: int,
    edges_per_node: int | None = None,
    rounds: int = 10,
    steps: int = 30,
    loss: Loss = "tanh_margin",
) -> InjectedNodes:
    """Add nodes to a graph, with edges and features that make a victim misclassify nodes of the graph.

    The nodes are injected in `rounds` batches of about equal size. In each, the edges of the batch are chosen from what
    the victim predicts then, and the features of all nodes injected so far move along the gradient of the loss. The
    victim is attacked in evaluation mode and is not changed. Only its gradient with respect to the features is used, so
    it need not take edge weights.

    Binary features stay binary, and an injected node has no more ones than a node of the graph has on average, rounded.
    Other features stay, each, in the range that it has in the graph.

    Args:
        data: The graph, undirected and without edge weights. It is not changed.
        victim: The model, called as `victim(x, edge_index)`.
        budget: The number of nodes to inject (int), or a share of the graph's nodes (float).
        nodes: The nodes that are to be misclassified, as indices or a mask.
        labels: The labels of all nodes, [n], true or guessed; those of `nodes` are used.
        seed: The seed of all random draws.
        edges_per_node: The number of edges of each injected node, all of them to nodes of the graph. None: the mean
            degree of the graph, rounded, and at least 1.
        rounds: The number of batches. One batch chooses all edges from the predictions on the clean graph.
        steps: The number of gradient steps on the features in each round.
        loss: What is raised, one of the losses of `pgd`.

    Returns:
        The injected nodes; `injected.apply(data)` is the attacked graph. There are fewer than the budget allows if all
        attacked nodes are misclassified by then.

    Raises:
        ValueError: If budget, nodes, labels or options are not what they must be.
        DataError: If `data` is not one undirected graph without edge weights, or has no dense matrix of features.
        AttackError: If the victim cannot be differentiated by the features, or its outputs are not finite.

    Example:
        >>> from wtawp.graphs import citation
        >>> from wtawp.models import GCN
        >>> data, victim = citation(seed=0, num_nodes=60, num_words=20), GCN(20, 7, generator=rng("victim"))
        >>> injected = inject_nodes(data, victim, budget=3, nodes=torch.arange(60), labels=data.y, seed=0, steps=5)
        >>> len(injected), injected.apply(data).num_nodes
        (3, 63)
    """
    seed = checked_seed(seed)
    limits = _limits_of(data, budget, edges_per_node)
    for name, value in (("rounds", rounds), ("steps", steps)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a whole number >= 1, got {value!r}")
    check_victim(victim, data, "inject")
    generator = rng("attack", "inject", seed)
    with evaluating(victim), isolated_rng("attack", "inject", "victim", seed):
        injection = _Injection(data, victim, target_of(data, [nodes], [labels], loss, victim=victim), limits, generator)
        for number in range(rounds):
            report_progress(number / rounds)
            batch = limits.count * (number + 1) // rounds - limits.count * number // rounds
            if batch and injection.connect(batch):
                injection.optimise(steps)
    origin = {
        "attack": "inject", "budget": budget, "seed": seed, "edges_per_node": limits.edges, "rounds": rounds,
        "steps": steps, "loss": loss,
    }  # fmt: skip
    provenance = tuple((name, str(value)) for name, value in origin.items())
    return InjectedNodes.of(limits.features.rounded(injection.x), injection.edges, int(data.num_nodes), provenance)


def inject_at_random(data: Data, *, budget: float | int, seed: int, edges_per_node: int | None = None) -> InjectedNodes:
    """Add nodes with random edges and the features of random nodes of the graph: the baseline of `inject_nodes`.

    Args:
        data: The graph, undirected and without edge weights. It is not changed.
        budget: The number of nodes to inject (int), or a share of the graph's nodes (float).
        seed: The seed of all random draws.
        edges_per_node: The number of edges of each injected node. None: as for `inject_nodes`.

    Returns:
        The injected nodes, within the limits of `inject_nodes`.

    Raises:
        ValueError: If the budget or the number of edges is out of range.
        DataError: If `data` is not one undirected graph without edge weights, or has no dense matrix of features.

    Example:
        >>> from wtawp.graphs import citation
        >>> injected = inject_at_random(citation(seed=0, num_nodes=60, num_words=20), budget=0.1, seed=0)
        >>> injected.x.shape
        torch.Size([6, 20])
    """
    seed = checked_seed(seed)
    limits, size = _limits_of(data, budget, edges_per_node), int(data.num_nodes)
    g = rng("attack", "inject at random", seed)
    ends = torch.stack([torch.randperm(size, generator=g)[: limits.edges] for _ in range(limits.count)])
    owners = torch.arange(limits.count)[:, None].expand_as(ends)
    like = torch.randint(size, (limits.count,), generator=g)
    provenance = (("attack", "inject at random"), ("budget", str(budget)), ("seed", str(seed)))
    x = limits.features.like(data.x[like.to(data.x.device)], g)
    return InjectedNodes.of(x, torch.stack([owners.flatten(), ends.flatten()]), size, provenance)


@dataclass(frozen=True, eq=False)
class _Features:
    """What the features of injected nodes may be."""

    low: Tensor  # [d], the range of each feature in the graph
    high: Tensor  # [d]
    ones: int | None  # the most ones of a node where features are binary; None: they are not

    @staticmethod
    def of(x: Tensor) -> "_Features":  # [n, d]
        """The limits that the features of a graph set."""
        is_binary = bool(((x == 0) | (x == 1)).all())
        return _Features(x.amin(0), x.amax(0), max(1, round(float(x.sum(1).mean()))) if is_binary else None)

    def like(self, x: Tensor, g: torch.Generator) -> Tensor:  # [k, d] -> [k, d]
        """Features of nodes of the graph, of which those with too many ones lose some at random."""
        if self.ones is None:
            return x
        order = torch.rand(x.shape, generator=g).to(x)
        return self.rounded(x * (1 + order))

    def projected(self, x: Tensor) -> Tensor:  # [k, d] -> [k, d]
        """The nearest features in the limits, where entries of binary ones may lie between 0 and 1."""
        if self.ones is None:
            return x.clamp(self.low, self.high)
        return (x - thresholds(x, self.ones).to(x)[:, None]).clamp(0, 1)

    def rounded(self, x: Tensor) -> Tensor:  # [k, d] -> [k, d]
        """Binary features for relaxed ones: the largest entries become 1. Other features stay as they are."""
        if self.ones is None:
            return x
        top = x.topk(min(self.ones, x.shape[1]))
        return torch.zeros_like(x).scatter(1, top.indices, (top.values > 0).to(x))


@dataclass(frozen=True, eq=False)
class _Limits:
    """What the attacker may do."""

    count: int  # injected nodes
    edges: int  # of each
    features: _Features


def _limits_of(data: Data, budget: float | int, edges_per_node: int | None) -> _Limits:
    """The limits from the arguments of the attack and the graph, checked."""
    check_graph(data)
    size, num_edges = int(data.num_nodes), undirected_pairs(data).shape[1]
    if not isinstance(data.x, Tensor) or data.x.layout != torch.strided or not data.x.is_floating_point():
        raise DataError("injected nodes need features like those of the graph: data.x must be a dense float matrix")
    if edges_per_node is None:
        edges_per_node = max(1, round(2 * num_edges / size))
    if isinstance(edges_per_node, bool) or not isinstance(edges_per_node, int) or not 1 <= edges_per_node <= size:
        raise ValueError(f"edges_per_node must be a whole number from 1 to the {size} nodes, got {edges_per_node!r}")
    return _Limits(injection_budget_of(data, budget), edges_per_node, _Features.of(data.x))


class _Injection:
    """The nodes injected so far, with relaxed features."""

    def __init__(self, data: Data, victim: nn.Module, target: Target, limits: _Limits, g: torch.Generator) -> None:
        self.data, self.victim, self.target, self.limits, self.generator = data, victim, target, limits, g
        self.x, self.has_moved = data.x[:0], False  # [k, d]
        self.edges = data.edge_index[:, :0]  # [2, m], (injected node, node of the graph)
        self.operator = gcn_operator(data.edge_index, None, target.size, data.x.dtype)
        self.degrees = torch.bincount(data.edge_index[0], minlength=int(data.num_nodes)).to(data.x)

    def logits(self, x: Tensor) -> Tensor:  # [k, d] -> [n + k, c]
        """The victim's logits on the graph with the injected nodes, if they have the features x."""
        injected, other = self.edges[0] + self.target.size, self.edges[1]
        new = torch.stack([torch.cat([injected, other]), torch.cat([other, injected])])
        out: Tensor = self.victim(torch.cat([self.data.x, x]), torch.cat([self.data.edge_index, new], 1))
        return out

    @torch.no_grad()
    def connect(self, count: int) -> bool:
        """Inject nodes with edges and first features; False, and no nodes, if no attacked node is right any more.

        The first features are those of a random node that the victim predicts to be of the class that is wanted.
        """
        logits = self.logits(self.limits.features.rounded(self.x))
        self.target.lost(logits[None])  # which checks them
        closeness = self._closeness(logits)
        if not bool((closeness > 0).any()):
            if len(self.x) == 0:
                raise AttackError("the victim misclassifies all attacked nodes on the clean graph; nothing is left")
            return False
        predicted = logits[: self.target.size].argmax(1)
        remaining = closeness.clone()
        for _ in range(count):
            if not bool((remaining > 0).any()):  # every attacked node has an edge of this batch
                remaining = closeness.clone()
            reach = spmm(self.operator, remaining) / (self.degrees + 2).sqrt()[:, None]  # [n, c]
            best = reach.topk(self.limits.edges, dim=0)
            wanted = int(best.values.sum(0).argmax())
            ends = best.indices[:, wanted]
            remaining[ends] = 0
            owner = torch.full_like(ends, len(self.x))
            self.edges = torch.cat([self.edges, torch.stack([owner, ends])], 1)
            like = (predicted == wanted).nonzero()[:, 0]
            like = like if len(like) else torch.arange(self.target.size, device=like.device)
            chosen = like[torch.randint(len(like), (1,), generator=self.generator).to(like.device)]
            self.x = torch.cat([self.x, self.limits.features.like(self.data.x[chosen], self.generator)])
        return True

    def _closeness(self, logits: Tensor) -> Tensor:  # [n + k, c] -> [n, c]
        """How near each attacked node that is still right is to its best wrong class; 0 for other nodes and classes."""
        nodes, labels = self.target.nodes[0], self.target.labels[0]
        scores = logits[nodes].log_softmax(1)
        right = scores.gather(1, labels[:, None])[:, 0]
        best, which = scores.scatter(1, labels[:, None], -torch.inf).max(1)
        near = torch.where(right > best, (1 - ((right - best) / WIDTH).tanh().square()).clamp_min(LEAST), 0)
        return logits.new_zeros(self.target.size, logits.shape[1]).index_put((nodes, which), near)

    def optimise(self, steps: int) -> None:
        """Move the features of all injected nodes along the gradient of the loss, and keep the best of the way."""
        features = self.limits.features
        scale = (features.high - features.low) if features.ones is None else torch.ones_like(features.high)
        best, highest = self.x, self._value(self.x)
        for step in range(steps):
            gradient = scale * self._gradient()  # with respect to features in units of their ranges
            if not bool((gradient != 0).any()):
                self._check_first_gradient()
                break
            gradient = gradient / gradient.abs().amax(1, keepdim=True).clamp_min(1e-12)
            self.x, self.has_moved = features.projected(self.x + scale * gradient / (step + 1) ** 0.5), True
            if (value := self._value(self.x)) > highest:
                best, highest = self.x, value
        self.x = best

    @torch.no_grad()
    def _value(self, x: Tensor) -> float:
        """The loss with whole features."""
        return float(self.target.losses(self.logits(self.limits.features.rounded(x))[None])[0])

    def _gradient(self) -> Tensor:  # -> [k, d]
        """The derivative of the loss by the features of the injected nodes."""
        with torch.enable_grad():
            x = self.x.detach().requires_grad_()
            value = self.target.losses(self.logits(x)[None])[0]
            (gradient,) = torch.autograd.grad(value, x, allow_unused=True) if value.requires_grad else (None,)
        if gradient is None:
            return torch.zeros_like(self.x)
        by_features: Tensor = gradient
        refuse_nan(by_features, "features")
        return by_features

    def _check_first_gradient(self) -> None:
        """Refuse a gradient of zero at the first step; later it may vanish as all attacked nodes are misclassified."""
        if not self.has_moved:
            raise AttackError(
                "the loss has no gradient with respect to the features of injected nodes: the victim cannot be"
                " differentiated by features, it ignores features or edges, or the loss is flat here (then try"
                " loss='ce'); inject_at_random needs no gradient"
            )
