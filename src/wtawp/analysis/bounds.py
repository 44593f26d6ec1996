"""The PAC-Bayes bounds of the paper as numbers: Theorem 1 (eq:pacbayes1), Lemma 1 (lm:1) and the graph-level bound.

Every term has a name, and so has every symbol: where the appendix writes m for the tail radius and for the number of
graphs, and d for the number of parameters and for the maximum degree, there are two names here. Constants that the
paper leaves inside Theta and O are arguments, 1 unless said. All losses must lie in [0, 1], as the proof needs it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.analysis.losses import LossOn, trainable
from wtawp.analysis.sharpness import sharpness_over
from wtawp.base import AnalysisError
from wtawp.core import radii, select
from wtawp.core.config import Layers
from wtawp.graphs.collection import batched, is_collection
from wtawp.models import GCN, Pooled

Terms = dict[str, float]


@dataclass(frozen=True)
class Bound:
    """A bound on the loss on all nodes or graphs, term by term; `total` is their sum."""

    loss: float  # on training nodes: perturbed, or averaged over the posterior
    tail: float  # (x e^(1 - x))^(d/2) for x = tail_radius^2 / d: weights that fall outside the ball
    complexity: float
    remainder: float  # ln(3 / delta), 1/4 and the unnamed constant
    tail_radius: float  # m of Theorem 1, in standard deviations of the posterior; infinite: there is no tail

    @property
    def total(self) -> float:
        """What the loss is at most, with probability 1 - delta."""
        return self.loss + self.tail + self.complexity + self.remainder

    @property
    def is_vacuous(self) -> bool:
        """Whether it says no more than that the loss is at most 1."""
        return self.total >= 1

    def terms(self) -> Terms:
        """By name, with their total."""
        return {**{f.name: getattr(self, f.name) for f in fields(self)}, "total": self.total}

    def __str__(self) -> str:
        said = f" (tail radius {self.tail_radius:.4g})"
        parts = " + ".join(f"{n} {getattr(self, n):.4g}" for n in ("loss", "tail", "complexity", "remainder"))
        word = "vacuous: a loss of at most 1 is at most 1" if self.is_vacuous else "not vacuous"
        return f"{self.total:.4g} = {parts}{said}; {word}"


def theorem_1(
    *,
    perturbed_loss: float,
    weight_norm: float,
    rho: float,
    num_parameters: int,
    num_train: int,
    num_classes: int,
    delta: float = 0.05,
    epsilon: float = 1.0,
    constant: float = 1.0,
    tail_radius: float | None = None,
) -> Bound:
    """Theorem 1: L_all <= max_{|delta| <= rho} L_train + tail + complexity + remainder, with probability 1 - delta.

    It assumes that L_all is no higher than its mean over Gaussian noise on the weights.
    `rho` is absolute, a length in the space of all weights: `total_radius` of a layer-relative one. `epsilon` is
    epsilon_all and `constant` the factor hidden in Theta(K epsilon_all). Without a `tail_radius`, which must be at
    least sqrt(num_parameters), the one that makes the sum least is found numerically.
    """
    _check(losses={"perturbed_loss": perturbed_loss}, delta=delta, counts={
        "num_parameters": num_parameters, "num_train": num_train, "num_classes": num_classes})  # fmt: skip
    _at_least_zero(weight_norm=weight_norm, epsilon=epsilon, constant=constant)
    if not 0 < rho < math.inf:
        raise ValueError(f"rho must be finite and > 0, got {rho}: in a ball of radius 0 the bound is infinite")
    ratio, root = (weight_norm / rho) ** 2, math.sqrt(num_train)

    def complexity(excess: float) -> float:
        return (1 + num_parameters * math.log1p((1 + excess) * ratio)) / (2 * root)

    if tail_radius is None:
        excess = _best_excess(num_parameters, complexity)
        tail_radius = math.sqrt(num_parameters * (1 + excess))
    else:
        excess = _excess(tail_radius, num_parameters)
    rest = (math.log(3 / delta) + 0.25 + constant * num_classes * epsilon) / root
    return Bound(perturbed_loss, _tail(excess, num_parameters), complexity(excess), rest, tail_radius)


def lemma_1(
    *,
    train_loss: float,
    kl: float,
    num_train: int,
    num_classes: int,
    delta: float = 0.05,
    epsilon: float = 1.0,
    constant: float = 1.0,
) -> Bound:
    """Lemma 1 (lm:1), for a subgroup of nodes: E_Q L_m <= E_Q L_train + (KL(Q|P) + ln 3/delta + 1/4 + ...) / sqrt N_0.

    `train_loss` is averaged over the posterior Q, so there is no ball and no tail; `epsilon` is the subgroup's
    epsilon_m, and `constant` the factor hidden in Theta(K epsilon_m).
    """
    _check(losses={"train_loss": train_loss}, delta=delta, counts={"num_train": num_train, "num_classes": num_classes})
    _at_least_zero(kl=kl, epsilon=epsilon, constant=constant)
    root = math.sqrt(num_train)
    rest = (math.log(3 / delta) + 0.25 + constant * num_classes * epsilon) / root
    return Bound(train_loss, 0.0, kl / root, rest, math.inf)


def gaussian_kl(
    *, weight_norm: float, num_parameters: int, posterior_std: float, prior_std: float | None = None
) -> float:
    """KL of N(theta, posterior_std^2 I) from N(0, prior_std^2 I); without a prior, Lemma 2's bound (lm:2) on it."""
    ratio = weight_norm**2 / (num_parameters * posterior_std**2)
    if prior_std is None:
        return (1 + num_parameters * math.log1p(ratio)) / 2
    share = (posterior_std / prior_std) ** 2
    return (num_parameters * (share - 1 - math.log(share)) + (weight_norm / prior_std) ** 2) / 2


