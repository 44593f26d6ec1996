"""Models as people write them with PyTorch Geometric, each with a small graph and the way to call it.

`STRANGERS` maps a name to a function that builds a `Stranger`. Those in `TAKE_X_AND_EDGES` are called as
`model(x, edge_index)` and return logits, which is what `fit` expects.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import (
    GAT,
    GCN,
    PNA,
    GATv2Conv,
    GCNConv,
    GINEConv,
    GPSConv,
    GraphSAGE,
    HeteroConv,
    HGTConv,
    Linear,
    RGCNConv,
    SAGEConv,
    to_hetero,
)

from wtawp.base import isolated_rng, rng

N, D, H, C, E = 20, 6, 8, 3, 60
NODE_TYPES = ("paper", "author")
EDGE_TYPES = (("paper", "cites", "paper"), ("author", "writes", "paper"), ("paper", "rev_writes", "author"))
METADATA = (list(NODE_TYPES), list(EDGE_TYPES))


@dataclass(frozen=True)
class Stranger:
    """A model, the graph it is meant for, and how its logits are computed.

    Attributes:
        model: The model, with initial weights and in training mode.
        data: The graph: `Data`, or `HeteroData` in which papers are classified.
        call: Computes the logits of all nodes, [n, c], from a model and a graph.
    """

    model: nn.Module
    data: Any
    call: Callable[[nn.Module, Any], Tensor]

    def loss(self) -> Tensor:
        """The cross-entropy over all nodes that have a label."""
        y = self.data["paper"].y if isinstance(self.data, HeteroData) else self.data.y
        return F.cross_entropy(self.call(self.model, self.data), y)


def homogeneous_graph() -> Data:
    """A graph with node features, labels, edge types and edge features."""
    g = rng("strangers", "graph")
    edges = torch.stack([torch.arange(N), torch.arange(N).roll(1)])
    more = torch.randint(0, N, (2, E - 2 * N), generator=g)
    edge_index = torch.cat([edges, edges.flip(0), more], dim=1)
    return Data(
        x=torch.randn(N, D, generator=g),
        y=torch.arange(N) % C,
        edge_index=edge_index,
        edge_type=torch.randint(0, 2, (edge_index.shape[1],), generator=g),
        edge_attr=torch.randn(edge_index.shape[1], H, generator=g),
    )


def heterogeneous_graph() -> HeteroData:
    """Papers with labels, and their authors."""
    g = rng("strangers", "heterogeneous graph")
    data = HeteroData()
    for kind, size in (("paper", N), ("author", N // 2)):
        data[kind].x = torch.randn(size, D, generator=g)
    data["paper"].y = torch.arange(N) % C
    for source, relation, target in EDGE_TYPES:
        ends = [torch.randint(0, data[kind].num_nodes, (E,), generator=g) for kind in (source, target)]
        data[source, relation, target].edge_index = torch.stack(ends)
    return data


def by_x_and_edges(model: nn.Module, data: Data) -> Tensor:
    """Call a model of the usual signature."""
    return model(data.x, data.edge_index)


def by_dicts(model: nn.Module, data: HeteroData) -> Tensor:
    """Call a heterogeneous model, for the logits of papers."""
    return model(data.x_dict, data.edge_index_dict)["paper"]


class JumpingGCN(nn.Module):
    """Three convolutions whose outputs are concatenated for the last linear map."""

    def __init__(self) -> None:
        super().__init__()
        self.body = GCN(D, H, 3, C, jk="cat")

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.body(x, edge_index)


class GATv2(nn.Module):
    """Two attention layers with several heads."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = GATv2Conv(D, H, heads=2), GATv2Conv(2 * H, C, heads=1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)


class GPS(nn.Module):
    """A graph transformer: linear maps around a convolution with global attention."""

    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Linear(D, H)
        self.conv = GPSConv(H, GCNConv(H, H), heads=2)
        self.head = nn.Linear(H, C)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.head(self.conv(self.start(x), edge_index))


