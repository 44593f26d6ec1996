"""How steeply the loss depends on its inputs: gradient norms at noisy graphs (sec:average_gradient, fig:lipcora).

There are two definitions. "paper": independent Gaussian noise of standard deviation `noise` on every entry of A or X,
and the loss on the training nodes, without dropout. A is the adjacency matrix, so the normalisation is part of the
differentiated function. "released", what the published code does: uniform noise, scaled as a whole to the length
`noise`, on A_hat or X, and the loss on all nodes, with dropout. The derivative is with respect to A_hat, after the
normalisation.

The gradient with respect to the graph is kept as thin factors alone: |U V^T|^2 is the trace of (U^T U)(V^T V).
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp.analysis.losses import labelled_rows, refuse_training_mode
from wtawp.base import AnalysisError, checked_seed, isolated_rng, rng, seed_of
from wtawp.graphs.collection import is_collection
from wtawp.graphs.normalisation import gcn_operator
from wtawp.graphs.operator import Operator
from wtawp.graphs.products import spmm
from wtawp.models.capabilities import Features, FiltersEdges, NormalisedAdjacency, SupportsFactoredGradient
from wtawp.models.ensemble import Ensemble
from wtawp.models.evaluation import evaluating
from wtawp.models.inputs import features
from wtawp.models.recording_operator import RecordingOperator

Definition = Literal["paper", "released"]
Wrt = Literal["adjacency", "features"]
MAX_DENSE_NODES = 1000  # for models without a factored gradient: every pair of nodes is then an edge with a message
MAX_CACHED = 1 << 25  # entries of the noise; a larger matrix is drawn again, in the same blocks, at each use
BLOCK = 1 << 22  # entries that are drawn together


def input_gradient_norms(
    models: Sequence[nn.Module],
    data: Data,
    nodes: Tensor | Sequence[Tensor] | Sequence[int],
    *,
    wrt: Wrt,
    seed: int,
    definition: Definition = "paper",
    noise: float = 0.0005,
    samples: int = 100,
) -> Tensor:  # -> [b, samples] float64, on the CPU
    """The norms of the loss gradient with respect to A or X at noisy inputs (fig:lipcora plots their means).

    All models see the same noisy inputs, and are the same afterwards.

    Args:
        models: Models of one architecture; for the paper's definition, in evaluation mode.
        data: The graph that they classify the nodes of.
        nodes: The training nodes as indices or a boolean mask, one choice for all models or a list of one for each. The
            released code's definition ignores them and takes all nodes.
        wrt: What the loss is differentiated with respect to: "adjacency" or "features".
        seed: Seed of the noise.
        definition: "paper" or "released"; the module's docstring says how they differ.
        noise: Standard deviation of the noise ("paper") or its length as a whole ("released"), finite and at least 0;
            the default is the paper's.
        samples: Number of noisy inputs, at least 1; the default is the paper's.

    Returns:
        The norms [number of models, samples], in float64 on the CPU.

    Raises:
        ValueError: If an argument is out of its range, or a module is in training mode.
        DataError: If there are no nodes, or one does not exist or has no label.
        AnalysisError: If `data` is a collection of graphs, the models cannot be differentiated with respect to the
            graph, or a gradient is not finite.

    Example:
        >>> from wtawp.graphs import load
        >>> from wtawp.models import GCN
        >>> data, model = load("wine"), GCN(13, 3, generator=rng("init")).eval()
        >>> input_gradient_norms([model], data, torch.arange(10), wrt="features", seed=0, samples=2).shape
        torch.Size([1, 2])
    """
    seed = checked_seed(seed)
    if definition not in get_args(Definition) or wrt not in get_args(Wrt):
        allowed = f"definition must be one of {get_args(Definition)} and wrt one of {get_args(Wrt)}"
        raise ValueError(f"{allowed}, got definition={definition!r} and wrt={wrt!r}")
    if is_collection(data):
        raise AnalysisError("smoothness is defined for the nodes and edges of one graph, got graphs to classify")
    if samples < 1 or not 0 <= noise < float("inf"):
        raise ValueError(f"samples must be >= 1 and noise finite and >= 0, got {samples} and {noise}")
    targets = [nodes] * len(models) if _is_one_choice(nodes) else list(nodes)
    if not models or len(targets) != len(models):
        raise ValueError(f"each model needs its nodes, got {len(models)} models and {len(targets)} sets of nodes")
    for model in models if definition == "paper" else ():  # this definition excludes dropout
        refuse_training_mode(model)
    all_nodes = torch.arange(len(data.y), device=data.y.device)
    chosen = [labelled_rows(all_nodes if definition == "released" else each, data) for each in targets]
    measure = _by_features if wrt == "features" else _by_traces if _shows_products(models[0]) else _by_pairs
    with ExitStack() as modes:
        for model in models:
            modes.enter_context(evaluating(model))
        by_sample = [
            measure(models, data, chosen, _Sample(definition, noise, seed, number, data)) for number in range(samples)
        ]
    norms = torch.stack(by_sample, 1).double().cpu()
    if not bool(torch.isfinite(norms).all()):
        raise AnalysisError(f"the gradient of the loss in the {wrt} is NaN or infinite at some noisy inputs")
    return norms


def _is_one_choice(nodes: object) -> bool:
    """Whether these are nodes, as indices or a mask, and not a list of such choices."""
    if isinstance(nodes, Sequence):
        return not isinstance(nodes, str) and all(np.ndim(each) == 0 for each in nodes)
    return True


class _Sample:
    """One noisy input: the source of its random numbers."""

    def __init__(self, definition: Definition, noise: float, seed: int, number: int, data: Data) -> None:
        self.definition, self.noise, self.data = definition, noise, data
        self.names: tuple[str | int, ...] = ("smoothness", definition, seed, number)

    def matrix(self, rows: int, columns: int) -> "BlockNoise":
        """The noise for a matrix of this shape."""
        return BlockNoise(rows, columns, self.definition, self.noise, self.names, self.data.x)

    def keys(self, size: int) -> Tensor | None:
        """Keys of dropout, or None without dropout; all models share the mask as they share the noise."""
        if self.definition == "paper":
            return None
        return torch.full((size,), seed_of(*self.names, "dropout"), device=self.data.x.device)


class BlockNoise:
    """A matrix of noise, drawn in blocks of rows on the CPU, so that a seed means the same noise on every device."""

    def __init__(
        self, rows: int, columns: int, definition: Definition, size: float, names: tuple[str | int, ...], like: Tensor
    ) -> None:
        self.shape, self.definition, self.names, self.like = (rows, columns), definition, names, like
        self.step = max(1, BLOCK // columns)
        self._cached: list[Tensor] | None = None
        self.scale = size
        if rows * columns <= MAX_CACHED:
            self._cached = [block for _, block in self.blocks()]
        if definition == "released":
            length = torch.stack([block.norm() for _, block in self.blocks()]).norm()
            self.scale = size / float(length)

    def blocks(self) -> Iterator[tuple[int, Tensor]]:
        """Yield the number of each block's first row, and the block without its scale."""
        generator = None if self._cached is not None else rng(*self.names)
        for number, first in enumerate(range(0, self.shape[0], self.step)):
            if self._cached is not None:
                yield first, self._cached[number]
                continue
            shape = (min(self.step, self.shape[0] - first), self.shape[1])
            draw = torch.randn if self.definition == "paper" else torch.rand
            yield first, draw(shape, generator=generator, dtype=self.like.dtype).to(self.like.device)

    def times(self, dense: Tensor) -> Tensor:  # [m, f] -> [n, f]
        """The product of the noise with a matrix."""
        return self.scale * torch.cat([block @ dense for _, block in self.blocks()])

    def transposed_times(self, dense: Tensor) -> Tensor:  # [n, f] -> [m, f]
        """The product of the transposed noise with a matrix."""
        parts = (block.mT @ dense[first : first + len(block)] for first, block in self.blocks())
        return self.scale * sum(parts, dense.new_zeros(self.shape[1], dense.shape[1]))

    def to_dense(self) -> Tensor:  # -> [n, m]
        """The noise as one tensor."""
        return self.scale * torch.cat([block for _, block in self.blocks()])


