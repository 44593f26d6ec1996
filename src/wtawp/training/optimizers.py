"""The optimizers of a stack of models: one Adam for the whole stack, or one optimizer of the caller's for each member.

Adam treats every entry of a tensor alone, so one Adam can train a stack. Optimizers that use the norm or the shape of a
parameter (Adafactor, Muon, LARS and others) would mix the members of a stack, and learning rates that follow a
validation loss differ between members. The caller's optimizers are therefore built for each member, on parameters that
have the member's own shapes and share memory with the stack.
"""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import LBFGS, Adam, Optimizer, SparseAdam
from torch.optim.lr_scheduler import LRScheduler

from wtawp.training.step import Stack

OptimizerFactory = Callable[[list[nn.Parameter]], Optimizer]
SchedulerFactory = Callable[[Optimizer], LRScheduler]


class StackOptimizer(ABC):
    """Changes the weights of a stack in place, once an epoch."""

    can_replay: bool  # whether a CUDA graph may record `step`
    no_momentum: str | None  # what it is where it does not average gradients; None if it does

    @abstractmethod
    def momentum(self) -> Stack:
        """Look up the averaged gradient, along which weights move downhill.

        Returns:
            For each parameter that was changed before, its first moment, name -> [b, ...]; only of parameters whose
            state has it under a name that torch's optimizers use.
        """

    @abstractmethod
    def step(self, gradient: Mapping[str, Tensor]) -> None:
        """Change the weights.

        Args:
            gradient: For each parameter that has one, its stacked gradient, name -> [b, ...].
        """

    @abstractmethod
    def end_epoch(self, val_losses: Tensor) -> None:
        """Let the learning rates change.

        Args:
            val_losses: The validation loss of each member, [b].
        """

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Collect what must be saved to continue the training.

        Returns:
            Tensors and plain values.
        """

    @abstractmethod
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state.

        Args:
            state: What `state_dict` returned.
        """

    @abstractmethod
    def describe(self) -> dict[str, object]:
        """Describe the kind and the options of the optimizer, by which a checkpoint is recognised.

        Returns:
            Names and plain values.
        """


class StackedAdam(StackOptimizer):
    """One fused Adam for the whole stack, with constant learning rate.

    Args:
        theta: The stacked weights, name -> [b, ...].
        lr: Learning rate.
        weight_decay: Weight decay.
    """

    can_replay = True
    no_momentum = None

    def __init__(self, theta: Stack, *, lr: float, weight_decay: float) -> None:
        self.theta = theta
        trained = [w for w in theta.values() if w.requires_grad]
        self.optimizer = Adam(
            trained, lr=lr, weight_decay=weight_decay, fused=True, capturable=trained[0].device.type == "cuda"
        )

    def momentum(self) -> Stack:
        states = {name: self.optimizer.state.get(w) for name, w in self.theta.items()}
        return {name: state["exp_avg"] for name, state in states.items() if state}

    def step(self, gradient: Mapping[str, Tensor]) -> None:
        for name, weight in self.theta.items():
            weight.grad = gradient[name].contiguous() if name in gradient else None
        weights = [w for w in self.theta.values() if w.grad is not None]
        states = [self.optimizer.state.get(w) for w in weights]
        if weights[0].device.type == "cpu" and all(states):
            self._step_without_hooks(weights, states)  # type: ignore[arg-type]
        else:  # the first step, in which Adam builds its state, and all steps on a GPU, where they are replayed
            self.optimizer.step()

    @torch.no_grad()
    def _step_without_hooks(self, weights: list[Tensor], states: list[dict[str, Tensor]]) -> None:
        """What `Adam.step` computes, by the same kernel: its hooks and groups would take longer for small models."""
        options, gradients = self.optimizer.param_groups[0], [w.grad for w in weights if w.grad is not None]
        steps, first, second = ([state[name] for state in states] for name in ("step", "exp_avg", "exp_avg_sq"))
        beta1, beta2 = options["betas"]
        torch._foreach_add_(steps, 1)
        torch._fused_adam_(
            weights, gradients, first, second, [], steps, lr=options["lr"], beta1=beta1, beta2=beta2,
            weight_decay=options["weight_decay"], eps=options["eps"], amsgrad=False, maximize=False,
        )  # fmt: skip

    def end_epoch(self, val_losses: Tensor) -> None:
        """The learning rate is constant."""

    def state_dict(self) -> dict[str, Any]:
        return self.optimizer.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state)

    def describe(self) -> dict[str, object]:
        return {"optimizer": _options_of(self.optimizer), "scheduler": None}


