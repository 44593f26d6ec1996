"""Votes of a classifier under noise: how often each node gets each class. Only these counts are kept.

Votes of samples 0, ..., m - 1 are the same counts whether they are cast at once or in parts, as sample i is a function
of the seed and of i alone. Any callable `victim(x, edge_index) -> logits` can vote. It gets several noisy graphs side
by side as one. A stack of graph convolutions, such as our GCN, goes a faster way: noise on features leaves the operator
alone, noise on edges leaves X W alone, and neither needs anything but the sample's ones.
"""

import hashlib
import io
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

from wtawp.base import CertificateError, write_atomic
from wtawp.certificates.noise import Noise, NoisyGraphs, pairs_of
from wtawp.graphs.kernels import multiply
from wtawp.graphs.normalisation import gcn_operator
from wtawp.graphs.operator import Operator, sparse_features
from wtawp.graphs.products import spmm
from wtawp.models.capabilities import IsConvolutionStack
from wtawp.models.evaluation import evaluating, refuse_cached

HAS_NUMBA = find_spec("numba") is not None
if HAS_NUMBA:
    from wtawp.certificates.votes_numba import CompiledVoter

Victim = Callable[[Tensor, Tensor], Tensor]
Voter = Callable[[int, int], Tensor]  # first sample and their number -> counts
Progress = Callable[[float, str], None]
MEMBERS = ("counts", "samples", "seed", "noise", "provenance")
PARTS = ("features", "edges")
CELLS_AT_ONCE = {"cpu": 1 << 25, "cuda": 1 << 29}  # numbers that are held together, at most, about
AROUND = 32  # of them for each node and each edge: messages, indices, draws
MOST_AT_ONCE = {"cpu": 64, "cuda": 512}  # graphs
PIECE, CELLS_OF_PIECE = 128, 1 << 19  # nodes, and entries of their features, that show whether the fast way is right
CLOSE = 1e-3  # of the largest logit: more than rounding changes, also that of TF32


