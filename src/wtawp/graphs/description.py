"""What a graph, or a collection of graphs, is like, in a few numbers."""

from dataclasses import dataclass

import torch
from torch_geometric.data import Data


@dataclass(frozen=True, kw_only=True)
class Description:
    """Sizes of all graphs together; classes and shares are those of the labelled nodes, or of the graphs."""

    graphs: int
    nodes: int
    edges: int  # undirected
    features: int
    classes: int
    labelled: int  # nodes of one graph, graphs of a collection
    majority: float  # share of the largest class: the accuracy of always answering it
    mean_degree: float
    homophily: float | None  # share of edges inside a class, both ends labelled; None for collections


def describe(data: Data | list[Data]) -> Description:
    """Count what is in an undirected graph, or in a list of them that are classified as wholes.

    >>> from wtawp.graphs import load
    >>> about = describe(load("karate"))
    >>> about.nodes, about.edges, about.classes, round(about.homophily, 2)
    (34, 78, 4, 0.76)
    """
    graphs = [data] if isinstance(data, Data) else data
    y = torch.cat([graph.y for graph in graphs])
    counts = torch.bincount(y[y >= 0])
    nodes, entries = sum(graph.num_nodes for graph in graphs), sum(graph.num_edges for graph in graphs)
    homophily = None
    if isinstance(data, Data):
        source, target = data.y[data.edge_index]
        known = (source >= 0) & (target >= 0)
        homophily = float((source == target)[known].double().mean())
    return Description(
        graphs=len(graphs),
        nodes=nodes,
        edges=entries // 2,
        features=graphs[0].num_features,
        classes=int((counts > 0).sum()),
        labelled=int(counts.sum()),
        majority=float(counts.max() / counts.sum()),
        mean_degree=entries / nodes,
        homophily=homophily,
    )
