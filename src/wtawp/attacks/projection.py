"""The projection of PGD topology attacks onto the budget, by exact search for the threshold."""

import torch
from torch import Tensor


def project_onto_budget(values: Tensor, budget: float) -> Tensor:  # [k] -> [k]
    """The nearest point with entries in [0, 1] and a sum of at most `budget` (Xu et al. 2019, Proposition 1).

    >>> project_onto_budget(torch.tensor([0.5, 3.0, -1.0, 0.75]), 1.5)
    tensor([0.1250, 1.0000, 0.0000, 0.3750])
    """
    return (values - threshold(values, budget)).clamp(0, 1)


def threshold(values: Tensor, budget: float) -> float:
    """The least mu >= 0 for which the sum of clamp(values - mu, 0, 1) is at most `budget`.

    Values below the answer for any part of the values, such as the largest few, have no say in the answer.
    """
    if budget <= 0:
        raise ValueError(f"the budget must be positive, got {budget}")
    if not bool(torch.isfinite(values).all()):
        raise ValueError("values must be finite numbers, got NaN or infinite ones")
    values = values[values > 0]
    few, least = 8 * int(budget) + 64, 0.0
    if len(values) > 4 * few:
        least = _threshold(values.topk(few, sorted=False).values.double(), budget)
        values = values[values > least]
    return max(least, _threshold(values.double(), budget))


def _threshold(values: Tensor, budget: float) -> float:
    if float(values.clamp(0, 1).sum()) <= budget:
        return 0.0
    # From above: the sum grows with slope 1 for each value that mu has passed, until mu is 1 below it.
    turns, order = torch.cat([values, values - 1]).sort(descending=True)
    slope = torch.where(order < len(values), 1.0, -1.0).to(turns).cumsum(0)
    sums = torch.cat([turns.new_zeros(1), (slope[:-1] * -turns.diff()).cumsum(0)])  # at each turn
    last = int((sums < budget).nonzero()[-1])  # mu lies between this turn and the next, where the slope is > 0
    return max(float(turns[last] - (budget - sums[last]) / slope[last]), 0.0)
