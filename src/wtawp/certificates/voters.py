"""Voters: they cast the votes of a classifier on noisy graphs, several graphs at once.

Any victim is called with several noisy graphs as one graph of separate components. A stack of graph convolutions, such
as our GCN, has a faster implementation, in torch here and compiled in `votes_numba`: noise on features does not change
the operator, noise on edges does not change X W, and both need the ones alone. Before it is used, its logits on a small
part of the graph are compared with those of the model itself.
"""

from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

from wtawp.base import CertificateError
from wtawp.certificates.noise import Noise, NoisyGraphs, Ones, pairs_of
from wtawp.graphs.kernels import multiply
from wtawp.graphs.normalisation import gcn_operator
from wtawp.graphs.operator import Operator, sparse_features
from wtawp.graphs.products import spmm
from wtawp.graphs.structure import row_pointers
from wtawp.models.capabilities import IsConvolutionStack

HAS_NUMBA = find_spec("numba") is not None
if HAS_NUMBA:
    from wtawp.certificates.votes_numba import CompiledVoter

Victim = Callable[[Tensor, Tensor], Tensor]
Graph = tuple[Tensor, Tensor]  # features and edges, as a victim takes them
Voter = Callable[[int, int], Tensor]  # first sample and their number -> counts
CELLS_AT_ONCE = {"cpu": 1 << 25, "cuda": 1 << 29}  # about the most numbers that are held in memory at once
HAS_WIDE_PRODUCTS = hasattr(torch.ops.aten.mm, "dtype")  # products of bfloat16 with a result in float32
ALIGNED = 8  # columns of bfloat16 that matrix units load at once
AROUND = 32  # how many of them a node or an edge needs: messages, indices, draws
MOST_AT_ONCE = {"cpu": 64, "cuda": 512}  # graphs
TRIES = 16  # samples among which one is searched that is not the graph itself
PIECE, CELLS_OF_PIECE = 128, 1 << 19  # nodes, and entries of their features, on which the fast voter is checked
CLOSE = 1e-3  # of the largest logit: more than rounding changes, also that of TF32


def voter_of(graphs: NoisyGraphs, victim: Victim, seed: int, min_confidence: float) -> tuple[Voter, int]:
    """Choose the fastest voter that is right for a victim.

    Args:
        graphs: The noisy graphs.
        victim: The classifier.
        seed: The seed of the noise.
        min_confidence: The confidence below which a vote counts for no class.

    Returns:
        The function that casts votes, and the number of samples that it takes at once.
    """
    fast = _fast_voter(graphs, victim, seed, min_confidence)
    if isinstance(fast, _TorchVoter):
        return fast, at_once(graphs, is_shared=True)
    if fast is not None:  # compiled: sample after sample
        return fast, MOST_AT_ONCE["cpu"]
    plain = _PlainVoter(graphs, victim, seed, min_confidence)
    return plain, (at_once(graphs) if plain.takes_graphs_together() else 1)