def graph_level_bound(
    *,
    perturbed_loss: float,
    spectral_norms: Sequence[float],
    frobenius_norms: Sequence[float],
    rho: float,
    num_parameters: int,
    num_graphs: int,
    max_degree: int,
    width: int,
    delta: float = 0.05,
    constant: float = 1.0,
    tail_radius: float = math.inf,
) -> Bound:
    """The bound for classifying graphs (sec:gen_gap_graph_level), `constant` being the factor hidden in O.

    It assumes what Theorem 1 does. One spectral and one Frobenius norm for each of the l > 1 layers; `max_degree`,
    self-loop included, and `num_graphs` are the d and m of Liao et al. Nothing but the tail depends on the tail radius
    as printed, so that its best value is infinite; a finite one must be above sqrt(num_parameters).
    """
    depth = len(spectral_norms)
    if depth < 2 or len(frobenius_norms) != depth:
        raise ValueError(f"two or more layers, each with both norms, got {depth} and {len(frobenius_norms)} norms")
    _check(losses={"perturbed_loss": perturbed_loss}, delta=delta, counts={
        "num_parameters": num_parameters, "num_graphs": num_graphs, "max_degree": max_degree, "width": width,
    })  # fmt: skip
    _at_least_zero(constant=constant)
    if not (0 < rho < math.inf and min(spectral_norms) > 0):
        raise ValueError(f"rho and spectral norms must be > 0, got {rho} and {list(spectral_norms)}")
    product = math.prod(s**2 for s in spectral_norms)
    ranks = sum((f / s) ** 2 for f, s in zip(frobenius_norms, spectral_norms, strict=True))
    weights = max_degree ** (depth - 1) * width * math.log(depth * width) * product * ranks / rho**2
    confidence = math.log(num_graphs * depth / delta)
    # Of the root of a sum, the first part is the weights' and what comes on top the confidence's.
    complexity = constant * math.sqrt(weights / num_graphs)
    rest = constant * math.sqrt((weights + confidence) / num_graphs) - complexity
    tail = 0.0 if tail_radius == math.inf else _tail(_excess(tail_radius, num_parameters), num_parameters)
    return Bound(perturbed_loss, tail, complexity, rest, tail_radius)


def total_radius(model: nn.Module, rho: float, *, layers: Layers = "all") -> float:
    """The rho of the bounds for layer-relative perturbations: the sum of the layers' radii rho |theta_i|."""
    named = dict(model.named_parameters())
    each = radii({n: named[n].detach() for n in select(model, layers)}, rho=rho)
    return float(sum(each.values()))


@dataclass(frozen=True)
class BoundAt:
    """The bound for a model at one layer-relative radius, beside what it bounds."""

    rho: float  # relative to each layer
    total_rho: float  # the sum of the layers' radii
    bound: Bound
    train_loss: float
    all_loss: float

    @property
    def bounded_gap(self) -> float:
        """How far above the training loss the loss on all nodes or graphs may be, by the bound."""
        return self.bound.total - self.train_loss

    @property
    def gap(self) -> float:
        """How far it is."""
        return self.all_loss - self.train_loss


def refuse_bound(model: nn.Module, data: Data) -> None:
    """Say so where no bound is known: of graphs, for anything but a GCN with mean pooling and a linear read-out."""
    if is_collection(data) and not (isinstance(model, Pooled) and isinstance(model.encoder, GCN)):
        kind = f"Pooled {type(model.encoder).__name__}" if isinstance(model, Pooled) else type(model).__name__
        raise AnalysisError(
            f"the graph-level bound is one for GCNs, and this is a {kind}; take PooledGCN, or hand the norms of your "
            "own GCN's layers to graph_level_bound"
        )


