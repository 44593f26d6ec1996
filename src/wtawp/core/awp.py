"""WTAWP: adversarial weight perturbation in the place of `loss.backward()` (Algorithm 1 of the paper).

The numbers are made in `wtawp.core.perturb`; this module owns the passes over the model and what they leave behind.
"""

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TypedDict, Unpack, get_args

import torch
from torch import Tensor, nn

from wtawp.base import VanishingGradientMonitor
from wtawp.core import perturb
from wtawp.core.perturb import Projection, Radius, Tensors

Closure = Callable[[], Tensor]
Layers = str | Sequence[str]
Gradients = dict[Tensor, Tensor]  # leaf -> its gradient


@dataclass(frozen=True, kw_only=True)
class AwpConfig:
    """The options of the method. Hashable, so it can name a run."""

    rho: float  # radius of Eq. 5 (eq:est); relative to each tensor's norm when radius is "layer"
    lam: float  # weight of Eq. 10 (eq:weighted_awp): 0 is plain training, 1 is AWP
    layers: Layers = "all-but-last"  # theta^(awp) of Eq. 9: a word, or globs over parameter names
    radius: Radius = "layer"
    projection: Projection = "sphere"
    steps: int = 1  # of gradient ascent
    step_size: float | None = None  # of each; None is 1 / steps
    balance: float | None = None  # longest perturbed gradient, in lengths of the natural one; None is the paper
    exact: bool = False  # keep the second-order term of Eq. 7 (eq:grad_exact)

    def __post_init__(self) -> None:
        if not _is_number(self.lam, 0.0, 1.0):
            raise ValueError(f"lam must lie in [0, 1], got {self.lam!r}; 0 is plain training, 1 is AWP")
        if not _is_number(self.rho, 0.0):
            raise ValueError(f"rho must be a finite number >= 0, got {self.rho!r}; 0 is plain training")
        if not isinstance(self.steps, int) or self.steps < 1:
            raise ValueError(f"steps must be a whole number >= 1, got {self.steps!r}")
        for name in ("step_size", "balance"):
            if getattr(self, name) is not None and not _is_number(getattr(self, name), sys.float_info.min):
                raise ValueError(f"{name} must be a finite number > 0 or None, got {getattr(self, name)!r}")
        for name, allowed in (("radius", get_args(Radius)), ("projection", get_args(Projection))):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {allowed}, got {getattr(self, name)!r}")
        if not isinstance(self.layers, Sequence) or not all(isinstance(glob, str) for glob in self.layers):
            raise ValueError(f"layers must be a word or globs over parameter names, got {self.layers!r}")
        object.__setattr__(self, "layers", self.layers if isinstance(self.layers, str) else tuple(self.layers))

    @property
    def is_plain(self) -> bool:
        return self.lam == 0 or self.rho == 0

    def __str__(self) -> str:
        shown = [f for f in fields(self) if f.name in ("rho", "lam") or getattr(self, f.name) != f.default]
        return ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in shown)


def _is_number(value: object, low: float, high: float = sys.float_info.max) -> bool:
    return isinstance(value, int | float) and low <= value <= high


class Options(TypedDict, total=False):  # what every named variant shares with WTAWP
    projection: Projection
    steps: int
    step_size: float | None
    balance: float | None
    exact: bool