def at_once(graphs: NoisyGraphs, *, is_shared: bool = False) -> int:
    """The number of samples that there is room for; `is_shared`: unchanged parts of the input are not copied."""
    data = graphs.data
    device = "cuda" if data.x.device.type == "cuda" else "cpu"
    around = int(data.num_nodes)
    if graphs.edges is not None and graphs.edge_ones is not None:
        around += 2 * len(graphs.edge_ones.cells) + round(2 * graphs.edges.p_add * graphs.edge_ones.size)
    elif not is_shared:
        around += data.edge_index.shape[1]
    cells = AROUND * around + (0 if is_shared and graphs.features is None else data.x.shape.numel())
    return max(1, min(MOST_AT_ONCE[device], CELLS_AT_ONCE[device] // max(cells, 1)))


def _fast_voter(
    graphs: NoisyGraphs, victim: Victim, seed: int, min_confidence: float
) -> "CompiledVoter | _TorchVoter | None":
    """A fast voter for a module that is a stack of graph convolutions and nothing else; None for any other victim."""
    model: object = victim
    if not isinstance(model, IsConvolutionStack) or not _has_plain_loops(graphs.data):
        return None
    try:
        layers = [(weight.detach(), bias.detach()) for weight, bias in model.convolution_weights()]
    except (TypeError, ValueError, AttributeError, NotImplementedError):
        return None  # a subclass may give something else than weights; the voter of any victim is right for it
    if not _fit_together(layers, graphs.data):
        return None
    if not all(bool(torch.isfinite(t).all()) for layer in layers for t in layer):
        raise CertificateError("the model's weights are not all finite, so it has no class to vote for")
    kind = CompiledVoter if HAS_NUMBA and graphs.data.x.device.type == "cpu" else _TorchVoter
    # A subclass of such a module may have another forward, and must not be certified as if it had not.
    piece = NoisyGraphs.of(_piece(graphs.data, layers[0][0].dtype), graphs.features, graphs.edges)
    try:
        expected = _PlainVoter(piece, victim, seed).logits(0, 1)
    except (RuntimeError, IndexError, ValueError, CertificateError):  # it works for one number of nodes only
        return None
    logits = kind(piece, layers, seed).logits(0, 1)
    is_close = logits.shape == expected.shape and bool((logits - expected).abs().max() <= CLOSE * expected.abs().max())
    return kind(graphs, layers, seed, min_confidence) if is_close else None


def _fit_together(layers: list[tuple[Tensor, Tensor]], data: Data) -> bool:
    """Whether these are weights [d_in, d_out] and biases [d_out] that lead from the features to two classes or more."""
    if not layers:
        return False
    width, kind = int(data.x.shape[1]), (layers[0][0].dtype, data.x.device)
    for weight, bias in layers:
        if weight.dim() != 2 or len(weight) != width or bias.shape != weight.shape[1:]:
            return False
        if not weight.is_floating_point() or (weight.dtype, weight.device) != kind or (bias.dtype, bias.device) != kind:
            return False
        width = weight.shape[1]
    return width > 1


def _piece(data: Data, dtype: torch.dtype) -> Data:
    """A small part of the graph, with neighbours, on which to compare two voters."""
    most = max(1, min(PIECE, CELLS_OF_PIECE // max(data.x.shape[1], 1)))
    first = torch.arange(min(int(data.num_nodes), most), device=data.edge_index.device)
    nodes = torch.unique(torch.cat([first, data.edge_index[:, : most // 2].flatten()]))
    edges, _ = subgraph(nodes, data.edge_index, relabel_nodes=True, num_nodes=int(data.num_nodes))
    x = data.x if data.x.layout == torch.strided else data.x.to_sparse()
    return Data(x=x.index_select(0, nodes).to(dtype), edge_index=edges)


def _has_plain_loops(data: Data) -> bool:
    """Whether no self-loop occurs twice: A_hat then has one of weight 1 for every node."""
    loops = data.edge_index[0][data.edge_index[0] == data.edge_index[1]]
    return len(torch.unique(loops)) == len(loops)


def tally(logits: Tensor, min_confidence: float = 0.0) -> Tensor:  # [s, n, c] -> [n, c]
    """How often each class has the largest logit, in votes of at least this confidence."""
    _, size, classes = logits.shape
    cell = torch.arange(size, device=logits.device) * classes + logits.argmax(-1)
    if min_confidence > 0:  # the confidence is 1 over the sum of exp(logit - highest)
        cell = cell[min_confidence * (logits - logits.amax(-1, keepdim=True)).exp().sum(-1) <= 1]
    return torch.bincount(cell.flatten(), minlength=size * classes).view(size, classes)


def weight_in_parts(weight: Tensor) -> Tensor:  # [d, h] float32 -> [d rounded up, 3 h] bfloat16
    """Three matrices side by side whose sum is the weight to the last bit of float32, with rows of zeros below.

    Weights below 1e-30 lose bits: their last parts are too small for bfloat16.

    A matrix of zeros and ones is exact in bfloat16, so its product with these is as exact as one in float32, at a
    fraction of the time: the matrix units multiply bfloat16 several times as fast.
    """
    parts, rest = [], torch.nn.functional.pad(weight, (0, 0, 0, -len(weight) % ALIGNED))
    for _ in range(3):
        parts.append(rest.bfloat16())
        rest = rest - parts[-1].float()
    return torch.cat(parts, 1)


def multiply_in_parts(x: Tensor, parts: Tensor) -> Tensor:  # [s, n, d], [d, 3 h] -> [s, n, h] float32
    """The product with a weight that is given as the sum of three parts side by side; sums are in float32."""
    if x.is_cuda:
        products = torch.mm(x.flatten(0, 1), parts, out_dtype=torch.float32)
    else:
        products = x.flatten(0, 1).float() @ parts.float()
    high, middle, low = products.view(*x.shape[:2], -1).chunk(3, -1)
    return high + (middle + low)


class _PlainVoter:
    """Votes of any victim, called with several noisy graphs as one."""

    def __init__(self, graphs: NoisyGraphs, victim: Victim, seed: int, min_confidence: float = 0.0) -> None:
        self.graphs, self.victim, self.seed, self.min_confidence = graphs, victim, seed, min_confidence
        self.classes: int | None = None

    def __call__(self, first: int, count: int) -> Tensor:
        return tally(self.logits(first, count), self.min_confidence)

    def logits(self, first: int, count: int) -> Tensor:  # -> [s, n, c]
        """The logits of samples first, ..., first + count - 1."""
        return self._logits_of(self.graphs.together(seed=self.seed, first=first, count=count), count)

    def takes_graphs_together(self) -> bool:
        """Whether the victim treats two graphs in one as it treats each alone: not if it averages over all nodes.

        The noise may be so weak that its samples are all the same graph, on which an average is no different. So this
        is tested on two graphs that are clearly different whatever the noise is.
        """
        self.logits(0, 1)  # what is wrong with the victim's logits is reported before votes are cast
        self.logits(1, 1)
        graphs = _different_graphs(self.graphs, self.seed)
        if graphs is None:
            return False
        (x, edges), (other_x, other_edges) = graphs
        both = torch.cat([x, other_x]), torch.cat([edges, other_edges + len(x)], 1)
        try:
            apart = torch.cat([self._logits_of(graph, 1) for graph in graphs])
            return torch.allclose(self._logits_of(both, 2), apart, rtol=1e-3, atol=1e-5)
        except (RuntimeError, IndexError, ValueError, CertificateError):  # it works for one number of nodes only
            return False

    def _logits_of(self, graph: Graph, count: int) -> Tensor:  # -> [s, n, c]
        """The victim's logits on one graph that holds `count` noisy graphs, checked."""
        size = int(self.graphs.data.num_nodes)
        logits = self.victim(*graph)
        if not isinstance(logits, Tensor) or logits.dim() != 2 or len(logits) != count * size or logits.shape[1] < 2:
            what = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            wanted = f"a row of 2 or more logits for each of {count * size} nodes"
            raise CertificateError(f"the victim must return {wanted}, got {what}")
        if self.classes not in (None, logits.shape[1]):
            raise CertificateError(f"the victim returned {self.classes} classes and now {logits.shape[1]}")
        self.classes = logits.shape[1]
        if bool(torch.isnan(logits).any()):
            raise CertificateError("the victim returns NaN, which is no vote; was it trained?")
        return logits.reshape(count, size, -1)


def _different_graphs(graphs: NoisyGraphs, seed: int) -> tuple[Graph, Graph] | None:
    """The graph and a sample of it in which every noisy part has changed a lot; None if no such sample is found.

    Half of the ones of a noisy part are deleted; if there are none, about one is added for each node.
    """
    is_noisy = graphs.feature_ones is not None, graphs.edge_ones is not None
    clean = _under(graphs, lambda _: Noise(p_add=0.0, p_del=0.0)).together(seed=seed, first=0, count=1)
    changed = _under(graphs, lambda ones: _strong_noise(ones, int(graphs.data.num_nodes)))
    for number in range(TRIES):
        sample = changed.together(seed=seed, first=number, count=1)
        is_same = [torch.equal(before, after) for before, after in zip(clean, sample, strict=True)]
        if not any(same for same, noisy in zip(is_same, is_noisy, strict=True) if noisy):
            return clean, sample
    return None


def _under(graphs: NoisyGraphs, noise_on: Callable[[Ones], Noise]) -> NoisyGraphs:
    """The same graph under other noise on the parts that are noisy."""
    features, edges = (None if ones is None else noise_on(ones) for ones in (graphs.feature_ones, graphs.edge_ones))
    return replace(graphs, features=features, edges=edges)


def _strong_noise(ones: Ones, num_nodes: int) -> Noise:
    """Noise that deletes half of the ones or, if there are none, adds a few."""
    if len(ones.cells):
        return Noise(p_add=0.0, p_del=0.5)
    return Noise(p_add=min(0.5, num_nodes / max(ones.size, 1)), p_del=0.0)


class _TorchVoter:
    """Votes of a stack of graph convolutions in torch, on any device."""

    def __init__(
        self, graphs: NoisyGraphs, layers: list[tuple[Tensor, Tensor]], seed: int, min_confidence: float = 0.0
    ) -> None:
        self.graphs, self.layers, self.seed, self.min_confidence = graphs, layers, seed, min_confidence
        data, weight = graphs.data, layers[0][0]
        self.operator = gcn_operator(data.edge_index, None, int(data.num_nodes), weight.dtype)
        self.product = spmm(sparse_features(data.x.to(weight.dtype)), weight)
        has_parts = weight.device.type == "cuda" and weight.dtype == torch.float32 and HAS_WIDE_PRODUCTS
        self.parts = weight_in_parts(weight) if has_parts and graphs.features is not None else None

    def __call__(self, first: int, count: int) -> Tensor:
        return tally(self.logits(first, count), self.min_confidence)

    def logits(self, first: int, count: int) -> Tensor:  # -> [s, n, c]
        """The logits of samples first, ..., first + count - 1."""
        size = int(self.graphs.data.num_nodes)
        product = self.product if self.graphs.features is None else self._products(first, count)  # [(s,) n, h]
        if self.graphs.edges is None:

            def spread(h: Tensor) -> Tensor:
                return spmm(self.operator, h)

        else:
            first_step, later = self._operators(first, count)
            if self.graphs.features is not None:
                product, first_step = product.flatten(0, 1), later

            def spread(h: Tensor) -> Tensor:
                return spmm(first_step if len(h) == size else later, h)

        hidden = spread(product) + self.layers[0][1]
        for weight, bias in self.layers[1:]:
            hidden = spread(hidden.relu() @ weight) + bias
        return hidden.view(count, size, -1)

    def _products(self, first: int, count: int) -> Tensor:  # -> [s, n, h]
        """X' W of each sample's features X' with the weight of the first layer."""
        weight, (size, width) = self.layers[0][0], self.graphs.data.x.shape
        assert self.graphs.features is not None
        assert self.graphs.feature_ones is not None
        if weight.device.type == "cuda":  # matrix units beat gathering here, as long as the matrix is small
            dtype = torch.bfloat16 if self.parts is not None else weight.dtype
            padding = -width % ALIGNED if self.parts is not None else 0
            how = {"seed": self.seed, "first": first, "count": count, "padding": padding}
            x = self.graphs.feature_ones.dense(self.graphs.features, dtype=dtype, shape=(size, width), **how)
            return x @ weight if self.parts is None else multiply_in_parts(x, self.parts)
        sample, cell = self.graphs.feature_ones.flipped(self.graphs.features, seed=self.seed, first=first, count=count)
        rows, order = (sample * size + cell // width).sort()
        values = torch.ones(1, len(cell), dtype=weight.dtype)
        columns = (cell % width)[order].int()
        return multiply(row_pointers(rows, count * size), columns, values, weight[None]).view(count, size, -1)

    def _operators(self, first: int, count: int) -> tuple[Operator, Operator]:
        """The operators of the samples, stacked as [s n, n] and as a block diagonal matrix [s n, s n]."""
        assert self.graphs.edges is not None
        assert self.graphs.edge_ones is not None
        size, device = int(self.graphs.data.num_nodes), self.product.device
        sample, cell = self.graphs.edge_ones.flipped(self.graphs.edges, seed=self.seed, first=first, count=count)
        i, j = (end + sample * size for end in pairs_of(cell, size))
        everybody = torch.arange(count * size, device=device)
        rows, order = torch.cat([i, j, everybody]).sort()
        columns = torch.cat([j, i, everybody])[order]
        indptr = row_pointers(rows, count * size)
        scale = indptr.diff().to(self.product.dtype).rsqrt()
        values = scale[rows] * scale[columns]

        def operator(indices: Tensor, width: int) -> Operator:
            return Operator((count * size, width), indptr, indices.int(), values)

        return operator(columns % size, size), operator(columns, count * size)
