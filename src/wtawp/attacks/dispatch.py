"""Every attack behind one function, by name."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.attacks.checks import check_graph, check_victim
from wtawp.attacks.meta_attack import self_training_labels
from wtawp.attacks.registry import DEFAULT_ATTACK, attack_spec
from wtawp.attacks.spec import AttackRequest
from wtawp.base import checked_seed
from wtawp.graphs.graph_flips import Flips
from wtawp.graphs.row_choices import checked_rows
from wtawp.models.evaluation import evaluating


def attack(
    data: Data,
    victim: nn.Module | Callable[[Tensor, Tensor], Tensor] | None = None,
    *,
    budget: float | int | None = None,
    nodes: Tensor | Sequence[int] | None = None,
    method: str = DEFAULT_ATTACK["evasion"],
    labels: Tensor | None = None,
    seed: int = 0,
    surrogate: nn.Module | None = None,
    **options: Any,
) -> Flips:
    """Find flips of edges or features within a budget that mislead a model on some nodes.

    Args:
        data: The graph. It is not changed.
        victim: The model, called as `victim(x, edge_index, edge_weight)` in evaluation mode. It is not changed. The
            methods "random" and "dice" need none. For "eva", which uses predictions alone, any callable
            `victim(x, edge_index)` is enough.
        budget: The number of flips allowed: undirected edges (int) or a share of the graph's edges (float); for attacks
            on features, entries or a share of the ones. None: the default of the method, if it has one ("nettack").
        nodes: The nodes whose loss is to rise, as indices or a mask; "nettack" attacks one. None for all, and for the
            methods "random" and "dice", which do not use them. For attacks on a training ("metattack" and "meta-pgd")
            these are the training nodes; the loss of all other nodes is to rise, against the labels that the victim
            predicts.
        method: The name of the attack, one of `attack_names()`, or "package.module:function" for an attack of your
            own. By default "strongest", which runs several attacks, also by flips transferred from a surrogate, and
            returns the flips that leave the lowest accuracy; `AttackOutcome.of(flips.provenance)` says what each
            reached.
        labels: The labels of all nodes, [n]. None: `data.y`.
        seed: The seed of the attack's random draws.
        surrogate: A model of which "strongest" transfers flips. None: a GCN that learns the victim's predictions.
        options: Options of the function of that name, such as `steps` for `pgd`.

    Returns:
        The flips; `flips.apply(data)` is the attacked graph. They are `EdgeFlips`, `FeatureFlips` for methods that flip
        features, and `GraphFlips` for methods that can flip both (`attack_spec(method).changes`).

    Raises:
        ValueError: If no attack has this name, or nodes, labels or budget do not fit the graph.
        DataError: If `data` is not one graph without edge weights, or the victim fails on it.
        AttackError: If the victim cannot be attacked: it ignores the graph, or its outputs are not finite.

    Example:
        >>> from wtawp.graphs import citation
        >>> from wtawp.models import GCN
        >>> from wtawp.base import rng
        >>> data, victim = citation(seed=0, num_nodes=60, num_words=20), GCN(20, 7, generator=rng("victim"))
        >>> len(attack(data, victim, budget=5, nodes=torch.arange(10), steps=3))
        5
    """
    seed = checked_seed(seed)
    spec = attack_spec(method)
    check_graph(data)
    if spec.uses_victim:
        check_victim(victim, data, method, is_callable_enough=spec.uses_predictions)
    labels = data.y if labels is None else labels
    size = int(data.num_nodes)
    if nodes is None and spec.attacks_training:
        raise ValueError(f"attack {method!r} needs the training nodes; pass nodes=split.train")
    nodes = torch.arange(size, device=data.edge_index.device) if nodes is None else checked_rows(nodes, size)
    train = None
    if spec.attacks_training:
        assert isinstance(victim, nn.Module)
        with evaluating(victim), torch.no_grad():
            labels = self_training_labels(victim(data.x, data.edge_index), labels, nodes)
        is_other = torch.ones(size, dtype=torch.bool, device=nodes.device)
        is_other[nodes] = False
        train, nodes = nodes, is_other.nonzero()[:, 0]
    if surrogate is not None and not spec.uses_surrogate:
        raise ValueError(
            f"attack {method!r} uses no surrogate; leave it out, or attack the surrogate and apply the flips"
        )
    request = AttackRequest.single(
        data, victim, budget=budget, nodes=nodes, labels=labels, seed=seed, train=train, surrogate=surrogate
    )
    return spec.run(request, **options)[0]
