"""What training minimises, and what it measures: the loss and the metric of every model of a stack."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from wtawp.base import DataError, find_stack_level
from wtawp.training.broadcasting import call_checked, could_broadcast

LossFunction = Callable[[Tensor, Tensor], Tensor]  # output [k, ...], target [k, ...] -> scalar
MetricFunction = Callable[[Tensor, Tensor], Tensor | float]
TOLERANCE = 1e-2  # of a sum of probabilities, which may be in half precision
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Objective:
    """The loss and the metric of a training. Both are functions of the rows of one model: its output and the targets.

    Attributes:
        loss: Called as `loss(output, target)`, returns a scalar tensor; None is the mean cross-entropy.
        metric: Called as `metric(output, target)`, returns one number; None is the accuracy.
        lower_is_better: Whether a lower metric is better, as with an error.
        num_classes: One more than the largest class number among the targets, if they are class numbers; else 0.

    Raises:
        ValueError: If `lower_is_better` is set and there is no metric that it could describe.
    """

    loss: LossFunction | None = None
    metric: MetricFunction | None = None
    lower_is_better: bool = False
    num_classes: int = 0
    _accepted: set[str] = field(
        default_factory=set, init=False, repr=False, compare=False
    )  # functions, by name, and logits

    def __post_init__(self) -> None:
        if self.lower_is_better and self.metric is None:
            raise ValueError("lower_is_better describes the metric, and accuracy is better if higher; pass metric= too")

    @property
    def is_default(self) -> bool:
        """Whether this is cross-entropy and accuracy, which a CUDA graph can record."""
        return self.loss is None and self.metric is None

    @property
    def has_classes(self) -> bool:
        """Whether the targets are class numbers, because cross-entropy or accuracy is computed with them."""
        return self.loss is None or self.metric is None

    def check_targets(self, y: Tensor | None) -> None:
        """Refuse targets that are not class numbers if cross-entropy or accuracy is to be computed with them.

        Args:
            y: The targets of all samples, or None if the data have none.

        Raises:
            DataError: If there are no targets, or they do not fit.
        """
        if y is None:
            raise DataError("the data have no targets y to train with")
        if not self.has_classes:
            return
        if y.dim() != 1 or y.is_floating_point() or y.is_complex():
            names = [name for name, f in (("loss", self.loss), ("metric", self.metric)) if f is None]
            subject = {"loss": "cross-entropy needs", "metric": "accuracy needs"}[names[0]]
            subject = subject if len(names) == 1 else "cross-entropy and accuracy need"
            is_column = y.dim() == 2 and y.shape[1] == 1 and not y.is_floating_point()
            example = (
                "data.y = data.y.squeeze(1)" if is_column else "loss=F.mse_loss, or F.binary_cross_entropy_with_logits"
            )
            raise DataError(
                f"{subject} class numbers as targets, [n], got {y.dtype} of shape {list(y.shape)};"
                f" pass {' and '.join(f'{name}=' for name in names)} for other targets ({example})"
            )

    def losses(self, outputs: Tensor, y: Tensor, *, is_shared: bool = True) -> Tensor:  # [b, k, ...] -> [b]
        """Compute the loss of each member.

        Args:
            outputs: What the members return for their samples, [b, k, ...].
            y: The targets, [k, ...] if all members have the same samples, else [b, k, ...].
            is_shared: Whether all members have the same samples.

        Returns:
            The losses, [b].

        Raises:
            ValueError: If the loss is not a scalar tensor, or is a detached one where gradients are needed.
            DataError: If cross-entropy is to be computed from an output that is not one row of logits for each sample,
                or the loss compares each output with all targets.
        """
        if self.loss is None:
            self.check_logits(outputs, "loss")
            self.warn_of_probabilities(outputs)
            return _cross_entropies(outputs, y)
        values = [self.loss_of(output, target) for output, target in _members(outputs, y, is_shared)]
        for value in values:
            if not isinstance(value, Tensor) or value.dim() != 0:
                got = f"shape {list(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
                raise ValueError(f"loss must return a scalar tensor, such as a mean over the samples, got {got}")
            if outputs.requires_grad and torch.is_grad_enabled() and not value.requires_grad:
                raise ValueError(
                    "loss must return a tensor through which gradients reach the output, got a detached one; compute it"
                    " from the output without .detach(), .item(), argmax, comparisons or torch.no_grad()"
                )
        return torch.stack(values)

    def scores(self, outputs: Tensor, y: Tensor, *, is_shared: bool = True) -> Tensor:  # [b, k, ...] -> [b]
        """Compute the metric of each member.

        Args:
            outputs: What the members return for their samples, [b, k, ...].
            y: The targets, [k, ...] if all members have the same samples, else [b, k, ...].
            is_shared: Whether all members have the same samples.

        Returns:
            The values of the metric, [b].

        Raises:
            ValueError: If the metric is not one number.
            DataError: If accuracy is to be computed from an output that is not one row of logits for each sample, or
                the metric compares each output with all targets.
        """
        if self.metric is None:
            self.check_logits(outputs, "metric")
            return (outputs.argmax(2) == y).to(torch.float32).mean(1)
        values = []
        for output, target in _members(outputs.detach(), y, is_shared):
            value = self.score_of(output, target)
            if torch.as_tensor(value).numel() != 1:
                raise ValueError(f"metric must return one number, got shape {list(torch.as_tensor(value).shape)}")
            values.append(float(value))
        return torch.tensor(values, dtype=torch.float64, device=outputs.device)

    def loss_of(self, output: Tensor, target: Tensor) -> Tensor:  # [k, ...], [k, ...] -> []
        """Call the caller's loss for one model. In its first call it is refused if each output meets all targets.

        Args:
            output: The rows of the model, [k, ...].
            target: The targets, [k, ...].

        Returns:
            What the loss returns.

        Raises:
            DataError: If torch broadcasts the output and the target to [k, k].
        """
        assert self.loss is not None, "cross-entropy is computed for all members at once"
        return self._called("loss", self.loss, output, target)

    def score_of(self, output: Tensor, target: Tensor) -> Tensor | float:  # [k, ...], [k, ...] -> []
        """Call the caller's metric for one model, as `loss_of` calls the loss.

        Args:
            output: The rows of the model, [k, ...].
            target: The targets, [k, ...].

        Returns:
            What the metric returns.

        Raises:
            DataError: If torch broadcasts the output and the target to [k, k].
        """
        assert self.metric is not None, "accuracy is computed for all members at once"
        return self._called("metric", self.metric, output, target)

    def _called(self, name: str, function: Callable[[Tensor, Tensor], T], output: Tensor, target: Tensor) -> T:
        """Call a function of the caller; the first call with shapes that torch could broadcast is checked."""
        if name in self._accepted or not could_broadcast(output, target):
            return function(output, target)
        value = call_checked(function, output, target, name)
        self._accepted.add(name)
        return value

    def check_logits(self, outputs: Tensor, needed_by: Literal["loss", "metric"]) -> None:  # [b, k, c]
        """Refuse outputs that are not one row of logits for each sample, with a logit for each class.

        Args:
            outputs: What the members return for their samples.
            needed_by: Which of the two functions is computed, by cross-entropy or accuracy.

        Raises:
            DataError: If the outputs are something else.
        """
        if outputs.dim() != 3:
            name = {"loss": "cross-entropy", "metric": "accuracy"}[needed_by]
            raise DataError(
                f"{name} needs one row of logits for each sample, [k, c], but the model returns shape"
                f" {list(outputs.shape[1:])}; pass {needed_by}= for other outputs"
            )
        if outputs.shape[2] < self.num_classes:
            raise DataError(
                f"the model returns {outputs.shape[2]} logits for each sample, and the labels are 0 to"
                f" {self.num_classes - 1}; build it with {self.num_classes} outputs, or number the classes from 0"
                " without gaps"
            )

    def warn_of_probabilities(self, outputs: Tensor) -> None:  # [b, k, c]
        """Warn if the first outputs are probabilities, which cross-entropy would take for logits.

        Only the first call looks at them, and only at those of the first member.

        Args:
            outputs: What the members return for their samples.
        """
        if "logits" in self._accepted:
            return
        self._accepted.add("logits")
        first = outputs.detach()[0]
        if first.numel() and bool((first >= 0).all()) and bool(((first.sum(1) - 1).abs() < TOLERANCE).all()):
            warnings.warn(
                "the model returns probabilities: its first outputs are not negative, and each row adds up to 1."
                " Cross-entropy computes the softmax itself, and hardly learns through a second one; return logits,"
                " without the softmax, or log_softmax of them, or pass loss= for probabilities",
                stacklevel=find_stack_level(),
            )

    def goodness(self, scores: Tensor) -> Tensor:
        """Turn the values of the metric so that higher is better.

        Args:
            scores: The values, of any shape.

        Returns:
            The values, with the other sign if lower is better.
        """
        return -scores if self.lower_is_better else scores


def _cross_entropies(logits: Tensor, y: Tensor) -> Tensor:  # [b, k, c], [k] or [b, k] -> [b]
    """The mean cross-entropy of each member. The layout lets the softmax process many nodes in one vector."""
    return F.cross_entropy(logits.mT.contiguous(), y.expand(logits.shape[:2]), reduction="none").mean(1)


def _members(outputs: Tensor, y: Tensor, is_shared: bool) -> list[tuple[Tensor, Tensor]]:
    """The output and the targets of each member."""
    return [(outputs[i], y if is_shared else y[i]) for i in range(len(outputs))]
