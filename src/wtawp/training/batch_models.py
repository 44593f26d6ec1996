"""Call any module on a batch of sampled nodes so that its outputs are correct."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.nn.models.basic_gnn import BasicGNN

from wtawp.base import DataError, WtawpError, rng
from wtawp.graphs import GcnWeights, NeighbourLists, NodeBatches, sum_operator
from wtawp.graphs.node_batches import rows_of
from wtawp.models.calls import checked_call, checked_output, takes_edge_weight
from wtawp.models.capabilities import RunsByLayer, RunsOnBatches, StackAware
from wtawp.models.evaluation import evaluating, refuse_cached

TOLERANCE = 1e-4
Arguments = tuple[tuple[object, ...], dict[str, object]]  # positional ones and those with names
Hook = Callable[[nn.Module, tuple[object, ...], dict[str, object]], Arguments]


@dataclass(frozen=True)
class PreparedBatch:
    """A batch with the arguments that a model is called with.

    Attributes:
        arguments: Positional arguments of `forward`.
        batch: The batch as it was sampled.
        weighted: The same batch with GCN weights, for PyG's `GCNConv`; None if no layer needs them.
    """

    arguments: tuple[object, ...]
    batch: Data
    weighted: Data | None


class BatchModel:
    """Calls a module on batches of sampled nodes.

    Modules of this package run on the sampled blocks. Other modules are called as `model(x, edge_index)`, or as
    `model(x, edge_index, edge_weight)` if the edges of the graph have weights. A `GCNConv` that normalises its edges
    gets the weights of the whole graph instead (see `GcnWeights`), for the time of the call.

    Args:
        model: The module.
        lists: The whole graph.
        num_hops: How far the module reaches into the graph; None if it knows that itself, as our models and PyG's
            `GCN`, `GraphSAGE` and `GAT` do.

    Attributes:
        model: The module.
        num_hops: How far the module reaches into the graph.
        is_layered: Whether `infer_layer` can compute it layer by layer.

    Raises:
        ValueError: If `num_hops` is not the number of layers, or None for a module that does not say it.
        DataError: If the module is one of ours that does not run on sampled neighbourhoods, or takes no weights of
            edges and the edges have some.
        WtawpError: If the module has a layer that caches its graph, or a `GCNConv` with options that `GcnWeights` does
            not have.
    """

    def __init__(self, model: nn.Module, lists: NeighbourLists, num_hops: int | None = None) -> None:
        name = type(model).__name__
        if isinstance(model, StackAware) and not isinstance(model, RunsOnBatches):
            raise DataError(f"{name} does not run on sampled neighbourhoods; train it with `fit`, or take GCN or GAT")
        refuse_cached(model)
        if lists.edge_weight is not None and not isinstance(model, RunsOnBatches) and not takes_edge_weight(model):
            raise DataError(
                f"the edges have weights, which {name} does not take as model(x, edge_index, edge_weight); remove"
                " edge_weight from the graph, or put a module around yours"
            )
        self.model, self.is_layered = model, isinstance(model, RunsByLayer) or _is_layered(model)
        known = num_hops_of(model)
        if known is None and num_hops is None:
            raise ValueError(
                f"how far does {name} reach into the graph? Say how many layers pass messages: by num_hops=2 in"
                " compute_logits, by one number for each in fit_batches, fanouts=(10, 10)"
            )
        if known and num_hops is not None and known != num_hops:
            raise ValueError(
                f"{name} has {known} layers and needs as many fan-outs, got {num_hops}; pass fanouts= with one number"
                f" for each, or in compute_logits num_hops={known}"
            )
        self.num_hops = cast(int, num_hops if known is None else known)
        self._convs = [layer for layer in model.modules() if isinstance(layer, GCNConv) and layer.normalize]
        for layer in self._convs:
            if layer.improved or not layer.add_self_loops or layer.flow != "source_to_target":
                raise WtawpError(f"minibatches need a GCNConv without improved=True and with self-loops, got {layer}")
        needs_weights = model.needs_gcn_weights if isinstance(model, RunsOnBatches) else bool(self._convs)
        self._weights = GcnWeights(lists) if needs_weights else None

    def prepare(self, batch: Data) -> PreparedBatch:
        """Build the arguments of the module.

        Args:
            batch: A batch of sampled nodes, or any part of the graph that has no `n_id`, in which the module then
                normalises the edges itself; on the device of the module.

        Returns:
            The batch, ready to be used in any number of passes.
        """
        weighted = None
        if batch.get("has_gcn_weights"):
            weighted = batch
        elif self._weights is not None and "n_id" in batch:
            weighted = self._weights(batch)
        if isinstance(self.model, RunsOnBatches) and "n_id" in batch and "num_sampled_nodes" in batch:
            return PreparedBatch(self.model.batch_arguments(weighted or batch), batch, None)
        if isinstance(self.model, RunsOnBatches) and self.model.needs_gcn_weights and weighted is not None:
            operator = sum_operator(weighted.edge_index, weighted.edge_weight, len(batch.x), batch.x.dtype)
            return PreparedBatch((batch.x, operator), batch, None)
        weight = batch.get("edge_weight")
        arguments = (batch.x, batch.edge_index) if weight is None else (batch.x, batch.edge_index, weight)
        return PreparedBatch(arguments, batch, weighted if self._convs else None)

    def logits(self, prepared: PreparedBatch) -> Tensor:
        """Call the module.

        Args:
            prepared: What `prepare` returned.

        Returns:
            Logits of the first nodes of the batch, at least of its seeds.
        """
        with self._global_weights(prepared.batch, prepared.weighted):
            return checked_output(self.model(*prepared.arguments), self.model)

    def infer_layer(self, number: int, batch: Data) -> Tensor:
        """Compute one layer of a module that is computed layer by layer, in evaluation mode.

        Args:
            number: Number of the layer, counted from 0.
            batch: A batch of one hop with all neighbours; `x` is the output of the layer before.

        Returns:
            The output of the layer for the seeds, [batch_size, h].
        """
        weighted = None if self._weights is None else self._weights(batch)
        if isinstance(self.model, RunsByLayer):
            return self.model.infer_layer(number, weighted or batch)
        with self._global_weights(batch, weighted):
            return _infer_layer(self.model, number, batch)

    @contextmanager
    def _global_weights(self, batch: Data, weighted: Data | None) -> Iterator[None]:
        """Let each `GCNConv` that normalises use edges that are normalised already, and restore it at the end."""
        if weighted is None:
            yield
            return
        replace = _replace_edges(batch, weighted)
        hooks = [conv.register_forward_pre_hook(replace, with_kwargs=True) for conv in self._convs]
        for conv in self._convs:
            conv.normalize = False
        try:
            yield
        finally:
            for conv, hook in zip(self._convs, hooks, strict=True):
                conv.normalize = True
                hook.remove()


def check_on_small_graph(model: nn.Module, features: "Tensor | np.ndarray", num_hops: int | None) -> None:
    """Refuse a module whose outputs on batches with all neighbours are not its outputs on the whole graph.

    Args:
        model: The module; those of this package are not checked.
        features: Features of the graph, [n, d]. The module is called with random numbers, and with rows of these where
            it cannot take those, as a module that looks up categories.
        num_hops: As for `BatchModel`.

    Raises:
        DataError: If the module cannot be called as `model(x, edge_index)`, or does not return one row for each node.
        WtawpError: If the outputs differ: the module reaches farther than the batches, or normalises over a batch.
    """
    if isinstance(model, RunsOnBatches):
        return
    edges = _caterpillar(num_hops_of(model) or num_hops or 1)
    size = int(edges.max()) + 1
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    x = torch.randn(size, features.shape[1], generator=rng("small graph"), dtype=dtype)
    device = _device_of(model)
    try:
        with evaluating(model), torch.no_grad():
            checked_call(model, (x.to(device), edges.to(device)), size)
    except DataError:
        x = rows_of(features, torch.arange(size) % len(features)).cpu()
    data = Data(x=x, edge_index=edges)
    lists = NeighbourLists.from_edges(data.edge_index, len(data.x))
    runner = BatchModel(model, lists, num_hops)
    batches = NodeBatches(
        data.cpu(), torch.tensor([0]), (-1,) * runner.num_hops, batch_size=1, seed=0, neighbours=lists
    )
    batch = next(iter(batches)).to(_device_of(model))
    with evaluating(model), torch.no_grad():
        whole = checked_call(model, tuple(t.to(_device_of(model)) for t in (data.x, data.edge_index)), len(data.x))[:1]
        part = runner.logits(runner.prepare(batch))[:1]
    error = float((whole - part).abs().max() / whole.abs().max().clamp_min(torch.finfo(whole.dtype).tiny))
    if not error <= TOLERANCE:
        raise WtawpError(
            f"on a small graph, the output of {type(model).__name__} for a node differs by {error:.1e} if it sees all"
            f" nodes within {runner.num_hops} hops instead of the whole graph. It has more layers than there are"
            " fan-outs, computes degrees itself, normalises over all nodes, or sends messages against the direction of"
            " the edges; pass one number more in fanouts= (in compute_logits, a larger num_hops=), or use `fit`"
        )


def features_of(data: Data) -> "Tensor | np.ndarray":
    """Read the features of the nodes.

    Args:
        data: The graph.

    Returns:
        The features, [n, d].

    Raises:
        DataError: If there are none.
    """
    x = data.get("x")
    if x is None or len(x.shape) != 2:
        got = "none" if x is None else f"shape {list(x.shape)}"
        raise DataError(f"the graph needs features x of shape [n, d], got {got}")
    features: Tensor | np.ndarray = x
    return features


def num_hops_of(model: nn.Module) -> int | None:
    """Tell how far a module reaches into the graph.

    Args:
        model: The module.

    Returns:
        The number of hops; None if the module does not say.
    """
    if isinstance(model, RunsOnBatches):
        return model.num_hops
    return cast(int, model.num_layers) if _is_layered(model) else None


def _is_layered(model: nn.Module) -> bool:
    """Whether a module is one of PyG's that apply one convolution after another, and norms that are local."""
    return (
        isinstance(model, BasicGNN)
        and type(model).forward is BasicGNN.forward
        and model.jk_mode in (None, "last")
        and not model.supports_norm_batch
    )


