"""What `WTAWP.loss` needs beside the step: a loss that knows its gradient already, and refusals of its own."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from wtawp.core.autograd_graph import accumulating_leaves, computes_in_float16, has_static_graph


class WithGradients(torch.autograd.Function):
    """A value whose derivative with respect to each leaf is known already."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, gradients: list[Tensor], *leaves: Tensor) -> Tensor:  # noqa: ARG004
        ctx.gradients = gradients
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, factor: Tensor) -> tuple[Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None:
            raise ValueError(
                "the result of awp.loss(fn) was differentiated twice, and knows its gradient once; call awp.loss(fn)"
                " for each backward pass"
            )
        return (None, None, *(g * factor.to(g.device) for g in gradients))


def scaled_backward(loss: Tensor, scale: float | Tensor) -> None:
    """Differentiate a multiple of the loss.

    Args:
        loss: The loss.
        scale: The factor.
    """
    (loss * scale).backward()  # type: ignore[no-untyped-call]


def refuse_in_loss(scale: float | Tensor | None, nodes: list[Any]) -> None:
    """Refuse graphs that `loss` cannot differentiate rightly.

    Args:
        scale: The factor of the loss that the caller has given, or None.
        nodes: The nodes of the natural loss.

    Raises:
        ValueError: If a node belongs to such a graph.
    """
    if has_static_graph(nodes):
        raise ValueError(
            "DistributedDataParallel(static_graph=True) counts one backward pass for each forward pass, awp.loss(fn)"
            " makes more; use awp.backward(closure), or static_graph=False"
        )
    if any(leaf._backward_hooks or leaf._post_accumulate_grad_hooks for leaf in accumulating_leaves(nodes)):
        raise ValueError(
            "a parameter that is not part of the model has hooks, which would run in every pass of awp.loss(fn); use"
            " awp.backward(closure), or give WTAWP the module that owns the parameter"
        )
    if scale is None and computes_in_float16(nodes):
        raise ValueError(
            "gradients underflow in float16: pass awp.loss(fn, scale=scaler.get_scale()), or use"
            " awp.backward(closure, backward=lambda loss: scaler.scale(loss).backward())"
        )
