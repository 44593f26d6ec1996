"""Which graph and which model votes belong to, so that votes of others are never added to them or compared with them.

A graph is named by a hash of its features and edges, a module by its type, a hash of its weights, and a sketch of its
logits on the graph. Options such as `lambda1` of ElasticGNN, or an edited forward pass, leave type and weights as they
are and change only the logits. The sketch is a few numbers instead of a hash, because another machine or another number
of threads adds up in another order: sketches are compared up to rounding errors.
"""

import hashlib
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.base import isolated_rng, rng
from wtawp.models.calls import is_out_of_memory
from wtawp.models.evaluation import evaluating

Provenance = tuple[tuple[str, str], ...]
PROJECTIONS = 4  # of the logits, onto random directions
CLOSE = 1e-3  # of the norm of the logits: more than rounding changes, also that of TF32
RANDOM = "not repeatable"  # instead of the sketch of a model whose logits differ from call to call


def provenance_of(data: Data, victim: Callable[[Tensor, Tensor], Tensor]) -> Provenance:
    """Name a graph and a classifier by their content, so that votes of others are not mixed with theirs.

    Args:
        data: The graph; its features and edges are hashed.
        victim: The classifier. The weights of a module are hashed, and it is called in evaluation mode for the sketch
            of its logits; any other callable is named by its type only, and not called.

    Returns:
        Pairs of a name and a value: the hash of the graph, the type of the victim and the hash of its weights; for a
        module also the sketch of its logits, to six digits.

    Example:
        >>> from wtawp.graphs import citation
        >>> from wtawp.models import ElasticGNN
        >>> data = citation(seed=0, num_nodes=60, num_words=20)
        >>> weak, strong = (ElasticGNN(20, 7, lambda1=s, generator=rng("model")) for s in (0.0, 3.0))
        >>> [name for name, _ in set(provenance_of(data, weak)) ^ set(provenance_of(data, strong))]
        ['logits', 'logits']
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
    names = ("graph", graph.hexdigest()), ("victim", type(victim).__name__), ("weights", weights.hexdigest())
    sketch = _sketch(data, victim) if isinstance(victim, nn.Module) else None
    return names if sketch is None else (*names, ("logits", sketch))


def is_same_origin(first: Provenance, second: Provenance) -> bool:
    """Whether votes can be of one model on one graph.

    Args:
        first: The provenance of some votes. Those of older files have no sketch, which is then not compared.
        second: The provenance of others.

    Returns:
        Whether all names are equal, and sketches up to rounding errors.
    """
    one, two = dict(first), dict(second)
    sketches = one.pop("logits", None), two.pop("logits", None)
    return one == two and _are_close(*sketches)


def is_same_model(first: Provenance, second: Provenance) -> bool:
    """Whether votes can be of one model, perhaps on two graphs.

    Args:
        first: The provenance of some votes; what it does not name is not compared.
        second: The provenance of others.

    Returns:
        Whether type and weights are equal and, if the graphs are the same, sketches up to rounding errors.
    """
    one, two = dict(first), dict(second)
    if any(one[name] != two[name] for name in ("victim", "weights") if name in one and name in two):
        return False
    return one.get("graph") != two.get("graph") or _are_close(one.get("logits"), two.get("logits"))


def _sketch(data: Data, victim: nn.Module) -> str | None:
    """The norm of the logits and projections of them, as text; None if the model cannot be called with this graph."""
    try:
        first, second = _projections(data, victim), _projections(data, victim)
    except (RuntimeError, IndexError, TypeError, ValueError) as error:  # whoever lets it vote says why
        if is_out_of_memory(error):
            raise
        return None
    if first is None or second is None:
        return None
    return first if _are_close(first, second) else RANDOM


def _projections(data: Data, victim: nn.Module) -> str | None:
    """The norm of the logits L and u^T L v for a few random u and v; None if the model does not return a matrix."""
    with torch.no_grad(), evaluating(victim), isolated_rng("sketch"):
        logits = victim(data.x, data.edge_index)
    if not isinstance(logits, Tensor) or logits.dim() != 2:
        return None
    matrix = torch.nan_to_num(logits.detach().cpu().double(), nan=0.0, posinf=0.0, neginf=0.0)
    generator = rng("projections")
    u = torch.randn(PROJECTIONS, matrix.shape[0], generator=generator, dtype=torch.float64)
    v = torch.randn(PROJECTIONS, matrix.shape[1], generator=generator, dtype=torch.float64)
    numbers = [float(matrix.norm()), *((u @ matrix) * v).sum(1).tolist()]
    return " ".join(f"{number:.5e}" for number in numbers)


def _are_close(first: str | None, second: str | None) -> bool:
    """Whether two sketches are those of the same logits; one that is missing or of a random model says nothing."""
    if first == second or None in (first, second) or RANDOM in (first, second):
        return True
    assert first is not None
    assert second is not None
    one, two = ([float(number) for number in text.split()] for text in (first, second))
    return len(one) == len(two) and math.dist(one, two) <= CLOSE * max(one[0], two[0])
