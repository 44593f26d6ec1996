"""WTAWP: adversarial weight perturbation in place of `loss.backward()`.

The numbers are computed in `wtawp.core.algorithm`. This module runs the passes over the model that the algorithm asks
for, and guarantees what they leave behind: the same weights, the same buffers, and `.grad` as `backward` would fill it.
"""

import warnings
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import nullcontext
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from wtawp.base import find_stack_level
from wtawp.core.algorithm import combine_gradients, compute_delta
from wtawp.core.auto import AutoStrength
from wtawp.core.autograd_graph import leaves_of, nodes_of
from wtawp.core.closures import Backward, Closure, call, one_step_at_a_time
from wtawp.core.config import AwpConfig, Balance, Direction, Lam, Layers, PerturbedGradient, Projection, Radius
from wtawp.core.distributed import is_in_process_group, refuse_sharded
from wtawp.core.exact import add_to_gradients, exact_losses, gradient_of
from wtawp.core.framework_loss import WithGradients, refuse_in_loss, scaled_backward
from wtawp.core.model_state import ByParameter
from wtawp.core.observation import StepHook, StepHooks, StepRecorder, norm_of
from wtawp.core.passes import Passes, ascent_gradient, value_of
from wtawp.core.perturb import radii
from wtawp.core.refusals import (
    HOOKS,
    LOCAL_GRADIENTS,
    SPARSE,
    no_sync_of,
    refuse_combinations,
    refuse_exact,
    refuse_hooks,
    refuse_options_of_fit,
    refuse_scaled,
    refuse_shared_memory,
    refuse_sparse_gradients,
)
from wtawp.core.selection import Selection
from wtawp.core.vanishing import VanishingGradientMonitor

OPTIONS = frozenset(("config", "lam", "rho"))  # attributes that describe the method