class MemberOptimizers(StackOptimizer):
    """One optimizer, and one scheduler if wanted, for each member of a stack.

    Args:
        theta: The stacked weights, name -> [b, ...].
        make_optimizer: Called with the parameters of one member, in the order of the model's; returns its optimizer.
        make_scheduler: Called with the optimizer of one member, returns its scheduler; None keeps the learning rate.

    Raises:
        ValueError: If an optimizer cannot be used, or was not built with the parameters that were passed.
    """

    can_replay = False

    def __init__(self, theta: Stack, make_optimizer: OptimizerFactory, make_scheduler: SchedulerFactory | None) -> None:
        trained = {n: w for n, w in theta.items() if w.requires_grad}
        size = len(next(iter(trained.values())))
        self.theta = trained
        # Views of the stack: an optimizer that changes a parameter in place changes the stack.
        self.members = [{n: nn.Parameter(w.detach()[i]) for n, w in trained.items()} for i in range(size)]
        self.optimizers = [_checked_optimizer(make_optimizer, list(member.values())) for member in self.members]
        self.schedulers = [] if make_scheduler is None else [_checked(make_scheduler, o) for o in self.optimizers]
        reasons = [_without_average(o, group) for o in self.optimizers for group in o.param_groups]
        self.no_momentum = next((reason for reason in reasons if reason is not None), None)

    def momentum(self) -> Stack:
        stacked = {}
        for name in self.theta:
            pairs = zip(self.members, self.optimizers, strict=True)
            moments = [_first_moment(optimizer.state.get(member[name])) for member, optimizer in pairs]
            known = [moment for moment in moments if moment is not None]  # of all members, or of none
            if known:
                stacked[name] = torch.stack(known)
        return stacked

    def step(self, gradient: Mapping[str, Tensor]) -> None:
        for i, (member, optimizer) in enumerate(zip(self.members, self.optimizers, strict=True)):
            for name, parameter in member.items():
                parameter.grad = gradient[name][i].contiguous() if name in gradient else None
            optimizer.step()
            for name, parameter in member.items():
                place = self.theta[name].detach()[i]
                if parameter.data_ptr() != place.data_ptr():  # the optimizer has put new memory into the parameter
                    place.copy_(parameter.detach())

    def end_epoch(self, val_losses: Tensor) -> None:
        for i, scheduler in enumerate(self.schedulers):
            if _needs_metric(scheduler):
                scheduler.step(float(val_losses[i]))  # type: ignore[arg-type]  # ReduceLROnPlateau
            else:
                scheduler.step()

    def state_dict(self) -> dict[str, Any]:
        return {
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "schedulers": [scheduler.state_dict() for scheduler in self.schedulers],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        for scheduler, saved in zip(self.schedulers, state["schedulers"], strict=True):
            scheduler.load_state_dict(saved)

    def describe(self) -> dict[str, object]:
        schedulers = [(_name_of(s), _plain(s.state_dict())) for s in self.schedulers]
        return {
            "optimizer": [_options_of(optimizer) for optimizer in self.optimizers],
            "scheduler": schedulers or None,
        }


def build_optimizer(
    theta: Stack,
    *,
    lr: float,
    weight_decay: float,
    optimizer: OptimizerFactory | None,
    scheduler: SchedulerFactory | None,
) -> StackOptimizer:
    """Build the optimizer of a stack.

    Args:
        theta: The stacked weights, name -> [b, ...].
        lr: Learning rate of Adam, unused if `optimizer` is given.
        weight_decay: Weight decay of Adam, likewise.
        optimizer: Builds the optimizer of one member from its parameters; None is Adam.
        scheduler: Builds the scheduler of one member from its optimizer; None keeps the learning rate.

    Returns:
        One Adam for the stack if neither factory is given, else one optimizer for each member.
    """
    if optimizer is None and scheduler is None:
        return StackedAdam(theta, lr=lr, weight_decay=weight_decay)
    adam = partial(Adam, lr=lr, weight_decay=weight_decay, fused=True)
    return MemberOptimizers(theta, adam if optimizer is None else optimizer, scheduler)


def _checked_optimizer(make: OptimizerFactory, parameters: list[nn.Parameter]) -> Optimizer:
    """Build the optimizer of one member, and refuse it if it cannot train the parameters."""
    wanted = (
        "optimizer must be a function from a list of parameters to a torch.optim.Optimizer, such as"
        " `lambda parameters: torch.optim.SGD(parameters, lr=0.1)`;"
    )
    if not callable(make):
        raise ValueError(f"{wanted} got {type(make).__name__}")
    optimizer = make(parameters)
    if not isinstance(optimizer, Optimizer):
        raise ValueError(f"{wanted} it returned {type(optimizer).__name__}")
    name = type(optimizer).__name__
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    if isinstance(optimizer, LBFGS) or (closure is not None and closure.default is inspect.Parameter.empty):
        raise ValueError(
            f"{name} evaluates the loss several times a step (its `step` needs a closure), but training computes one"
            " gradient an epoch; choose an optimizer that steps along a gradient"
        )
    if isinstance(optimizer, SparseAdam):
        raise ValueError("SparseAdam needs sparse gradients, but training computes dense ones; choose Adam")
    own = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if not own or not own <= {id(p) for p in parameters}:
        raise ValueError(
            f"the optimizer {name} holds {len(own)} parameters, of which"
            f" {len(own - {id(p) for p in parameters})} are not among those that it was to be built with; use the"
            " argument of the function, and not model.parameters()"
        )
    return optimizer


def _checked(make: SchedulerFactory, optimizer: Optimizer) -> LRScheduler:
    """Build the scheduler of one member, and refuse what is not one."""
    scheduler = make(optimizer)
    if not isinstance(scheduler, LRScheduler):
        raise ValueError(
            "scheduler must be a function from an optimizer to a torch.optim.lr_scheduler.LRScheduler; it returned"
            f" {type(scheduler).__name__}"
        )
    if scheduler.optimizer is not optimizer:
        raise ValueError(
            f"the scheduler {type(scheduler).__name__} changes another optimizer; use the argument of the function"
        )
    return scheduler


def _without_average(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> str | None:
    """What an optimizer is that averages no gradients of a group, but nothing or something else; None if it does."""
    name = type(optimizer).__name__
    if group.get("maximize"):
        return f"{name} with maximize=True, which averages the negative of the gradients"
    if "betas" in group or (isinstance(optimizer, torch.optim.SGD) and group.get("momentum")):
        return None
    return f"{name} without momentum" if not group.get("momentum") else f"{name}, whose momentum averages steps"


def _first_moment(state: Mapping[str, object] | None) -> Tensor | None:
    """The averaged gradient in the state of a parameter, under the names that torch's optimizers give it."""
    moments = [(state or {}).get(name) for name in ("exp_avg", "momentum_buffer")]
    return next((moment for moment in moments if isinstance(moment, Tensor)), None)


def _needs_metric(scheduler: LRScheduler) -> bool:
    """Whether the scheduler follows a measured value, as ReduceLROnPlateau does."""
    metrics = inspect.signature(scheduler.step).parameters.get("metrics")
    return metrics is not None and metrics.default is inspect.Parameter.empty


def _options_of(optimizer: Optimizer) -> tuple[str, list[object]]:
    """The kind of an optimizer, and the options of its groups of parameters with their sizes."""
    groups = [
        {**{k: v for k, v in group.items() if k != "params"}, "size": len(group["params"])}
        for group in optimizer.param_groups
    ]
    return _name_of(optimizer), [_plain(group) for group in groups]


def _name_of(thing: object) -> str:
    """The full name of the class of an object."""
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def _plain(value: object) -> object:
    """The value with tensors as numbers, and with the kind alone of what has no plain value."""
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value if isinstance(value, str | int | float | bool | None) else _name_of(value)
