"""What `fit_batches` trains: graphs of a collection, or nodes of one graph. Both give batches, losses and scores."""

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset
from torch_geometric.data import Data

from wtawp.base import DataError, rng
from wtawp.graphs import NeighbourLists, NodeBatches, Split, batched, select_graphs
from wtawp.graphs.collection import GraphBatches
from wtawp.graphs.node_batches import neighbour_lists_of, rows_of
from wtawp.models.calls import arguments_of, checked_call
from wtawp.models.evaluation import refuse_cached
from wtawp.models.inputs import check_kind
from wtawp.training.batch_models import BatchModel, check_on_small_graph, features_of
from wtawp.training.inference import logits_of
from wtawp.training.objective import Objective

Criterion = Callable[[Tensor, Tensor], Tensor]  # logits [k, c] and labels [k] or [k, c] -> a scalar
Scores = dict[str, tuple[float, float]]  # part of the split -> loss and metric
PARTS = ("train", "val", "test")


@dataclass(frozen=True)
class TaskContext:
    """What both kinds of tasks need: the seed, the device, the loss and the metric.

    Attributes:
        seed: Determines the order of the batches, and what is sampled.
        device: The device of the model.
        objective: The loss and the metric, of which the latter is higher for better models.
    """

    seed: int
    device: torch.device
    objective: Objective

    def loss(self, logits: Tensor, y: Tensor) -> Tensor:  # [k, c], [k] -> []
        """Compute the loss, the mean cross-entropy if there is no other.

        Args:
            logits: Logits, [k, c].
            y: Labels of k samples.

        Returns:
            A scalar.
        """
        if self.objective.loss is not None:
            return self.objective.losses(logits[None], y)[0]
        self.objective.check_logits(logits[None], "loss")
        self.objective.warn_of_probabilities(logits[None])
        return F.cross_entropy(logits, y.long())

    def metric(self, logits: Tensor, y: Tensor) -> Tensor:  # [k, c], [k] -> []
        """Compute the metric, the share of correct predictions if there is no other.

        Args:
            logits: Logits, [k, c].
            y: Labels of k samples.

        Returns:
            A scalar.
        """
        if self.objective.metric is not None:
            return self.objective.scores(logits[None], y)[0]
        self.objective.check_logits(logits[None], "metric")
        return (logits.argmax(1) == y).float().mean()

    def scores(self, logits: Tensor, y: Tensor) -> tuple[float, float]:
        """Compute loss and metric as numbers.

        Args:
            logits: Logits, [k, c].
            y: Labels of k samples.

        Returns:
            Loss and metric.
        """
        return float(self.loss(logits, y)), float(self.metric(logits, y))


class Task(Protocol):
    """What the training loop needs to know about the samples."""

    batches: Iterable[Data]  # each iteration is one epoch

    def closure(self, batch: Data) -> Callable[[], Tensor] | None:
        """Make a function that computes the loss of a batch, or return None if nothing in the batch is trained on."""

    def scores(self, parts: Sequence[str]) -> Scores:
        """Compute loss and metric of some parts of the split, without dropout."""


class GraphTask:
    """Classifies the graphs of a collection.

    Args:
        model: A module called as `model(x, edge_index, batch)`.
        graphs: The graphs.
        split: The parts, as positions in `graphs`.
        context: Seed, device, loss and metric.
        batch_size: Number of graphs in a batch.

    Raises:
        DataError: If the model classifies nodes, or `graphs` is a single graph.
        WtawpError: If the module has a layer that caches its graph.
    """

    def __init__(
        self,
        model: nn.Module,
        graphs: Data | Sequence[Data],
        split: Split,
        context: TaskContext,
        *,
        batch_size: int,
    ) -> None:
        all_graphs = copy.copy(batched(graphs, any_target=not context.objective.has_classes)).to(context.device)
        check_kind(model, all_graphs)
        refuse_cached(model)
        self.model, self.context = model, context
        self.parts = {name: select_graphs(all_graphs, getattr(split, name).to(context.device)) for name in PARTS}
        numbers, batches = cast("Dataset[int]", range(len(split.train))), GraphBatches(self.parts["train"])
        self.batches: Iterable[Data] = DataLoader(
            numbers, batch_size, shuffle=True, generator=rng("batches", context.seed), collate_fn=batches.select
        )

    def closure(self, batch: Data) -> Callable[[], Tensor]:
        """Make the loss of a batch.

        Args:
            batch: The batch, on any device.

        Returns:
            A function that computes the loss.
        """
        batch = batch.to(self.context.device)
        return lambda: self.context.loss(self._logits(batch), batch.y)

    def _logits(self, batch: Data) -> Tensor:
        """The output of the model for some graphs."""
        return checked_call(self.model, arguments_of(self.model, batch), len(batch.y))

    @torch.no_grad()
    def scores(self, parts: Sequence[str]) -> Scores:
        """Compute loss and metric of some parts of the split, without dropout.

        Args:
            parts: Names of the parts.

        Returns:
            Loss and metric of each part.
        """
        self.model.eval()
        logits = {name: self._logits(self.parts[name]) for name in parts}
        return {name: self.context.scores(each, self.parts[name].y) for name, each in logits.items()}


