"""The passes over a model that one step of the method needs, each with the caller's own backward, undone on failure.

Gradients are computed by the function with which the caller trains (`Tensor.backward`, a scaler's, a framework's), so
that hooks fire and distributed wrappers reduce as they do without the method. Between the passes the gradients are
taken out of `.grad`; `model_state` moves and restores the weights.
"""

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from operator import attrgetter
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node

from wtawp.core.autograd_graph import (
    accumulating_leaves,
    all_leaves,
    has_reentrant_checkpoints,
    is_leaf,
    leaves_of,
    nodes_above,
    nodes_of,
)  # fmt: skip
from wtawp.core.closures import Backward, Closure, call
from wtawp.core.model_state import LARGE, PLAIN, ByParameter, ModelState, is_capturing
from wtawp.core.observation import StepRecorder, norm_of
from wtawp.core.parameter_hooks import ParameterHooks

_version = attrgetter("_version")
Norms = tuple[Tensor, Tensor]  # of a natural gradient and of the perturbation along it

# The natural gradient of a large parameter is recovered from the moved weights instead of stored, if they have moved by
# at least this part of their norm: the recovered gradient is then as exact as the rounding of a gradient.
FAR = 0.5
ROUNDING = 1e-5  # relative, of the norm of a large perturbation


class Passes:
    """Runs the forward and backward passes of one step. The caller must finish with `finish` or `undo`.

    Args:
        model: The module that is trained.
        closure: Computes and returns one fresh loss.
        backward: Differentiates a loss into `.grad`, as the caller's training does.
        without_sync: Context manager for all passes but the last, for example `no_sync` of a distributed model.
        adds_to_prior: Whether the gradients in `.grad` before the step stay part of it, as in a backward pass.
        recorder: Records what somebody who observes the step wants to know; None if nobody does.
        changing: The names of what a forward pass is known to change, see `ModelState`.
        is_first_step: Whether to look closer for what the forward pass changes, see `ModelState`.
    """

    def __init__(
        self,
        model: nn.Module,
        closure: Closure,
        backward: Backward = Tensor.backward,
        without_sync: Callable[[], AbstractContextManager[Any]] = nullcontext,
        *,
        adds_to_prior: bool = True,
        recorder: StepRecorder | None = None,
        changing: set[str] | None = None,
        is_first_step: bool = False,
    ) -> None:
        self._closure, self._backward, self._without_sync = closure, backward, without_sync
        self._adds_to_prior, self._recorder, self._is_first_step = adds_to_prior, recorder, is_first_step
        self.state = ModelState(model, set() if changing is None else changing, is_first_step=is_first_step)
        self.named, self.parameters = self.state.named, self.state.parameters
        self._prior: dict[Tensor, Tensor | None] = {}  # leaf -> `.grad` before the step
        self._prior_values: ByParameter = {}  # leaf -> a copy of it: DDP may write over a gradient that it reduced
        self._recovered_versions: dict[Tensor, int] = {}  # of parameters whose natural gradient is in their weights
        self._hooks = ParameterHooks(self.parameters, run_in_last_pass=adds_to_prior)
        self._first_loss: weakref.ref[Tensor] | None = None  # to notice that the closure returns it again
        self._first_nodes: frozenset[Node] = frozenset()  # of the graph of the first loss, if its reuse is looked for

    @property
    def has_local_perturbation(self) -> bool:
        """Whether only the last pass is reduced over processes, so that the natural gradient must be part of it."""
        return self._without_sync is not nullcontext

    @property
    def has_post_accumulate_hooks(self) -> bool:
        """Whether hooks run in the last pass as soon as a parameter has its gradient, for example an optimizer's step.

        Where gradients are not added to `.grad` here but later, by the caller's backward, hooks run in that one alone.
        """
        return self._hooks.are_for_last_pass

    def first(self, check: Callable[[Tensor], None]) -> tuple[Tensor, ByParameter, Tensor | None]:
        """Differentiate the loss at theta; the buffers of the model are updated.

        Args:
            check: Is called with the loss before it is differentiated, and may raise.

        Returns:
            L(theta), detached; its gradient as it arrived in `.grad`; and the factor by which `backward` multiplied
            it, None for 1.

        Raises:
            ValueError: If the closure breaks the rules, or `backward` changes weights or computes no gradient.
        """
        self.state.save()
        self._hooks.silence()
        self._set_aside(self.parameters)
        with self._without_sync():
            loss = call(self._closure, self.parameters)
            self._first_loss = weakref.ref(loss)
            versions = list(map(_version, self.parameters))  # a forward pass may change weights: Embedding(max_norm=1)
            check(loss)
            value = value_of(loss, self._backward)
            with self._refusing_hidden_leaves(loss) if self._is_first_step else nullcontext():
                factor, natural = self._differentiate(loss, "natural")
        if versions != list(map(_version, self.parameters)):
            raise ValueError(
                "the weights changed during the first pass: backward= and its hooks must only compute gradients; call"
                " optimizer.step() after awp.backward()"
            )
        if natural.keys().isdisjoint(self.parameters) and (
            not natural or any(type(p) not in PLAIN and hasattr(p, "full_tensor") for p in self.parameters)
        ):
            raise ValueError(
                "no gradient arrived in .grad: the framework keeps gradients elsewhere, or delays them. For FSDP2 call"
                " model.set_requires_gradient_sync(True); otherwise use DistributedDataParallel or fully_shard"
            )
        self.state.isolate()
        return value, natural, factor

    def look_for_reuse(self, nodes: Iterable[Node]) -> None:
        """Let the next pass refuse a loss that reuses what the first one has computed from weights that move.

        Args:
            nodes: The nodes of the natural loss.
        """
        self._first_nodes = frozenset(node for node in nodes if not is_leaf(node))

    def gradient_at(self, step: Mapping[Tensor, Tensor], factor: Tensor | None) -> ByParameter:
        """Compute the gradient at theta + step, for the ascent.

        Args:
            step: The displacement of some parameters.
            factor: The factor of `backward`, which is divided out.

        Returns:
            The gradient.
        """
        self.state.move(step)
        for leaf in self._prior:
            leaf.grad = None
        with torch.enable_grad(), self._without_sync():
            return ascent_gradient(self._differentiate(self._call_again(), None)[1], factor)

    def perturbed(self) -> tuple[Tensor, ByParameter]:
        """Compute the gradient at the moved weights, to be mixed with the natural one.

        Returns:
            L(theta + delta), detached, and its gradient as it arrived in `.grad`.
        """
        for leaf in self._prior:
            leaf.grad = None
        loss = self._call_again()
        value = value_of(loss, self._backward)
        _, gradient = self._differentiate(loss, "perturbed")
        return value, gradient

    def last(self, natural: ByParameter, lam: float, on_gradient: Callable[[Tensor], None] | None) -> Tensor:
        """Differentiate lam * L at the moved weights on top of (1 - lam) times the natural gradient, in `.grad`.

        So whatever uses `.grad` during the pass meets the complete gradient: processes that reduce it, and hooks.

        Args:
            natural: The natural gradient as it arrived in `.grad`; it is scaled in place.
            lam: Weight of the perturbed loss.
            on_gradient: Is called with each parameter's gradient of lam * L(theta + delta); None for no call.

        Returns:
            L(theta + delta), detached.
        """
        for leaf in self._prior:
            leaf.grad = None
        loss = self._call_again()
        value = value_of(loss, self._backward)
        self.set_gradients({p: _scaled(g.detach(), 1 - lam) for p, g in natural.items()})
        runs_hooks = self.has_post_accumulate_hooks
        if runs_hooks:
            self._hooks.arm(self.state.release)
        handles = [] if on_gradient is None else [p.register_hook(on_gradient) for p in natural]  # type: ignore[no-untyped-call]
        versions = {p: p._version for p in self.state.original} if runs_hooks else {}
        try:
            with self._recording("perturbed", loss, weight=lam):
                self._backward(loss if lam == 1 else loss * lam)
        finally:
            for handle in handles:
                handle.remove()
        if any(p._version != versions[p] for p in self.state.original if p in versions):
            raise ValueError(
                "a post-accumulate-grad hook changed other parameters than its own while they were perturbed, and the"
                " change would be lost. Let the hook of each parameter update that one alone, or call"
                " optimizer.step() after awp.backward()"
            )
        if runs_hooks:
            self._hooks.run_rest(natural)
        return value

    def drop_recoverable(self, natural: ByParameter, delta: Mapping[Tensor, Tensor]) -> dict[Tensor, Norms]:
        """Drop the natural gradient of large parameters that can be computed from the moved weights again.

        Args:
            natural: The natural gradient; what can be recovered is removed from it, and from `.grad`.
            delta: The perturbation, proportional to the natural gradient for each parameter.

        Returns:
            Parameter -> the norms of its natural gradient and of its perturbation.
        """
        fixed = [p for p in delta if p not in self.state.original]  # no forward pass is known to change them
        large = [p for p in fixed if p.numel() >= LARGE and type(p) in PLAIN and not natural[p].is_sparse]
        if not large or is_capturing():
            return {}
        norms: dict[Tensor, Norms] = {}
        for p in large:
            of_gradient, of_delta, of_theta = norm_of(natural[p]), norm_of(delta[p]), norm_of(p.detach())
            is_far = 0 < float(of_gradient) < torch.inf and float(of_delta) >= FAR * float(of_theta) > 0
            if is_far and p.is_floating_point() and torch.finfo(p.dtype).eps <= torch.finfo(torch.float32).eps:
                norms[p] = of_gradient, of_delta
                del natural[p]
                p.grad = None
        return norms

    def add_recovered(self, norms: Mapping[Tensor, Norms], weight: float) -> None:
        """Add the natural gradients that were dropped, from the displacement of the weights, which are restored.

        Args:
            norms: What `drop_recoverable` returned.
            weight: Weight of the natural gradient.
        """
        for p in norms:  # of all before any is restored: slices of one tensor share their version
            if p._version != self._recovered_versions[p]:
                raise self._lost_gradient(p)
        for p, (of_gradient, of_delta) in norms.items():
            weights, original = p.detach(), self.state.original[p]
            weights.sub_(original)
            if not abs(float(norm_of(weights) / of_delta) - 1) < ROUNDING:  # changed through .data, without a version
                raise self._lost_gradient(p)
            weights.mul_(of_gradient / of_delta * weight)
            if p.grad is None:
                p.grad = weights.clone()
            else:
                p.grad.detach().add_(weights)
            weights.copy_(original)

    def _lost_gradient(self, p: Tensor) -> ValueError:
        """The error for a large parameter that changed while its natural gradient was kept in its displacement."""
        return ValueError(
            f"the forward pass changed {self.state.name_of(p)} while it was perturbed, and with it the natural"
            " gradient, which large parameters keep there. This step is undone; the next ones store it in"
            " memory of its own and are right: call backward() again, or change weights outside of the closure"
        )

    def perturb(self, delta: ByParameter) -> None:
        """Move the weights to theta + delta; where delta is not finite, as after an overflow, they stay at theta.

        Args:
            delta: The perturbation of some parameters. It is emptied, which releases its memory.
        """
        for d in delta.values():
            torch.nan_to_num_(d, 0.0, 0.0, 0.0)
        if self._recorder is not None:
            self.state.restore_weights()  # an ascent of several steps has moved them
            self._recorder.perturbation(delta, self.named)
        self.state.move(delta)
        self._recovered_versions = {p: p._version for p in delta if p.numel() >= LARGE}
        delta.clear()

    def finish(self) -> ByParameter:
        """Restore weights, buffers and hooks after success; `.grad` keeps the gradient only if the step adds to it.

        Returns:
            The gradient of each leaf that has one, as it was in `.grad` until now; nothing if it stays there.
        """
        self.state.restore()
        self._hooks.restore()
        if self._adds_to_prior:
            return {}
        gradients = self._arrived()
        self._restore_gradients()
        return gradients

    def set_gradients(self, gradient: ByParameter) -> None:
        """Set `.grad`, on top of what it held before the step if the step adds to that.

        Args:
            gradient: The gradient of each leaf that has one.
        """
        for leaf, prior in self._prior.items():
            new = gradient.get(leaf)
            if prior is None or not self._adds_to_prior:
                leaf.grad = new
            elif prior.is_sparse or (new is not None and new.is_sparse):
                values = self._prior_values[leaf]
                leaf.grad = values if new is None else _sum(values, new.detach())
            elif new is None:
                prior.detach().copy_(self._prior_values[leaf])
                leaf.grad = prior
            else:  # the natural gradient may lie in the memory of `prior`: a bucket of DDP
                prior.detach().copy_(self._prior_values[leaf] + new.detach())
                leaf.grad = prior

    def undo(self) -> None:
        """Restore everything: weights, buffers, hooks and `.grad`."""
        try:
            self._restore_all()
        except BaseException:  # interrupted while it was being restored
            self._restore_all()
            raise

    def _restore_all(self) -> None:
        """Give `.grad`, hooks, weights and buffers what they had before the step."""
        self._restore_gradients()
        self._hooks.restore()
        self.state.undo()

    def _restore_gradients(self) -> None:
        """Give every leaf the `.grad` it had before the step: the same tensor with the same values."""
        for leaf, gradient in self._prior.items():
            leaf.grad = gradient
            if gradient is not None and not gradient.is_sparse:  # nothing writes into a sparse one
                gradient.detach().copy_(self._prior_values[leaf])

    def _call_again(self) -> Tensor:
        """Call the closure at other weights than those of the first pass."""
        loss = call(self._closure, self.parameters)
        is_computed = loss.grad_fn is not None  # otherwise the loss is a parameter itself
        if is_computed and self._first_loss is not None and loss is self._first_loss():
            raise ValueError(
                "the closure returned the same loss again; compute it inside of the closure, which is called at several"
                " weights: awp.backward(lambda: F.cross_entropy(model(x), y))"
            )
        if self._first_nodes:
            self._refuse_reuse(loss)
        self.state.note_changes()
        return loss

    def _refuse_reuse(self, loss: Tensor) -> None:
        """Refuse a loss at the moved weights of which a part was computed before they moved."""
        reused = [node for node in nodes_of(loss) if node in self._first_nodes]
        self._first_nodes = frozenset()
        if reused and not self.state.original.keys().isdisjoint(accumulating_leaves(nodes_above(reused))):
            raise ValueError(
                "the closure uses what was computed outside of it, at weights that have moved since; compute all that"
                " depends on the weights inside of the closure, which is called at several weights:"
                " awp.backward(lambda: F.cross_entropy(model(x), y))"
            )

    @contextmanager
    def _refusing_hidden_leaves(self, loss: Tensor) -> Iterator[None]:
        """Refuse leaves outside of the model that get a gradient although the graph of the loss does not show them."""
        if not has_reentrant_checkpoints(nodes_of(loss)):
            yield
            return
        known = {*self.parameters, *leaves_of(loss)}
        thread = threading.get_ident()
        handles = [leaf.register_hook(partial(_refuse_hidden, leaf.shape, None if leaf.is_cuda else thread))  # type: ignore[no-untyped-call]
                   for leaf in all_leaves() if leaf not in known]  # fmt: skip
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _set_aside(self, leaves: Iterable[Tensor]) -> None:
        """Remember the `.grad` of leaves that were not met before, and empty that of all."""
        for leaf in leaves:
            gradient = leaf.grad
            if leaf not in self._prior:
                if leaf._post_accumulate_grad_hooks or leaf._backward_hooks:  # of a parameter outside of the model
                    self._hooks.silence_leaf(leaf)
                if gradient is not None:
                    self._prior_values[leaf] = gradient.detach().clone()
                self._prior[leaf] = gradient
            if gradient is not None:
                leaf.grad = None

    def _arrived(self) -> ByParameter:
        """The gradients that are in `.grad`."""
        return {leaf: g for leaf in self._prior if (g := leaf.grad) is not None}

    def _differentiate(
        self, loss: Tensor, kind: Literal["natural", "perturbed"] | None
    ) -> tuple[Tensor | None, ByParameter]:
        """Run `backward` on the loss; returns the factor it applied and the gradients that arrived in `.grad`."""
        self._set_aside(leaves_of(loss))
        if self._recorder is None or kind is None:
            factor = self._run_backward(loss)
        else:
            with self._recording(kind, loss):
                factor = self._run_backward(loss)
        return factor, self._arrived()

    def _run_backward(self, loss: Tensor) -> Tensor | None:
        """Run `backward` on the loss; returns the factor it applied, None for 1."""
        if self._backward is Tensor.backward:
            loss.backward()  # type: ignore[no-untyped-call]
            return None
        factors: list[Tensor] = []
        handle = loss.register_hook(factors.append)  # type: ignore[no-untyped-call]
        try:
            self._backward(loss)
        finally:
            handle.remove()
        if len(factors) != 1:
            raise ValueError(
                "backward= must call backward() once on the loss it is given, or on a multiple of it, such as"
                f" lambda loss: scaler.scale(loss).backward(); gradients passed the loss {len(factors)} times"
            )
        factor = factors[0].detach().reshape(())
        return factor.to(torch.promote_types(factor.dtype, torch.float32))

    def _recording(
        self, kind: Literal["natural", "perturbed"], loss: Tensor, *, weight: float = 1.0
    ) -> AbstractContextManager[None]:
        """The context of a pass whose gradient is recorded if somebody observes the step."""
        if self._recorder is None:
            return nullcontext()
        leaves = dict.fromkeys([*self.parameters, *leaves_of(loss)])
        return self._recorder.gradient_of(kind, leaves, weight=weight)


