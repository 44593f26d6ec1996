"""FGA, the fast gradient attack (Chen et al. 2018): the flip with the largest gradient, one after another."""

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.attacks.gradient import FactoredGradient, FullGradient, attacked_by_gradient, codes_of_rows, entries_at_once
from wtawp.attacks.losses import Loss
from wtawp.attacks.relaxed import RelaxedFlips, target_of
from wtawp.base import AttackError, checked_seed, report_progress
from wtawp.graphs.flips import EdgeFlips, budget_of
from wtawp.models.evaluation import evaluating


def fga(
    data: Data,
    victim: nn.Module,
    *,
    budget: float | int,
    nodes: Tensor,
    labels: Tensor,
    seed: int,
    loss: Loss = "ce",
    direct: bool = True,
) -> EdgeFlips:
    """Find flips that raise a victim's loss greedily: at each step, the pair whose flip has the largest gradient.

    There are fewer flips than the budget allows where no pair is left whose gradient is positive. The victim is
    attacked in evaluation mode; its weights and their gradients are left as they are.

    Args:
        data: The graph.
        victim: The model, called as `victim(x, edge_index, edge_weight)`. One that does not support factored gradients
            (see `SupportsFactoredGradient`) is called with all candidates as edges: on large graphs, attack few nodes.
        budget: The number of flips allowed: undirected edges (int) or a share of the graph's edges (float).
        nodes: The nodes whose loss is to rise, as indices or a mask; usually one.
        labels: The labels of all nodes, [n], true or guessed; those of `nodes` are used.
        seed: A number for the provenance of the flips; nothing is drawn.
        loss: "ce", the cross-entropy, or "margin", which ignores nodes once they are misclassified, so that the attack
            ends there.
        direct: Whether each flip must be of an edge of one of `nodes`. Otherwise any pair may be flipped.

    Returns:
        The flips.

    Raises:
        ValueError: If nodes, labels or options are not what they must be.
        AttackError: If the victim ignores the graph, its outputs are not finite, or no flip raises the loss.

    Example:
        >>> from wtawp.base import rng
        >>> from wtawp.graphs import citation
        >>> from wtawp.models import GCN
        >>> data, victim = citation(seed=0, num_nodes=60, num_words=20), GCN(20, 7, generator=rng("victim"))
        >>> flips = fga(data, victim, budget=3, nodes=torch.tensor([7]), labels=data.y, seed=0)
        >>> (flips.pairs == 7).any(0).tolist()
        [True, True, True]
    """
    seed = checked_seed(seed)
    if loss not in ("ce", "margin"):
        raise ValueError(f"loss must be 'ce' or 'margin', got {loss!r}")
    count, size = budget_of(data, budget), int(data.num_nodes)
    with evaluating(victim):
        target = target_of(data, [nodes], [labels], loss, victim=victim)
        ends = torch.unique(target.nodes[0]) if direct else None
        attacked = attacked_by_gradient(target, [victim], ends)
        ends = torch.arange(size, device=target.edges.device) if ends is None else ends
        flips = target.no_flips()
        for done in range(count):
            best = _steepest(attacked.gradient(flips), ends, flips.codes, size)
            if best is None:
                break
            codes = torch.cat([flips.codes, best[None]])
            flips = RelaxedFlips.of(codes, torch.ones(len(codes), dtype=target.dtype, device=codes.device))
            report_progress((done + 1) / count)
    if len(flips.codes) == 0:
        raise AttackError(
            "no gradient with respect to the flip of a pair is positive: the victim ignores the graph (or edge_weight),"
            " or its loss is flat here, as a margin is once all attacked nodes are misclassified"
        )
    origin = {"attack": "fga", "budget": budget, "seed": seed, "loss": loss, "direct": direct}
    provenance = tuple((name, str(value)) for name, value in origin.items())
    return EdgeFlips.of(torch.stack([flips.codes // size, flips.codes % size]), size, provenance)


def _steepest(
    gradient: FactoredGradient | FullGradient, ends: Tensor, flipped: Tensor, size: int
) -> Tensor | None:  # [k], [f] -> []
    """The code of the pair with the largest positive gradient, one end of which is in `ends`; None if there is none."""
    values, codes = [], []
    for some in torch.split(ends, max(1, entries_at_once(ends.device) // size)):
        block, pairs = gradient.rows(some), codes_of_rows(some, size)
        is_excluded = torch.isin(pairs, flipped) | (pairs // size == pairs % size)
        value, position = block.masked_fill(is_excluded, 0).flatten().max(0)
        values.append(value)
        codes.append(pairs.flatten()[position])
    highest, best = torch.stack(values).max(0)
    return torch.stack(codes)[best] if float(highest) > 0 else None
