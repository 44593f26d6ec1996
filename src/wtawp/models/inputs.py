"""The one place where edges become operators: outside `models` everybody calls `model(x, edge_index, edge_weight)`.

Our modules take more than edges: an `Operator` instead of them, sparse features instead of a dense x, and blocks that
compute some rows only. `prepare` asks a module for such arguments; any other module gets the graph as it is.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary
from torch_geometric.data import Data

from wtawp.base import DataError
from wtawp.graphs.blocks import Blocks
from wtawp.graphs.collection import is_collection, select_graphs
from wtawp.graphs.feature_files import is_memory_mapped
from wtawp.graphs.kernels import is_differentiated, multiply_block
from wtawp.graphs.operator import Operator, sparse_features
from wtawp.graphs.products import Multiplies
from wtawp.models.caches import OperatorCache
from wtawp.models.calls import arguments_of
from wtawp.models.capabilities import Features, StackAware, StackAwareOnGraphs
from wtawp.models.norms import has_batch_norm

COUNTED = 4096  # rows of features whose non-zeros are counted at a time
SPARSE_BELOW = 0.2  # share of non-zeros under which features are cheaper as an operator
# Inside of `constant_features`: features -> their version, and their non-zero entries, None if these are many.
_NONZEROS: ContextVar[WeakTensorKeyDictionary | None] = ContextVar("nonzeros", default=None)


def prepare(model: nn.Module, data: Data, rows: Tensor | None) -> tuple[tuple[object, ...], Tensor | None]:
    """Build the arguments with which a model computes the logits of some nodes, or of some graphs of a collection.

    Args:
        model: Any module. Modules of ours prepare their own inputs; others are called with the whole graph.
        data: The graph, or a collection of graphs as one batch.
        rows: The nodes (graphs) whose logits are wanted, [k]; None for all.

    Returns:
        Positional arguments for `model`, and the rows still to be selected from what it returns: None if it returns
        exactly the logits that are wanted.

    Raises:
        DataError: If the model classifies nodes and the data are graphs to classify, or the other way round.
    """
    check_kind(model, data)
    if isinstance(model, StackAwareOnGraphs):
        return model.prepare_graphs(data.x, data.edge_index, data.batch, rows), None
    if isinstance(model, StackAware):
        x = data.x
        has_weights, is_whole = data.get("edge_weight") is not None, has_batch_norm(model)
        if is_memory_mapped(x) and (rows is None or not model.reads_rows or has_weights or is_whole):
            x = x.to(data.edge_index.device)  # all of it is needed there
        if has_weights:  # on the whole graph: blocks are cut from edges without weights
            return (features(x), *arguments_of(model, data)[1:]), rows
        if is_whole:  # the statistics of a batch norm are those of all nodes, not of the receptive field of `rows`
            return model.prepare(x, data.edge_index, None), rows
        return model.prepare(x, data.edge_index, rows), None
    if is_collection(data) and rows is not None:  # a batch norm must not see the graphs that validate and test
        return arguments_of(model, select_graphs(data, rows)), None
    return arguments_of(model, data), rows


def check_kind(model: nn.Module, data: Data) -> None:
    """Refuse a module of ours that classifies nodes where graphs are to be classified, and the other way round.

    Args:
        model: Any module; nothing is known about modules that are not ours, so these pass.
        data: The graph, or a collection of graphs as one batch.

    Raises:
        DataError: If the model does not fit the data.
    """
    name = type(model).__name__
    if isinstance(model, StackAware) and is_collection(data):
        raise DataError(f"{name} classifies nodes and these are graphs to classify; take PooledGCN, PooledGIN, ...")
    if isinstance(model, StackAwareOnGraphs) and not is_collection(data):
        raise DataError(f"{name} classifies whole graphs and this is one graph; pass a list of graphs, or take GCN")


def features(x: Tensor, rows: Tensor | None = None, *, dropped: bool = False) -> Features:
    """Convert features to the form that multiplies fastest: for bags of words, the non-zero entries only.

    Args:
        x: Features of all nodes, [n, d]; a sparse tensor stays sparse on every device. Memory-mapped ones may be on
            the CPU while `rows` are on a GPU.
        rows: The nodes to keep, [k]; None for all.
        dropped: Whether dropout follows, so that each model of a stack has entries of its own. Otherwise one dense
            product for all models is faster on a GPU.

    Returns:
        The features of `rows`, on their device, dense or as an operator. All of a memory-mapped x stay dense, because
        counting the non-zeros would read the whole file.
    """
    if x.layout != torch.strided:
        x = x if rows is None else x.to_sparse().index_select(0, rows)
        return sparse_features(x)
    if _is_remembered(x) and (rows is None or rows.device.type == "cpu"):
        nonzeros = _nonzeros(x)
        if nonzeros is None:
            return x if rows is None else x[rows]
        return nonzeros if rows is None else nonzeros.select(rows, torch.arange(x.shape[1]))
    if rows is not None:
        x = x[rows.to(x.device)].to(rows.device)
    elif is_memory_mapped(x):
        return x
    if (x.device.type == "cpu" or dropped) and _is_sparse(x):
        return sparse_features(x)
    return x


@contextmanager
def constant_features() -> Iterator[None]:
    """Look for the non-zero entries of features only once, as long as nobody changes these behind torch's back.

    A training prepares the same features for the nodes that train, validate and test. Changes by torch are noticed;
    changes through `x.data` or of memory that numpy shares are not, so that this is not the default.

    Returns:
        A context manager, inside of which `features` remembers the entries of each tensor.
    """
    token = _NONZEROS.set(WeakTensorKeyDictionary())
    try:
        yield
    finally:
        _NONZEROS.reset(token)


def _is_remembered(x: Tensor) -> bool:
    """Whether the non-zero entries of dense features are looked for only once; see `constant_features`."""
    is_plain = x.device.type == "cpu" and not (is_differentiated(x) or torch.is_inference_mode_enabled())
    return _NONZEROS.get() is not None and is_plain and not x.is_inference() and not is_memory_mapped(x)


def _nonzeros(x: Tensor) -> Operator | None:  # [n, d] -> [n, d]
    """The non-zero entries of features that are remembered; None if these are many."""
    known = _NONZEROS.get()
    assert known is not None, "only inside of `constant_features`"
    version, entries = known.get(x, (None, None))  # type: ignore[no-untyped-call]
    if version != x._version:
        entries = sparse_features(x) if _is_sparse(x) else None
        known[x] = x._version, entries
    remembered: Operator | None = entries
    return remembered


def _is_sparse(x: Tensor) -> bool:
    """Whether features are cheaper as an operator."""
    return int(x.count_nonzero()) < SPARSE_BELOW * x.numel()


def first_product(operator: Operator, after: Tensor, before: Tensor, x: Tensor) -> Tensor | None:  # -> [r, d]
    """Multiply a block of an operator with dense features, without copying either.

    Args:
        operator: The operator of the whole graph, [n, n].
        after: The nodes of the block's rows, [r].
        before: The nodes of its columns, [c].
        x: Features of all nodes, [n, d].

    Returns:
        The same numbers as `multiply(operator.select(after, before), features(x, before))`; None if `features` are
        sparse there, or if there is no compiled loop: then take these steps.
    """
    if x.layout != torch.strided or x.device.type != "cpu" or operator.values.device.type != "cpu":
        return None
    if _is_remembered(x) and _nonzeros(x) is not None:
        return None
    needed, nonzeros = SPARSE_BELOW * len(before) * x.shape[1], 0
    for some in torch.split(before, COUNTED):
        nonzeros += int(x[some].count_nonzero())
        if nonzeros >= needed:  # dense, whatever the others are
            return multiply_block(operator.indptr, operator.indices, operator.values, after, before, x)
    return None


def operators_by_layer(
    edges: Tensor | Operator | Multiplies | Blocks,
    edge_weight: Tensor | None,
    x: Features,
    cache: OperatorCache,
    depth: int,
) -> list[tuple[Operator | Multiplies, Tensor | None]]:
    """Find the operator of each layer, whatever form the graph comes in.

    Args:
        edges: Edges [2, e], an operator for all layers, or blocks with one operator for each layer.
        edge_weight: Weights of the edges, [e]; None if all are 1, and unused if `edges` are not edges.
        x: Features of the nodes.
        cache: Builds the operator from edges.
        depth: Number of layers.

    Returns:
        For each layer its operator, and the positions of its output rows in the whole graph: None if the output is
        the whole graph.

    Raises:
        ValueError: If the blocks have another number of hops than there are layers.
    """
    if isinstance(edges, Tensor | Operator):
        return [(cache(edges, edge_weight, x), None)] * depth
    if not isinstance(edges, Blocks):
        return [(edges, None)] * depth
    if len(edges.operators) != depth:
        raise ValueError(
            f"{depth} layers need blocks of {depth} hops, got {len(edges.operators)};"
            f" use receptive_field(operator, rows, {depth})"
        )
    return list(zip(edges.operators, edges.nodes[1:], strict=True))
