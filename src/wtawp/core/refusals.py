"""Refuse combinations of options and training set-ups for which the step would be wrong."""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from typing import Any, cast

import torch
from torch import Tensor, nn

from wtawp.core.autograd_graph import is_scaled_by_grad_scaler
from wtawp.core.closures import Backward
from wtawp.core.config import AwpConfig, Balance
from wtawp.core.distributed import is_distributed, refuse_sharded
from wtawp.core.model_state import PLAIN
from wtawp.core.passes import Passes

LOCAL_GRADIENTS = (
    "balance compares gradients of all processes, sync=False has those of one; use sync=True, or balance=None"
)
HOOKS = (
    "balance needs both gradients before they are mixed, but hooks use each parameter's gradient as soon as it arrives;"
    " remove the post-accumulate-grad hooks or use balance=None"
)
SPARSE = "balance cannot clip sparse gradients; use balance=None, or Embedding(sparse=False)"


def refuse_options_of_fit(config: AwpConfig) -> None:
    """Refuse options that need the optimizer, the outputs or the graph, which a closure of the loss does not show.

    Args:
        config: The options.

    Raises:
        ValueError: If they are for `fit` and `fit_many` alone.
    """
    if config.needs_fit:
        name = "direction" if config.direction != "gradient" else "perturbed_gradient"
        value = f"{name}={getattr(config, name)!r}"
        raise ValueError(
            f"{value} needs more than a loss and its gradient, so it is for fit and fit_many alone:"
            f" fit(model, data, split, seed=0, awp=AwpConfig({config}))"
        )


def refuse_hooks(model: nn.Module) -> None:
    """Refuse hooks that use each gradient as soon as it arrives, where gradients are compared before they are mixed.

    Args:
        model: The module that is trained.

    Raises:
        ValueError: If a parameter has such a hook.
    """
    if any(p._post_accumulate_grad_hooks for p in model.parameters()):
        raise ValueError(HOOKS)


def refuse_sparse_gradients(model: nn.Module) -> None:
    """Refuse embeddings with sparse gradients, where the lengths of gradients are limited.

    Args:
        model: The module that is trained.

    Raises:
        ValueError: If an embedding that is trained has sparse gradients.
    """
    kinds = (nn.Embedding, nn.EmbeddingBag)
    if any(isinstance(m, kinds) and m.sparse and m.weight.requires_grad for m in model.modules()):
        raise ValueError(SPARSE)


def refuse_combinations(model: nn.Module, config: AwpConfig, passes: Passes) -> None:
    """Refuse what the passes over a model cannot be right about.

    Args:
        model: The module that is trained.
        config: The options of the step.
        passes: The passes of the step, before the first one.

    Raises:
        ValueError: If the parameters are sharded in the older way, or if `balance` cannot compare the gradients.
    """
    refuse_sharded(model)
    if config.balance is None:
        return
    if passes.has_post_accumulate_hooks:
        raise ValueError(HOOKS)
    if is_distributed() and any(not getattr(m, "require_backward_grad_sync", True) for m in model.modules()):
        raise ValueError("balance compares gradients of all processes, no_sync() has those of one; use balance=None")
    if is_distributed() and any(p.grad is not None for p in passes.parameters):
        raise ValueError(
            "balance cannot be combined with accumulated gradients in several processes, because a distributed"
            " model reduces both together; use balance=None, or zero_grad() before each backward()"
        )


def refuse_exact(model: nn.Module, backward: Backward) -> None:
    """Refuse what the second-order gradient, which autograd computes without `backward`, would ignore.

    Args:
        model: The module that is trained.
        backward: How the caller differentiates a loss.

    Raises:
        ValueError: If `backward`, other processes or hooks would be ignored.
    """
    if backward is not Tensor.backward:
        raise ValueError("exact=True differentiates by itself and cannot use backward=...; use exact=False")
    if is_distributed():
        raise ValueError("exact=True does not reduce gradients over processes; use exact=False")
    if any(p._post_accumulate_grad_hooks for p in model.parameters()):
        raise ValueError("exact=True runs no post-accumulate-grad hooks; remove them or use exact=False")


def refuse_shared_memory(named: Mapping[str, Tensor], chosen: AbstractSet[Tensor]) -> None:
    """Refuse to perturb a parameter whose memory another one uses, too: each has only a part of the gradient.

    Args:
        named: The parameters of the model by name.
        chosen: Those that are perturbed.

    Raises:
        ValueError: If a parameter that is perturbed lies in the same memory as another one that is trained.
    """
    parameters = {p: name for name, p in named.items() if type(p) in PLAIN and p.numel() and _is_dense(p)}
    ends, names = [0, 0], ["", ""]  # the furthest end of the parameters so far: of all, and of those that are perturbed
    for p, name in sorted(parameters.items(), key=lambda item: item[0].data_ptr()):
        start, is_chosen = p.data_ptr(), p in chosen
        kind = 0 if is_chosen else 1
        if start < ends[kind]:
            raise ValueError(
                f"{names[kind]} and {name} are two parameters in the same memory, so that each has only a part of its"
                " gradient; share the parameter itself (decoder.weight = encoder.weight), or compute with the weight of"
                " the other layer: torch.nn.functional.linear(h, encoder.weight.t())"
            )
        end = start + p.numel() * p.element_size()
        for i in (0, 1) if is_chosen else (0,):
            if end > ends[i]:
                ends[i], names[i] = end, name


def _is_dense(p: Tensor) -> bool:
    """Whether a tensor fills a range of memory, and does not lie among others as a column of a matrix does."""
    return p.layout is torch.strided and (p.is_contiguous() or (p.dim() == 2 and p.mT.is_contiguous()))


def refuse_scaled(loss: Tensor) -> None:
    """Refuse a loss that a gradient scaler has scaled.

    Args:
        loss: The natural loss.

    Raises:
        ValueError: If it was returned by `GradScaler.scale`.
    """
    if is_scaled_by_grad_scaler(loss):
        raise ValueError(
            "the closure returned scaler.scale(loss); return the loss itself and pass"
            " backward=lambda loss: scaler.scale(loss).backward()"
        )


def no_sync_of(model: nn.Module, *, balance: Balance) -> Callable[[], AbstractContextManager[Any]]:
    """Return the context in which passes of a distributed model are not reduced, unless the step needs that they are.

    Args:
        model: The module that is trained.
        balance: The option of that name, which compares gradients of all processes.

    Returns:
        The `no_sync` of the model.

    Raises:
        ValueError: If the model has none, or the step could not be right without reductions.
    """
    no_sync = getattr(model, "no_sync", None)
    if not callable(no_sync):
        raise ValueError(
            f"sync=False needs the distributed model, WTAWP(DistributedDataParallel(model), ...), which has no_sync();"
            f" {type(model).__name__} has none"
        )
    if balance is not None:
        raise ValueError(LOCAL_GRADIENTS)
    if getattr(model, "static_graph", False):
        raise ValueError("DistributedDataParallel(static_graph=True) cannot skip a reduction; use sync=True")
    return cast(Callable[[], AbstractContextManager[Any]], no_sync)
