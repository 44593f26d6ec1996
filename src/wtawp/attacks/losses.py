"""The losses that gradient attacks raise: one definition of each, with what attacks need to know about it.

A loss maps the logits of the attacked nodes to one number for each copy of the graph. It is differentiable with respect
to the logits, which is all that factored gradients, full gradients and PyG's block attacks ask of it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Loss = Literal["ce", "masked_ce", "margin", "prob_margin", "tanh_margin"]


@dataclass(frozen=True, kw_only=True)
class LossSpec:
    """One loss that an attack can raise.

    Attributes:
        name: The name in the options of attacks.
        value: Maps logits [b, k, c], labels [b, k] and shares [b, k] to the loss of each copy, [b]. The share of a node
            is 1 over the number of the copy's nodes, or 0 for padding, which must not count.
        step_size: The step size of PGD that suits the size of its gradients.
        selects_by_accuracy: Whether the best of PGD's final draws is the one that leaves the fewest nodes classified
            correctly, ties by the loss. Otherwise the loss alone selects, as in the paper's protocol.
    """

    name: Loss
    value: Callable[[Tensor, Tensor, Tensor], Tensor]
    step_size: float
    selects_by_accuracy: bool = True


def margins(scores: Tensor, labels: Tensor) -> Tensor:  # [b, k, c], [b, k] -> [b, k]
    """The best score of any other class less that of the label: above 0 for nodes that are misclassified.

    Args:
        scores: Logits or other scores of classes.
        labels: The labels.

    Returns:
        The margins.
    """
    own = scores.gather(2, labels[..., None])[..., 0]
    return scores.scatter(2, labels[..., None], -math.inf).amax(2) - own


def misclassified(logits: Tensor, labels: Tensor, share: Tensor) -> Tensor:  # [b, k, c], [b, k], [b, k] -> [b]
    """The share of nodes that are misclassified.

    Args:
        logits: The logits of the nodes.
        labels: Their labels.
        share: 1 over the number of the copy's nodes, or 0 for padding.

    Returns:
        A number from 0 to 1 for each copy.
    """
    wrong = (logits.argmax(2) != labels) & (share > 0)
    return wrong.sum(1) / (share > 0).sum(1)


def _mean(rows: Tensor, share: Tensor) -> Tensor:  # [b, k], [b, k] -> [b]
    """The mean over the nodes of each copy."""
    counted = share > 0
    return torch.where(counted, rows, 0).sum(1) / counted.sum(1)


def _cross_entropy(logits: Tensor, labels: Tensor, share: Tensor) -> Tensor:
    """The mean cross-entropy of all nodes."""
    return (share * F.cross_entropy(logits.mT, labels, reduction="none")).sum(1)


def _masked_cross_entropy(logits: Tensor, labels: Tensor, share: Tensor) -> Tensor:
    """The mean cross-entropy of the nodes that are classified correctly; of all nodes where none is."""
    counted = share > 0
    correct = (logits.argmax(2) == labels) & counted
    correct = torch.where(correct.any(1, keepdim=True), correct, counted)
    rows = F.cross_entropy(logits.mT, labels, reduction="none")
    return torch.where(correct, rows, 0).sum(1) / correct.sum(1)


def _margin(logits: Tensor, labels: Tensor, share: Tensor) -> Tensor:
    """The mean margin of logits, cut off at 0: a node that is misclassified adds nothing any more."""
    return (share * margins(logits, labels).clamp_max(0)).sum(1)


def _probability_margin(logits: Tensor, labels: Tensor, share: Tensor) -> Tensor:
    """The mean margin of probabilities."""
    return _mean(margins(logits.softmax(2), labels), share)


def _tanh_margin(logits: Tensor, labels: Tensor, share: Tensor) -> Tensor:
    """The mean tanh of the margin of log-probabilities, which is steep for nodes near the decision boundary alone."""
    return _mean(margins(logits.log_softmax(2), labels).tanh(), share)


_SPECS = (
    LossSpec(name="ce", value=_cross_entropy, step_size=200.0, selects_by_accuracy=False),
    LossSpec(name="masked_ce", value=_masked_cross_entropy, step_size=200.0),
    LossSpec(name="margin", value=_margin, step_size=20.0, selects_by_accuracy=False),
    LossSpec(name="prob_margin", value=_probability_margin, step_size=50.0),
    LossSpec(name="tanh_margin", value=_tanh_margin, step_size=50.0),
)
LOSSES: dict[str, LossSpec] = {spec.name: spec for spec in _SPECS}


def loss_spec(name: str) -> LossSpec:
    """Look up a loss by its name.

    Args:
        name: "ce", the cross-entropy; "masked_ce", that of the nodes that are still classified correctly; "margin", the
            margin until a node is misclassified; "prob_margin", the margin of probabilities; or "tanh_margin", the tanh
            of the margin of log-probabilities.

    Returns:
        Its entry.

    Raises:
        ValueError: If no loss has this name.

    Example:
        >>> loss_spec("ce").step_size
        200.0
    """
    if name not in LOSSES:
        raise ValueError(f"loss must be one of {', '.join(map(repr, LOSSES))}, got {name!r}")
    return LOSSES[name]
