"""Nettack (Zügner, Akbarnejad and Günnemann 2018): greedy flips of edges and features that mislead one node.

Each flip is the one after which a linear surrogate is most wrong about the target, among those that are hard to notice:
the degrees still fit the power law of the original graph, and added features co-occur with those that a node has.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.attacks.checks import checked_labels, refuse_whole_features
from wtawp.attacks.linear_surrogate import surrogate_weights
from wtawp.attacks.nettack_state import NettackState, cooccurring
from wtawp.attacks.spec import AttackRequest
from wtawp.base import NoFlipError, checked_seed, part_of_progress, report_progress, rng
from wtawp.graphs.feature_flips import FeatureFlips, binary_features
from wtawp.graphs.flips import EdgeFlips, budget_of
from wtawp.graphs.graph_flips import GraphFlips
from wtawp.graphs.products import multiply
from wtawp.graphs.row_choices import checked_rows
from wtawp.models.inputs import features

EXTRA_FLIPS = 2  # the default budget is the degree of the target plus this


@dataclass(frozen=True, kw_only=True)
class NettackOptions:
    """Options of Nettack that do not depend on the graph; see `nettack`."""

    budget: float | int | None
    flip_edges: bool
    flip_features: bool
    direct: bool
    influencers: int
    likelihood_cutoff: float | None
    cooccurrence: bool

    def __post_init__(self) -> None:
        if not self.flip_edges and not self.flip_features:
            raise ValueError("nettack flips edges, features or both; set flip_edges or flip_features")
        if self.influencers < 1:
            raise ValueError(f"influencers must be >= 1, got {self.influencers}")
        if self.likelihood_cutoff is not None and not self.likelihood_cutoff > 0:
            raise ValueError(f"likelihood_cutoff must be positive or None, got {self.likelihood_cutoff}")


def nettack(
    data: Data,
    victim: nn.Module | None = None,
    *,
    nodes: Tensor,
    labels: Tensor,
    seed: int,
    budget: float | int | None = None,
    train: Tensor | None = None,
    weights: Tensor | None = None,
    flip_edges: bool = True,
    flip_features: bool = False,
    direct: bool = True,
    influencers: int = 5,
    likelihood_cutoff: float | None = 0.004,
    cooccurrence: bool = True,
) -> GraphFlips:
    """Find flips that mislead a model about one node, greedily on a linear surrogate of the model.

    The surrogate has the logits A_hat^2 X W. Each flip is the allowed one that raises its margin, the logit of the best
    other class less that of the target's class, most. There are fewer flips than the budget where none raises it. No
    flip takes the last neighbour of a node.

    Args:
        data: The graph.
        victim: The model to mislead. The surrogate imitates its predictions unless `train` or `weights` are given.
        nodes: The target: one node, as an index or a mask.
        labels: The labels of all nodes, [n], true or guessed. The flips move the target away from its label.
        seed: The seed that draws the influencers; a direct attack draws nothing.
        budget: The number of flips allowed, edges and features together (int), or a share of the graph's edges (float).
            None: the degree of the target plus 2, as in the paper.
        train: The training nodes, as indices or a mask, for a surrogate that is trained on their labels, as in the
            paper.
        weights: The surrogate's weights W, [d, c], if they are known: see `surrogate_weights`.
        flip_edges: Whether edges are flipped.
        flip_features: Whether features are flipped, which must be binary.
        direct: Whether edges and features of the target itself are flipped. Otherwise those of some of its neighbours
            are (an influence attack), and no edge of the target.
        influencers: The number of neighbours that an influence attack uses; they are drawn if there are more.
        likelihood_cutoff: The cutoff of the test on degrees. None: no test.
        cooccurrence: Whether features that are added must co-occur with those that the node has.

    Returns:
        The flips of edges and of features.

    Raises:
        ValueError: If there is not exactly one target, or labels, budget or options are not what they must be.
        DataError: If features are to be flipped and are not binary.
        NoFlipError: If no flip is allowed, as for an influence attack on a node without neighbours.

    Example:
        >>> from wtawp.graphs import citation
        >>> data = citation(seed=0, num_nodes=60, num_words=20)
        >>> train = torch.arange(0, 60, 2)
        >>> flips = nettack(data, nodes=torch.tensor([7]), labels=data.y, seed=0, train=train, budget=3)
        >>> len(flips), 7 in flips.edges.pairs[:, 0]
        (3, True)
    """
    seed = checked_seed(seed)
    return nettack_many(
        data, victim, targets=_target(nodes, int(data.num_nodes)), labels=labels, seed=seed, budget=budget, train=train,
        weights=weights, flip_edges=flip_edges, flip_features=flip_features, direct=direct, influencers=influencers,
        likelihood_cutoff=likelihood_cutoff, cooccurrence=cooccurrence,
    )[0]  # fmt: skip


def nettack_many(
    data: Data,
    victim: nn.Module | None = None,
    *,
    targets: Tensor | Sequence[int],
    labels: Tensor,
    seed: int,
    budget: float | int | None = None,
    train: Tensor | None = None,
    weights: Tensor | None = None,
    flip_edges: bool = True,
    flip_features: bool = False,
    direct: bool = True,
    influencers: int = 5,
    likelihood_cutoff: float | None = 0.004,
    cooccurrence: bool = True,
) -> list[GraphFlips]:
    """Run `nettack` on each of several nodes, each on the original graph, with one surrogate for all.

    Args:
        data: The graph.
        victim: The model to mislead, as for `nettack`.
        targets: The nodes to attack, one after another, as indices or a mask.
        labels: The labels of all nodes, [n].
        seed: The seed that draws the influencers of each target.
        budget: The number of flips allowed for each target. None: its degree plus 2.
        train: The training nodes of the surrogate, as for `nettack`.
        weights: The surrogate's weights W, [d, c], if they are known.
        flip_edges: Whether edges are flipped.
        flip_features: Whether features are flipped, which must be binary.
        direct: Whether edges and features of the target itself are flipped, or else of some of its neighbours.
        influencers: The number of neighbours that an influence attack uses.
        likelihood_cutoff: The cutoff of the test on degrees. None: no test.
        cooccurrence: Whether features that are added must co-occur with those that the node has.

    Returns:
        The flips for each target, in their order.

    Raises:
        ValueError: If targets, labels, budget or options are not what they must be.
        DataError: If features are to be flipped and are not binary.
        NoFlipError: If no flip is allowed for a target.
    """
    seed = checked_seed(seed)
    options = NettackOptions(
        budget=budget, flip_edges=flip_edges, flip_features=flip_features, direct=direct, influencers=influencers,
        likelihood_cutoff=likelihood_cutoff, cooccurrence=cooccurrence,
    )  # fmt: skip
    size = int(data.num_nodes)
    allowance = None if budget is None else budget_of(data, budget)
    refuse_whole_features(data, "Nettack")
    chosen, labels = checked_rows(targets, size, "targets").tolist(), checked_labels(labels, size)
    if weights is None:
        weights = surrogate_weights(data, labels=labels, train=train, victim=victim)
    if weights.dim() != 2 or weights.shape[0] != data.x.shape[1]:
        raise ValueError(f"weights must be of shape [{data.x.shape[1]}, classes], got {list(weights.shape)}")
    weights = weights.to(data.x)
    products, x = multiply(features(data.x), weights), binary_features(data) if flip_features else None
    results = []
    for done, node in enumerate(chosen):
        label = int(labels[node])
        if not 0 <= label < weights.shape[1]:
            raise ValueError(f"the label of node {node} must be one of the surrogate's classes, got {label}")
        state = NettackState(data, products, weights, node, label)
        search = _Search(state, x, options, seed)
        count = int(state.original_degree[node]) + EXTRA_FLIPS if allowance is None else allowance
        for flip in range(count):
            if not search.flip_best():
                break
            report_progress((done + (flip + 1) / count) / len(chosen))
        origin = {"attack": "nettack", "node": node, "seed": seed, **asdict(options)}
        provenance = tuple((name, str(value)) for name, value in origin.items())
        results.append(_flips(state, data.x.shape[1], provenance))
    return results


def run_nettack(request: AttackRequest, **options: Any) -> list[GraphFlips]:
    """Nettack on a request, for the registry; attacks with the same training nodes, or victim, share a surrogate."""
    results: list[GraphFlips] = []
    surrogates: dict[tuple[int, int], Tensor] = {}
    for i, victim in enumerate(request.victims):
        train = None if request.trains is None else request.trains[i]
        given: dict[str, Any] = {"train": train, **options}
        if given.get("weights") is None:
            key = id(request.labels[i]), id(victim if given["train"] is None else given["train"])
            if key not in surrogates:
                surrogates[key] = surrogate_weights(
                    request.data, labels=request.labels[i], train=given["train"], victim=victim
                )
            given["weights"] = surrogates[key]
        with part_of_progress(i / len(request.victims), (i + 1) / len(request.victims)):
            flips = nettack(
                request.data, victim, nodes=request.nodes[i], labels=request.labels[i], seed=request.seeds[i],
                budget=request.budget, **given,
            )  # fmt: skip
        results.append(flips)
    return results


class _Search:
    """The candidates of one attack, and the choice of the best of them."""

    def __init__(self, state: NettackState, x: Tensor | None, options: NettackOptions, seed: int) -> None:
        self.state, self.options = state, options
        self.attackers = [state.target] if options.direct else _influencers(state, options.influencers, seed)
        self.rows: dict[int, Tensor] = {}  # the features of each attacker as they are now, [d]
        self.allowed_entries: dict[int, Tensor] = {}  # which of them may be flipped, [d]
        for a in self.attackers if x is not None else ():
            assert x is not None
            self.rows[a] = x[a].clone()
            likely = cooccurring(x, a) if options.cooccurrence else torch.ones_like(x[a], dtype=torch.bool)
            self.allowed_entries[a] = likely | (x[a] > 0)  # removing a feature is never noticed

    def flip_best(self) -> bool:
        """Make the flip with the highest loss; return False if none raises the loss."""
        state, candidates = self.state, 0
        best, place, raised = -torch.inf, (0, 0, False), float(state.margin(state.logits))
        for a in self.attackers:
            for scores, allowed, is_entry in self._scored_flips(a):
                candidates += int(allowed.sum())
                value, position = scores.masked_fill(~allowed, -torch.inf).max(0)
                if float(value) > best:
                    best, place = float(value), (a, int(position), is_entry)
        if candidates == 0 and not state.flipped_pairs and not state.flipped_entries:
            raise NoFlipError(
                f"no flip that could mislead node {state.target} is allowed; raise likelihood_cutoff (or None), set"
                " cooccurrence=False, or set direct=True"
            )
        if best <= raised:
            return False
        a, index, is_entry = place
        if is_entry:
            state.flip_entry(a, index, is_present=bool(self.rows[a][index] > 0))
            self.rows[a][index] = 1 - self.rows[a][index]
            self.allowed_entries[a][index] = False
        else:
            state.flip_edge(a, index)
        return True

    def _scored_flips(self, a: int) -> list[tuple[Tensor, Tensor, bool]]:
        """The scores of an attacker's flips, which of them are allowed, and whether they are of features."""
        flips = []
        if self.options.flip_edges:
            flips.append(
                (self.state.edge_scores(a), self.state.allowed_edges(a, self.options.likelihood_cutoff), False)
            )
        if self.options.flip_features:
            flips.append((self.state.entry_scores(a, self.rows[a]), self.allowed_entries[a], True))
        return flips