class _Product(torch.autograd.Function):
    """The product of a noisy operator with a matrix; its backward pass draws the same noise again."""

    @staticmethod
    def forward(ctx: "_Context", dense: Tensor, operator: "NoisyOperator") -> Tensor:
        ctx.operator = operator
        return operator.product(dense)

    @staticmethod
    def backward(ctx: "_Context", grad: Tensor) -> tuple[Tensor, None]:
        return ctx.operator.transposed_times(grad), None


class _Context(torch.autograd.function.FunctionCtx):
    """What the forward pass of `_Product` leaves for its backward pass."""

    operator: "NoisyOperator"


class NoisyOperator(RecordingOperator):
    """D^p (A + I + N) D^p, with the row sums of A + I + N as degrees D; for the released definition, A_hat + N."""

    def __init__(self, data: Data, noise: BlockNoise, adjacency: NormalisedAdjacency) -> None:
        super().__init__()
        self.noise, self.power = noise, adjacency.power
        self.is_normalised_last = noise.definition == "paper"
        size, dtype = noise.shape[0], data.x.dtype
        power = 0.0 if self.is_normalised_last else adjacency.power
        self.operator = gcn_operator(data.edge_index, None, size, dtype, power=power)  # as it was trained on
        ones = torch.ones(size, 1, dtype=dtype, device=data.x.device)
        self.degree = (spmm(self.operator, ones) + noise.times(ones)) if self.is_normalised_last else ones  # [n, 1]
        if bool((self.degree <= 0).any()):
            raise AnalysisError(f"noise of {noise.scale:g} makes degrees negative; use less noise")
        self.scale = self.degree.pow(adjacency.power) if self.is_normalised_last else ones

    def times(self, factor: Tensor) -> Tensor:
        """See `RecordingOperator`."""
        product: Tensor = _Product.apply(factor, self)  # type: ignore[no-untyped-call]
        return product

    def product(self, factor: Tensor) -> Tensor:  # [b, n, f] -> [b, n, f]
        """See `RecordingOperator`; not to be differentiated."""
        return self._both(self.operator, self.noise.times, factor)

    def transposed_times(self, factor: Tensor) -> Tensor:
        """See `RecordingOperator`."""
        return self._both(self.operator.T, self.noise.transposed_times, factor)

    def _both(self, operator: Operator, noise: Callable[[Tensor], Tensor], factor: Tensor) -> Tensor:
        """The product of the operator and the noise together, with the degrees on both sides."""
        wide = (self.scale * factor).transpose(0, 1).flatten(1)  # [n, b f]: all models share one pass over the noise
        product = spmm(operator, wide) + noise(wide)
        return self.scale * product.view(len(wide), len(factor), -1).transpose(0, 1)

    def adjacency_gradient_factors(self, grads: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """See `RecordingOperator`; with respect to A + N or, in the released definition, to A_hat + N."""
        u, g, sums = self.gathered(grads)
        t = self.power / self.degree * sums if self.is_normalised_last else torch.zeros_like(sums)
        return self.scale * u, self.scale * g, t


def factored_norms(left: Tensor, right: Tensor) -> Tensor:  # [b, n, f], [b, n, f] -> [b]
    """The norm |L R^T| of each member, in float64, from the f x f matrices L^T L and R^T R alone."""
    left, right = left.double(), right.double()
    return ((left.mT @ left) * (right.mT @ right)).sum((1, 2)).clamp_min(0).sqrt()


def _by_traces(models: Sequence[nn.Module], data: Data, targets: list[Tensor], sample: _Sample) -> Tensor:  # -> [b]
    """The norms for models that record their products with the graph: the gradient stays factored."""
    template, size = models[0], len(data.y)
    assert isinstance(template, SupportsFactoredGradient)
    noise = sample.matrix(size, size)
    operators = [
        NoisyOperator(data, noise, each) for each in template.graph_operators() if isinstance(each, NormalisedAdjacency)
    ]
    x: Features = features(data.x)
    ensemble = Ensemble(models)
    parameters = {n: p.requires_grad_(False) for n, p in ensemble.parameters().items()}
    with torch.enable_grad():
        arguments = template.forward_args(x, tuple(operators))
        logits = ensemble.logits(parameters, ensemble.buffers(), arguments, sample.keys(len(models)))
        products = [product for operator in operators for product in operator.products]
        value = _losses(logits, data.y, targets).sum()
        at_products = iter(torch.autograd.grad(value, products, allow_unused=True, materialize_grads=True))
    with torch.no_grad():
        parts = [
            operator.adjacency_gradient_factors([next(at_products) for _ in operator.products])
            for operator in operators
        ]
        t = torch.stack([part[2] for part in parts]).sum(0)
        left = torch.cat([*(part[0] for part in parts), t], 2)
        right = torch.cat([*(part[1] for part in parts), torch.ones_like(t)], 2)
        return factored_norms(left, right)


def _by_pairs(models: Sequence[nn.Module], data: Data, targets: list[Tensor], sample: _Sample) -> Tensor:  # -> [b]
    """The norms for any model that takes edge weights, differentiated with respect to those of all pairs of nodes."""
    name, size = type(models[0]).__name__, len(data.y)
    if sample.definition == "released":
        raise AnalysisError(
            f"{name} does not show where it uses A_hat (see SupportsFactoredGradient); use the paper's definition"
        )
    if isinstance(models[0], FiltersEdges):
        raise AnalysisError(f"{name} leaves out edges, so its loss is not continuous in A; use wrt='features'")
    if size > MAX_DENSE_NODES:
        raise AnalysisError(
            f"{name} shows no factors of its gradient by the graph (see SupportsFactoredGradient), so all "
            f"pairs of {size} nodes would be "
            f"edges; that is supported for up to {MAX_DENSE_NODES} nodes. Use wrt='features' instead"
        )
    if len(inspect.signature(models[0].forward).parameters) < 3:
        raise AnalysisError(
            f"{name} takes no edge_weight to differentiate; make it callable as model(x, edge_index, weight)"
        )
    dense = gcn_operator(data.edge_index, None, size, data.x.dtype, power=0.0).to_dense()
    pairs = torch.cartesian_prod(torch.arange(size), torch.arange(size)).to(data.y.device)  # target, source
    noisy = dense + sample.matrix(size, size).to_dense()
    norms = []
    for model, nodes in zip(models, targets, strict=True):
        weight = noisy.flatten().requires_grad_()
        with torch.enable_grad():
            logits = model(data.x, pairs.T.flip(0), weight)
            value = _losses(logits[None], data.y, [nodes]).sum()
            (slope,) = torch.autograd.grad(value, weight, allow_unused=True, materialize_grads=True)
        norms.append(slope.double().norm())
    return torch.stack(norms)


def _by_features(models: Sequence[nn.Module], data: Data, targets: list[Tensor], sample: _Sample) -> Tensor:  # -> [b]
    """The norms with respect to the node features."""
    x = data.x.to_dense() if data.x.layout != torch.strided else data.x
    noisy = x + sample.matrix(*x.shape).to_dense()
    norms = []
    for model, nodes in zip(models, targets, strict=True):
        x = noisy.requires_grad_()
        with torch.enable_grad():
            logits = _logits(model, (x, data.edge_index), sample)
            (slope,) = torch.autograd.grad(_losses(logits, data.y, [nodes]).sum(), x)
        norms.append(torch.linalg.vector_norm(slope, dtype=torch.float64))
    return torch.stack(norms)


def _logits(model: nn.Module, arguments: tuple[object, ...], sample: _Sample) -> Tensor:  # -> [1, n, c]
    """The logits of one model, with dropout where the definition has it."""
    ensemble = Ensemble([model])
    if (keys := sample.keys(1)) is None:
        out: Tensor = model(*arguments)
        return out[None]
    with isolated_rng(*sample.names, "torch dropout"):  # a user's module draws from torch's global generator
        return ensemble.logits(ensemble.parameters(), ensemble.buffers(), arguments, keys)


def _losses(logits: Tensor, labels: Tensor, targets: list[Tensor]) -> Tensor:  # [b, n, c] -> [b]
    """The mean cross-entropy of each model on its nodes."""
    pairs = zip(logits, targets, strict=True)
    return torch.stack([F.cross_entropy(rows[nodes], labels[nodes]) for rows, nodes in pairs])


def _shows_products(model: nn.Module) -> bool:
    """Whether the model's gradient with respect to the graph can be kept factored."""
    operators = (
        model.graph_operators()
        if isinstance(model, SupportsFactoredGradient) and not isinstance(model, FiltersEdges)
        else ()
    )
    return bool(operators) and all(isinstance(each, NormalisedAdjacency) for each in operators)