class WTAWP:
    """Weighted truncated adversarial weight perturbation of `model`: lam * g(theta + delta) + (1 - lam) * g(theta).

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
        lam: float,
        layers: Layers = "all-but-last",
        radius: Radius = "layer",
        projection: Projection = "sphere",
        steps: int = 1,
        step_size: float | None = None,
        balance: float | None = None,
        exact: bool = False,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise ValueError(f"model must be the nn.Module that is trained, got {type(model).__name__}")
        self.model, self._watch = model, VanishingGradientMonitor()
        how = Options(projection=projection, steps=steps, step_size=step_size, balance=balance, exact=exact)
        self.config = AwpConfig(rho=rho, lam=lam, layers=layers, radius=radius, **how)
        self._names = () if self.config.is_plain else perturb.select(model, self.config.layers)  # plain: any model goes

    @property
    def perturbed(self) -> dict[str, float]:
        """Name of each perturbed parameter -> its radius now; a "global" or "adaptive" radius is shared by all."""
        theta = self._trainable()
        chosen = {n: theta[n].detach() for n in self._names if n in theta}
        return {n: float(r) for n, r in perturb.radii(chosen, rho=self.config.rho, radius=self.config.radius).items()}

    def __repr__(self) -> str:
        shared = "" if self.config.radius == "layer" else ", shared"
        rows = [f"\n  {n}: radius {r:.4g}{shared}" for n, r in self.perturbed.items()]
        return f"WTAWP({self.config}) of {type(self.model).__name__}, perturbing {''.join(rows) or 'nothing'}"

    def backward(self, closure: Closure) -> Tensor:
        """Add the WT-AWP gradient into `.grad`, as `loss.backward()` adds the plain one; return the loss, detached.

        `closure` computes one fresh loss and calls neither `backward` nor `zero_grad`. It is called steps + 1 times
        (once if lam or rho is 0); only the first call updates buffers. If it raises, weights and `.grad` are as before.
        """
        if self.config.is_plain:
            loss = self._call(closure)
            loss.backward()  # type: ignore[no-untyped-call]
            return loss.detach()
        if self.config.exact:
            with self._objective(closure) as (loss, perturbed_loss):
                perturbed = _gradient(perturbed_loss, retain_graph=True)  # its delta hangs on the natural graph
                natural = _gradient(loss)
        else:
            loss, natural, perturbed = self._two_gradients(closure)
        self._watch(natural.values(), perturbed.values(), loss, self.config)
        if self.config.balance is not None:
            perturbed = perturb.clip_relative_norm(perturbed, natural, self.config.balance)
        for leaf in list(natural | perturbed):  # one by one, so that at most two gradients are in memory, not three
            pair = [{leaf: g.pop(leaf)} if leaf in g else {} for g in (natural, perturbed)]
            g = perturb.mix(*pair, lam=self.config.lam)[leaf]
            if leaf.grad is None:  # autograd does not promise the leaf's memory layout, fused optimisers rely on it
                leaf.grad = g if g.stride() == leaf.stride() else torch.empty_like(leaf.detach()).copy_(g)
            else:
                leaf.grad.detach().add_(g)
        return loss.detach()

    def loss(self, fn: Closure) -> Tensor:
        """The objective lam * L(theta + delta) + (1 - lam) * L(theta), for frameworks that call `backward` themselves.

        Its gradient is what `backward` adds; the price is that two graphs of activations live at once. `fn` must reach
        the weights through `model` and recompute nothing later (checkpointing); so it is with `exact=True`.
        """
        if self.config.balance is not None:
            raise ValueError(f"balance={self.config.balance} rescales gradients, not losses; use backward() instead")
        if self.config.is_plain:
            return self._call(fn)
        with self._objective(fn) as (natural, perturbed):
            return self.config.lam * perturbed + (1 - self.config.lam) * natural

    def _two_gradients(self, closure: Closure) -> tuple[Tensor, Gradients, Gradients]:
        # L(theta), g(theta) and g(theta + delta): weights move in place, and one graph lives at a time.
        theta, loss = self._trainable(), self._call(closure)
        natural = _gradient(loss)
        loss = loss.detach()  # lets go of the graph before the next pass builds its own
        moving = theta if self.config.steps > 1 else {n: theta[n] for n in self._names if n in theta}
        kept = {n: p.detach().clone() for n, p in moving.items()}

        def move(step: Tensors) -> None:
            perturb.copy_into(theta, kept)
            for n, s in step.items():
                theta[n].detach().add_(s)  # in place: no further copy of the weights

        def named(gradient: Gradients) -> Tensors:
            return {n: gradient[p] for n, p in theta.items() if p in gradient}

        @torch.enable_grad()
        def gradient_at(step: Tensors) -> Tensors:
            move(step)
            return named(_gradient(self._call(closure)))

        try:
            with perturb.kept_buffers(self.model):
                move(self._delta(kept, named(natural), gradient_at))
                return loss, natural, _gradient(self._call(closure))
        finally:
            try:
                perturb.copy_into(theta, kept)
            except BaseException:  # interrupted in the midst of it
                perturb.copy_into(theta, kept)
                raise

    @contextmanager
    def _objective(self, fn: Closure) -> Iterator[tuple[Tensor, Tensor]]:
        # L(theta) and L(theta + delta), both differentiable; delta is a constant unless `exact`.
        theta, natural = self._trainable(), self._call(fn)

        def gradient(loss: Tensor, at: Tensors) -> Tensors:
            found = torch.autograd.grad(loss, list(at.values()), None, True, self.config.exact, allow_unused=True)
            return {n: g for n, g in zip(at, found, strict=True) if g is not None}

        @torch.enable_grad()
        def gradient_at(step: Tensors) -> Tensors:
            at = {n: theta[n] + s for n, s in step.items()}
            with perturb.replaced(self.model, {theta[n]: weight for n, weight in at.items()}):
                return gradient(self._call(fn), at)

        with perturb.kept_buffers(self.model):
            delta = self._delta(theta, gradient(natural, theta), gradient_at)
            with perturb.replaced(self.model, {theta[n]: theta[n] + d for n, d in delta.items()}):
                yield natural, self._call(fn)

    def _delta(self, theta: Tensors, first: Tensors, gradient_at: Callable[[Tensors], Tensors]) -> dict[str, Tensor]:
        c = self.config
        chosen = [n for n in self._names if n in first]
        if not chosen:
            warnings.warn(
                f"{list(self._names)} are frozen or unused by the closure: nothing is perturbed", stacklevel=4
            )
        if c.steps == 1:
            first = {n: first[n] for n in chosen}  # nothing else has to move
        with torch.set_grad_enabled(c.exact):
            step = perturb.ascend(first, gradient_at, steps=c.steps, step_size=c.step_size)
            step = {n: step[n] for n in chosen}
            return perturb.project(step, theta, rho=c.rho, radius=c.radius, onto=c.projection)

    def _trainable(self) -> dict[str, Tensor]:
        return {n: p for n, p in self.model.named_parameters() if p.requires_grad}

    def _call(self, closure: Closure) -> Tensor:
        if not callable(closure):
            raise ValueError(f"pass a function that computes the loss, awp.backward(lambda: ...), not {type(closure)}")
        torch.clear_autocast_cache()  # it holds low-precision copies of the weights, and those have moved
        empty = [p for p in self.model.parameters() if p.is_leaf and p.grad is None]
        loss = closure()
        if any(p.grad is not None for p in empty):
            raise ValueError("the closure called backward() itself; let it only compute and return the loss")
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            got = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, Tensor) else repr(loss)
            raise ValueError(f"the closure must return the loss as a tensor with one element, got {got}")
        if not loss.requires_grad:
            raise ValueError("the closure returned a detached loss; compute it without .detach() or torch.no_grad()")
        return loss


def _gradient(loss: Tensor, *, retain_graph: bool = False) -> Gradients:
    """Each leaf that `loss.backward()` would fill -> its gradient, dense. `.grad` is not touched."""
    leaves = _leaves(loss)
    found = torch.autograd.grad(loss, leaves, retain_graph=retain_graph)
    return {leaf: g.to_dense() if g.is_sparse else g for leaf, g in zip(leaves, found, strict=True)}


def _leaves(loss: Tensor) -> list[Tensor]:
    # The graph is asked, not the model: a parameter that lives outside it (a learned temperature) is trained as well.
    if loss.grad_fn is None:
        return [loss]
    leaves, seen, stack = [], {loss.grad_fn}, [loss.grad_fn]
    while stack:
        node = stack.pop()
        if node.name().endswith("AccumulateGrad"):
            leaves.append(node.variable)  # type: ignore[attr-defined]
        for parent, _ in node.next_functions:
            if parent is not None and parent not in seen:
                seen.add(parent)
                stack.append(parent)
    return leaves


def AWP(model: nn.Module, *, rho: float, radius: Radius = "layer", **options: Unpack[Options]) -> WTAWP:
    """Adversarial weight perturbation (Eq. 6, eq:awpest): every layer, and the perturbed loss alone."""
    return WTAWP(model, rho=rho, lam=1.0, layers="all", radius=radius, **options)


def TAWP(
    model: nn.Module,
    *,
    rho: float,
    layers: Layers = "all-but-last",
    radius: Radius = "layer",
    **options: Unpack[Options],
) -> WTAWP:
    """Truncated AWP (Eq. 9): some layers, and the perturbed loss alone."""
    return WTAWP(model, rho=rho, lam=1.0, layers=layers, radius=radius, **options)


def WAWP(model: nn.Module, *, rho: float, lam: float, radius: Radius = "layer", **options: Unpack[Options]) -> WTAWP:
    """Weighted AWP (Eq. 10, eq:weighted_awp): every layer, and both losses."""
    return WTAWP(model, rho=rho, lam=lam, layers="all", radius=radius, **options)


def SAM(model: nn.Module, *, rho: float = 0.05, **options: Unpack[Options]) -> WTAWP:
    """Sharpness-aware minimisation (Foret et al. 2021): all parameters, one absolute radius for them together."""
    return WTAWP(model, rho=rho, lam=1.0, layers="*", radius="global", **options)


def ASAM(model: nn.Module, *, rho: float = 0.5, **options: Unpack[Options]) -> WTAWP:
    """Adaptive SAM (Kwon et al. 2021): all parameters, each step measured relative to the weight it moves."""
    return WTAWP(model, rho=rho, lam=1.0, layers="*", radius="adaptive", **options)
