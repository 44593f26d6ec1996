"""Adversarial weight perturbation as pure functions on dicts of tensors (sections 3 and 4 of the paper).

`select` says which parameters form theta^(awp) (Eq. 9), `ascend` climbs the loss, `project` pulls the climb back to
the radius (Eq. 5, eq:est), `mix` weighs the two gradients (Algorithm 1, line 5). They hold no state and take no
branch on values, so `torch.func.vmap` maps them over a stack of models and every model keeps its own norms.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from fnmatch import fnmatchcase
from functools import reduce
from typing import Literal, TypeVar

import torch
from torch import Tensor, nn

from wtawp.base import NotPerturbableError

Key = TypeVar("Key")
Tensors = Mapping[str, Tensor]
Radius = Literal["layer", "global", "adaptive"]
Projection = Literal["sphere", "ball"]

WORDS = ("all", "all-but-last", "first", "last")
ETA = 0.01  # ASAM's floor under |theta|, so that a weight of zero can move
SHORT = 1e-12  # a shorter gradient counts as vanished: it is not blown up to the radius


def select(model: nn.Module, layers: str | Sequence[str] = "all-but-last") -> tuple[str, ...]:
    """Names of the parameters to perturb, in order of registration: by a word over layers, or by globs over names.

    A layer is the first module on the way down that owns parameters or passes messages. A word takes, inside layers,
    the parameters named `*weight` with two or more dimensions that belong to no normalisation; a layer without any is
    passed over. Globs take whatever they match. Frozen parameters count as layers but are never taken; a shared one
    is taken if any chosen layer holds it, once, under its first name.

    >>> select(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))
    ('0.weight',)
    """
    parameters = dict(model.named_parameters())
    if not parameters:
        raise ValueError(f"{type(model).__name__} has no parameters to perturb; pass the module that holds the weights")
    for name, module in model.named_modules():
        if getattr(module, "weights_are_distributions", False):
            what = f"{name or 'the model'} ({type(module).__name__})"
            raise NotPerturbableError(f"weights of {what} are distributions and cannot be perturbed; use lam=0")
    lazy = [n for n, p in parameters.items() if nn.parameter.is_lazy(p)]
    if lazy:
        raise ValueError(f"{lazy} have no shape yet; run the model once on some input, then build the perturbation")
    chosen = _by_word(model, layers) if isinstance(layers, str) and layers in WORDS else _by_globs(parameters, layers)
    taken = tuple(n for n, p in parameters.items() if n in chosen and p.requires_grad)
    if not taken:
        raise ValueError(
            f"layers={layers!r} choose only frozen parameters, {sorted(chosen)}; unfreeze or choose others"
        )
    return taken


def _by_globs(parameters: Tensors, layers: str | Sequence[str]) -> set[str]:
    globs = (layers,) if isinstance(layers, str) else tuple(layers)
    missed = tuple(g for g in globs if not any(fnmatchcase(n, g) for n in parameters))
    if missed or not globs:
        raise ValueError(f"layers={missed or globs} match none of {list(parameters)}; the words are {WORDS}")
    return {n for n in parameters if any(fnmatchcase(n, g) for g in globs)}


def _by_word(model: nn.Module, word: str) -> set[str]:
    first_name = {p: n for n, p in model.named_parameters()}
    root = model
    while (inner := getattr(root, "module", getattr(root, "_orig_mod", None))) is not None:  # DataParallel, compile
        root = inner
    layers = list(dict.fromkeys(_layers(root))) or [root]  # a bare nn.Linear is its own layer
    found = [matrices for layer in layers if (matrices := [first_name[p] for p in _matrices(layer)])]
    names = list(first_name.values())
    if not found:
        raise ValueError(f"layers={word!r}: no layer has a matrix named '*weight'; choose among {names} with globs")
    if word == "all-but-last" and len(found) == 1:
        raise ValueError(f"one layer, {found[0]}, has no 'all-but-last'; use layers='all' or globs over {names}")
    part = {"all": found, "all-but-last": found[:-1], "first": found[:1], "last": found[-1:]}[word]
    return {name for matrices in part for name in matrices}


def _layers(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        if hasattr(child, "propagate") or next(child.parameters(recurse=False), None) is not None:
            yield child
        else:
            yield from _layers(child)


def _matrices(layer: nn.Module) -> list[nn.Parameter]:
    owners = [m for m in layer.modules() if not re.search(r"Norm(\dd)?$", type(m).__name__)]
    named = [pair for m in owners for pair in m.named_parameters(recurse=False)]
    return [p for name, p in named if name.endswith("weight") and p.dim() >= 2]


def length(*tensors: Tensor) -> Tensor:
    """The Euclidean length of the tensors laid end to end, in float32 at least; at zero its derivatives are zero."""
    wide = reduce(torch.promote_types, (t.dtype for t in tensors), torch.float32)
    if not torch.is_grad_enabled():  # three times faster, but its second derivative at zero is NaN
        each: list[Tensor] = [torch.linalg.vector_norm(t, dtype=wide) for t in tensors]
        return each[0] if len(each) == 1 else torch.stack(each).norm()
    square = torch.stack([t.to(wide).square().sum() for t in tensors]).sum()
    return torch.where(square > 0, square, 1).sqrt() * (square > 0)


def radii(theta: Tensors, *, rho: float, radius: Radius = "layer") -> dict[str, Tensor]:
    """rho(theta_i) of Eq. 5: "layer" is rho * |theta_i|; "global" and "adaptive" share one radius rho among all."""
    if radius == "layer":
        return {n: rho * length(w) for n, w in theta.items()}
    return {n: torch.full_like(length(w), rho) for n, w in theta.items()}


def project(
    step: Tensors, theta: Tensors, *, rho: float, radius: Radius = "layer", onto: Projection = "sphere"
) -> dict[str, Tensor]:
    """Pull `step` back to the radius, the projection of Eq. 5 (eq:est). Names and shapes are those of `step`.

    "ball" is the paper's text (short steps stay short), "sphere" its released code (always full length);
    "layer" measures each tensor by itself, "global" all together (SAM), "adaptive" all together in the coordinates
    delta / (|theta| + ETA), where a weight moves in proportion to its size (ASAM). A zero step stays zero.

    >>> project({"w": torch.tensor([3.0, 4.0])}, {"w": torch.tensor([1.0, 0.0])}, rho=1.0)
    {'w': tensor([0.6000, 0.8000])}
    """
    if not step:
        return {}
    if radius == "adaptive":
        unit = {n: theta[n].abs() + ETA for n in step}
        inside = project({n: s * unit[n] for n, s in step.items()}, theta, rho=rho, radius="global", onto=onto)
        return {n: d * unit[n] for n, d in inside.items()}
    limits = radii({n: theta[n] for n in step}, rho=rho, radius=radius)
    lengths = (
        {n: length(s) for n, s in step.items()} if radius == "layer" else dict.fromkeys(step, length(*step.values()))
    )
    scales = {n: limits[n] / lengths[n].clamp_min(SHORT) for n in step}
    if onto == "ball":
        scales = {n: s.clamp_max(1.0) for n, s in scales.items()}
    return {n: (s * scales[n]).to(s.dtype) for n, s in step.items()}


def ascend(
    first: Tensors, gradient_at: Callable[[Tensors], Tensors], *, steps: int = 1, step_size: float | None = None
) -> dict[str, Tensor]:
    """The sum of `steps` raw gradient steps: `first` is the gradient at theta, `gradient_at(s)` that at theta + s."""
    size = 1 / steps if step_size is None else step_size
    step = dict(first) if size == 1 else {n: size * g for n, g in first.items()}
    for _ in range(steps - 1):
        gradient = gradient_at(step)
        step = {n: s + size * gradient[n] if n in gradient else s for n, s in step.items()}
    return step


def clip_relative_norm(
    perturbed: Mapping[Key, Tensor], natural: Mapping[Key, Tensor], balance: float
) -> dict[Key, Tensor]:
    """`perturbed`, over all tensors at most `balance` times as long as `natural`; an infinite one becomes zero."""
    if not (natural and perturbed):
        return dict(perturbed)
    limit = balance * length(*natural.values()) / length(*perturbed.values()).clamp_min(SHORT)
    return {k: torch.where(limit == 0, 0.0, limit.clamp_max(1.0) * g).to(g.dtype) for k, g in perturbed.items()}


def mix(natural: Mapping[Key, Tensor], perturbed: Mapping[Key, Tensor], *, lam: float) -> dict[Key, Tensor]:
    """Line 5 of Algorithm 1, lam * g(theta + delta) + (1 - lam) * g(theta); a tensor missing on one side is zero."""
    alone = {k: (1 - lam) * g for k, g in natural.items() if k not in perturbed}
    return alone | {k: torch.lerp(natural[k], g, lam) if k in natural else lam * g for k, g in perturbed.items()}


def copy_into(theta: Tensors, values: Tensors) -> None:
    """Write values into the tensors of `theta`, bit for bit, past autograd."""
    for n, value in values.items():
        theta[n].detach().copy_(value)


def replaced(model: nn.Module, by: Mapping[Tensor, Tensor]) -> AbstractContextManager[None]:
    """Inside, the model computes with other tensors in place of its parameters, and gradients flow through them."""
    return _swapped(model, "_parameters", lambda p: by.get(p, p))


def kept_buffers(model: nn.Module) -> AbstractContextManager[None]:
    """Inside, the model works on copies of its buffers (batch-norm statistics); outside, on the untouched originals."""
    return _swapped(model, "_buffers", lambda b: b.detach().clone())


@contextmanager
def _swapped(model: nn.Module, slots: str, new: Callable[[Tensor], Tensor]) -> Iterator[None]:
    places = [(s, name, old) for m in model.modules() for s in [getattr(m, slots)] for name, old in s.items()]
    try:
        for slot, name, old in places:
            slot[name] = None if old is None else new(old)
        yield
    finally:
        for slot, name, old in places:
            slot[name] = old
