"""The PAC-Bayes bounds of the paper as numbers: Theorem 1 (eq:pacbayes1), Lemma 1 (lm:1) and the graph-level bound.

Every term and every symbol has a name of its own. The appendix writes m both for the tail radius and for the number of
graphs, and d both for the number of parameters and for the maximum degree; here these have different names. Constants
that the paper leaves inside Theta and O are arguments with default 1. All losses must lie in [0, 1], as in the proof.
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
from wtawp.analysis.weight_sharpness import sharpness_over
from wtawp.base import AnalysisError
from wtawp.core import radii, select
from wtawp.core.config import Layers
from wtawp.graphs.collection import batched, is_collection
from wtawp.graphs.row_choices import checked_rows
from wtawp.models import GCN, Pooled

Terms = dict[str, float]


@dataclass(frozen=True)
class Bound:
    """A bound on the loss on all nodes or graphs, term by term.

    Attributes:
        loss: The loss on the training nodes or graphs: perturbed, or averaged over the posterior.
        tail: (x e^(1 - x))^(d/2) for x = tail_radius^2 / d and d parameters: the weights that fall outside the ball.
        complexity: The term that grows with the length of the weights.
        remainder: The terms ln(3 / delta), 1/4 and the unnamed constant.
        tail_radius: The m of Theorem 1, in standard deviations of the posterior; infinite if there is no tail.
    """

    loss: float
    tail: float
    complexity: float
    remainder: float
    tail_radius: float

    @property
    def total(self) -> float:
        """The sum of the four terms: with probability 1 - delta, the loss is at most this."""
        return self.loss + self.tail + self.complexity + self.remainder

    @property
    def is_vacuous(self) -> bool:
        """Whether the bound is at least 1, so that it says nothing about a loss in [0, 1]."""
        return self.total >= 1

    def terms(self) -> Terms:
        """The fields as a dictionary, for records.

        Returns:
            Each field by its name, and their sum as "total".
        """
        return {**{f.name: getattr(self, f.name) for f in fields(self)}, "total": self.total}

    def __str__(self) -> str:
        radius = f" (tail radius {self.tail_radius:.4g})"
        parts = " + ".join(f"{n} {getattr(self, n):.4g}" for n in ("loss", "tail", "complexity", "remainder"))
        word = "vacuous: a loss of at most 1 is at most 1" if self.is_vacuous else "not vacuous"
        return f"{self.total:.4g} = {parts}{radius}; {word}"


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

    The theorem (eq:pacbayes1) assumes that L_all is no higher than its mean over Gaussian noise on the weights.

    Args:
        perturbed_loss: The highest training loss inside the ball, in [0, 1].
        weight_norm: Length of all weights together, |theta|.
        rho: Radius of the ball, a length in the space of all weights; `total_radius` gives it for a layer-relative
            radius.
        num_parameters: Number of weights.
        num_train: Number of training nodes, N_0.
        num_classes: Number of classes, K.
        delta: The bound holds with probability 1 - delta, in (0, 1).
        epsilon: The paper's epsilon_all, the distance between training nodes and all nodes; it is not known, hence 1.
        constant: The factor hidden in Theta(K epsilon_all).
        tail_radius: The m of the theorem, at least sqrt(num_parameters). The default minimises the bound numerically.

    Returns:
        The bound, term by term.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
        >>> numbers = {"perturbed_loss": 0.1, "weight_norm": 3.0, "rho": 1.0, "num_parameters": 20, "num_classes": 2}
        >>> theorem_1(**numbers, num_train=100).is_vacuous, theorem_1(**numbers, num_train=10**6).is_vacuous
        (True, False)
    """
    _check_ranges(losses={"perturbed_loss": perturbed_loss}, delta=delta, counts={
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

    Both losses are averaged over the posterior Q, so there is no ball and no tail.

    Args:
        train_loss: The training loss averaged over the posterior, in [0, 1].
        kl: KL(Q|P), the divergence of the posterior from the prior; see `gaussian_kl`.
        num_train: Number of training nodes, N_0.
        num_classes: Number of classes, K.
        delta: The bound holds with probability 1 - delta, in (0, 1).
        epsilon: The subgroup's epsilon_m, its distance from the training nodes; it is not known, hence 1.
        constant: The factor hidden in Theta(K epsilon_m).

    Returns:
        The bound, term by term.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
        >>> lemma_1(train_loss=0.1, kl=2.0, num_train=100, num_classes=2).complexity
        0.2
    """
    _check_ranges(
        losses={"train_loss": train_loss}, delta=delta, counts={"num_train": num_train, "num_classes": num_classes}
    )
    _at_least_zero(kl=kl, epsilon=epsilon, constant=constant)
    root = math.sqrt(num_train)
    rest = (math.log(3 / delta) + 0.25 + constant * num_classes * epsilon) / root
    return Bound(train_loss, 0.0, kl / root, rest, math.inf)


def gaussian_kl(
    *, weight_norm: float, num_parameters: int, posterior_std: float, prior_std: float | None = None
) -> float:
    """The KL divergence of the posterior N(theta, posterior_std^2 I) from the prior N(0, prior_std^2 I).

    Args:
        weight_norm: Length of all weights together, |theta|.
        num_parameters: Number of weights.
        posterior_std: Standard deviation of the posterior, above 0.
        prior_std: Standard deviation of the prior, above 0. Without it the result is the bound of Lemma 2 (lm:2) on
            the divergence from the best prior of a grid.

    Returns:
        The divergence, or the bound on it.

    Example:
        >>> gaussian_kl(weight_norm=2.0, num_parameters=10, posterior_std=1.0, prior_std=1.0)
        2.0
    """
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
    """The bound for the classification of graphs (sec:gen_gap_graph_level), under the assumption of Theorem 1.

    Args:
        perturbed_loss: The highest training loss inside the ball, in [0, 1].
        spectral_norms: The spectral norm of each layer's weight matrix, for two or more layers.
        frobenius_norms: The Frobenius norm of each, in the same order.
        rho: Radius of the ball, a length in the space of all weights.
        num_parameters: Number of weights.
        num_graphs: Number of training graphs, the m of Liao et al.
        max_degree: The largest degree of a node, self-loop included, the d of Liao et al.
        width: The largest number of hidden units.
        delta: The bound holds with probability 1 - delta, in (0, 1).
        constant: The factor hidden in O.
        tail_radius: At least sqrt(num_parameters). As printed, only the tail depends on it, so its best value is
            infinite, where there is no tail.

    Returns:
        The bound, term by term.

    Raises:
        ValueError: If an argument is out of its range, or there are not two norms for each of two or more layers.
    """
    depth = len(spectral_norms)
    if depth < 2 or len(frobenius_norms) != depth:
        raise ValueError(
            f"expected two or more layers with both norms for each, got {depth} spectral and {len(frobenius_norms)} "
            "Frobenius norms"
        )
    _check_ranges(losses={"perturbed_loss": perturbed_loss}, delta=delta, counts={
        "num_parameters": num_parameters, "num_graphs": num_graphs, "max_degree": max_degree, "width": width,
    })  # fmt: skip
    _at_least_zero(constant=constant)
    if not (0 < rho < math.inf and min(spectral_norms) > 0):
        raise ValueError(f"rho and spectral norms must be > 0, got {rho} and {list(spectral_norms)}")
    product = math.prod(s**2 for s in spectral_norms)
    ranks = sum((f / s) ** 2 for f, s in zip(frobenius_norms, spectral_norms, strict=True))
    weights = max_degree ** (depth - 1) * width * math.log(depth * width) * product * ranks / rho**2
    confidence = math.log(num_graphs * depth / delta)
    # The printed term is the root of a sum: the weights' share is the complexity, what the confidence adds the rest.
    complexity = constant * math.sqrt(weights / num_graphs)
    rest = constant * math.sqrt((weights + confidence) / num_graphs) - complexity
    tail = 0.0 if tail_radius == math.inf else _tail(_excess(tail_radius, num_parameters), num_parameters)
    return Bound(perturbed_loss, tail, complexity, rest, tail_radius)


def total_radius(model: nn.Module, rho: float, *, layers: Layers = "all") -> float:
    """The rho of the bounds for layer-relative perturbations: the sum of the layers' radii rho |theta_i|.

    Args:
        model: The model at its present weights.
        rho: The layer-relative radius.
        layers: Which parameters count, as in `AwpConfig`; the default is the weights of all layers. There is no forward
            pass here, so that words about the first and last layer go by the order in which layers are registered.

    Returns:
        The sum of the radii.

    Example:
        >>> model = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))
        >>> for layer, value in zip(model, (3.0, 4.0)):
        ...     _ = nn.init.constant_(layer.weight, value)
        >>> total_radius(model, 0.5)
        3.5
    """
    named = dict(model.named_parameters())
    each = radii({n: named[n].detach() for n in select(model, layers)}, rho=rho)
    return float(sum(each.values()))


@dataclass(frozen=True)
class BoundAt:
    """The bound for a model at one layer-relative radius, and the losses that it relates.

    Attributes:
        rho: The radius relative to each layer.
        total_rho: The sum of the layers' radii, which is the rho of the bound.
        bound: The bound on the loss on all nodes or graphs.
        train_loss: The model's loss on the training nodes or graphs.
        all_loss: The model's loss on all labelled nodes or graphs.
    """

    rho: float
    total_rho: float
    bound: Bound
    train_loss: float
    all_loss: float

    @property
    def bounded_gap(self) -> float:
        """The most by which, by the bound, the loss on all nodes or graphs exceeds the training loss."""
        return self.bound.total - self.train_loss

    @property
    def generalisation_gap(self) -> float:
        """How much the loss on all nodes or graphs exceeds the training loss."""
        return self.all_loss - self.train_loss


def refuse_bound(model: nn.Module, data: Data) -> None:
    """Raise an error if no bound is known for a model on this data.

    For the classification of graphs the bound is known for a GCN with mean pooling and a linear read-out alone.

    Args:
        model: The model to check.
        data: One graph, for which there is always a bound, or a collection of graphs as one `Data`.

    Raises:
        AnalysisError: If no bound is known.
    """
    if not is_collection(data):
        return
    encoder = model.encoder if isinstance(model, Pooled) else None
    if isinstance(encoder, GCN) and not encoder.convolution_weights():
        raise AnalysisError(
            "the graph-level bound holds for GCNs without norm and residual; build the GCN without them"
        )
    if not isinstance(encoder, GCN):
        kind = type(model).__name__ if encoder is None else f"Pooled {type(encoder).__name__}"
        raise AnalysisError(
            f"the graph-level bound holds for GCNs, and this is a {kind}; use PooledGCN, or pass the norms of your own "
            "GCN's layers to graph_level_bound"
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
    """Evaluate Theorem 1 or, for a list of graphs, the graph-level bound, for a model at several radii.

    The loss is one minus the probability of the right class. The theorem's rho is the sum of the layers' radii, and
    the perturbed loss is the highest in the ball of that radius around all parameters. Gradient ascent gives only a
    lower bound on that maximum, so the results estimate the bound. In the graph-level bound every weight matrix counts
    as a layer, the width is the longest side of any matrix, and biases count as 0.

    Args:
        model: A model in evaluation mode; its weights are the same afterwards.
        data: One graph, or a list of graphs to classify.
        train: The training nodes or graphs, as distinct indices or a boolean mask.
        rhos: Layer-relative radii, each above 0.
        delta: The bounds hold with probability 1 - delta, in (0, 1).
        epsilon: See `theorem_1`; the graph-level bound has no such term.
        constant: The factor that the paper hides in Theta or O.
        steps: Steps of the ascent for each radius.

    Returns:
        One bound for each radius, in the order of `rhos`.

    Raises:
        AnalysisError: If no bound is known for the model, see `refuse_bound`.
        ValueError: If an argument is out of its range, or a module is in training mode.
        DataError: If `train` is empty, or holds what does not exist, has no label or occurs twice.
    """
    data = batched(data)
    refuse_bound(model, data)
    each = "graphs" if is_collection(data) else "nodes"
    train = checked_rows(train, len(data.y), "train", samples=each, distinct=True)
    labelled = (data.y >= 0).nonzero()[:, 0]
    on_train, on_all = (LossOn(model, data, some, bounded=True) for some in (train, labelled))
    with torch.no_grad():
        train_loss, all_loss = float(on_train()), float(on_all())
    theta = [p.detach() for p in trainable(model).values()]
    numbers: dict[str, Any] = {"num_parameters": sum(p.numel() for p in theta), "delta": delta, "constant": constant}
    bound_at: Callable[..., Bound] = theorem_1
    if is_collection(data):
        bound_at, matrices = graph_level_bound, [p.detach().double() for p in model.parameters() if p.dim() == 2]
        numbers["spectral_norms"] = [float(torch.linalg.matrix_norm(w, 2)) for w in matrices]
        numbers["frobenius_norms"] = [float(w.norm()) for w in matrices]
        numbers["width"] = max((max(w.shape) for w in matrices), default=1)
        # Self-loops count: in Liao et al. nodes have d - 1 neighbours at most.
        numbers["max_degree"] = int(torch.bincount(data.edge_index[1], minlength=1).max()) + 1
        numbers["num_graphs"] = len(train)
    else:
        numbers["weight_norm"] = float(torch.stack([p.norm() for p in theta]).norm())
        numbers |= {"num_train": len(train), "num_classes": int(data.y.max()) + 1, "epsilon": epsilon}
    totals = [total_radius(model, rho) for rho in rhos]
    rises = sharpness_over(model, on_train, totals, radius="global", layers=("*",), steps=steps)
    bounds = []
    for rho, total, rise in zip(rhos, totals, rises, strict=True):
        bound = bound_at(perturbed_loss=min(1.0, max(0.0, train_loss + rise)), rho=total, **numbers)
        bounds.append(BoundAt(rho, total, bound, train_loss, all_loss))
    return bounds


def _tail(excess: float, d: int) -> float:
    """The tail term for tail_radius^2 = (1 + excess) d."""
    return math.exp(d / 2 * (math.log1p(excess) - excess))  # x = 1 + excess


def _excess(tail_radius: float, d: int) -> float:
    """The share by which the squared tail radius exceeds the number of parameters d."""
    excess = tail_radius**2 / d - 1
    if not excess >= -1e-12:
        raise ValueError(f"tail_radius must be at least sqrt(num_parameters) = {math.sqrt(d):.6g}, got {tail_radius}")
    return max(excess, 0.0)


def _best_excess(d: int, complexity: Callable[[float], float]) -> float:
    """The excess with the least tail + complexity: the best of a wide grid, refined; or 0, where the tail is 1."""

    def cost(log_excess: float) -> float:
        return _tail(math.exp(log_excess), d) + complexity(math.exp(log_excess))

    grid = np.linspace(-25.0, 10.0, 701)
    best = int(np.argmin([cost(float(t)) for t in grid]))
    sides = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, len(grid) - 1)])
    minimum = minimize_scalar(cost, bounds=sides, method="bounded", options={"xatol": 1e-10})
    return math.exp(float(minimum.x)) if float(minimum.fun) < 1 + complexity(0.0) else 0.0


def _check_ranges(*, losses: Mapping[str, float], delta: float, counts: Mapping[str, int]) -> None:
    """Refuse losses outside [0, 1], a delta outside (0, 1), and counts below 1."""
    for name, loss in losses.items():
        if not 0 <= loss <= 1:
            raise ValueError(f"{name} must lie in [0, 1], as the proof needs, got {loss}; use LossOn(bounded=True)")
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie in (0, 1), got {delta}")
    for name, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(f"{name} must be a whole number >= 1, got {count!r}")


def _at_least_zero(**values: float) -> None:
    """Refuse values that are negative, infinite or NaN."""
    for name, value in values.items():
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} must be finite and >= 0, got {value}")
