"""Multi-layer perceptron: the model that does not look at the graph (appendix, sec:vanishmlp)."""

import torch
from torch import Tensor, nn

from wtawp.models.adapter import Features, features
from wtawp.models.dropout import dropout
from wtawp.models.layers import Linear, checked_widths


class MLP(nn.Module):
    """Linear layers with ReLU and dropout between them. It takes edges, to stand in for a GNN, and ignores them.

    `linear=True` leaves the ReLU out: the "3-layer linear network" of the paper's appendix.
    """

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
        self.dropout, self.linear = dropout, linear
        widths = checked_widths(d_in, hidden, d_out, dropout)
        self.lins = nn.ModuleList(Linear(a, b, generator=generator) for a, b in widths)

    def forward(
        self,
        x: Features,
        edge_index: Tensor | None = None,  # noqa: ARG002
        edge_weight: Tensor | None = None,  # noqa: ARG002
        rows: Tensor | None = None,
    ) -> Tensor:  # [n, d] -> [n, c]
        """`rows` are the places of x in the whole graph, for its masks; None if x is the whole graph."""
        for lin in self.lins[:-1]:
            hidden = lin(x) if self.linear else lin(x).relu()
            x = dropout(hidden, self.dropout, self.training, positions=rows)
        logits: Tensor = self.lins[-1](x)
        return logits

    def prepare(self, x: Tensor, edge_index: Tensor, rows: Tensor | None) -> tuple[object, ...]:  # noqa: ARG002
        """See `StackAware`: the features of `rows` and no others."""
        return features(x, rows), None, None, rows