def value_of(loss: Tensor, backward: Backward) -> Tensor:
    """The loss as a number, which a backward of the caller cannot change: `loss /= k` divides in place.

    Args:
        loss: The loss.
        backward: What will differentiate it.

    Returns:
        The loss without its graph.
    """
    return loss.detach() if backward is Tensor.backward else loss.detach().clone()


def ascent_gradient(gradient: ByParameter, factor: Tensor | None) -> ByParameter:
    """The gradient of the loss itself, dense and without the factor of `backward`, to climb along.

    Args:
        gradient: The gradient as it arrived in `.grad`.
        factor: The factor of `backward`; None for 1.

    Returns:
        The gradient, in float32 or wider if a factor was divided out.
    """
    dense: ByParameter = {}
    for p, g in gradient.items():
        constant = g.detach() if g.requires_grad else g
        dense[p] = constant.to_dense() if g.is_sparse else constant
    if factor is None:
        return dense
    return {p: g.to(torch.promote_types(g.dtype, torch.float32)) / factor.to(g.device) for p, g in dense.items()}


def _refuse_hidden(shape: torch.Size, thread: int | None, _: Tensor) -> None:
    """Refuse, as a hook of a leaf, that it gets a gradient; on the CPU other threads may go on with other models."""
    if thread is None or threading.get_ident() == thread:
        raise ValueError(
            f"a parameter of shape {list(shape)}, which is none of the model's, is used inside of reentrant"
            " checkpointing, where it cannot be seen before it has its gradient: use"
            " checkpoint(..., use_reentrant=False), or make it a parameter of the model"
        )


def _scaled(gradient: Tensor, weight: float) -> Tensor:
    """A multiple of a gradient, in its own memory if it is dense; a detached sparse tensor has values of its own."""
    return gradient * weight if gradient.is_sparse else gradient.mul_(weight)


def _sum(one: Tensor, other: Tensor) -> Tensor:
    """The sum of two gradients of which at least one is sparse."""
    return other + one if one.is_sparse else one + other