def bound_over_rho(
    model: nn.Module,
    data: Data | Sequence[Data],
    train: Tensor,
    rhos: Sequence[float],
    *,
    delta: float = 0.05,
    epsilon: float = 1.0,
    constant: float = 1.0,
    steps: int = 50,
) -> list[BoundAt]:
    """Theorem 1 at several radii or, of a list of graphs, the graph-level bound; the loss is 1 - p(right class).

    The theorem's rho is the sum of the layers' radii, and the perturbed loss the highest in the ball of that radius
    around all parameters. It is found by climbing, so it is a lower bound on the maximum that the theorem asks for, and
    the numbers are of an estimate of the bound. Of the graph-level bound every weight matrix is a layer, the width is
    the longest side of any, and biases are taken for 0. It has no `epsilon`, and is one for GCNs with a linear
    read-out: other models are refused.
    """
    data = batched(data)
    refuse_bound(model, data)
    labelled = (data.y >= 0).nonzero()[:, 0]
    on_train, on_all = (LossOn(model, data, some, bounded=True) for some in (train, labelled))
    with torch.no_grad():
        train_loss, all_loss = float(on_train()), float(on_all())
    theta = [p.detach() for p in trainable(model).values()]
    given: dict[str, Any] = {"num_parameters": sum(p.numel() for p in theta), "delta": delta, "constant": constant}
    bound_at: Callable[..., Bound] = theorem_1
    if is_collection(data):
        bound_at, matrices = graph_level_bound, [p.detach().double() for p in model.parameters() if p.dim() == 2]
        given["spectral_norms"] = [float(torch.linalg.matrix_norm(w, 2)) for w in matrices]
        given["frobenius_norms"] = [float(w.norm()) for w in matrices]
        given["width"] = max((max(w.shape) for w in matrices), default=1)
        # Self-loops count: in Liao et al. nodes have d - 1 neighbours at most.
        given["max_degree"] = int(torch.bincount(data.edge_index[1], minlength=1).max()) + 1
        given["num_graphs"] = len(train)
    else:
        given["weight_norm"] = float(torch.stack([p.norm() for p in theta]).norm())
        given |= {"num_train": len(train), "num_classes": int(data.y.max()) + 1, "epsilon": epsilon}
    totals = [total_radius(model, rho) for rho in rhos]
    rises = sharpness_over(model, on_train, totals, radius="global", layers=("*",), steps=steps)
    found = []
    for rho, total, rise in zip(rhos, totals, rises, strict=True):
        bound = bound_at(perturbed_loss=min(1.0, max(0.0, train_loss + rise)), rho=total, **given)
        found.append(BoundAt(rho, total, bound, train_loss, all_loss))
    return found


def _tail(excess: float, d: int) -> float:
    return math.exp(d / 2 * (math.log1p(excess) - excess))  # x = 1 + excess


def _excess(tail_radius: float, d: int) -> float:
    excess = tail_radius**2 / d - 1
    if not excess >= -1e-12:
        raise ValueError(f"tail_radius must be at least sqrt(num_parameters) = {math.sqrt(d):.6g}, got {tail_radius}")
    return max(excess, 0.0)


def _best_excess(d: int, complexity: Callable[[float], float]) -> float:
    """Where tail + complexity is least: the best of a grid over many scales, refined; or 0, where the tail is 1."""

    def cost(log_excess: float) -> float:
        return _tail(math.exp(log_excess), d) + complexity(math.exp(log_excess))

    grid = np.linspace(-25.0, 10.0, 701)
    best = int(np.argmin([cost(float(t)) for t in grid]))
    sides = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, len(grid) - 1)])
    found = minimize_scalar(cost, bounds=sides, method="bounded", options={"xatol": 1e-10})
    return math.exp(float(found.x)) if float(found.fun) < 1 + complexity(0.0) else 0.0


def _check(*, losses: Mapping[str, float], delta: float, counts: Mapping[str, int]) -> None:
    for name, loss in losses.items():
        if not 0 <= loss <= 1:
            raise ValueError(f"{name} must lie in [0, 1], as the proof needs it, got {loss}; take LossOn(bounded=True)")
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie in (0, 1), got {delta}")
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(f"{name} must be a whole number >= 1, got {count!r}")


def _at_least_zero(**values: float) -> None:
    for name, value in values.items():
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} must be finite and >= 0, got {value}")
