"""Votes of a classifier under noise: how often each node gets each class. Only these counts are kept.

Votes of samples 0, ..., m - 1 are the same counts whether they are cast at once or in parts, as sample i is a function
of the seed and of i alone. Any callable `victim(x, edge_index) -> logits` can vote. It is called with several noisy
graphs as one graph of separate components. A stack of graph convolutions, such as our GCN, has a faster implementation:
noise on features does not change the operator, noise on edges does not change X W, and both need the ones alone.

Votes can be filtered (conditional smoothing, Lai et al. 2025): a vote whose confidence, the largest probability of the
softmax, is below `min_confidence` counts for no class. It is one more outcome of the base classifier, so that the
counts of each node may add up to less than the number of samples, which stays the denominator of all probabilities.
"""

import hashlib
import io
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from numbers import Integral, Real
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

from wtawp.base import CertificateError, DataError, UncountedVotesWarning, find_stack_level, write_atomic
from wtawp.certificates.noise import Noise, NoisyGraphs, pairs_of
from wtawp.certificates.provenance import Provenance, is_same_origin, provenance_of
from wtawp.graphs.archives import Archive
from wtawp.graphs.collection import is_collection
from wtawp.graphs.kernels import multiply
from wtawp.graphs.normalisation import gcn_operator
from wtawp.graphs.operator import Operator, sparse_features
from wtawp.graphs.products import spmm
from wtawp.graphs.structure import row_pointers
from wtawp.models.calls import check_initialized, explain_failure, is_out_of_memory
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
COUNTS_MB = 256  # of counts that are always read: most are 0, so a small file can hold many
CELLS_AT_ONCE = {"cpu": 1 << 25, "cuda": 1 << 29}  # about the most numbers that are held in memory at once
HAS_WIDE_PRODUCTS = hasattr(torch.ops.aten.mm, "dtype")  # products of bfloat16 with a result in float32
ALIGNED = 8  # columns of bfloat16 that matrix units load at once
AROUND = 32  # how many of them a node or an edge needs: messages, indices, draws
MAX_SAMPLES = 2**40  # votes of a node, so that their sum over classes cannot wrap around
MOST_AT_ONCE = {"cpu": 64, "cuda": 512}  # graphs
PIECE, CELLS_OF_PIECE = 128, 1 << 19  # nodes, and entries of their features, on which the fast voter is checked
CLOSE = 1e-3  # of the largest logit: more than rounding changes, also that of TF32
NO_CLASS = -1  # the prediction where no vote counts


@dataclass(frozen=True, eq=False)
class Votes:
    """Votes under noise, with all that is needed to add more votes later.

    Attributes:
        counts: How often each node got each class, [n, c] int64, on the CPU.
        samples: The number of votes of each node, those that do not count included.
        noise: The noise by part of the input: "features", "edges" or both.
        seed: The seed of the noise.
        provenance: Names of the graph and of the model, see `provenance_of`.
        min_confidence: The confidence below which votes do not count; 0 if all votes count.
    """

    counts: Tensor
    samples: int
    noise: Mapping[str, Noise]
    seed: int
    provenance: Provenance = field(default=())
    min_confidence: float = 0.0

    @property
    def prediction(self) -> Tensor:
        """The class with most votes, [n]; the first of several, and -1 where no vote counts, which is no class."""
        return self.counts.argmax(1).where(self.counts.sum(1) > 0, NO_CLASS)

    @property
    def counted(self) -> Tensor:
        """The share of the votes of each node that count, [n]: 1 without a filter."""
        return self.counts.sum(1) / self.samples

    def save(self, path: str | Path) -> None:
        """Write the votes to an npz file, atomically, with a checksum.

        Args:
            path: The file; its folder must exist.
        """
        content = io.BytesIO()
        np.savez_compressed(
            content, counts=self.counts.numpy(), samples=np.int64(self.samples), seed=np.int64(self.seed),
            noise=np.array([(name, repr(p.p_add), repr(p.p_del)) for name, p in self.noise.items()], dtype=np.str_),
            provenance=np.array(self.provenance, dtype=np.str_), checksum=np.str_(_checksum_of(self)),
            min_confidence=np.float64(self.min_confidence),
        )  # fmt: skip
        write_atomic(Path(path), content.getvalue())

    @staticmethod
    def load(path: str | Path) -> "Votes":
        """Read votes that `save` wrote, and check them. Older files, without checksums or filters, are read as well.

        Args:
            path: The file.

        Returns:
            The votes.

        Raises:
            CertificateError: If there is no such file, or it does not hold complete votes, or not those that were
                written.
        """
        path = Path(path)
        try:
            with Archive(path, default_mb=COUNTS_MB) as archive:
                if absent := [name for name in MEMBERS if f"{name}.npy" not in archive.names]:
                    raise DataError(f"{path} is not a file of votes, it lacks {', '.join(absent)}")
                counts, samples, seed, noise, provenance = (archive.array(name) for name in MEMBERS)
                checksum = archive.array("checksum") if "checksum.npy" in archive.names else None
                limit = archive.array("min_confidence") if "min_confidence.npy" in archive.names else np.float64(0)
            noises = _noises(noise, path)
        except DataError as error:
            raise CertificateError(str(error)) from error
        kinds = [(str(array.dtype), array.ndim) for array in (counts, samples, seed, limit)]
        is_text = provenance.dtype.kind == "U" and provenance.shape[1:] == (2,)
        expected = [("int64", 2), ("int64", 0), ("int64", 0), ("float64", 0)]
        if kinds != expected or not 0 <= float(limit) < 1 or not (is_text or not provenance.size):
            raise CertificateError(f"{path} is not a file of votes: its arrays have other types or shapes; cast again")
        is_whole = 1 <= int(samples) <= MAX_SAMPLES and counts.min(initial=0) >= 0 and counts.max(initial=0) <= samples
        sums = counts.sum(1)
        if not is_whole or not (sums <= samples if limit > 0 else sums == samples).all():
            raise CertificateError(f"{path} holds counts that are not of {int(samples)} votes a node; cast them again")
        origin = tuple((str(name), str(value)) for name, value in provenance.reshape(-1, 2))
        votes = Votes(torch.from_numpy(counts), int(samples), noises, int(seed), origin, float(limit))
        if checksum is not None and str(checksum) != _checksum_of(votes):  # older files have none
            raise CertificateError(f"{path} does not match its checksum: it was damaged, or changed; cast them again")
        return votes