class RelationalGCN(nn.Module):
    """Two relational convolutions, the first with a basis."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = RGCNConv(D, H, num_relations=2, num_bases=2), RGCNConv(H, C, num_relations=2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        return self.conv2(self.conv1(x, edge_index, edge_type).relu(), edge_index, edge_type)


class TwoSAGE(nn.Module):
    """What `to_hetero` is given."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = SAGEConv((-1, -1), H), SAGEConv((-1, -1), H)
        self.lin = Linear(H, C)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.conv1(x, edge_index).relu()
        return self.lin(self.conv2(x, edge_index).relu())


class HGT(nn.Module):
    """Heterogeneous graph transformer with a linear map for each type of node."""

    def __init__(self) -> None:
        super().__init__()
        self.start = nn.ModuleDict({kind: nn.Linear(D, H) for kind in NODE_TYPES})
        self.convs = nn.ModuleList([HGTConv(H, H, METADATA, heads=2) for _ in range(2)])
        self.head = nn.Linear(H, C)

    def forward(self, x: dict[str, Tensor], edge_index: dict[tuple[str, str, str], Tensor]) -> dict[str, Tensor]:
        x = {kind: self.start[kind](v).relu() for kind, v in x.items()}
        for conv in self.convs:
            x = conv(x, edge_index)
        return {"paper": self.head(x["paper"])}


class HeteroConvLast(nn.Module):
    """Two heterogeneous convolutions; the relations of the second one make the logits together."""

    def __init__(self) -> None:
        super().__init__()
        first = {kind: SAGEConv((D, D), H) for kind in EDGE_TYPES}
        last = {kind: SAGEConv((H, H), C) for kind in EDGE_TYPES}
        self.convs = nn.ModuleList([HeteroConv(first), HeteroConv(last)])

    def forward(self, x: dict[str, Tensor], edge_index: dict[tuple[str, str, str], Tensor]) -> dict[str, Tensor]:
        x = {kind: v.relu() for kind, v in self.convs[0](x, edge_index).items()}
        return self.convs[1](x, edge_index)


class TwoHeads(nn.Module):
    """A body and two heads, of which one predicts the class and the other the features."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = GCNConv(D, H)
        self.classes, self.features = nn.Linear(H, C), nn.Linear(H, C)

    def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        h = self.conv(x, edge_index).relu()
        return self.classes(h), self.features(h)


class HeadFirst(nn.Module):
    """A model whose head is registered before its body."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(H, C)
        self.conv1, self.conv2 = GCNConv(D, H), GCNConv(H, H)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.head(self.conv2(self.conv1(x, edge_index).relu(), edge_index).relu())


class TupleOutput(nn.Module):
    """A model that returns its logits and its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = GCNConv(D, H), GCNConv(H, C)

    def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        h = self.conv1(x, edge_index).relu()
        return self.conv2(h, edge_index), h


class LSTMReadout(nn.Module):
    """Two convolutions whose outputs an LSTM reads as a sequence; its last state makes the logits."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = GCNConv(D, H), GCNConv(H, H)
        self.lstm, self.head = nn.LSTM(H, H, batch_first=True), nn.Linear(H, C)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        one = self.conv1(x, edge_index).relu()
        two = self.conv2(one, edge_index).relu()
        _, (state, _) = self.lstm(torch.stack([one, two], dim=1))
        return self.head(state[-1])


class LSTMLast(nn.Module):
    """Two convolutions whose outputs an LSTM turns into logits."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2, self.lstm = GCNConv(D, H), GCNConv(H, H), nn.LSTM(H, C, batch_first=True)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        one = self.conv1(x, edge_index).relu()
        two = self.conv2(one, edge_index).relu()
        return self.lstm(torch.stack([one, two], dim=1))[0][:, -1]


class WeightNorm(nn.Module):
    """A convolution between linear maps with weight norm."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.conv, self.head = weight_norm(nn.Linear(D, H)), GCNConv(H, H), weight_norm(nn.Linear(H, C))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.head(self.conv(self.start(x).relu(), edge_index).relu())