def _influencers(state: NettackState, count: int, seed: int) -> list[int]:
    """Some neighbours of the target, drawn if there are more than `count`."""
    near = state.neighbours(state.target).nonzero()[:, 0].tolist()
    if not near:
        raise NoFlipError(f"node {state.target} has no neighbours, so only a direct attack reaches it; set direct=True")
    order = torch.randperm(len(near), generator=rng("attack", "nettack", seed, state.target))
    return sorted(near[i] for i in order[:count].tolist())


def _target(nodes: Tensor, size: int) -> Tensor:
    """The only node to attack."""
    chosen = checked_rows(nodes, size)
    if len(chosen) != 1:
        raise ValueError(
            f"nettack attacks one node at a time, got {len(chosen)} nodes; use nettack_many, which finds flips for each"
        )
    return chosen


def _flips(state: NettackState, num_features: int, provenance: tuple[tuple[str, str], ...]) -> GraphFlips:
    """The flips that an attack has made."""
    pairs, entries = (
        torch.tensor(made, dtype=torch.int64).view(-1, 2).T for made in (state.flipped_pairs, state.flipped_entries)
    )
    edges = EdgeFlips.of(pairs, state.size, provenance)
    return GraphFlips(edges, FeatureFlips.of(entries, state.size, num_features, provenance))
