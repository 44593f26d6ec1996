"""Measure what a perturbation does to the logits while a model is trained (sec:vanishing_gradient).

Perturbed weights are longer, so the logits explode, the softmax saturates, and the gradient that is left teaches
nothing. The gradient norms themselves are in the history of `fit`.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp.analysis.losses import labelled_rows
from wtawp.analysis.shifted_weights import shifted_weights
from wtawp.core import AwpConfig, compute_delta, select
from wtawp.models.evaluation import evaluating
from wtawp.models.inputs import prepare

COLUMNS = ("logit_scale", "saturation", "perturbed_logit_scale", "perturbed_saturation")


class SaturationMonitor:
    """Measures how large the logits are and how saturated the softmax is, at the weights and at the perturbed weights.

    It is meant for `fit(observe=...)`. The logit scale is the mean difference between the largest and the smallest
    logit of a node; saturation is the mean probability of the most likely class. Both are measured without dropout. The
    perturbation is the first step of ascent; without a perturbation, both pairs of columns are equal.

    Args:
        data: The graph, on the device of the model.
        nodes: The nodes to measure on, usually the training nodes, as indices or a boolean mask.
        awp: The options of the perturbation; None for plain training.

    Raises:
        ValueError: If the perturbation has another direction than the gradient.
        DataError: If there are no nodes, or one does not exist or has no label.

    Attributes:
        history: For "logit_scale", "saturation", "perturbed_logit_scale" and "perturbed_saturation" one number per
            call.
    """

    def __init__(self, data: Data, nodes: Tensor, awp: AwpConfig | None) -> None:
        if awp is not None and awp.direction != "gradient":
            raise ValueError(
                f"saturation is measured at weights that are perturbed along the gradient, and not with"
                f" direction={awp.direction!r}"
            )
        self.data, self.nodes, self.awp = data, labelled_rows(nodes, data), awp
        self.history: dict[str, list[float]] = {name: [] for name in COLUMNS}
        self._perturbed: tuple[str, ...] = ()  # names, known from the first call on

    def __call__(self, model: nn.Module, epoch: int) -> None:  # noqa: ARG002, as `observe` is called
        """Measure the model at its current weights and append the numbers to `history`.

        Args:
            model: The model, which is left as it was.
            epoch: Number of the epoch; it is not used.
        """
        theta = {n: p for n, p in model.named_parameters() if p.requires_grad}
        with evaluating(model):
            arguments, rows = prepare(model, self.data, self.nodes)
            natural, gradient = self._measure(model, theta, arguments, rows)
            perturbed = natural
            if self.awp is not None and not self.awp.is_plain:
                self._perturbed = self._perturbed or select(model, self.awp.layers, outputs=lambda: model(*arguments))
                delta = compute_delta(
                    gradient,
                    theta=theta,
                    perturbed=self._perturbed,
                    config=replace(self.awp, steps=1, step_size=None, exact=False),
                    gradient_at=lambda _: {},  # never called: there is one step
                )
                with shifted_weights(theta, delta):
                    perturbed, _ = self._measure(model, theta, arguments, rows)
        for name, value in zip(COLUMNS, (*natural, *perturbed), strict=True):
            self.history[name].append(value)

    def _measure(
        self, model: nn.Module, theta: Mapping[str, Tensor], arguments: tuple[object, ...], rows: Tensor | None
    ) -> tuple[list[float], dict[str, Tensor]]:
        """The logit scale and the saturation, and the gradient of the loss with respect to `theta`."""
        with torch.enable_grad():
            logits = model(*arguments)
            logits = logits if rows is None else logits[rows]
            loss = F.cross_entropy(logits, self.data.y[self.nodes])
            gradients = torch.autograd.grad(loss, list(theta.values()), allow_unused=True, materialize_grads=True)
        with torch.no_grad():
            scale, saturation = (logits.amax(1) - logits.amin(1)).mean(), logits.softmax(1).amax(1).mean()
            return torch.stack([scale, saturation]).tolist(), dict(zip(theta, gradients, strict=True))
