"""Metattack (Zuegner and Guennemann 2019): poison the edges along the gradient through the training of a surrogate.

The surrogate is a linear GCN, logits = S S X W1 W2 with S = D^-1/2 (A + I) D^-1/2, trained anew for each flip from
new random weights; then the one pair of nodes whose flip raises the attack loss most, to first order, is flipped.

Because the surrogate is linear, training sees the graph only through M, the rows of S S X that belong to the k training
nodes, and gradient descent moves W1 only by M^T a, with `a` [k, h]. So the whole training and the way back through it
are recursions between matrices of k rows and M M^T [k, k] (`meta_training`). The gradient with respect to M becomes one
with respect to S of rank 2 k, kept in factors (`meta_state`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp.attacks.checks import as_label_tensor, checked_labels
from wtawp.attacks.meta_state import MetaInit, MetaState, PairGradient
from wtawp.attacks.meta_training import Descent, adam_trajectory
from wtawp.attacks.spec import AttackRequest
from wtawp.base import AttackError, checked_seed, report_progress
from wtawp.graphs.flips import EdgeFlips, budget_of
from wtawp.graphs.operator import Operator
from wtawp.graphs.products import multiply
from wtawp.models.capabilities import Features
from wtawp.models.inputs import features

Progress = Callable[[float, str], None]


@dataclass(frozen=True, kw_only=True)
class MetaOptions:
    """The options that all attacks of one call share; see `metattack`."""

    lam: float
    approximate: bool
    likelihood_cutoff: float | None
    steps: int
    hidden: int
    initial: MetaInit

    def __post_init__(self) -> None:
        if not 0 <= self.lam <= 1:
            raise ValueError(f"lam must lie between 0 (Meta-Self) and 1 (Meta-Train), got {self.lam}")
        if self.steps < 1 or self.hidden < 1:
            raise ValueError(f"steps and hidden must be >= 1, got {self.steps} and {self.hidden}")
        if self.likelihood_cutoff is not None and not self.likelihood_cutoff > 0:
            raise ValueError(f"likelihood_cutoff must be positive, or None for no test, got {self.likelihood_cutoff}")
        if self.initial not in get_args(MetaInit):
            raise ValueError(f"initial must be one of {', '.join(map(repr, get_args(MetaInit)))}, got {self.initial!r}")


def metattack(
    data: Data,
    *,
    budget: float | int,
    train: Tensor,
    labels: Tensor,
    seed: int,
    unlabelled: Tensor | None = None,
    lam: float = 0.0,
    approximate: bool = False,
    likelihood_cutoff: float | None = None,
    steps: int = 100,
    hidden: int = 16,
    initial: MetaInit = "uniform",
    progress: Progress | None = None,
) -> EdgeFlips:
    """Find flips that lower the accuracy of a network that is trained on the flipped graph.

    No node loses its last edge, and no pair is flipped twice, so there may be fewer flips than the budget allows.

    Args:
        data: The graph, with float features `x` [n, d].
        budget: The number of flips allowed: undirected edges (int) or a share of the graph's edges (float).
        train: The training nodes, as indices or a mask.
        labels: The labels of all nodes, [n]: true on the training nodes and guessed on the unlabelled ones; see
            `self_training_labels`.
        seed: The seed of the surrogate's first weights.
        unlabelled: The nodes that the attack aims at, as indices or a mask. None: all that are not training nodes.
        lam: The weight of the loss on the training nodes in the attack loss; 1 - lam is that of the unlabelled ones.
            0, the default, is Meta-Self, the stronger one in the paper; 1 is Meta-Train.
        approximate: Whether to sum the gradients along a training with Adam instead of differentiating through a
            training (A-Metattack).
        likelihood_cutoff: Forbids flips after which the degrees would fit the original power law badly (0.004 in the
            paper). None: no such test.
        steps: The number of training steps of the surrogate.
        hidden: The width of the surrogate's hidden layer.
        initial: How the surrogate's first weights are drawn: "uniform" in +-1 / sqrt(outputs), as in DeepRobust and the
            code that the paper released, or "glorot", as in the attack's first implementation.
        progress: Called after each flip with the share of flips that are done and a text.

    Returns:
        The flips.

    Raises:
        ValueError: If nodes, labels, features or options are not what they must be.
        AttackError: If no flip is allowed, or the gradient is zero or not finite.

    Example:
        >>> from wtawp.graphs import citation
        >>> data = citation(seed=0, num_nodes=60, num_words=20)
        >>> len(metattack(data, budget=3, train=torch.arange(0, 60, 3), labels=data.y, seed=0, steps=5))
        3
    """
    seed = checked_seed(seed)
    return metattack_many(
        data, budget=budget, trains=[train], labels=[labels], seeds=[seed],
        unlabelled=None if unlabelled is None else [unlabelled], lam=lam, approximate=approximate,
        likelihood_cutoff=likelihood_cutoff, steps=steps, hidden=hidden, initial=initial, progress=progress,
    )[0]  # fmt: skip


def metattack_many(
    data: Data,
    *,
    budget: float | int,
    trains: Sequence[Tensor],
    labels: Sequence[Tensor],
    seeds: Sequence[int],
    unlabelled: Sequence[Tensor | None] | None = None,
    lam: float = 0.0,
    approximate: bool = False,
    likelihood_cutoff: float | None = None,
    steps: int = 100,
    hidden: int = 16,
    initial: MetaInit = "uniform",
    progress: Progress | None = None,
) -> list[EdgeFlips]:
    """Run independent attacks on one graph, such as one for each split; on a GPU all at once.

    Each attack finds the flips that `metattack` finds alone.

    Args:
        data: The graph, with float features `x` [n, d].
        budget: The number of flips allowed in each attack: undirected edges (int) or a share of the edges (float).
        trains: The training nodes of each attack, as indices or masks.
        labels: The labels of all nodes, [n], for each attack: true on its training nodes, guessed on all others.
        seeds: The seed of each attack.
        unlabelled: The nodes that each attack aims at. None, for one attack or for all: all nodes that are not
            training nodes.
        lam: The weight of the loss on the training nodes in the attack loss, from 0 (Meta-Self) to 1 (Meta-Train).
        approximate: Whether to sum gradients along a training with Adam (A-Metattack).
        likelihood_cutoff: The cutoff of the test on degrees (0.004 in the paper). None: no test.
        steps: The number of training steps of the surrogate.
        hidden: The width of the surrogate's hidden layer.
        initial: How the surrogate's first weights are drawn, "uniform" or "glorot".
        progress: Called after each flip with the share of all flips that are done and a text.

    Returns:
        The flips of each attack, in their order.

    Raises:
        ValueError: If the sequences differ in length or are empty, or nodes, labels, features or options are not what
            they must be.
    """
    seeds = [checked_seed(seed, f"seeds[{i}]") for i, seed in enumerate(seeds)]
    count, size = budget_of(data, budget), int(data.num_nodes)
    options = MetaOptions(
        lam=lam,
        approximate=approximate,
        likelihood_cutoff=likelihood_cutoff,
        steps=steps,
        hidden=hidden,
        initial=initial,
    )
    others = [None] * len(trains) if unlabelled is None else unlabelled
    if not len(trains) == len(labels) == len(seeds) == len(others) or len(trains) == 0:
        raise ValueError(
            "trains, labels, seeds and unlabelled must be of one length, one or more each, got"
            f" {len(trains)}, {len(labels)}, {len(seeds)}, {len(others)}"
        )
    labels = [checked_labels(each, size) for each in labels]
    x, classes = _checked_features(data), _num_classes(data, labels)
    states = [
        MetaState(data, x, train, rest, label, classes, seed, lam)
        for train, rest, label, seed in zip(trains, others, labels, seeds, strict=True)
    ]
    together = len(states) if data.edge_index.device.type == "cuda" else 1  # a CPU is as fast one by one
    for first in range(0, len(states), together):

        def report(flip: int, first: int = first) -> None:
            done = (first * count + together * flip) / (len(states) * count)
            report_progress(done)
            if progress is not None:
                progress(done, f"flip {flip} of {count}, attacks {first + 1} to {first + together} of {len(states)}")

        attack_together(states[first : first + together], count, options, report)
    shared = {"lam": lam, "approximate": approximate, "likelihood_cutoff": likelihood_cutoff}
    flips = []
    for state in states:
        origin = {"attack": "metattack", "budget": budget, "seed": state.seed, **shared, "steps": steps}
        provenance = tuple(
            (name, str(value)) for name, value in {**origin, "hidden": hidden, "initial": initial}.items()
        )
        pairs = torch.stack([state.flipped // size, state.flipped % size])
        flips.append(EdgeFlips.of(pairs, size, provenance))
    return flips


def run_metattack(request: AttackRequest, *, unlabelled: Tensor | None = None, **options: Any) -> list[EdgeFlips]:
    """Metattack on a request, for the registry: the request's nodes are the unlabelled ones, unless others are passed.

    The surrogates are Metattack's own; the victims are not used.
    """
    if request.trains is None:
        raise ValueError("metattack needs the training nodes, and the request holds none")
    aims: list[Tensor | None] = [nodes if len(nodes) else None for nodes in request.nodes]
    if unlabelled is not None:
        aims = [unlabelled] * len(aims)
    return metattack_many(
        request.data, budget=request.given_budget, trains=request.trains, unlabelled=aims, labels=request.labels,
        seeds=request.seeds, **options,
    )  # fmt: skip


def self_training_labels(logits: Tensor, labels: Tensor, train: Tensor) -> Tensor:  # [n, c], [n], [k] -> [n]
    """Combine the true labels of the training nodes with a model's predictions for all others.

    Args:
        logits: The model's outputs, [n, c].
        labels: The labels of all nodes, [n], of which only those of the training nodes are used.
        train: The training nodes, as indices or a mask.

    Returns:
        Labels of all nodes, [n].

    Raises:
        ValueError: If the shapes of logits and labels do not fit each other.

    Example:
        >>> self_training_labels(torch.tensor([[2.0, 1.0], [0.0, 1.0]]), torch.tensor([1, 0]), torch.tensor([0]))
        tensor([1, 1])
    """
    labels = as_label_tensor(labels)
    if logits.dim() != 2 or labels.shape != logits.shape[:1]:
        raise ValueError(f"expected logits [n, c] and labels [n], got {list(logits.shape)} and {list(labels.shape)}")
    guessed = logits.argmax(1)
    guessed[train] = labels[train].to(guessed)
    return guessed


@torch.no_grad()
def attack_together(
    states: Sequence[MetaState], count: int, options: MetaOptions, report: Callable[[int], None]
) -> None:
    """Find all flips of some attacks, training their surrogates as one; an attack without allowed flips stops."""
    active = list(states)
    for flip in range(count):
        active = [
            state
            for state, gradient in zip(active, meta_gradients(active, flip, options), strict=True)
            if state.flip_best(gradient, options.likelihood_cutoff)
        ]
        report(flip + 1)
        if not active:
            break
    if any(len(state.flipped) == 0 for state in states):
        raise AttackError("no flip is allowed: raise likelihood_cutoff, or attack a graph with more edges")


def meta_gradients(states: Sequence[MetaState], flip: int, options: MetaOptions) -> list[PairGradient]:
    """The gradient that decides the next flip of each attack."""
    rows, targets, share = _stacked(states)
    drawn = [state.first_weights(flip, options.hidden, options.initial) for state in states]
    first, second = (torch.stack(each) for each in zip(*drawn, strict=True))
    if options.approximate:
        path = adam_trajectory(rows, targets, share, first, second, options.steps)
        return [state.gradient(state.loss_factors(w)) for state, w in zip(states, path, strict=True)]
    training = Descent(rows, targets, share, first, second, options.steps)
    of_loss = [
        state.loss_factors(w[:, None]) for state, w in zip(states, training.first @ training.second, strict=True)
    ]
    to_weights = torch.stack(
        [
            state.transposed(multiply(state.operator, u[:, u.shape[1] // 2 :]))
            for state, (u, _) in zip(states, of_loss, strict=True)
        ]
    )  # [b, d, c]
    return [
        state.gradient(state.training_factors(to_rows[: len(state.train)]), direct)
        for state, direct, to_rows in zip(states, of_loss, training.gradient(to_weights), strict=True)
    ]


def _stacked(states: Sequence[MetaState]) -> tuple[Tensor, Tensor, Tensor]:  # -> [b, k, d], [b, k, c], [b, k, 1]
    """M, labels and each row's share in the training loss; rows that fill up a smaller training set have none."""
    most = max(len(state.train) for state in states)

    def filled(parts: list[Tensor]) -> Tensor:
        return torch.stack([F.pad(part, (0, 0, 0, most - len(part))) for part in parts])

    targets = [state.targets[state.train] for state in states]
    shares = [torch.full_like(target[:, :1], 1 / len(target)) for target in targets]
    return filled([state.build() for state in states]), filled(targets), filled(shares)


def _num_classes(data: Data, labels: Sequence[Tensor]) -> int:
    """The number of classes of `data.y`, or of the labels passed if the graph has none."""
    known = labels if data.y is None else [data.y]
    return 1 + max(int(each.max()) for each in known)


def _checked_features(data: Data) -> Features:
    """The features, sparse where they have many zeros."""
    if data.x is None or data.x.dim() != 2 or not data.x.is_floating_point():
        got = "none" if data.x is None else f"{data.x.dtype} {list(data.x.shape)}"
        raise ValueError(f"Metattack needs features data.x, floats of shape [n, d] (an identity will do), got {got}")
    x: Features = features(data.x)
    if not bool(torch.isfinite(x.values if isinstance(x, Operator) else x).all()):
        raise ValueError("data.x holds NaN or infinite features; a surrogate cannot be trained on them")
    return x
