"""Multi-layer perceptron: the model that ignores the graph (appendix, sec:vanishmlp)."""

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.models.capabilities import Features, RunsOnBatches, StackAware
from wtawp.models.dropout import dropout
from wtawp.models.inputs import features
from wtawp.models.layers import Linear, checked_flag, checked_widths


class MLP(nn.Module, StackAware, RunsOnBatches):
    """Multi-layer perceptron: linear layers with ReLU and dropout between them.

    It accepts edges, so that it can be used wherever a GNN can, and ignores them.

    Args:
        d_in: Number of features of a node.
        d_out: Number of classes.
        hidden: Widths of the hidden layers, one number each; the default is one layer of 64 units, the same as the
            GNNs.
        dropout: Share of units that are dropped in training after each hidden layer, in [0, 1).
        linear: Whether to leave out the ReLU: the "3-layer linear network" of the paper's appendix.
        generator: Draws the initial weights.

    Raises:
        ValueError: If a width is below 1, `hidden` is a single number, or the dropout is not in [0, 1).

    Example:
        >>> import torch
        >>> from wtawp.graphs import load
        >>> data = load("wine")
        >>> model = MLP(13, 3, generator=torch.Generator().manual_seed(0))
        >>> model(data.x, data.edge_index).shape
        torch.Size([178, 3])
    """

    reads_rows = True

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        hidden: tuple[int, ...] = (64,),
        dropout: float = 0.5,
        linear: bool = False,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.dropout, self.linear = dropout, checked_flag("linear", linear)
        widths = checked_widths(d_in, hidden, d_out, dropout)
        self.lins = nn.ModuleList(Linear(a, b, generator=generator) for a, b in widths)

    def forward(
        self,
        x: Features,
        edge_index: Tensor | None = None,  # noqa: ARG002
        edge_weight: Tensor | None = None,  # noqa: ARG002
        rows: Tensor | None = None,
    ) -> Tensor:  # [n, d] -> [n, c]
        """Compute the logits of the nodes.

        Args:
            x: Features of the nodes, [n, d], dense or sparse.
            edge_index: Ignored.
            edge_weight: Ignored.
            rows: The positions of the rows of `x` in the whole graph, [n], from which dropout masks are derived; None
                if `x` is the whole graph.

        Returns:
            Logits [n, c].
        """
        for lin in self.lins[:-1]:
            hidden = lin(x) if self.linear else lin(x).relu()
            x = dropout(hidden, self.dropout, self.training, positions=rows)
        logits: Tensor = self.lins[-1](x)
        return logits

    def prepare(self, x: Tensor, edge_index: Tensor, rows: Tensor | None) -> tuple[object, ...]:  # noqa: ARG002
        """See `StackAware.prepare`. Only the features of `rows` are needed; the edges are ignored."""
        return features(x, rows), None, None, rows

    @property
    def num_hops(self) -> int:
        """0: the graph is ignored."""
        return 0

    @property
    def needs_gcn_weights(self) -> bool:
        """False: the graph is ignored."""
        return False

    def batch_arguments(self, batch: Data) -> tuple[object, ...]:
        """See `RunsOnBatches.batch_arguments`."""
        return batch.x[: batch.batch_size], None, None, batch.n_id[: batch.batch_size]
