"""Local budgets: no node may have more than a share of its degree flipped, beside the budget of the whole graph."""

import torch
from torch import Tensor
from torch_geometric.data import Data

from wtawp.attacks.projection import thresholds
from wtawp.graphs.flips import undirected_pairs

HALVINGS = 30  # of the interval in which a node's multiplier lies
TOLERANCE = 1e-4  # flips by which a local budget may be exceeded before the last step, which makes up for it


def local_budgets(data: Data, share: float) -> Tensor:  # -> [n] int64 on the CPU
    """How many of the pairs of each node may be flipped: a share of its degree, rounded down.

    Args:
        data: The graph, undirected and without weights.
        share: The share of the degree, in (0, 1].

    Raises:
        ValueError: If the share is out of range, or no two nodes may have a pair flipped.
    """
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise ValueError(f"local_budget must be a share of the degree in (0, 1], got {share!r}")
    degrees = torch.bincount(undirected_pairs(data).flatten(), minlength=int(data.num_nodes))
    budgets = (share * degrees + 1e-9).long()
    if int((budgets > 0).sum()) < 2:
        raise ValueError(
            f"local_budget={share} leaves no legal flip: two nodes with a degree of {1 / share:.3g} or more are needed,"
            f" and the largest degrees are {degrees.sort(descending=True).values[:2].tolist()}; raise local_budget"
        )
    return budgets


def project_onto_budgets(
    values: Tensor, pairs: Tensor, budget: float, local: Tensor, *, rounds: int = 20
) -> Tensor:  # [k], [2, k], [n] -> [k]
    """The nearest point in [0, 1] with a sum of at most `budget`, and of at most local[i] over the pairs of node i.

    It is clamp(values - mu - lam_i - lam_j, 0, 1) with multipliers >= 0, which are found by ascent on the dual problem:
    mu exactly, and all lam at once, each halfway to where it would be best if the others stayed, so that no round makes
    the dual worse. What may be left after the last round is scaled down, so that both budgets are always kept.

    Args:
        values: Finite numbers.
        pairs: The two nodes of each pair.
        budget: The largest sum over all pairs, above 0.
        local: The largest sum over the pairs of each node.
        rounds: The most rounds of the ascent.
    """
    ends, both = pairs.flatten(), values.double().repeat(2)
    lam, limits = torch.zeros(len(local), dtype=torch.float64, device=values.device), local.to(both)
    for _ in range(rounds):
        shifted = values.double() - lam[pairs].sum(0)
        mu = thresholds(shifted[None], budget)[0]
        sums = _sums((shifted - mu).clamp(0, 1).repeat(2), ends, len(local))
        is_slack = (lam > TOLERANCE) & (sums < limits - TOLERANCE)  # could be let go, at least in part
        if not bool(((sums > limits + TOLERANCE) | is_slack).any()):
            break
        alone = both - mu - lam[pairs.flip(0).flatten()]  # without the multiplier of the end itself
        lam = (lam + _node_thresholds(alone, ends, limits)) / 2
    shifted = values.double() - lam[pairs].sum(0)
    return _scaled((shifted - thresholds(shifted[None], budget)[0]).clamp(0, 1), pairs, limits).to(values)


def _sums(values: Tensor, ends: Tensor, size: int) -> Tensor:  # [2 k], [2 k] -> [n]
    """The sum of values at each node."""
    return torch.zeros(size, dtype=values.dtype, device=values.device).index_add(0, ends, values)


def _node_thresholds(values: Tensor, ends: Tensor, limits: Tensor) -> Tensor:  # [2 k], [2 k], [n] -> [n]
    """For each node the least lam >= 0 for which the sum of clamp(values - lam, 0, 1) is at most its limit."""
    low = torch.zeros_like(limits)
    high = low.scatter_reduce(0, ends, values.clamp_min(0), "amax")
    is_tight = _sums(values.clamp(0, 1), ends, len(limits)) > limits
    kept = is_tight[ends] & (values > 0)
    values, ends = values[kept], ends[kept]
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        exceeds = _sums((values - middle[ends]).clamp(0, 1), ends, len(limits)) > limits
        low, high = torch.where(exceeds, middle, low), torch.where(exceeds, high, middle)
    return torch.where(is_tight, high, 0)


def _scaled(values: Tensor, pairs: Tensor, limits: Tensor) -> Tensor:
    """Values scaled down at nodes where they exceed the limit."""
    sums = _sums(values.repeat(2), pairs.flatten(), len(limits))
    factor = torch.where(sums > limits, limits / sums.clamp_min(1e-12), 1.0)
    return values * factor[pairs].amin(0)


def legal_flips(pairs: Tensor, order: Tensor, budget: int, local: Tensor) -> Tensor:  # [2, k], [r], [n] -> [<= budget]
    """Go through pairs in an order, and take those that keep both budgets, until the global one is used up.

    Args:
        pairs: The two nodes of each pair.
        order: Positions of pairs, the best first.
        budget: The most flips of the graph.
        local: The most flips of each node.

    Returns:
        The positions that were taken.
    """
    left: list[int] = local.tolist()
    taken: list[int] = []
    for position, i, j in zip(order.tolist(), *pairs[:, order].tolist(), strict=True):
        if len(taken) == budget:
            break
        if left[i] > 0 and left[j] > 0:
            left[i] -= 1
            left[j] -= 1
            taken.append(position)
    return torch.tensor(taken, dtype=torch.int64, device=pairs.device)