@dataclass(frozen=True, eq=False)
class Votes:
    """Counts of classes, and all that is needed to go on: what the noise was, the seed, of what model on what graph."""

    counts: Tensor  # [n, c] int64, on the CPU
    samples: int
    noise: Mapping[str, Noise]  # by part: "features", "edges"
    seed: int
    provenance: tuple[tuple[str, str], ...] = field(default=())

    @property
    def prediction(self) -> Tensor:
        """The class with most votes, [n]."""
        return self.counts.argmax(1)

    def save(self, path: str | Path) -> None:
        """Into one npz, whole or not at all."""
        content = io.BytesIO()
        np.savez_compressed(
            content, counts=self.counts.numpy(), samples=np.int64(self.samples), seed=np.int64(self.seed),
            noise=np.array([(name, repr(p.p_add), repr(p.p_del)) for name, p in self.noise.items()], dtype=np.str_),
            provenance=np.array(self.provenance, dtype=np.str_),
        )  # fmt: skip
        write_atomic(Path(path), content.getvalue())

    @staticmethod
    def load(path: str | Path) -> "Votes":
        """What `save` wrote, checked again."""
        path = Path(path)
        try:
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as content:
                counts, samples, seed, noise, provenance = (content[name] for name in MEMBERS)
            found = Votes(
                torch.from_numpy(counts), int(samples), {str(n): _noise(a, d) for n, a, d in noise}, int(seed),
                tuple((str(name), str(value)) for name, value in provenance.reshape(-1, 2)),
            )  # fmt: skip
            is_whole = counts.dtype == np.int64 and counts.ndim == 2 and bool((counts.sum(1) == found.samples).all())
        except FileNotFoundError:
            raise CertificateError(f"there is no file {path.absolute()}") from None
        except (OSError, KeyError, ValueError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise CertificateError(f"{path} is not a file of votes, or it is cut short: {error}") from error
        if not is_whole or counts.min(initial=0) < 0 or not set(found.noise) <= set(PARTS):
            raise CertificateError(f"{path} holds counts that are not of {int(samples)} votes a node; cast them again")
        return found


def _noise(p_add: str, p_del: str) -> Noise:
    return Noise(p_add=float(p_add), p_del=float(p_del))


def vote(
    data: Data,
    victim: Victim,
    *,
    features: Noise | None = None,
    edges: Noise | None = None,
    samples: int,
    seed: int,
    after: Votes | None = None,
    progress: Progress | None = None,
) -> Votes:
    """The votes of `samples` noisy graphs; `after` earlier votes, of the samples that come next, added to them.

    A module votes in evaluation mode, on the device of the data. `progress(share, what)` is told after each batch.
    """
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
        raise ValueError(f"samples must be a whole number >= 1, got {samples!r}")
    refuse_cached(victim)
    graphs = NoisyGraphs.of(data, features, edges)
    noise = {name: p for name, p in zip(PARTS, (features, edges), strict=True) if p is not None}
    provenance = provenance_of(data, victim)
    first, total = 0, torch.zeros((), dtype=torch.int64)
    if after is not None:
        _check_continues(after, noise, seed, provenance)
        first, total = after.samples, after.counts
    with torch.no_grad(), evaluating(victim):
        cast, step = _voter(graphs, victim, seed)
        total = total.to(data.x.device)
        for start in range(first, first + samples, step):
            total = total + cast(start, min(step, first + samples - start))
            if progress is not None:
                done = min(start + step - first, samples)
                progress(done / samples, f"{first + done:,} samples")
    return Votes(total.cpu(), first + samples, noise, seed, provenance)


def _check_continues(votes: Votes, noise: dict[str, Noise], seed: int, provenance: tuple[tuple[str, str], ...]) -> None:
    for what, old, new in (
        ("noise", dict(votes.noise), noise),
        ("seed", votes.seed, seed),
        ("graph and model", votes.provenance, provenance),
    ):
        if old != new:
            raise CertificateError(f"these votes cannot be added to: their {what} was {old} and is now {new}")


def provenance_of(data: Data, victim: Victim) -> tuple[tuple[str, str], ...]:
    """Names of this graph and of these weights, so that votes of others are not mixed with theirs.

    A callable that is no module shows no weights: of those only the type is named.
    """
    graph = hashlib.blake2b(digest_size=8)
    x: tuple[Tensor, ...] = (data.x,)
    if data.x.layout != torch.strided:
        entries = data.x.to_sparse().coalesce()
        x = (entries.indices(), entries.values())
    for tensor in (*x, data.edge_index):
        graph.update(str(tuple(tensor.shape)).encode() + tensor.cpu().contiguous().numpy().tobytes())
    weights = hashlib.blake2b(digest_size=8)
    for name, tensor in victim.state_dict().items() if isinstance(victim, nn.Module) else ():
        weights.update(name.encode() + tensor.detach().cpu().contiguous().numpy().tobytes())
    kind = type(victim).__name__
    return ("graph", graph.hexdigest()), ("victim", kind), ("weights", weights.hexdigest())


def _voter(graphs: NoisyGraphs, victim: Victim, seed: int) -> tuple[Voter, int]:
    """Who casts votes, and of how many samples at once."""
    fast = _fast_voter(graphs, victim, seed)
    if isinstance(fast, _Shared):
        return fast, at_once(graphs, is_shared=True)
    if fast is not None:  # compiled: sample after sample
        return fast, MOST_AT_ONCE["cpu"]
    plain = _Plain(graphs, victim, seed)
    return plain, (at_once(graphs) if plain.takes_graphs_together() else 1)


def at_once(graphs: NoisyGraphs, *, is_shared: bool = False) -> int:
    """Of how many samples there is room for; `is_shared`: none has a copy of what noise leaves alone."""
    data = graphs.data
    device = "cuda" if data.x.device.type == "cuda" else "cpu"
    around = int(data.num_nodes)
    if graphs.edges is not None and graphs.edge_ones is not None:
        around += 2 * len(graphs.edge_ones.cells) + round(2 * graphs.edges.p_add * graphs.edge_ones.size)
    elif not is_shared:
        around += data.edge_index.shape[1]
    cells = AROUND * around + (0 if is_shared and graphs.features is None else data.x.shape.numel())
    return max(1, min(MOST_AT_ONCE[device], CELLS_AT_ONCE[device] // max(cells, 1)))


def _fast_voter(graphs: NoisyGraphs, victim: Victim, seed: int) -> "CompiledVoter | _Shared | None":
    """For a module that is a stack of graph convolutions and nothing else; None for any other."""
    model: object = victim
    if not isinstance(model, IsConvolutionStack) or not _has_plain_loops(graphs.data):
        return None
    try:
        layers = [(weight.detach(), bias.detach()) for weight, bias in model.convolution_weights()]
    except (TypeError, ValueError, AttributeError, NotImplementedError):  # somebody's own, say a list of modules
        return None
    if not _fit_together(layers, graphs.data):
        return None
    if not all(bool(torch.isfinite(t).all()) for layer in layers for t in layer):
        raise CertificateError("the model's weights are not all finite, so it has no class to vote for")
    kind = CompiledVoter if HAS_NUMBA and graphs.data.x.device.type == "cpu" else _Shared
    # A class made from such a module may have another forward, and would be certified as what it is not.
    piece = NoisyGraphs.of(_piece(graphs.data, layers[0][0].dtype), graphs.features, graphs.edges)
    try:
        expected = _Plain(piece, victim, seed).logits(0, 1)
    except (RuntimeError, IndexError, ValueError, CertificateError):  # it knows one number of nodes alone
        return None
    found = kind(piece, layers, seed).logits(0, 1)
    is_close = found.shape == expected.shape and bool((found - expected).abs().max() <= CLOSE * expected.abs().max())
    return kind(graphs, layers, seed) if is_close else None


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
    """Some of the nodes, with neighbours: enough to see what a model does, and cheap for a graph of any size."""
    most = max(1, min(PIECE, CELLS_OF_PIECE // max(data.x.shape[1], 1)))
    first = torch.arange(min(int(data.num_nodes), most), device=data.edge_index.device)
    nodes = torch.unique(torch.cat([first, data.edge_index[:, : most // 2].flatten()]))
    edges, _ = subgraph(nodes, data.edge_index, relabel_nodes=True, num_nodes=int(data.num_nodes))
    x = data.x if data.x.layout == torch.strided else data.x.to_sparse()
    return Data(x=x.index_select(0, nodes).to(dtype), edge_index=edges)


def _has_plain_loops(data: Data) -> bool:
    """Whether no self-loop stands there twice: A_hat then has one of weight 1 everywhere."""
    loops = data.edge_index[0][data.edge_index[0] == data.edge_index[1]]
    return len(torch.unique(loops)) == len(loops)


def tally(logits: Tensor) -> Tensor:  # [s, n, c] -> [n, c]
    """How often each class comes first."""
    _, size, classes = logits.shape
    place = torch.arange(size, device=logits.device) * classes + logits.argmax(-1)
    return torch.bincount(place.flatten(), minlength=size * classes).view(size, classes)


class _Plain:
    """Any victim, called with noisy graphs side by side."""

    def __init__(self, graphs: NoisyGraphs, victim: Victim, seed: int) -> None:
        self.graphs, self.victim, self.seed = graphs, victim, seed
        self.classes: int | None = None

    def __call__(self, first: int, count: int) -> Tensor:
        return tally(self.logits(first, count))

    def logits(self, first: int, count: int) -> Tensor:  # -> [s, n, c]
        size = int(self.graphs.data.num_nodes)
        found = self.victim(*self.graphs.together(seed=self.seed, first=first, count=count))
        if not isinstance(found, Tensor) or found.dim() != 2 or len(found) != count * size or found.shape[1] < 2:
            what = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
            wanted = f"a row of 2 or more logits for each of {count * size} nodes"
            raise CertificateError(f"the victim must return {wanted}, got {what}")
        if self.classes not in (None, found.shape[1]):
            raise CertificateError(f"the victim returned {self.classes} classes and now {found.shape[1]}")
        self.classes = found.shape[1]
        if bool(torch.isnan(found).any()):
            raise CertificateError("the victim returns NaN, which is no vote; was it trained?")
        return found.reshape(count, size, -1)

    def takes_graphs_together(self) -> bool:
        """Whether it gives two graphs side by side what it gives each alone; one that looks at all nodes does not."""
        apart = torch.cat([self.logits(0, 1), self.logits(1, 1)])
        try:
            return torch.allclose(self.logits(0, 2), apart, rtol=1e-3, atol=1e-5)
        except (RuntimeError, IndexError, ValueError, CertificateError):  # it knows one number of nodes alone
            return False


class _Shared:
    """A stack of graph convolutions in torch, on any device."""

    def __init__(self, graphs: NoisyGraphs, layers: list[tuple[Tensor, Tensor]], seed: int) -> None:
        self.graphs, self.layers, self.seed = graphs, layers, seed
        data, weight = graphs.data, layers[0][0]
        self.operator = gcn_operator(data.edge_index, None, int(data.num_nodes), weight.dtype)
        self.product = spmm(sparse_features(data.x.to(weight.dtype)), weight)

    def __call__(self, first: int, count: int) -> Tensor:
        return tally(self.logits(first, count))

    def logits(self, first: int, count: int) -> Tensor:  # -> [s, n, c]
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
        weight, (size, width) = self.layers[0][0], self.graphs.data.x.shape
        if weight.device.type == "cuda":  # matrix units beat gathering here, as long as the matrix is small
            return self.graphs.noisy_features(seed=self.seed, first=first, count=count).to(weight.dtype) @ weight
        assert self.graphs.features is not None
        assert self.graphs.feature_ones is not None
        sample, cell = self.graphs.feature_ones.flipped(self.graphs.features, seed=self.seed, first=first, count=count)
        rows, order = (sample * size + cell // width).sort()
        values = torch.ones(1, len(cell), dtype=weight.dtype)
        columns = (cell % width)[order].int()
        return multiply(_row_pointers(rows, count * size), columns, values, weight[None]).view(count, size, -1)

    def _operators(self, first: int, count: int) -> tuple[Operator, Operator]:
        """The samples' operators on top of each other, [s n, n], and side by side, [s n, s n]."""
        assert self.graphs.edges is not None
        assert self.graphs.edge_ones is not None
        size, device = int(self.graphs.data.num_nodes), self.product.device
        sample, cell = self.graphs.edge_ones.flipped(self.graphs.edges, seed=self.seed, first=first, count=count)
        i, j = (end + sample * size for end in pairs_of(cell, size))
        everybody = torch.arange(count * size, device=device)
        rows, order = torch.cat([i, j, everybody]).sort()
        columns = torch.cat([j, i, everybody])[order]
        indptr = _row_pointers(rows, count * size)
        scale = indptr.diff().to(self.product.dtype).rsqrt()
        values = scale[rows] * scale[columns]
        unused = rows[:0]  # nothing is differentiated here, so nothing is transposed

        def operator(indices: Tensor, width: int) -> Operator:
            return Operator((count * size, width), indptr, indices.int(), values, unused, unused, unused, unused)

        return operator(columns % size, size), operator(columns, count * size)


def _row_pointers(rows: Tensor, size: int) -> Tensor:
    counts = torch.bincount(rows, minlength=size)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)]).int()