def _checksum_of(votes: Votes) -> str:
    """Sixteen hexadecimal digits for all that is written of votes."""
    parts = {name: (float(noise.p_add), float(noise.p_del)) for name, noise in votes.noise.items()}
    rest = repr((tuple(votes.counts.shape), votes.samples, votes.seed, parts, votes.provenance))
    rest += f" {votes.min_confidence!r}" if votes.min_confidence else ""  # older files have no filter
    return hashlib.sha256(rest.encode() + votes.counts.numpy().tobytes()).hexdigest()[:16]


def _noises(rows: np.ndarray, path: Path) -> dict[str, Noise]:  # [1 or 2, 3]
    """The noise on each part of the input, from the texts in a file."""
    try:
        if rows.dtype.kind != "U" or rows.shape[1:] != (3,):
            raise ValueError(f"got {rows.dtype} of shape {rows.shape}")
        noises = {str(part): Noise(p_add=float(p_add), p_del=float(p_del)) for part, p_add, p_del in rows}
    except ValueError as error:
        raise DataError(f"{path}: noise must be rows (part, p_add, p_del): {error}") from error
    if len(noises) != len(rows) or not 0 < len(noises) <= len(set(noises) & set(PARTS)):
        raise DataError(f"{path}: noise must be on one or both of {', '.join(PARTS)}, each once; cast the votes again")
    return noises


def vote(
    data: Data,
    victim: Victim,
    *,
    features: Noise | None = None,
    edges: Noise | None = None,
    samples: int,
    seed: int,
    min_confidence: float = 0.0,
    after: Votes | None = None,
    progress: Progress | None = None,
) -> Votes:
    """Let a classifier vote on noisy graphs.

    Args:
        data: The graph, with binary features if `features` are noisy.
        victim: The classifier, called as `victim(x, edge_index)`, which returns logits or log-probabilities. With
            `min_confidence` these must not be probabilities, as the softmax of them is never far from uniform. A module
            votes in evaluation mode, and must be on the device of the data.
        features: The noise on features. None: features are not changed.
        edges: The noise on edges. None: edges are not changed. At least one of the two is needed.
        samples: The number of noisy graphs, 1 or more.
        seed: The seed of the noise.
        min_confidence: A vote counts only if the largest probability of the softmax of its logits is at least this, in
            [0, 1). 0: every vote counts. There is a warning if no vote of any node counts.
        after: Earlier votes of the same victim on the same graph with the same noise, seed and filter. The votes of the
            next samples are added to them. None: start with the first sample.
        progress: Called after each batch with the share that is done and a text.

    Returns:
        The votes of all samples so far.

    Raises:
        ValueError: If the number of samples is not a whole number >= 1, no noise is named, or `min_confidence` is not
            in [0, 1).
        DataError: If `data` is not one graph without edge weights, or the victim fails on it.
        CertificateError: If the victim does not return logits of all nodes, or `after` belongs to something else.

    Example:
        >>> from wtawp.base import rng
        >>> from wtawp.graphs import citation
        >>> from wtawp.models import GCN
        >>> data, model = citation(seed=0, num_nodes=60, num_words=20), GCN(20, 7, generator=rng("model"))
        >>> vote(data, model, edges=Noise(p_add=0.001, p_del=0.4), samples=10, seed=0).counts.sum(1).unique()
        tensor([10])
    """
    if not is_whole_number(samples) or samples < 1:
        raise ValueError(f"samples must be a whole number >= 1, got {samples!r}")
    samples = int(samples)
    check_min_confidence(min_confidence)
    _check_victim(victim, data)
    graphs = NoisyGraphs.of(data, features, edges)
    noise = {name: p for name, p in zip(PARTS, (features, edges), strict=True) if p is not None}
    provenance = provenance_of(data, victim)
    first, total = 0, torch.zeros((), dtype=torch.int64)
    if after is not None:
        _check_continues(after, noise, seed, provenance, min_confidence)
        first, total = after.samples, after.counts
    with torch.no_grad(), evaluating(victim):
        cast, step = _voter(graphs, victim, seed, min_confidence)
        total = total.to(data.x.device)
        for start in range(first, first + samples, step):
            total = total + cast(start, min(step, first + samples - start))
            if progress is not None:
                done = min(start + step - first, samples)
                progress(done / samples, f"{first + done:,} samples")
    votes = Votes(total.cpu(), first + samples, noise, seed, provenance, float(min_confidence))
    if votes.min_confidence > 0 and not bool(votes.counts.any()):
        warnings.warn(_nothing_counts(votes), UncountedVotesWarning, stacklevel=find_stack_level())
    return votes


