"""The method with the second-order term of Eq. 7 (eq:grad_exact), for studies of small models.

The perturbation stays part of the autograd graph, so tensors take the place of the parameters instead of moving them.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.autograd.graph import disable_saved_tensors_hooks

from wtawp.core.algorithm import compute_delta
from wtawp.core.autograd_graph import leaves_of, nodes_of
from wtawp.core.config import AwpConfig
from wtawp.core.passes import ByParameter, Closure, call
from wtawp.core.perturb import isolated_buffers, substituted_parameters

_NO_RECOMPUTATION = "exact=True cannot be combined with activation checkpointing or offloading; use exact=False"


def exact_losses(
    model: nn.Module, closure: Closure, *, perturbed: Sequence[Tensor], config: AwpConfig
) -> tuple[Tensor, Tensor]:
    """Compute L(theta) and L(theta + delta(theta)), where delta is a function of theta that can be differentiated.

    Args:
        model: The module that is trained. Its buffers are updated by the first pass alone.
        closure: Computes and returns one fresh loss; it must use the weights through `model`.
        perturbed: The parameters that delta changes.
        config: The options of the method.

    Returns:
        Both losses, as part of one graph. The second is the first if the loss uses no parameter that is perturbed.

    Raises:
        ValueError: If the closure breaks the rules, or computes with tensors that it does not take from `model`.
        RuntimeError: If activations are checkpointed or offloaded.
    """
    parameters: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
    theta: ByParameter = {p: p for p in parameters}

    def call_at(weights: Mapping[Tensor, Tensor]) -> Tensor:
        with substituted_parameters(model, weights), disable_saved_tensors_hooks(_NO_RECOMPUTATION):
            loss = call(closure, [p for p in parameters if p.grad is None])
        nodes = set(nodes_of(loss))
        if any(w.grad_fn not in nodes for w in weights.values()):
            raise ValueError(
                "the closure computes with tensors of its own in place of the model's parameters, as functional_call"
                " does; exact=True cannot perturb them, exact=False can"
            )
        return loss

    @torch.enable_grad()
    def gradient_at(step: Mapping[Tensor, Tensor]) -> ByParameter:
        shifted = {p: p + s for p, s in step.items()}
        return _differentiable_gradient(call_at(shifted), shifted)

    buffers = [(b, b.detach().clone()) for b in model.buffers()]
    try:
        natural = call_at({})
        with isolated_buffers(model):
            delta = compute_delta(
                _differentiable_gradient(natural, theta),
                theta=theta,
                perturbed=perturbed,
                config=config,
                gradient_at=gradient_at,
            )
            return natural, call_at({p: p + d for p, d in delta.items()})
    except BaseException:
        for buffer, values in buffers:
            buffer.detach().copy_(values)
        torch.set_grad_enabled(True)  # an interrupt may have come inside torch.no_grad()
        raise


def gradient_of(loss: Tensor) -> ByParameter:
    """Compute the gradient of each leaf that `loss.backward()` would fill, dense, without a change of `.grad`.

    Args:
        loss: The loss; its graph stays.

    Returns:
        Leaf -> gradient.
    """
    leaves = leaves_of(loss, nodes_of(loss))
    gradients = torch.autograd.grad(loss, leaves, retain_graph=True)
    return {leaf: g.to_dense() if g.is_sparse else g for leaf, g in zip(leaves, gradients, strict=True)}


def _differentiable_gradient(loss: Tensor, at: ByParameter) -> ByParameter:
    """The gradient with respect to the tensors `at`, as part of the graph."""
    gradients = torch.autograd.grad(loss, list(at.values()), create_graph=True, allow_unused=True)
    return {p: g for p, g in zip(at, gradients, strict=True) if g is not None}