def _infer_layer(model: BasicGNN, number: int, batch: Data) -> Tensor:
    """One layer of a model of PyG, as in `BasicGNN.forward`, for the seeds of a batch."""
    conv, weight = model.convs[number], batch.get("edge_weight")
    options = {"edge_weight": weight} if model.supports_edge_weight and weight is not None else {}
    x: Tensor = conv(batch.x, batch.edge_index, **options)[: batch.batch_size]
    is_last = number == model.num_layers - 1
    if is_last and model.jk_mode is None:
        return x
    if model.act is not None and model.act_first:
        x = model.act(x)
    x = model.norms[number](x)
    if model.act is not None and not model.act_first:
        x = model.act(x)
    return cast(Tensor, model.lin(x)) if is_last else x


def _replace_edges(batch: Data, weighted: Data) -> Hook:
    """Make a hook that exchanges the edges which a `GCNConv` is called with, if they are those of the batch."""

    def hook(conv: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> Arguments:
        given = inspect.signature(conv.forward).bind(*args, **kwargs).arguments
        has_weight = given.get("edge_weight") is not None
        if given["edge_index"] is not batch.edge_index or has_weight != (batch.get("edge_weight") is not None):
            raise WtawpError(
                f"{conv} must be called with the edges of the batch, and their weights if it has any, because it is"
                " given the weights of the whole graph; change edges and weights before they are sampled"
            )
        return (given["x"], weighted.edge_index, weighted.edge_weight), {}

    return hook


def _caterpillar(num_hops: int) -> Tensor:  # -> [2, e]
    """A path that is longer than the model reaches, with one to three leaves at each node, so that degrees differ."""
    spine = num_hops + 4
    owners = torch.repeat_interleave(torch.arange(spine), torch.arange(spine) % 3 + 1)
    leaves = torch.arange(spine, spine + len(owners))
    path = torch.stack([torch.arange(spine - 1), torch.arange(1, spine)])
    edges = torch.cat([path, torch.stack([owners, leaves])], 1)
    return torch.cat([edges, edges.flip(0)], 1)


def _device_of(model: nn.Module) -> torch.device:
    """The device of the parameters."""
    return next((p.device for p in model.parameters()), torch.device("cpu"))
