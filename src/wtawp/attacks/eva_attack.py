"""EvA (arXiv 2507.08212): an evolutionary attack, a genetic algorithm over sets of edge flips.

It needs the predictions of the victim and nothing else: neither gradients nor weights of edges. So it attacks modules
that take no edge_weight, code that cannot be differentiated, and objectives such as certified ratios or the coverage of
conformal sets. As in the paper, individuals are lists of flips, parents win tournaments, and mutation aims at nodes
that are not misclassified yet. Crossover is ours by default: as a flip acts on its neighbourhood, the value of every
node tells which flips of a set have achieved something, and children inherit those ("credit"). The paper's crossover
draws from the flips of both parents without knowing more than the value of the whole ("uniform").
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch_geometric.data import Data

from wtawp.attacks.checks import checked_labels, refuse_without_features
from wtawp.attacks.evolution import JITTER, FlipSampler, combined, credits_of, tournament
from wtawp.attacks.flipped_graphs import NO_FLIP, FlippedGraphs, Victim
from wtawp.attacks.losses import margins
from wtawp.base import AttackError, checked_seed, isolated_rng, report_progress, rng
from wtawp.graphs.flips import EdgeFlips, budget_of
from wtawp.graphs.normalisation import sum_operator
from wtawp.graphs.row_choices import checked_rows
from wtawp.models.evaluation import evaluating, refuse_cached

Crossover = Literal["credit", "uniform"]
Objective = Callable[[Tensor], "Tensor | float"]
MARGIN = 0.3  # how much a node's tanh margin, from -1 to 1, counts in credits beside its being misclassified, 0 or 1


def eva(
    data: Data,
    victim: Victim,
    *,
    budget: float | int,
    nodes: Tensor,
    labels: Tensor,
    seed: int,
    steps: int = 100,
    population: int = 256,
    mutation: float = 0.2,
    tournament_size: int = 2,
    crossover: Crossover = "credit",
    hard_labels: bool = False,
    objective: Objective | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> EdgeFlips:
    """Find flips that lower a victim's accuracy, or any other objective, by a genetic algorithm on its predictions.

    The victim is asked about `population * (steps + 1)` flipped graphs, several at a time where that gives the same
    outputs. It is called in evaluation mode and is not changed.

    Args:
        data: The graph.
        victim: Any callable `victim(x, edge_index)` that returns logits, [n, c], or predicted classes, [n].
        budget: The number of flips allowed: undirected edges (int) or a share of the graph's edges (float).
        nodes: The nodes that are to be misclassified, as indices or a mask.
        labels: The labels of all nodes, [n].
        seed: The seed of all random draws.
        steps: The number of generations.
        population: The number of sets of flips in a generation.
        mutation: The largest share of a child's flips that are new. In each generation a share is drawn up to it.
        tournament_size: Of so many candidates the best becomes a parent.
        crossover: "credit" keeps those flips of two parents that have achieved most in their neighbourhoods; "uniform"
            draws from the flips of both. An objective of the whole graph gives no credits, and is always uniform.
        hard_labels: Whether to use only the predicted classes. Otherwise margins decide between sets of flips that
            misclassify equally many nodes.
        objective: What is to become as low as possible, a function of the victim's output on one graph, [n, c] or [n].
            It returns one number for the graph; or one for each node, [n], which are summed over `nodes`, and then
            mutation aims at the nodes whose number is still above 0. None: the number of nodes classified correctly.
        progress: Called after each generation with the number of graphs evaluated so far and the lowest objective. By
            default that is the share of `nodes` classified correctly.

    Returns:
        The flips.

    Raises:
        ValueError: If budget, nodes, labels or options are not what they must be.
        AttackError: If the victim or the objective returns something else, or NaN.

    Example:
        >>> from wtawp.base import rng
        >>> from wtawp.graphs import citation
        >>> from wtawp.models import GCN
        >>> data, victim = citation(seed=0, num_nodes=60, num_words=20), GCN(20, 7, generator=rng("victim"))
        >>> len(eva(data, victim, budget=5, nodes=torch.arange(10), labels=data.y, seed=0, steps=5, population=8))
        5
    """
    seed = checked_seed(seed)
    refuse_without_features(data)
    _check_options(steps, population, mutation, tournament_size, crossover)
    count, size = budget_of(data, budget), int(data.num_nodes)
    goal = _Goal.of(data, nodes, labels, objective, hard_labels=hard_labels)
    refuse_cached(victim)
    with evaluating(victim), torch.no_grad(), isolated_rng("attack", "eva", "victim", seed):
        search = _Search(data, victim, goal, count, crossover, rng("attack", "eva", seed))
        best = search.run(steps, population, mutation, tournament_size, progress)
    codes = best[best != NO_FLIP]
    origin = {
        "attack": "eva", "budget": budget, "seed": seed, "steps": steps, "population": population, "mutation": mutation,
        "tournament_size": tournament_size, "crossover": crossover, "hard_labels": hard_labels,
        "queries": search.graphs.queries,
    }  # fmt: skip
    provenance = tuple((name, str(value)) for name, value in origin.items())
    return EdgeFlips.of(torch.stack([codes // size, codes % size]), size, provenance)


def _check_options(steps: int, population: int, mutation: float, tournament_size: int, crossover: str) -> None:
    """Refuse options that are out of their range."""
    for name, value, least in (
        ("steps", steps, 1),
        ("population", population, 2),
        ("tournament_size", tournament_size, 1),
    ):
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"{name} must be a whole number >= {least}, got {value!r}")
    if not 0 < mutation <= 1:
        raise ValueError(f"mutation must be a share in (0, 1], got {mutation!r}")
    if crossover not in ("credit", "uniform"):
        raise ValueError(f"crossover must be 'credit' or 'uniform', got {crossover!r}")


@dataclass(frozen=True, eq=False)
class _Values:
    """How good sets of flips are; lower is better for the attacker."""

    fitness: Tensor  # [p] float64, by which sets are compared
    objective: Tensor  # [p] float64, what is reported
    by_node: Tensor | None  # [p, n], what is left to attack at each node; None if the objective does not tell
    detail: Tensor | None  # [p, n], the same with margins, for credits

    def rows(self, index: Tensor) -> "_Values":
        """The values of some of the sets."""
        parts = (self.fitness, self.objective, self.by_node, self.detail)
        return _Values(*(None if t is None else t[index] for t in parts))  # type: ignore[arg-type]

    @staticmethod
    def joined(parts: "list[_Values]") -> "_Values":
        """The values of several lists of sets, one after another."""
        fields = zip(*((p.fitness, p.objective, p.by_node, p.detail) for p in parts), strict=True)
        return _Values(*(None if ts[0] is None else torch.cat(ts) for ts in fields))  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class _Goal:
    """What the attack lowers: the accuracy on some nodes, or the caller's objective."""

    nodes: Tensor  # [k], on the CPU
    labels: Tensor  # [k]
    size: int
    objective: Objective | None
    hard_labels: bool

    @staticmethod
    def of(data: Data, nodes: Tensor, labels: Tensor, objective: Objective | None, *, hard_labels: bool) -> "_Goal":
        """The goal from the arguments of the attack, checked."""
        size = int(data.num_nodes)
        nodes = torch.unique(checked_rows(nodes, size).cpu())
        known = checked_labels(labels, size).cpu()[nodes]
        if objective is None and int(known.min()) < 0:
            raise ValueError("labels of the attacked nodes must be known (>= 0); leave the others out of `nodes`")
        return _Goal(nodes, known, size, objective, hard_labels)

    def values(self, outputs: Tensor) -> _Values:  # [s, n, c] or [s, n]
        """The values of the victim's outputs on several graphs."""
        return self._accuracy(outputs) if self.objective is None else self._custom(outputs)

    def _accuracy(self, outputs: Tensor) -> _Values:
        """The number of nodes classified correctly; the sum of tanh margins only decides between equal numbers."""
        outputs, labels = outputs[:, self.nodes.to(outputs.device)], self.labels.to(outputs.device)
        if outputs.dim() == 2 or self.hard_labels:
            classes = outputs if outputs.dim() == 2 else outputs.argmax(2)
            correct = (classes == labels).float().cpu()
            return self._by_node(correct, correct, correct.sum(1).double())
        if int(labels.max()) >= outputs.shape[2]:
            raise ValueError(f"labels go up to {int(labels.max())}, but the logits have {outputs.shape[2]} classes")
        if not bool(torch.isfinite(outputs).all()):
            raise AttackError("the victim returns infinite logits, which have no margins; pass hard_labels=True")
        margin = -margins(outputs, labels.expand(len(outputs), -1)).tanh()
        margin, correct = margin.float().cpu(), (outputs.argmax(2) == labels).float().cpu()
        fitness = correct.sum(1).double() + margin.sum(1).double() / (2 * len(labels) + 1)
        return self._by_node(correct, correct + MARGIN * margin, fitness)

    def _by_node(self, left: Tensor, detail: Tensor, fitness: Tensor) -> _Values:  # [s, k], [s, k], [s]
        """Values with one number for each of the attacked nodes, as rows of all nodes."""
        rows = [torch.zeros(len(left), self.size).index_copy(1, self.nodes, part) for part in (left, detail)]
        objective = left.double().mean(1) if self.objective is None else left.double().sum(1)
        return _Values(fitness, objective, *rows)

    def _custom(self, outputs: Tensor) -> _Values:
        """The values of the caller's objective, one number for each graph or for each node."""
        assert self.objective is not None
        returned = [torch.as_tensor(self.objective(output)).detach().cpu() for output in outputs]
        shapes = {tuple(value.shape) for value in returned}
        if len(shapes) > 1 or not shapes <= {(), (self.size,)}:
            wanted = f"one number, or one for each of the {self.size} nodes"
            raise AttackError(f"the objective must return {wanted}, got shapes {sorted(shapes)}")
        values = torch.stack(returned).double()
        if bool(torch.isnan(values).any()):
            raise AttackError("the objective is NaN for some outputs of the victim, so nothing can be lowered")
        if values.dim() == 1:
            return _Values(values, values, None, None)
        left = values[:, self.nodes]
        return self._by_node(left.float(), left.float(), left.sum(1))


