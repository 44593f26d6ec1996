"""The linear surrogate of Nettack: a GCN of two layers without ReLU, whose logits are A_hat^2 X W."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp.attacks.checks import checked_labels, refuse_whole_features
from wtawp.base import AttackError
from wtawp.graphs.normalisation import gcn_operator
from wtawp.graphs.operator import Operator
from wtawp.graphs.products import multiply
from wtawp.graphs.row_choices import checked_rows
from wtawp.models.evaluation import evaluating
from wtawp.models.inputs import features

WEIGHT_DECAY = 5e-4  # beside the mean cross-entropy


def surrogate_weights(
    data: Data, *, labels: Tensor | None = None, train: Tensor | None = None, victim: nn.Module | None = None,
    steps: int = 50,
) -> Tensor:  # -> [d, c]  # fmt: skip
    """Train W of a linear GCN with logits A_hat^2 X W.

    The problem is convex and the training starts from zero, so nothing is random.

    Args:
        data: The graph, with floating-point features `x`.
        labels: The labels of all nodes, [n]; those of the training nodes are used. None: `data.y`.
        train: The training nodes, as indices or a mask. None: the surrogate imitates the probabilities that the victim
            predicts on all nodes.
        victim: The model to imitate where no training nodes are given.
        steps: The largest number of iterations of L-BFGS.

    Returns:
        The weights, [d, c].

    Raises:
        DataError: If the graph has no floating-point features.
        ValueError: If there are neither training nodes nor a victim, or nodes and labels do not fit the graph.
        AttackError: If features or the victim's outputs are not finite.

    Example:
        >>> from wtawp.graphs import citation
        >>> data = citation(seed=0, num_nodes=60, num_words=20)
        >>> surrogate_weights(data, train=torch.arange(0, 60, 2)).shape
        torch.Size([20, 7])
    """
    if steps < 1:
        raise ValueError(f"steps must be >= 1, got {steps}")
    refuse_whole_features(data, "a surrogate")
    targets, share = _targets(data, labels, train, victim)
    x, size = features(data.x), int(data.num_nodes)
    transposed = x.T if isinstance(x, Operator) else x.mT
    operator = gcn_operator(data.edge_index, None, size, data.x.dtype)
    weights = torch.zeros(data.x.shape[1], targets.shape[1], dtype=data.x.dtype, device=data.x.device)
    optimizer = torch.optim.LBFGS([weights], max_iter=steps, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        logits = multiply(operator, multiply(operator, multiply(x, weights)))
        to_logits = share * (logits.softmax(1) - targets)
        weights.grad = multiply(transposed, multiply(operator, multiply(operator, to_logits)))  # A_hat is symmetric
        weights.grad += WEIGHT_DECAY * weights
        return -(share * targets * logits.log_softmax(1)).sum() + 0.5 * WEIGHT_DECAY * weights.square().sum()

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    if not bool(torch.isfinite(weights).all()):
        raise AttackError("the surrogate's training diverges: features must be finite numbers; scale them down")
    return weights


def _targets(
    data: Data, labels: Tensor | None, train: Tensor | None, victim: nn.Module | None
) -> tuple[Tensor, Tensor]:  # -> [n, c], [n, 1]
    """The probabilities that the surrogate is to predict, and the share of each node in its loss."""
    size, device = int(data.num_nodes), data.x.device
    if train is None:
        if victim is None:
            raise ValueError("a surrogate needs the training nodes (train=split.train) or a victim to imitate")
        with evaluating(victim), torch.no_grad():
            targets: Tensor = victim(data.x, data.edge_index).softmax(1)
        if not bool(torch.isfinite(targets).all()):
            raise AttackError("the victim returns NaN or infinite logits, which no surrogate can imitate")
        return targets.to(data.x.dtype), torch.full((size, 1), 1 / size, dtype=data.x.dtype, device=device)
    nodes = torch.unique(checked_rows(train, size, "train")).to(device)
    known = checked_labels(data.y if labels is None else labels, size).to(device)
    if int(known[nodes].min()) < 0:
        raise ValueError("labels of the training nodes must be known (>= 0); leave the others out of `train`")
    targets = F.one_hot(known.clamp_min(0), int(known.max()) + 1).to(data.x.dtype)
    share = torch.zeros(size, 1, dtype=data.x.dtype, device=device)
    share[nodes] = 1 / len(nodes)
    return targets, share