class WTAWP:
    """Weighted truncated adversarial weight perturbation of a model, for a training loop of one's own.

    It computes the gradient lam * g(theta + delta) + (1 - lam) * g(theta) of Eq. 10 (eq:weighted_awp). It keeps nothing
    between two steps but what is in `state_dict`: counters, and the weight and radius of lam="auto".

    Args:
        model: The module that is trained.
        rho: Radius of the perturbation, Eq. 5 (eq:est); relative to the norm of each tensor when `radius` is "layer".
        lam: Weight of the perturbed loss, between 0 and 1. 0 is plain training, 1 is AWP. "auto" begins with 0 and
            follows the losses that `observe` is given, as the radius then does, up to rho: it needs no tuning.
        layers: The perturbed parameters: "all", "all-but-last", "first" or "last", or globs over parameter names.
        radius: "layer" (the paper), "global" (SAM) or "adaptive" (ASAM).
        projection: "sphere" (released code) or "ball" (the paper's text).
        steps: Number of ascent steps; each needs one more pass over the model.
        step_size: Size of each ascent step. None means 1 / steps.
        balance: Upper limit for the norm of the perturbed gradient, as a multiple of the natural one's. None sets none.
            "auto" is a limit that depends on lam="auto", and None where lam is a number.
        exact: Whether to keep the second-order term of Eq. 7 (eq:grad_exact).
        every: Perturb at every `every`-th call only, beginning with the first; the calls between are plain training.
        start: The number of plain calls before the first perturbed one.
        direction: "gradient"; the others of `AwpConfig` are for `fit` and `fit_many`.
        perturbed_gradient: "full", likewise.

    Attributes:
        model: The module that is trained.
        config: The options, as an `AwpConfig`, which explains them at length. They stay as they are; to train with
            others, build another `WTAWP`.
        last_call: Which of "backward" and "loss" was called last; None before the first call.

    Raises:
        ValueError: If `model` is not a module, if an option is outside its allowed values, or if `layers` selects no
            parameter of the model.
        NotPerturbableError: If the weights of the model are distributions.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))
        >>> awp = WTAWP(model, rho=1.0, lam=0.7)
        >>> list(awp.perturbed)
        ['0.weight']
        >>> loss = awp.backward(lambda: model(torch.ones(3, 2)).square().mean())
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        rho: float,
        lam: Lam,
        layers: Layers = "all-but-last",
        radius: Radius = "layer",
        projection: Projection = "sphere",
        steps: int = 1,
        step_size: float | None = None,
        balance: Balance = "auto",
        exact: bool = False,
        every: int = 1,
        start: int = 0,
        direction: Direction = "gradient",
        perturbed_gradient: PerturbedGradient = "full",
    ) -> None:
        if not isinstance(model, nn.Module):
            raise ValueError(f"model must be the nn.Module that is trained, got {type(model).__name__}")
        self.model, self._monitor = model, VanishingGradientMonitor()
        self._calls, self._is_checked, self._step_hooks = 0, False, StepHooks()
        self.last_call: Literal["backward", "loss"] | None = None
        self._changing: set[str] = set()  # names of what forward passes change
        self.config = AwpConfig(
            rho=rho,
            lam=lam,
            layers=layers,
            radius=radius,
            projection=projection,
            steps=steps,
            step_size=step_size,
            balance=balance,
            exact=exact,
            every=every,
            start=start,
            direction=direction,
            perturbed_gradient=perturbed_gradient,
        )
        refuse_options_of_fit(self.config)
        self._auto = AutoStrength() if self.config.is_auto else None
        self._now = self.config if self._auto is None else self._auto.options(self.config)  # of the next step
        if not self.config.is_plain:
            refuse_sharded(model)
        self._selection = Selection(model, None if self.config.is_plain else self.config.layers)

    def __setattr__(self, name: str, value: object) -> None:
        if name in OPTIONS and "_selection" in self.__dict__:
            raise AttributeError(
                f"{name} cannot be changed, since steps depend on more than it: build another WTAWP(model, rho=...,"
                " lam=...); its load_state_dict(old.state_dict()) keeps the count of steps"
            )
        super().__setattr__(name, value)

    @property
    def lam(self) -> float:
        """The weight of the perturbed loss in the next step.

        Returns:
            A number between 0 and 1, also if `config.lam` is "auto": then 0 as long as it is below 0.02, since the
            perturbed pass is skipped.
        """
        return self._now.fixed_lam

    @property
    def rho(self) -> float:
        """The radius of the perturbation in the next step.

        Returns:
            `config.rho`, or less if lam is "auto" and the model cannot bear as much.
        """
        return self._now.rho

    @property
    def perturbed(self) -> dict[str, float]:
        """The perturbed parameters and the radius of each at its current weights.

        Before the first step, words such as "all-but-last" go by the order in which layers are registered; the first
        step reads the order from the forward pass, and warns if that changes the choice.

        Returns:
            Parameter name -> radius. A "global" or "adaptive" radius is shared by all parameters.
        """
        parameters = {n: p for n, p in self.model.named_parameters() if p.requires_grad}
        theta = {n: parameters[n].detach() for n in self._selection.names if n in parameters}
        return {n: float(r) for n, r in radii(theta, rho=self.rho, radius=self.config.radius).items()}

    def __repr__(self) -> str:
        shared = "" if self.config.radius == "layer" else ", shared"
        rows = [f"\n  {n}: radius {r:.4g}{shared}" for n, r in self.perturbed.items()]
        rows += [f"\n{line}" for line in self._selection.describe_others()]
        return f"WTAWP({self.config}) of {type(self.model).__name__}, perturbing {''.join(rows) or 'nothing'}"

    def backward(self, closure: Closure, *, backward: Backward = Tensor.backward, sync: bool = True) -> Tensor:
        """Add the WT-AWP gradient to `.grad`, as `loss.backward()` adds the plain one.

        Every pass is differentiated by `backward`, so that hooks fire, distributed models reduce and scalers scale as
        in plain training. The weights have their old values afterwards, bit for bit. If anything raises, `.grad` and
        the buffers of the model have theirs, too. Hooks that run as soon as a parameter has its gradient, such as an
        optimizer's step, run in the last pass alone.

        Args:
            closure: Computes and returns one fresh loss, and calls neither `backward` nor `zero_grad`. It is called
                steps + 1 times (once if nothing is perturbed); only the first call updates the buffers of the model.
            backward: Differentiates the loss it is given into `.grad`, and does nothing else. It may scale the loss:
                `lambda loss: scaler.scale(loss / k).backward()`, `fabric.backward`, `accelerator.backward`, Lightning's
                `self.manual_backward`. In several processes, and with hooks, the last loss is multiplied by lam before.
            sync: Whether all processes of a distributed model share one perturbation, that of the joined batch. False
                gives each process its own, and saves the communication of all passes but the last; the model must
                be a `DistributedDataParallel`.

        Returns:
            The natural loss L(theta), detached and without the factor of `backward`.

        Raises:
            ValueError: If the closure does not return a loss with one element that can be differentiated, or calls
                `backward` itself; if `backward` changes weights or computes no gradient; or if the options cannot be
                combined with the model, its hooks or its distribution. The message names what works.

        Example:
            >>> model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))
            >>> loss = WTAWP(model, rho=1.0, lam=0.7).backward(lambda: model(torch.ones(3, 2)).square().mean())
            >>> bool(loss > 0), model[0].weight.grad.shape
            (True, torch.Size([4, 2]))
        """
        with one_step_at_a_time(self.model):
            return self._backward(closure, backward, sync)

    def loss(self, fn: Closure, *, scale: float | Tensor | None = None) -> Tensor:
        """Compute the objective lam * L(theta + delta) + (1 - lam) * L(theta), for frameworks that call `backward`.

        Its gradient, which `backward` would add to `.grad`, is computed here already, one pass after another, and is
        handed to the leaves when the framework differentiates the result.

        Args:
            fn: Computes and returns one fresh loss. It is called steps + 1 times (once if nothing is perturbed).
            scale: Factor by which the loss is multiplied inside, and by which the gradient is divided afterwards, so
                that it does not underflow in float16: that of the gradient scaler, `scaler.get_scale()`. It must be
                given if the model computes in float16.

        Returns:
            The objective, a scalar that can be differentiated once.

        Raises:
            ValueError: If `fn` does not return a loss with one element that can be differentiated, if the model
                computes in float16 and `scale` is missing, or if it is distributed with a static graph.

        Example:
            >>> model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))
            >>> WTAWP(model, rho=1.0, lam=0.7).loss(lambda: model(torch.ones(3, 2)).square().mean()).backward()
        """
        with one_step_at_a_time(self.model):
            return self._loss(fn, scale)

    def observe(self, *, val_loss: float | Tensor, train_loss: float | Tensor | None = None) -> None:
        """Say after an epoch how well the model fits, which decides lam and radius of the next steps with lam="auto".

        In several processes all must call it, each with losses of its own; their means decide. An observation with a
        loss that is NaN or infinite, as after an overflow, changes nothing. The validation loss is also compared with
        the loss of the first step, so the closure must return the loss on the same scale: to accumulate gradients,
        divide it in `backward=`.

        Args:
            val_loss: The loss on a validation set. Without one, use samples that were held out of the training.
            train_loss: The natural training loss, best measured as the validation loss is, after the epoch and without
                dropout. None is the mean over the steps since the last call; with dropout, that hides overfitting.

        Raises:
            ValueError: If a loss is not one number >= 0, or if lam is not "auto".

        Example:
            >>> awp = WTAWP(nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 2)), rho=1.0, lam="auto")
            >>> for train_loss in (2.0, 0.5, 0.4, 0.3):
            ...     awp.observe(train_loss=train_loss, val_loss=1.2)
            >>> 0 < awp.lam < 0.1
            True
        """
        if self._auto is None:
            raise ValueError(f'observe() belongs to WTAWP(..., lam="auto"), but lam is {self.config.lam}')
        if self._auto.observe(val_loss, train_loss, lambda: next(self.model.parameters()).device):
            self._now = self._auto.options(self.config)

    def state_dict(self) -> dict[str, Any]:
        """Return the state to save with a checkpoint, so that a resumed training continues exactly.

        Returns:
            Plain data: the number of calls, for `every` and `start`, what the warning of vanishing gradients counts,
            and what lam="auto" knows: weight, radius, first loss, widest gap.

        Example:
            >>> WTAWP(nn.Linear(4, 3), rho=0.5, lam=0.7, layers="all").state_dict()["calls"]
            0
        """
        state: dict[str, Any] = {"calls": self._calls, "monitor": self._monitor.state_dict()}
        return state if self._auto is None else state | {"auto": self._auto.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state.

        Args:
            state: What `state_dict` returned.

        Raises:
            ValueError: If it is something else.
        """
        if ("auto" in state) != (self._auto is not None):
            other = 'a number, and this one has lam="auto"' if self._auto is not None else f'"auto", not {self.lam}'
            raise ValueError(f"the state is that of a WTAWP whose lam is {other}; build both with the same lam")
        if set(state) != set(self.state_dict()) or not isinstance(state["calls"], int):
            raise ValueError(f"expected what WTAWP.state_dict() returned with {self.config}, got {dict(state)!r}")
        if self._auto is not None:
            self._auto.load_state_dict(state["auto"])
            self._now = self._auto.options(self.config)
        self._monitor.load_state_dict(state["monitor"])
        self._calls = state["calls"]

    def register_step_hook(self, hook: StepHook, *, every: int = 1) -> RemovableHandle:
        """Call a function after each call of `backward` or `loss` with what it computed, for example to log it.

        Nothing is recorded for calls that nobody observes, and no gradient changes because somebody does. An exception
        of the function reaches the caller, after the step is complete.

        Args:
            hook: Is called with one `StepStatistics`.
            every: Observe every `every`-th call only, beginning with the first. In several processes that share the
                parameters among them (FSDP2, tensor parallel), all must observe the same calls.

        Returns:
            A handle whose `remove()` ends it.

        Raises:
            ValueError: If `hook` cannot be called, if `every` is not a positive integer, or with exact=True.

        Example:
            >>> model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))
            >>> awp = WTAWP(model, rho=0.5, lam=0.7)
            >>> handle = awp.register_step_hook(lambda step: print(step.step, sorted(step.relative_perturbation)))
            >>> loss = awp.backward(lambda: model(torch.ones(3, 2)).square().mean())
            0 ['0.weight']
        """
        if self.config.exact:
            raise ValueError(
                "exact=True keeps the perturbation inside the autograd graph; to observe steps, use exact=False"
            )
        return self._step_hooks.register(hook, every)

    def _backward(self, closure: Closure, backward: Backward, sync: bool) -> Tensor:
        """`backward`, in the only thread that works on the model."""
        recorder, self.last_call = self._step_hooks.start(self._calls), "backward"
        self._refuse_before_it_starts(sync)
        perturbed = None
        if not self._is_due():
            loss = self._plain_loss(closure)
            natural = value_of(loss, backward)
            backward(loss)
        elif self._now.exact:
            refuse_exact(self.model, backward)
            natural, perturbed = self._exact_losses(closure)
            of_natural, of_perturbed = gradient_of(natural), gradient_of(perturbed)
            if self._auto is None:
                self._monitor(of_natural.values(), of_perturbed.values(), natural, self._now)
            add_to_gradients(combine_gradients(of_natural, of_perturbed, self._now))
        else:
            without_sync = nullcontext if sync else no_sync_of(self.model, balance=self._now.balance)
            passes = Passes(
                self.model, self._selection.recording(closure), backward, without_sync, recorder=recorder,
                changing=self._changing, is_first_step=not self._is_checked,
            )  # fmt: skip
            natural, perturbed, _ = self._step(passes, recorder)
        self._end_call(recorder, natural, perturbed)
        return natural.detach() if natural.requires_grad else natural

    def _loss(self, fn: Closure, scale: float | Tensor | None) -> Tensor:
        """`loss`, in the only thread that works on the model."""
        recorder, self.last_call = self._step_hooks.start(self._calls), "loss"
        self._refuse_before_it_starts(sync=True)
        if self.config.exact and self.config.balance is not None:
            raise ValueError("balance clips gradients, exact=True keeps losses; use backward(), or balance=None")
        if not self._is_due():
            natural = self._plain_loss(fn)
            self._end_call(recorder, natural, None)
            return natural
        if self._now.exact:
            refuse_exact(self.model, Tensor.backward)
            natural, perturbed = self._exact_losses(fn)
            self._end_call(recorder, natural, perturbed)
            return self.lam * perturbed + (1 - self.lam) * natural
        backward = Tensor.backward if scale is None else partial(scaled_backward, scale=scale)
        passes = Passes(
            self.model, self._selection.recording(fn), backward, adds_to_prior=False, recorder=recorder,
            changing=self._changing, is_first_step=not self._is_checked,
        )  # fmt: skip
        natural, perturbed, gradients = self._step(passes, recorder, partial(refuse_in_loss, scale))
        self._end_call(recorder, natural, perturbed)
        if scale is not None:
            gradients = {leaf: g / scale for leaf, g in gradients.items()}
        objective = self.lam * perturbed + (1 - self.lam) * natural
        attached: Tensor = WithGradients.apply(objective, list(gradients.values()), *gradients)  # type: ignore[no-untyped-call]
        return attached

    def _end_call(self, recorder: StepRecorder | None, natural: Tensor, perturbed: Tensor | None) -> None:
        """Count a call of `backward` or `loss`, and report it to those who observe it."""
        self._calls += 1
        if self._auto is not None:
            self._auto.count_step(natural, perturbed)
        if recorder is not None:
            recorder.report(natural, perturbed, self.lam)

    def _refuse_before_it_starts(self, sync: bool) -> None:
        """Refuse with lam="auto", in plain steps already, what the first perturbed one would refuse much later."""
        if self._auto is None or self.config.balance is None or self.config.is_plain:
            return
        if not sync:
            raise ValueError(LOCAL_GRADIENTS)
        if self._calls == 0:  # once, as a walk over all parameters is a good part of a small step
            refuse_hooks(self.model)
            refuse_sparse_gradients(self.model)

    def _is_due(self) -> bool:
        """Whether the next call perturbs the weights; otherwise it is plain training."""
        return self._now.perturbs(self._calls)

    def _plain_loss(self, closure: Closure) -> Tensor:
        """The natural loss, with its graph."""
        loss = call(closure, [p for p in self.model.parameters() if p.is_leaf])
        if self._auto is not None and self._calls == 0:  # the first perturbed step would refuse it much later
            refuse_scaled(loss)
        return loss

    def _step(
        self, passes: Passes, recorder: StepRecorder | None, check: Callable[[list[Any]], None] | None = None
    ) -> tuple[Tensor, Tensor, ByParameter]:
        """Compute the gradient of one step; returns L(theta) and L(theta + delta), detached, and the gradient.

        `check` is called with the nodes of the natural loss and may raise.
        """
        is_grad_enabled = torch.is_grad_enabled()
        try:
            refuse_combinations(self.model, self._now, passes)
            natural_loss, natural, factor = passes.first(partial(self._check_graph, passes, check))
            chosen = self._chosen(natural, passes.named)
            if not self._is_checked:
                refuse_shared_memory(passes.named, set(chosen))
                self._is_checked = True
            perturbed_loss = self._descend(passes, chosen, natural_loss, natural, factor)
            gradients = passes.finish()
        except BaseException:
            passes.undo()
            torch.set_grad_enabled(is_grad_enabled)  # an interrupt may have come inside torch.no_grad()
            raise
        if recorder is not None:
            recorder.divide_by(factor)
        return natural_loss, perturbed_loss, gradients

    def _check_graph(self, passes: Passes, check: Callable[[list[Any]], None] | None, loss: Tensor) -> None:
        """Read from the graph of the natural loss what is to be known before it is differentiated."""
        if not self._is_checked:  # once, as it takes some milliseconds
            refuse_scaled(loss)
            passes.look_for_reuse(nodes_of(loss))
        if check is not None:
            check(nodes_of(loss))
        if self._selection.is_recording:
            self._selection.read_order(nodes_of(loss))

    def _descend(
        self, passes: Passes, chosen: list[Tensor], loss: Tensor, natural: ByParameter, factor: Tensor | None
    ) -> Tensor:
        """Lines 4 and 5 of Algorithm 1, from L(theta) and its gradient; returns L(theta + delta).

        The two gradients are mixed after the last pass, but where something uses `.grad` during that pass (processes
        that reduce it, hooks) or where it is sparse: there the pass adds lam * g(theta + delta) to what is in `.grad`.
        """
        config, lam, is_in_group = self._now, self.lam, is_in_process_group()
        is_sparse = True in [g.is_sparse for g in natural.values()]
        if config.balance is not None and (is_sparse or passes.has_post_accumulate_hooks):  # also outside of the model
            raise ValueError(SPARSE if is_sparse else HOOKS)
        if config.steps > 1 or (is_in_group and config.balance is not None):
            natural = {p: g.detach().clone() for p, g in natural.items()}  # a distributed model reuses their memory
        delta = self._delta(passes, chosen, natural, factor)
        is_checked = self._auto is None and self._monitor.is_due(self._monitor.steps + 1)  # "auto" gives way by itself
        norms = [norm_of(g) for g in natural.values()] if is_checked else []
        perturbed_norms: list[Tensor] = []
        is_proportional = config.steps == 1 and config.radius != "adaptive" and config.balance is None
        can_recover = is_proportional and not (passes.has_post_accumulate_hooks or passes.has_local_perturbation)
        recovered = passes.drop_recoverable(natural, delta) if can_recover else {}
        passes.perturb(delta)
        if config.balance is None and (is_in_group or is_sparse or passes.has_post_accumulate_hooks):
            on_gradient = (lambda g: perturbed_norms.append(norm_of(g) / lam)) if is_checked else None
            perturbed_loss = passes.last(natural, lam, on_gradient)
        else:
            perturbed_loss, perturbed = passes.perturbed()
            perturbed_norms += [norm_of(g) for g in perturbed.values()] if is_checked else []
            alone = {p: perturbed.pop(p).detach().mul_(lam) for p in recovered if p in perturbed}
            alone.update(combine_gradients(natural, perturbed, config))
            passes.set_gradients(alone)
        passes.add_recovered(recovered, 1 - lam)
        if self._auto is None:
            if factor is not None:  # a scaler changes it between steps
                norms, perturbed_norms = ([n / factor.to(n.device) for n in side] for side in (norms, perturbed_norms))
            self._monitor(norms, perturbed_norms, loss, config)
        return perturbed_loss

    def _delta(
        self, passes: Passes, chosen: list[Tensor], natural: ByParameter, factor: Tensor | None
    ) -> dict[Tensor, Tensor]:
        """Line 4 of Algorithm 1: the perturbation of the chosen parameters."""
        climbs = self._now.steps > 1  # all parameters climb together
        return compute_delta(
            ascent_gradient(natural if climbs else {p: natural[p] for p in chosen if p in natural}, factor),
            theta=passes.state.weights(of=passes.parameters if climbs else chosen, copied=climbs),
            perturbed=chosen,
            config=self._now,
            gradient_at=partial(passes.gradient_at, factor=factor),
        )

    def _exact_losses(self, closure: Closure) -> tuple[Tensor, Tensor]:
        """L(theta) and L(theta + delta) with their graphs, for the gradient with the second-order term."""

        def perturbed(natural: Tensor) -> list[Tensor]:
            self._selection.read_order(nodes_of(natural))
            parameters = {n: p for n, p in self.model.named_parameters() if p.requires_grad}
            return self._chosen(set(leaves_of(natural)), parameters)

        return exact_losses(self.model, self._selection.recording(closure), perturbed=perturbed, config=self._now)

    def _chosen(self, used: AbstractSet[Tensor] | Mapping[Tensor, Tensor], named: Mapping[str, Tensor]) -> list[Tensor]:
        """The parameters to perturb; warns if none of them is used, that is, has a gradient."""
        self._selection.settle(used, named)
        self._selection.warn_of_new_parameters(named)
        names = self._selection.names
        chosen = [named[n] for n in names if n in named]
        if used.isdisjoint(chosen) if isinstance(used, AbstractSet) else used.keys().isdisjoint(chosen):
            which = list(names) or "the layers before the last one"
            warnings.warn(
                f"{which} are frozen or unused by the closure: nothing is perturbed. Does the closure use the model"
                " that WTAWP was built with, and not a copy?",
                stacklevel=find_stack_level(),
            )
        return chosen
