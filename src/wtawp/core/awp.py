"""WTAWP: adversarial weight perturbation in place of `loss.backward()`, and the named variants of the method.

The numbers are computed in `wtawp.core.algorithm`. This module runs the passes over the model that the algorithm asks
for, and guarantees what they leave behind: the same weights, the same buffers, and `.grad` as `backward` would fill it.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TypedDict, Unpack

import torch
from torch import Tensor, nn

from wtawp.base import find_stack_level
from wtawp.core.algorithm import compute_delta, compute_gradient
from wtawp.core.config import AwpConfig, Layers, Projection, Radius
from wtawp.core.perturb import copy_into, isolated_buffers, radii, select, substituted_parameters
from wtawp.core.vanishing import VanishingGradientMonitor

Closure = Callable[[], Tensor]
ByParameter = dict[Tensor, Tensor]  # parameter -> its gradient, or a step of it


class Options(TypedDict, total=False):
    """The options that every named variant shares with `WTAWP`; `AwpConfig` explains them."""

    projection: Projection
    steps: int
    step_size: float | None
    balance: float | None
    exact: bool


class WTAWP:
    """Weighted truncated adversarial weight perturbation of a model, for a training loop of one's own.

    It computes the gradient lam * g(theta + delta) + (1 - lam) * g(theta) of Eq. 10 (eq:weighted_awp). It has no state
    that would have to be saved: a training that is resumed with the same options continues exactly.

    Args:
        model: The module that is trained.
        rho: Radius of the perturbation, Eq. 5 (eq:est); relative to the norm of each tensor when `radius` is "layer".
        lam: Weight of the perturbed loss, between 0 and 1. 0 is plain training, 1 is AWP.
        layers: The perturbed parameters: "all", "all-but-last", "first" or "last", or globs over parameter names.
        radius: "layer" (the paper), "global" (SAM) or "adaptive" (ASAM).
        projection: "sphere" (released code) or "ball" (the paper's text).
        steps: Number of ascent steps; each needs one more pass over the model.
        step_size: Size of each ascent step. None means 1 / steps.
        balance: Upper limit for the norm of the perturbed gradient, as a multiple of the natural one's. None sets none.
        exact: Whether to keep the second-order term of Eq. 7 (eq:grad_exact).

    Attributes:
        model: The module that is trained.
        config: The options, as an `AwpConfig`, which explains them at length.

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
        self.model, self._monitor = model, VanishingGradientMonitor()
        shared = Options(projection=projection, steps=steps, step_size=step_size, balance=balance, exact=exact)
        self.config = AwpConfig(rho=rho, lam=lam, layers=layers, radius=radius, **shared)
        self._names = () if self.config.is_plain else select(model, self.config.layers)  # plain: any model is accepted

    @property
    def perturbed(self) -> dict[str, float]:
        """The perturbed parameters and the radius of each at its current weights.

        Returns:
            Parameter name -> radius. A "global" or "adaptive" radius is shared by all parameters.
        """
        parameters = self._trainable()
        theta = {n: parameters[n].detach() for n in self._names if n in parameters}
        return {n: float(r) for n, r in radii(theta, rho=self.config.rho, radius=self.config.radius).items()}

    def __repr__(self) -> str:
        shared = "" if self.config.radius == "layer" else ", shared"
        rows = [f"\n  {n}: radius {r:.4g}{shared}" for n, r in self.perturbed.items()]
        return f"WTAWP({self.config}) of {type(self.model).__name__}, perturbing {''.join(rows) or 'nothing'}"

    def backward(self, closure: Closure) -> Tensor:
        """Add the WT-AWP gradient to `.grad`, as `loss.backward()` adds the plain one.

        The weights have their old values afterwards, bit for bit. If the closure raises, `.grad` is unchanged too.

        Args:
            closure: Computes and returns one fresh loss, and calls neither `backward` nor `zero_grad`. It is called
                steps + 1 times (once if lam or rho is 0); only the first call updates the buffers of the model.

        Returns:
            The natural loss L(theta), detached.

        Raises:
            ValueError: If the closure does not return a loss with one element that can be differentiated, or calls
                `backward` itself.

        Example:
            >>> model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))
            >>> loss = WTAWP(model, rho=1.0, lam=0.7).backward(lambda: model(torch.ones(3, 2)).square().mean())
            >>> bool(loss > 0), model[0].weight.grad.shape
            (True, torch.Size([4, 2]))
        """
        if self.config.is_plain:
            loss = self._call(closure)
            loss.backward()  # type: ignore[no-untyped-call]
            return loss.detach()
        loss, gradient = self._exact_gradient(closure) if self.config.exact else self._first_order_gradient(closure)
        for leaf, g in gradient:
            if leaf.grad is None:  # autograd does not promise the leaf's memory layout, fused optimisers rely on it
                leaf.grad = g if g.stride() == leaf.stride() else torch.empty_like(leaf.detach()).copy_(g)
            else:
                leaf.grad.detach().add_(g)
        return loss

    def loss(self, fn: Closure) -> Tensor:
        """Compute the objective lam * L(theta + delta) + (1 - lam) * L(theta), for frameworks that call `backward`.

        Its gradient is what `backward` adds. The price is that the activations of two passes are in memory at once.

        Args:
            fn: Computes and returns one fresh loss. It must use the weights through `model`, and must not recompute
                activations later, as checkpointing does. It is called steps + 1 times (once if lam or rho is 0).

        Returns:
            The objective, a differentiable scalar.

        Raises:
            ValueError: If `balance` is set, because it scales gradients and not losses, or if `fn` does not return a
                loss with one element that can be differentiated.

        Example:
            >>> model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 2))
            >>> WTAWP(model, rho=1.0, lam=0.7).loss(lambda: model(torch.ones(3, 2)).square().mean()).backward()
        """
        if self.config.balance is not None:
            raise ValueError(f"balance={self.config.balance} rescales gradients, not losses; use backward() instead")
        natural = self._call(fn)
        if self.config.is_plain:
            return natural
        parameters = self._trainable()
        chosen, theta = self._chosen(parameters), _identity(parameters)
        ascent = self._differentiable_gradient(natural, theta)
        self._warn_if_unused(chosen, ascent)
        with isolated_buffers(self.model):
            delta = compute_delta(
                ascent,
                theta=theta,
                perturbed=chosen,
                config=self.config,
                gradient_at=lambda step: self._differentiable_gradient_at(fn, step),
            )
            with substituted_parameters(self.model, {p: p + d for p, d in delta.items()}):
                perturbed = self._call(fn)
        return self.config.lam * perturbed + (1 - self.config.lam) * natural

    def _first_order_gradient(self, closure: Closure) -> tuple[Tensor, Iterator[tuple[Tensor, Tensor]]]:
        """L(theta) and the mixed gradient; weights are shifted in place, and one graph is in memory at a time."""
        parameters, loss = self._trainable(), self._call(closure)
        natural = _gradient(loss)
        loss = loss.detach()  # releases the graph before the next pass builds its own
        chosen = self._chosen(parameters)
        self._warn_if_unused(chosen, natural)
        moving = list(parameters.values()) if self.config.steps > 1 else chosen
        weights, theta = {p: p for p in moving}, {p: p.detach().clone() for p in moving}

        def shift(step: Mapping[Tensor, Tensor]) -> None:
            copy_into(weights, theta)
            for p, s in step.items():
                p.detach().add_(s)  # in place: no further copy of the weights

        @torch.enable_grad()
        def gradient_at(step: Mapping[Tensor, Tensor]) -> ByParameter:
            shift(step)
            return _gradient(self._call(closure))

        def perturbed_gradient(delta: ByParameter) -> ByParameter:
            shift(delta)
            delta.clear()  # releases its memory before the pass
            gradient = _gradient(self._call(closure))
            self._monitor(natural.values(), gradient.values(), loss, self.config)
            return gradient

        try:
            with isolated_buffers(self.model):
                return loss, compute_gradient(
                    natural,
                    theta=theta,
                    perturbed=chosen,
                    config=self.config,
                    gradient_at=gradient_at,
                    perturbed_gradient=perturbed_gradient,
                )
        finally:
            try:
                copy_into(weights, theta)
            except BaseException:  # interrupted while the weights were being restored
                copy_into(weights, theta)
                raise

    def _exact_gradient(self, closure: Closure) -> tuple[Tensor, Iterator[tuple[Tensor, Tensor]]]:
        """L(theta) and the mixed gradient with the second-order term: delta stays part of the graph."""
        parameters, loss = self._trainable(), self._call(closure)
        natural = _gradient(loss, retain_graph=True)
        chosen, theta = self._chosen(parameters), _identity(parameters)
        ascent = self._differentiable_gradient(loss, theta)
        self._warn_if_unused(chosen, ascent)

        def perturbed_gradient(delta: ByParameter) -> ByParameter:
            with substituted_parameters(self.model, {p: p + d for p, d in delta.items()}):
                gradient = _gradient(self._call(closure))
            self._monitor(natural.values(), gradient.values(), loss, self.config)
            return gradient

        with isolated_buffers(self.model):
            return loss.detach(), compute_gradient(
                natural,
                theta=theta,
                perturbed=chosen,
                config=self.config,
                gradient_at=lambda step: self._differentiable_gradient_at(closure, step),
                perturbed_gradient=perturbed_gradient,
                ascent_gradient=ascent,
            )

    @torch.enable_grad()
    def _differentiable_gradient_at(self, fn: Closure, step: Mapping[Tensor, Tensor]) -> ByParameter:
        """The gradient at theta + step with respect to the shifted weights, as tensors in the graph."""
        shifted = {p: p + s for p, s in step.items()}
        with substituted_parameters(self.model, shifted):
            return self._differentiable_gradient(self._call(fn), shifted)

    def _differentiable_gradient(self, loss: Tensor, at: ByParameter) -> ByParameter:
        """The gradient with respect to the tensors `at`; the graph is kept, and extended if `exact`."""
        gradients = torch.autograd.grad(loss, list(at.values()), None, True, self.config.exact, allow_unused=True)
        return {p: g for p, g in zip(at, gradients, strict=True) if g is not None}

    def _trainable(self) -> dict[str, Tensor]:
        """The parameters of the model that are not frozen now."""
        return {n: p for n, p in self.model.named_parameters() if p.requires_grad}

    def _chosen(self, parameters: Mapping[str, Tensor]) -> list[Tensor]:
        """The parameters to perturb, without those that were frozen after this object was built."""
        return [parameters[n] for n in self._names if n in parameters]

    def _warn_if_unused(self, chosen: list[Tensor], gradient: ByParameter) -> None:
        """Warn if no parameter that should be perturbed has a gradient."""
        if not any(p in gradient for p in chosen):
            warnings.warn(
                f"{list(self._names)} are frozen or unused by the closure: nothing is perturbed",
                stacklevel=find_stack_level(),
            )

    def _call(self, closure: Closure) -> Tensor:
        """Call the closure and check that it kept to the rules of `backward`."""
        if not callable(closure):
            raise ValueError(f"pass a function that computes the loss, awp.backward(lambda: ...), not {type(closure)}")
        torch.clear_autocast_cache()  # it holds low-precision copies of the weights, which have changed
        without_grad = [p for p in self.model.parameters() if p.is_leaf and p.grad is None]
        loss = closure()
        if any(p.grad is not None for p in without_grad):
            raise ValueError("the closure called backward() itself; let it only compute and return the loss")
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            got = f"a tensor of shape {list(loss.shape)}" if isinstance(loss, Tensor) else repr(loss)
            raise ValueError(f"the closure must return the loss as a tensor with one element, got {got}")
        if not loss.requires_grad:
            raise ValueError("the closure returned a detached loss; compute it without .detach() or torch.no_grad()")
        return loss


def _identity(parameters: Mapping[str, Tensor]) -> ByParameter:
    """Each parameter under itself as the key."""
    return {p: p for p in parameters.values()}


def _gradient(loss: Tensor, *, retain_graph: bool = False) -> ByParameter:
    """The gradient of each leaf that `loss.backward()` would fill, dense. `.grad` is not changed."""
    leaves = _leaves(loss)
    gradients = torch.autograd.grad(loss, leaves, retain_graph=retain_graph)
    return {leaf: g.to_dense() if g.is_sparse else g for leaf, g in zip(leaves, gradients, strict=True)}


def _leaves(loss: Tensor) -> list[Tensor]:
    """The leaves of the graph, not of the model: a parameter outside it (a learned temperature) is trained as well."""
    if loss.grad_fn is None:
        return [loss]
    leaves, visited, stack = [], {loss.grad_fn}, [loss.grad_fn]
    while stack:
        node = stack.pop()
        if node.name().endswith("AccumulateGrad"):
            leaves.append(node.variable)  # type: ignore[attr-defined]
        for parent, _ in node.next_functions:
            if parent is not None and parent not in visited:
                visited.add(parent)
                stack.append(parent)
    return leaves


def AWP(model: nn.Module, *, rho: float, radius: Radius = "layer", **options: Unpack[Options]) -> WTAWP:
    """Build adversarial weight perturbation, Eq. 6 (eq:awpest): every layer, and the perturbed loss alone.

    Args:
        model: The module that is trained.
        rho: Radius of the perturbation, relative to the norm of each tensor when `radius` is "layer".
        radius: "layer" (the paper), "global" or "adaptive".
        **options: `projection`, `steps`, `step_size`, `balance` and `exact`, as `WTAWP` takes them.

    Returns:
        A `WTAWP` with lam=1 and layers="all".

    Example:
        >>> AWP(nn.Linear(4, 3), rho=0.5).config.lam
        1.0
    """
    return WTAWP(model, rho=rho, lam=1.0, layers="all", radius=radius, **options)


def TAWP(
    model: nn.Module,
    *,
    rho: float,
    layers: Layers = "all-but-last",
    radius: Radius = "layer",
    **options: Unpack[Options],
) -> WTAWP:
    """Build truncated AWP, Eq. 9: some layers, and the perturbed loss alone.

    Args:
        model: The module that is trained.
        rho: Radius of the perturbation, relative to the norm of each tensor when `radius` is "layer".
        layers: The perturbed parameters: "all", "all-but-last", "first" or "last", or globs over parameter names.
        radius: "layer" (the paper), "global" or "adaptive".
        **options: `projection`, `steps`, `step_size`, `balance` and `exact`, as `WTAWP` takes them.

    Returns:
        A `WTAWP` with lam=1.

    Example:
        >>> list(TAWP(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3)), rho=0.5).perturbed)
        ['0.weight']
    """
    return WTAWP(model, rho=rho, lam=1.0, layers=layers, radius=radius, **options)


def WAWP(model: nn.Module, *, rho: float, lam: float, radius: Radius = "layer", **options: Unpack[Options]) -> WTAWP:
    """Build weighted AWP, Eq. 10 (eq:weighted_awp): every layer, and both losses.

    Args:
        model: The module that is trained.
        rho: Radius of the perturbation, relative to the norm of each tensor when `radius` is "layer".
        lam: Weight of the perturbed loss, between 0 and 1.
        radius: "layer" (the paper), "global" or "adaptive".
        **options: `projection`, `steps`, `step_size`, `balance` and `exact`, as `WTAWP` takes them.

    Returns:
        A `WTAWP` with layers="all".

    Example:
        >>> list(WAWP(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3)), rho=0.5, lam=0.5).perturbed)
        ['0.weight', '1.weight']
    """
    return WTAWP(model, rho=rho, lam=lam, layers="all", radius=radius, **options)


def SAM(model: nn.Module, *, rho: float = 0.05, **options: Unpack[Options]) -> WTAWP:
    """Build sharpness-aware minimization (Foret et al. 2021): all parameters, with one absolute radius together.

    Args:
        model: The module that is trained.
        rho: Radius over all parameters together; the default is that of the authors.
        **options: `projection`, `steps`, `step_size`, `balance` and `exact`, as `WTAWP` takes them.

    Returns:
        A `WTAWP` with lam=1, layers="*" and radius="global".

    Example:
        >>> list(SAM(nn.Linear(4, 3)).perturbed)
        ['weight', 'bias']
    """
    return WTAWP(model, rho=rho, lam=1.0, layers="*", radius="global", **options)


def ASAM(model: nn.Module, *, rho: float = 0.5, **options: Unpack[Options]) -> WTAWP:
    """Build adaptive SAM (Kwon et al. 2021): all parameters, with each step measured relative to the weight it changes.

    Args:
        model: The module that is trained.
        rho: Radius over all parameters together, in units of the weights; the default is that of the authors.
        **options: `projection`, `steps`, `step_size`, `balance` and `exact`, as `WTAWP` takes them.

    Returns:
        A `WTAWP` with lam=1, layers="*" and radius="adaptive".

    Example:
        >>> ASAM(nn.Linear(4, 3)).config.radius
        'adaptive'
    """
    return WTAWP(model, rho=rho, lam=1.0, layers="*", radius="adaptive", **options)
