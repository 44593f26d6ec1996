"""A surrogate for a victim whose gradient is not known or misleads: a plain GCN that learns its predictions."""

import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp.attacks.checks import refuse_whole_features
from wtawp.base import AttackError, checked_seed, rng
from wtawp.models import GCN
from wtawp.models.evaluation import evaluating

RATE, WEIGHT_DECAY = 0.01, 5e-4  # of Adam


def distilled_surrogate(data: Data, victim: nn.Module, *, seed: int, hidden: int = 64, epochs: int = 100) -> nn.Module:
    """Train a plain GCN on the probabilities that a victim predicts for all nodes, without dropout.

    Flips that mislead it can be tried on the victim. No label is used, and no gradient of the victim.

    Args:
        data: The graph.
        victim: The model, called as `victim(x, edge_index)` in evaluation mode. It is not changed.
        seed: The seed of the first weights.
        hidden: The number of hidden units.
        epochs: The number of steps of Adam.

    Returns:
        The surrogate.

    Raises:
        DataError: If the graph has no floating-point features.
        AttackError: If the victim's outputs are not finite.

    Example:
        >>> from wtawp.graphs import citation
        >>> data = citation(seed=0, num_nodes=60, num_words=20)
        >>> victim = GCN(20, 7, generator=rng("victim"))
        >>> surrogate = distilled_surrogate(data, victim, seed=0)
        >>> agrees = surrogate(data.x, data.edge_index).argmax(1) == victim.eval()(data.x, data.edge_index).argmax(1)
        >>> bool(agrees.float().mean() > 0.9)
        True
    """
    seed = checked_seed(seed)
    refuse_whole_features(data, "a surrogate")
    with evaluating(victim), torch.no_grad():
        wanted = victim(data.x, data.edge_index).softmax(1)
    if not bool(torch.isfinite(wanted).all()):
        raise AttackError("the victim returns NaN or infinite logits, which no surrogate can learn")
    surrogate = GCN(data.num_features, wanted.shape[1], hidden=(hidden,), generator=rng("distilled surrogate", seed))
    surrogate = surrogate.to(data.x.device, data.x.dtype).eval()
    weights = list(surrogate.parameters())
    optimizer = torch.optim.Adam(weights, lr=RATE, weight_decay=WEIGHT_DECAY)
    with torch.enable_grad():
        for _ in range(epochs):
            loss = F.cross_entropy(surrogate(data.x, data.edge_index), wanted)
            for weight, grad in zip(weights, torch.autograd.grad(loss, weights), strict=True):
                weight.grad = grad
            optimizer.step()
    return surrogate.requires_grad_(False)
