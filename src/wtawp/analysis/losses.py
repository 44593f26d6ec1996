"""The loss that is analysed: of one model at its present weights, or of a whole stack of weights at once."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp.base import DataError
from wtawp.graphs.collection import batched, is_collection
from wtawp.graphs.row_choices import checked_rows
from wtawp.models.ensemble import Ensemble
from wtawp.models.inputs import prepare

LossFn = Callable[[], Tensor]
Stack = Mapping[str, Tensor]  # name -> [b, ...]


@runtime_checkable
class TakesStacks(Protocol):
    """A loss that can be evaluated at the weights of many models at once."""

    def of(self, stack: Stack) -> Tensor:  # -> [b]
        """The loss of each model of the stack; parameters that the stack does not name keep their values."""
        ...


class LossOn:
    """The mean loss of a model on chosen nodes or, for a list of graphs, on chosen graphs. Dropout is off.

    Calling the object gives the loss at the model's present weights, ready to be differentiated. Only the part of the
    graph that the chosen nodes depend on is computed.

    Args:
        model: A model in evaluation mode, called as `model(x, edge_index)`.
        data: One graph, or a list of graphs to classify.
        samples: Indices or a boolean mask of the nodes, or of the graphs of the list; at least one, each with a label.
        bounded: Whether the loss is one minus the probability of the right class, which lies between 0 and 1 as the
            bounds need it. The default is the cross-entropy, the loss that models are trained with.

    Raises:
        ValueError: If a module of the model is in training mode.
        DataError: If there are no samples, or one does not exist or has no label.

    Example:
        >>> from wtawp.base import rng
        >>> from wtawp.graphs import load
        >>> from wtawp.models import GCN
        >>> data, model = load("wine"), GCN(13, 3, generator=rng("init")).eval()
        >>> 0 < float(LossOn(model, data, torch.arange(10), bounded=True)().detach()) < 1
        True
    """

    def __init__(
        self, model: nn.Module, data: Data | Sequence[Data], samples: Tensor, *, bounded: bool = False
    ) -> None:
        refuse_training_mode(model)
        self.model, self.bounded, data = model, bounded, batched(data)
        samples = labelled_rows(samples, data, "samples")
        self.arguments, self.rows = prepare(model, data, samples)
        self.labels: Tensor = data.y[samples]
        self._ensemble = Ensemble([model])

    def __call__(self) -> Tensor:
        refuse_training_mode(self.model)
        return self._losses(self._sample_rows(self.model(*self.arguments)[None]))[0]

    def of(self, stack: Stack) -> Tensor:  # -> [b]
        """Evaluate the loss at many weights in one pass.

        Args:
            stack: For each parameter that differs between the models, its name and a tensor [b, ...] with the b
                values. Parameters that are not named keep the model's values.

        Returns:
            The b losses.
        """
        size = len(next(iter(stack.values())))
        if len(self._ensemble.models) != size:  # kept, because it remembers whether the module can be vectorised
            self._ensemble = Ensemble([self.model] * size)
        named = {n: stack.get(n, p.detach().expand(size, *p.shape)) for n, p in self.model.named_parameters()}
        buffers = {n: b.expand(size, *b.shape) for n, b in self.model.named_buffers()}
        return self._losses(self._sample_rows(self._ensemble.logits(named, buffers, self.arguments, None)))

    def _sample_rows(self, logits: Tensor) -> Tensor:  # [b, m, c] -> [b, k, c]
        """The logits of the samples alone."""
        return logits if self.rows is None else logits[:, self.rows]

    def _losses(self, logits: Tensor) -> Tensor:  # [b, k, c] -> [b]
        """The mean loss of each model over the samples."""
        labels = self.labels.expand(logits.shape[:2])
        if self.bounded:
            return 1 - logits.softmax(2).gather(2, labels[..., None])[..., 0].mean(1)
        return F.cross_entropy(logits.mT, labels, reduction="none").mean(1)


def labelled_rows(rows: object, data: Data, what: str = "nodes") -> Tensor:  # -> [k] int64
    """The indices of chosen nodes, or of chosen graphs of a collection, which must have labels, on their device."""
    each = "graphs" if is_collection(data) else "nodes"
    chosen = checked_rows(rows, len(data.y), what, samples=each).to(data.y.device)
    unlabelled = chosen[data.y[chosen] < 0]
    if len(unlabelled):
        raise DataError(
            f"{what} must have labels, but {len(unlabelled)} of {len(chosen)} {each} have none (y < 0), such as number"
            f" {int(unlabelled[0])}; leave out those without a label"
        )
    return chosen


def refuse_training_mode(model: nn.Module) -> None:
    """Raise ValueError if any module is in training mode.

    Dropout would give another loss at each evaluation, and a batch norm would update its averages.
    """
    for name, module in model.named_modules():
        if module.training:
            what = f"{type(model).__name__}{f'.{name}' if name else ''}"
            raise ValueError(f"{what} is in training mode; call model.eval() before evaluating its loss")


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """The trainable parameters by name; ValueError if there are none."""
    parameters = {n: p for n, p in model.named_parameters() if p.requires_grad}
    if not parameters:
        raise ValueError(f"{type(model).__name__} has no trainable parameters: its loss has no landscape")
    return parameters


def loss_and_gradient(loss_fn: LossFn, theta: Mapping[str, Tensor]) -> tuple[float, dict[str, Tensor]]:
    """The loss and its gradient at the present weights; parameters that the loss does not use have gradient zero."""
    with torch.enable_grad():
        loss = loss_fn()
        gradients = torch.autograd.grad(loss, list(theta.values()), allow_unused=True, materialize_grads=True)
    return float(loss.detach()), dict(zip(theta, gradients, strict=True))
