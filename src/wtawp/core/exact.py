"""The method with the second-order term of Eq. 7 (eq:grad_exact), for studies of small models.

The perturbation stays part of the autograd graph, so tensors take the place of the parameters instead of moving them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import disable_saved_tensors_hooks

from wtawp.core.algorithm import compute_delta
from wtawp.core.autograd_graph import leaves_of, nodes_of
from wtawp.core.closures import Closure, call
from wtawp.core.config import AwpConfig
from wtawp.core.model_state import ByParameter
from wtawp.core.perturb import isolated_buffers, substituted_parameters

_NO_RECOMPUTATION = "exact=True cannot be combined with activation checkpointing or offloading; use exact=False"


def exact_losses(
    model: nn.Module, closure: Closure, *, perturbed: Callable[[Tensor], Sequence[Tensor]], config: AwpConfig
) -> tuple[Tensor, Tensor]:
    """Compute L(theta) and L(theta + delta(theta)), where delta is a function of theta that can be differentiated.

    Args:
        model: The module that is trained. Its buffers are updated by the first pass alone.
        closure: Computes and returns one fresh loss; it must use the weights through `model`.
        perturbed: Is called with L(theta) and returns the parameters that delta changes.
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
            loss = call(closure, parameters)
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
    own: list[tuple[dict[str, Any], dict[str, Any]]] = [
        (slots, dict(slots)) for m in model.modules() for slots in (m._parameters, m._buffers)
    ]
    modes = torch.is_grad_enabled(), torch._C._autograd._saved_tensors_hooks_get_disabled_error_message()
    try:
        natural = call_at({})
        chosen = perturbed(natural)
        with isolated_buffers(model):
            delta = compute_delta(
                _differentiable_gradient(natural, theta),
                theta=theta,
                perturbed=chosen,
                config=config,
                gradient_at=gradient_at,
            )
            return natural, call_at({p: p + d for p, d in delta.items()})
    except BaseException:  # an interrupt may have come inside the context managers, before they restored anything
        for slots, tensors in own:
            slots.update(tensors)
        for buffer, values in buffers:
            buffer.detach().copy_(values)
        _set_modes(*modes)
        raise


def gradient_of(loss: Tensor) -> ByParameter:
    """Compute the gradient of each leaf that `loss.backward()` would fill, dense, without a change of `.grad`.

    Args:
        loss: The loss; its graph stays.

    Returns:
        Leaf -> gradient.
    """
    leaves = leaves_of(loss)
    gradients = torch.autograd.grad(loss, leaves, retain_graph=True)
    return {leaf: g.to_dense() if g.is_sparse else g for leaf, g in zip(leaves, gradients, strict=True)}


def add_to_gradients(gradients: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Add to the `.grad` of leaves as a backward pass does; if anything raises, each has what it had before.

    Args:
        gradients: Each leaf and what is added to it.
    """
    prior: list[tuple[Tensor, Tensor | None, Tensor | None]] = []
    try:
        for leaf, gradient in gradients:
            prior.append((leaf, leaf.grad, None if leaf.grad is None else leaf.grad.detach().clone()))
            if leaf.grad is None:  # autograd does not promise the leaf's memory layout, fused optimisers rely on it
                same = gradient.stride() == leaf.stride()
                leaf.grad = gradient if same else torch.empty_like(leaf.detach()).copy_(gradient)
            else:
                leaf.grad.detach().add_(gradient)
    except BaseException:
        for leaf, tensor, values in prior:
            leaf.grad = tensor
            if tensor is not None and values is not None:
                tensor.detach().copy_(values)
        raise


def _set_modes(is_grad_enabled: bool, why_hooks_are_disabled: str | None) -> None:
    """Set what the context managers of torch set: the grad mode, and whether tensors may be packed for backward."""
    torch.set_grad_enabled(is_grad_enabled)
    if why_hooks_are_disabled is None:
        torch._C._autograd._saved_tensors_hooks_enable()
    else:
        torch._C._autograd._saved_tensors_hooks_disable(why_hooks_are_disabled)


def _differentiable_gradient(loss: Tensor, at: ByParameter) -> ByParameter:
    """The gradient with respect to the tensors `at`, as part of the graph."""
    gradients = torch.autograd.grad(loss, list(at.values()), create_graph=True, allow_unused=True)
    return {p: g for p, g in zip(at, gradients, strict=True) if g is not None}
