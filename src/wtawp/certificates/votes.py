"""Votes of a classifier under noise: how often each node gets each class. Only these counts are kept.

Votes of samples 0, ..., m - 1 are the same counts whether they are cast at once or in parts, as sample i is a function
of the seed and of i alone. Any callable `victim(x, edge_index) -> logits` can vote; `voters` has the loops.

Votes can be filtered (conditional smoothing, Lai et al. 2025): a vote whose confidence, the largest probability of the
softmax, is below `min_confidence` counts for no class. It is one more outcome of the base classifier, so that the
counts of each node may add up to less than the number of samples, which stays the denominator of all probabilities.
"""

import hashlib
import io
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.base import CertificateError, DataError, UncountedVotesWarning, checked_seed, find_stack_level, write_atomic
from wtawp.certificates.noise import Noise, NoisyGraphs
from wtawp.certificates.vote_origin import Provenance, is_same_origin, provenance_of
from wtawp.certificates.voters import Victim, voter_of
from wtawp.graphs.archives import Archive
from wtawp.graphs.collection import is_collection
from wtawp.models.calls import check_initialized, explain_failure, is_out_of_memory
from wtawp.models.capabilities import IsConvolutionStack
from wtawp.models.evaluation import evaluating, refuse_cached

Progress = Callable[[float, str], None]
MEMBERS = ("counts", "samples", "seed", "noise", "provenance")
PARTS = ("features", "edges")
COUNTS_MB = 256  # of counts that are always read: most are 0, so a small file can hold many
MAX_SAMPLES = 2**40  # votes of a node, so that their sum over classes cannot wrap around
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
        ValueError: If the number of samples is not a whole number >= 1, the seed has more than 64 bits, no noise is
            named, or `min_confidence` is not in [0, 1).
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
    seed = checked_seed(seed)
    if not -(2**63) <= seed < 2**63:
        raise ValueError(f"the seed of votes must fit into 64 bits, in which a file of votes keeps it, got {seed}")
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
        cast, step = voter_of(graphs, victim, seed, min_confidence)
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