def is_whole_number(value: object) -> bool:
    """Whether a value is a whole number, of Python or of numpy; True and False are none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    """Whether a value is a number, of Python or of numpy; True and False are none."""
    return isinstance(value, Real) and not isinstance(value, bool)


def check_min_confidence(min_confidence: float) -> None:
    """Refuse a threshold of confidence that is not a number in [0, 1)."""
    if not _is_number(min_confidence) or not 0 <= min_confidence < 1:
        raise ValueError(
            f"min_confidence, the probability from which on a vote counts, must lie in [0, 1), got {min_confidence!r};"
            " 0 counts every vote"
        )


def _nothing_counts(votes: Votes) -> str:
    """What to do where no vote of any node counts, so that nothing is predicted and nothing can be certified."""
    return (
        f"no vote of any node reaches min_confidence={votes.min_confidence} ({votes.samples} votes of each of"
        f" {len(votes.counts)} nodes): lower it, or check that the victim returns logits or log-probabilities and not"
        " probabilities, whose softmax is never far from uniform"
    )


def _check_victim(victim: Victim, data: Data) -> None:
    """Refuse a graph that is not homogeneous or has weights, and a module that fails on it."""
    if not isinstance(data, Data) or is_collection(data):
        raise DataError(
            f"certificates are of the nodes of one homogeneous graph, a PyG Data, got {type(data).__name__}"
        )
    if data.get("edge_weight") is not None:
        raise DataError("noisy graphs have no weights of edges; certify a model of the graph without edge_weight")
    refuse_cached(victim)
    if isinstance(victim, nn.Module) and not isinstance(victim, IsConvolutionStack):
        check_initialized(victim)
        try:
            with torch.no_grad(), evaluating(victim):
                victim(data.x, data.edge_index)
        except (RuntimeError, IndexError, TypeError) as error:
            if is_out_of_memory(error):
                raise
            raise explain_failure(error, victim, (data.x, data.edge_index)) from error


def _check_continues(
    votes: Votes, noise: dict[str, Noise], seed: int, provenance: Provenance, min_confidence: float
) -> None:
    """Refuse to add to votes that belong to another noise, seed, filter, graph or model."""
    for what, old, new, is_same in (
        ("noise", dict(votes.noise), noise, dict(votes.noise) == noise),
        ("seed", votes.seed, seed, votes.seed == seed),
        ("min_confidence", votes.min_confidence, min_confidence, votes.min_confidence == min_confidence),
        ("graph and model", votes.provenance, provenance, is_same_origin(votes.provenance, provenance)),
    ):
        if not is_same:
            raise CertificateError(f"no votes can be added to these: their {what} was {old} and is now {new}")


def _voter(graphs: NoisyGraphs, victim: Victim, seed: int, min_confidence: float) -> tuple[Voter, int]:
    """The function that casts votes, and the number of samples that it takes at once."""
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
        size = int(self.graphs.data.num_nodes)
        logits = self.victim(*self.graphs.together(seed=self.seed, first=first, count=count))
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

    def takes_graphs_together(self) -> bool:
        """Whether the victim treats two graphs in one as it treats each alone: not if it averages over all nodes."""
        apart = torch.cat([self.logits(0, 1), self.logits(1, 1)])
        try:
            return torch.allclose(self.logits(0, 2), apart, rtol=1e-3, atol=1e-5)
        except (RuntimeError, IndexError, ValueError, CertificateError):  # it works for one number of nodes only
            return False


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
            how = {"seed": self.seed, "first": first, "count": count, "width": width, "padding": padding}
            x = self.graphs.feature_ones.dense(self.graphs.features, dtype=dtype, **how)
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
