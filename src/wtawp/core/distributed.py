"""What the step has to know about training in several processes. It does not import what the caller does not use."""

import sys

import torch
from torch import nn

_IS_AVAILABLE = torch.distributed.is_available()  # asked several times in each step, and it never changes


def is_in_process_group() -> bool:
    """Whether this process has joined a process group, so that a distributed model may own the gradients' memory.

    Returns:
        True if a group is set up, also of one process.
    """
    return _IS_AVAILABLE and torch.distributed.is_initialized()


def is_distributed() -> bool:
    """Whether this process trains together with others.

    Returns:
        True if a process group of more than one process is set up.
    """
    return is_in_process_group() and torch.distributed.get_world_size() > 1


def refuse_sharded(model: nn.Module) -> None:
    """Refuse the older form of sharding over processes, whose parameters are parts without the norm of the whole.

    Args:
        model: The module that is trained.

    Raises:
        ValueError: If a module is wrapped in `FullyShardedDataParallel`.
    """
    if "torch.distributed.fsdp" not in sys.modules or not is_distributed():
        return
    from torch.distributed.fsdp import FullyShardedDataParallel

    if any(isinstance(module, FullyShardedDataParallel) for module in model.modules()):
        raise ValueError(
            "FullyShardedDataParallel hides the norms of its parameters, which the radius needs; shard the model with"
            " torch.distributed.fsdp.fully_shard (FSDP2) instead"
        )
