"""The loss that is looked at: of a model as it stands, and of a whole stack of weights at once."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp.graphs.collection import batched
from wtawp.models.ensemble import Ensemble
from wtawp.models.inputs import prepare

LossFn = Callable[[], Tensor]
Stack = Mapping[str, Tensor]  # name -> [b, ...]


@runtime_checkable
class TakesStacks(Protocol):
    """A loss that can be told the weights, of many models at once."""

    def of(self, stack: Stack) -> Tensor:  # -> [b]
        """The loss at each of the weights; parameters that are not named stay as they are."""
        ...


class LossOn:
    """The mean loss of a model on some nodes or, of a list of graphs, on some graphs; without dropout.

    The cross-entropy or, `bounded`, one less the probability of the right class, which lies between 0 and 1. Only what
    these nodes depend on is computed.
    """

    def __init__(
        self, model: nn.Module, data: Data | Sequence[Data], samples: Tensor, *, bounded: bool = False
    ) -> None:
        refuse_training_mode(model)
        self.model, self.bounded, data = model, bounded, batched(data)
        samples = samples.to(data.y.device)
        samples = samples.nonzero()[:, 0] if samples.dtype == torch.bool else samples  # a mask
        if not len(samples):
            raise ValueError("a loss needs one node or graph at least, got none")
        self.arguments, self.rows = prepare(model, data, samples)
        self.labels: Tensor = data.y[samples]
        self._ensemble = Ensemble([model])

    def __call__(self) -> Tensor:
        refuse_training_mode(self.model)
        return self._losses(self._taken(self.model(*self.arguments)[None]))[0]

    def of(self, stack: Stack) -> Tensor:  # -> [b]
        """See `TakesStacks`."""
        size = len(next(iter(stack.values())))
        if len(self._ensemble.models) != size:  # kept, as it may have found out that a module cannot be mapped
            self._ensemble = Ensemble([self.model] * size)
        named = {n: stack.get(n, p.detach().expand(size, *p.shape)) for n, p in self.model.named_parameters()}
        buffers = {n: b.expand(size, *b.shape) for n, b in self.model.named_buffers()}
        return self._losses(self._taken(self._ensemble.logits(named, buffers, self.arguments, None)))

    def _taken(self, logits: Tensor) -> Tensor:  # [b, m, c] -> [b, k, c]
        return logits if self.rows is None else logits[:, self.rows]

    def _losses(self, logits: Tensor) -> Tensor:  # [b, k, c] -> [b]
        labels = self.labels.expand(logits.shape[:2])
        if self.bounded:
            return 1 - logits.softmax(2).gather(2, labels[..., None])[..., 0].mean(1)
        return F.cross_entropy(logits.mT, labels, reduction="none").mean(1)


def refuse_training_mode(model: nn.Module) -> None:
    """Dropout, in any of its modules, would give another loss at each look; a batch norm would move its averages."""
    for name, module in model.named_modules():
        if module.training:
            what = f"{type(model).__name__}{f'.{name}' if name else ''}"
            raise ValueError(f"{what} is in training mode; call model.eval() before looking at its loss")


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """By name."""
    found = {n: p for n, p in model.named_parameters() if p.requires_grad}
    if not found:
        raise ValueError(f"{type(model).__name__} has no trainable parameters: its loss has no landscape")
    return found


def loss_and_gradient(loss_fn: LossFn, theta: Mapping[str, Tensor]) -> tuple[float, dict[str, Tensor]]:
    """Of the loss where it is; what the loss does not depend on has a gradient of zero."""
    with torch.enable_grad():
        loss = loss_fn()
        found = torch.autograd.grad(loss, list(theta.values()), allow_unused=True, materialize_grads=True)
    return float(loss.detach()), dict(zip(theta, found, strict=True))