class NodeTask:
    """Classifies the nodes of one graph, from sampled neighbourhoods in training and from all neighbours in evaluation.

    Args:
        model: A module called as `model(x, edge_index)`.
        data: The graph, on the CPU.
        split: The training, validation and test nodes.
        context: Seed, device, loss and metric.
        fanouts: Largest number of sampled neighbours of a node in each hop; None if a loader is given and the model
            says how many layers it has.
        loader: Batches of somebody else, one iteration an epoch; None samples them here.
        batch_size: Number of training nodes in a batch; unused with a loader.
        neighbours: The neighbour lists of the graph; None builds them.
        num_workers: Number of processes that prepare batches; unused with a loader.

    Raises:
        ValueError: If the fan-outs are not as many as the layers.
        DataError: If the model does not run on sampled neighbourhoods, or classifies graphs, or the nodes to train do
            not exist.
        WtawpError: If the outputs of the model on parts of a graph are not those on the whole graph.
    """

    def __init__(
        self,
        model: nn.Module,
        data: Data,
        split: Split,
        context: TaskContext,
        *,
        fanouts: Sequence[int] | None,
        loader: Iterable[Data] | None,
        batch_size: int,
        neighbours: NeighbourLists | None,
        num_workers: int,
    ) -> None:
        check_kind(model, data)
        self.data, self.context = data, context
        self.lists = neighbour_lists_of(data) if neighbours is None else neighbours
        num_hops = None if fanouts is None else len(fanouts)
        check_on_small_graph(model, features_of(data), num_hops)
        self.runner = BatchModel(model, self.lists, num_hops)
        self.nodes = {name: getattr(split, name).cpu() for name in PARTS}
        self.is_sampled_here = loader is None
        if loader is not None:
            self.batches = loader
            return
        assert fanouts is not None
        hops = fanouts if self.runner.num_hops else (0,)  # an MLP needs no neighbours
        self.batches = NodeBatches(data, self.nodes["train"], hops, batch_size=batch_size, seed=context.seed,
                                   neighbours=self.lists, num_workers=num_workers)  # fmt: skip

    def closure(self, batch: Data) -> Callable[[], Tensor] | None:
        """Make the loss of a batch: that of its training nodes.

        Args:
            batch: The batch, on any device.

        Returns:
            A function that computes the loss; None if the batch has no training node.

        Raises:
            DataError: If the batch does not say which of its nodes are training nodes.
        """
        rows = torch.arange(batch.batch_size) if self.is_sampled_here else self._training_rows(batch)
        if not len(rows):
            return None
        batch, rows = batch.to(self.context.device), rows.to(self.context.device)
        prepared, y = self.runner.prepare(batch), batch.y[rows]
        return lambda: self.context.loss(self.runner.logits(prepared)[rows], y)

    def _training_rows(self, batch: Data) -> Tensor:
        """The rows of a batch from somebody else's loader that are training nodes; if it has seeds, only those."""
        if "n_id" in batch:
            seeds = batch.n_id[: batch.batch_size] if "batch_size" in batch else batch.n_id
            return torch.isin(seeds.cpu(), self.nodes["train"]).nonzero()[:, 0]
        mask = self.data.get("train_mask")
        if "train_mask" not in batch or not isinstance(mask, Tensor):
            raise DataError(
                "the batches of the loader have neither n_id nor train_mask, so their training nodes are not known;"
                " set data.n_id = torch.arange(data.num_nodes) before the loader is built"
            )
        if not torch.equal(mask.cpu().nonzero()[:, 0], self.nodes["train"].sort().values):
            raise DataError("data.train_mask and split.train are different nodes; set data.train_mask from the split")
        rows: Tensor = batch.train_mask.cpu().nonzero()[:, 0]
        return rows

    @torch.no_grad()
    def scores(self, parts: Sequence[str]) -> Scores:
        """Compute loss and metric of some parts of the split exactly, without dropout.

        Args:
            parts: Names of the parts.

        Returns:
            Loss and metric of each part.
        """
        nodes: Tensor = torch.unique(torch.cat([self.nodes[name] for name in parts]))
        logits = logits_of(self.runner, self.data, self.lists, nodes)
        out = {}
        for name in parts:
            own = logits[torch.searchsorted(nodes, self.nodes[name])].to(self.context.device)
            out[name] = self.context.scores(own, rows_of(self.data.y, self.nodes[name]).to(self.context.device))
        return out