class LazyLayers(nn.Module):
    """Layers that learn their input size from the first forward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2, self.head = SAGEConv(-1, H), GCNConv(-1, H), nn.LazyLinear(C)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.head(self.conv2(self.conv1(x, edge_index).relu(), edge_index).relu())


class EdgeAttr(nn.Module):
    """Convolutions that use features of edges."""

    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Linear(D, H)
        self.conv = GINEConv(nn.Sequential(nn.Linear(H, H), nn.ReLU(), nn.Linear(H, H)))
        self.head = GATv2Conv(H, C, edge_dim=H)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        return self.head(self.conv(self.start(x), edge_index, edge_attr), edge_index, edge_attr)


class Cached(nn.Module):
    """Convolutions that keep the normalized graph of their first call."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = GCNConv(D, H, cached=True), GCNConv(H, C, cached=True)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)


def pna() -> nn.Module:
    """Principal neighbourhood aggregation of PyG."""
    return PNA(D, H, 2, C, aggregators=["mean", "max"], scalers=["identity"], deg=torch.tensor([0, 2, 10, 8]))


def called_once(model: nn.Module, call: Callable[[nn.Module, Any], Tensor], data: Any) -> nn.Module:
    """A model with lazy layers, after a forward pass that gives them their shapes."""
    with torch.no_grad():
        call(model, data)
    return model


def stranger(build: Callable[[], nn.Module], call: Callable[[nn.Module, Any], Tensor] = by_x_and_edges) -> Stranger:
    """A model for the homogeneous graph."""
    with isolated_rng("strangers", "weights"):
        data = homogeneous_graph()
        return Stranger(called_once(build(), call, data), data, call)


def hetero_stranger(build: Callable[[], nn.Module]) -> Stranger:
    """A model for the heterogeneous graph."""
    with isolated_rng("strangers", "weights"):
        data = heterogeneous_graph()
        return Stranger(called_once(build(), by_dicts, data), data, by_dicts)


STRANGERS: dict[str, Callable[[], Stranger]] = {
    "GraphSAGE": lambda: stranger(lambda: GraphSAGE(D, H, 2, C)),
    "GAT": lambda: stranger(lambda: GAT(D, H, 2, C, heads=2)),
    "GATv2": lambda: stranger(GATv2),
    "JumpingKnowledge": lambda: stranger(JumpingGCN),
    "PNA": lambda: stranger(pna),
    "GPS": lambda: stranger(GPS),
    "RGCN": lambda: stranger(RelationalGCN, lambda m, d: m(d.x, d.edge_index, d.edge_type)),
    "to_hetero": lambda: hetero_stranger(lambda: to_hetero(TwoSAGE(), METADATA)),
    "HGT": lambda: hetero_stranger(HGT),
    "HeteroConv last": lambda: hetero_stranger(HeteroConvLast),
    "two heads": lambda: stranger(TwoHeads, lambda m, d: sum(m(d.x, d.edge_index))),
    "head first": lambda: stranger(HeadFirst),
    "cached": lambda: stranger(Cached),
    "tuple output": lambda: stranger(TupleOutput, lambda m, d: m(d.x, d.edge_index)[0]),
    "LSTM readout": lambda: stranger(LSTMReadout),
    "LSTM last": lambda: stranger(LSTMLast),
    "weight norm": lambda: stranger(WeightNorm),
    "lazy layers": lambda: stranger(LazyLayers),
    "edge_attr": lambda: stranger(EdgeAttr, lambda m, d: m(d.x, d.edge_index, d.edge_attr)),
}
TAKE_X_AND_EDGES = (
    "GraphSAGE", "GAT", "GATv2", "JumpingKnowledge", "PNA", "GPS", "head first", "cached", "LSTM readout", "LSTM last",
    "weight norm", "lazy layers",
)  # fmt: skip