class _Search:
    """The population and its evaluation."""

    def __init__(
        self, data: Data, victim: Victim, goal: _Goal, count: int, crossover: Crossover, g: torch.Generator
    ) -> None:
        self.graphs, self.goal, self.count, self.generator = FlippedGraphs(data, victim), goal, count, g
        clean = self.graphs.outputs(torch.full((1, 1), NO_FLIP))
        self.clean = goal.values(clean)
        self.uses_credits = crossover == "credit" and self.clean.detail is not None
        self.sampler = FlipSampler((clean[0] if clean.dim() == 2 else clean[0].argmax(1)).cpu(), g)
        everybody = torch.arange(goal.size)
        edges = data.edge_index[:, data.edge_index[0] != data.edge_index[1]].cpu()
        self.closed = sum_operator(torch.cat([edges, everybody.expand(2, -1)], 1), None, goal.size)
        self.aim = torch.zeros(goal.size).index_fill(0, goal.nodes, 1.0)

    def run(
        self,
        steps: int,
        size: int,
        mutation: float,
        tournament_size: int,
        progress: Callable[[int, float], None] | None,
    ) -> Tensor:
        """Let the population evolve, and return the best set of flips."""
        first = self.sampler.draw(self._weights(self.clean).expand(size, -1), self.count)
        population = combined(first[:, :0], torch.zeros(size, 0), first, self.count)
        values = self._evaluated(population)
        for step in range(steps):
            report_progress(step / steps)
            parents = [tournament(values.fitness, size, tournament_size, self.generator) for _ in range(2)]
            children = self._children(population, values, parents, mutation)
            values = _Values.joined([values, self._evaluated(children)])
            order = values.fitness.argsort(stable=True)[:size]  # the best of both generations survive
            population, values = torch.cat([population, children])[order], values.rows(order)
            if progress is not None:
                progress(self.graphs.queries, float(values.objective[0]))
            if values.by_node is not None and not bool((values.by_node[0] > 0).any()):
                break  # nothing is left to attack
        return population[0]

    def _children(self, population: Tensor, values: _Values, parents: list[Tensor], mutation: float) -> Tensor:
        """One child for each pair of parents: their flips with the highest credits, and some new ones."""
        most = max(1, int(mutation * self.count))
        count = int(torch.randint(1, most + 1, (1,), generator=self.generator))
        fresh = self.sampler.draw(self._weights(values)[parents[0]], count)
        if self.uses_credits and values.detail is not None and self.clean.detail is not None:
            earned = credits_of(population, self.clean.detail - values.detail, self.closed)
            earned = torch.cat([earned[p] for p in parents], 1)
            earned = earned + JITTER * torch.randn(earned.shape, generator=self.generator)
        else:
            earned = torch.rand(len(parents[0]), 2 * population.shape[1], generator=self.generator)
        return combined(torch.cat([population[p] for p in parents], 1), earned, fresh, self.count)

    def _weights(self, values: _Values) -> Tensor:  # -> [p, n]
        """Where new flips have one end: at attacked nodes that are left, or at all of them if none is."""
        if values.by_node is None:
            return self.aim.expand(len(values.fitness), -1)
        left = (values.by_node > 0).float()
        return torch.where(left.any(1, keepdim=True), left, self.aim)

    def _evaluated(self, population: Tensor) -> _Values:
        """The values of sets of flips, in parts, so that the outputs need not all be in memory at once."""
        parts = torch.split(population, self.graphs.at_once)
        return _Values.joined([self.goal.values(self.graphs.outputs(part)) for part in parts])
