"""The projection of PGD topology attacks onto the budget, by exact search for the threshold."""

import torch
from torch import Tensor


def project_onto_budget(values: Tensor, budget: float) -> Tensor:  # [k] -> [k]
    """Find the nearest point with entries in [0, 1] and a sum of at most the budget (Xu et al. 2019, Proposition 1).

    Args:
        values: Finite numbers, [k].
        budget: The largest sum allowed, above 0.

    Returns:
        The projection, [k], of the type of `values`.

    Raises:
        ValueError: If the budget is not positive, or a value is NaN or infinite.

    Example:
        >>> project_onto_budget(torch.tensor([0.5, 3.0, -1.0, 0.75]), 1.5)
        tensor([0.1250, 1.0000, 0.0000, 0.3750])
    """
    return (values - thresholds(values[None], budget).to(values)).clamp(0, 1)


def thresholds(values: Tensor, budget: float, least: Tensor | None = None) -> Tensor:  # [b, k], [b] -> [b], float64
    """For each row the least mu >= 0 for which the sum of clamp(values - mu, 0, 1) is at most `budget`.

    A lower bound on mu, such as mu of some of a row's values, may be passed as `least` and saves work: values below it
    do not change the answer. Zeros and negative values never do, so rows of different lengths may be padded with them.
    """
    if budget <= 0:
        raise ValueError(f"the budget must be positive, got {budget}")
    if not bool(torch.isfinite(values).all()):
        raise ValueError("values must be finite numbers, got NaN or infinite ones")
    least = values.new_zeros(len(values), dtype=torch.float64) if least is None else least
    values, few = _above(values, least), 8 * int(budget) + 64
    if values.shape[1] > 4 * few:
        least = torch.maximum(least, _thresholds(values.topk(few, sorted=False).values.double(), budget))
        values = _above(values, least)
    return torch.maximum(least, _thresholds(values.double(), budget))


def _above(values: Tensor, least: Tensor) -> Tensor:
    """The rows without most of the values that are not above `least`."""
    return values.topk(int((values > least[:, None]).sum(1).max()), sorted=False).values


def _thresholds(values: Tensor, budget: float) -> Tensor:
    """`thresholds` by sorting all values."""
    count = values.shape[1]
    if count == 0:
        return values.new_zeros(len(values))
    # From above: the sum grows with slope 1 for each value that mu has passed, until mu is 1 below it.
    turns, order = torch.cat([values, values - 1], 1).sort(descending=True)
    slope = torch.where(order < count, 1.0, -1.0).to(turns).cumsum(1)
    sums = torch.cat([turns.new_zeros(len(turns), 1), (slope[:, :-1] * -turns.diff()).cumsum(1)], 1)  # at each turn
    # mu lies between the last turn of a smaller sum and the next, where the slope is > 0
    last = (sums < budget).sum(1, keepdim=True) - 1
    turn, sum_there, slope_there = (t.gather(1, last)[:, 0] for t in (turns, sums, slope))
    mu = turn - (budget - sum_there) / slope_there.clamp_min(1)
    return torch.where(values.clamp(0, 1).sum(1) <= budget, 0, mu.clamp_min(0))
