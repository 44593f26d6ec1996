"""What a perturbation does to the logits and gradients while a model is trained (sec:vanishing_gradient).

Perturbed weights are longer, logits explode, the softmax saturates, and what is left of the gradient teaches nothing.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp.analysis.shifted_weights import shifted_weights
from wtawp.core import AwpConfig, project, select
from wtawp.models.evaluation import evaluating
from wtawp.models.inputs import prepare

COLUMNS = ("logit_scale", "saturation", "perturbed_logit_scale", "perturbed_saturation")


class SaturationMonitor:
    """To be called with a model and an epoch, as `fit(observe=...)` does; what it saw is in `history`.

    At the weights as they are and at the perturbed ones, on the training nodes, without dropout: the logit scale is the
    mean distance between a node's largest and smallest logit, saturation the mean probability of its likeliest class.
    The perturbation is the first step of ascent.
    Without a perturbation both are the same. (Gradient norms are in the history of `fit` already.)
    """

    def __init__(self, data: Data, nodes: Tensor, awp: AwpConfig | None) -> None:
        self.data, self.nodes, self.awp = data, nodes.to(data.y.device), awp
        self.history: dict[str, list[float]] = {name: [] for name in COLUMNS}

    def __call__(self, model: nn.Module, epoch: int) -> None:  # noqa: ARG002, as `observe` is called
        """Measure the model once more."""
        theta = {n: p for n, p in model.named_parameters() if p.requires_grad}
        with evaluating(model):
            given = prepare(model, self.data, self.nodes)
            natural, gradient = self._look(model, theta, *given)
            perturbed = natural
            if self.awp is not None and not self.awp.is_plain:
                chosen = {n: gradient[n] for n in select(model, self.awp.layers)}
                with torch.no_grad():
                    delta = project(chosen, theta, rho=self.awp.rho, radius=self.awp.radius, onto=self.awp.projection)
                with shifted_weights(theta, delta):
                    perturbed, _ = self._look(model, theta, *given)
        for name, value in zip(COLUMNS, (*natural, *perturbed), strict=True):
            self.history[name].append(value)

    def _look(
        self, model: nn.Module, theta: Mapping[str, Tensor], arguments: tuple[object, ...], rows: Tensor | None
    ) -> tuple[list[float], dict[str, Tensor]]:
        with torch.enable_grad():
            logits = model(*arguments)
            logits = logits if rows is None else logits[rows]
            loss = F.cross_entropy(logits, self.data.y[self.nodes])
            found = torch.autograd.grad(loss, list(theta.values()), allow_unused=True, materialize_grads=True)
        with torch.no_grad():
            scale, saturation = (logits.amax(1) - logits.amin(1)).mean(), logits.softmax(1).amax(1).mean()
            return torch.stack([scale, saturation]).tolist(), dict(zip(theta, found, strict=True))
