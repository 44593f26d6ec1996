"""Statistics of a graph or of a collection of graphs."""

from dataclasses import dataclass

import torch
from torch_geometric.data import Data


@dataclass(frozen=True, kw_only=True)
class Description:
    """Statistics of a graph or of a collection of graphs; sizes are those of all graphs together.

    Attributes:
        graphs: Number of graphs.
        nodes: Number of nodes.
        edges: Number of undirected edges.
        features: Number of feature columns.
        classes: Number of classes that occur.
        labelled: Number of labelled nodes of one graph, or of labelled graphs of a collection.
        majority: Share of the largest class among them: the accuracy of a model that always predicts it.
        mean_degree: Mean number of neighbours of a node.
        homophily: Share of the edges between labelled nodes that join nodes of one class; None for collections.
    """

    graphs: int
    nodes: int
    edges: int
    features: int
    classes: int
    labelled: int
    majority: float
    mean_degree: float
    homophily: float | None


def describe(data: Data | list[Data]) -> Description:
    """Compute the statistics of an undirected graph, or of a list of graphs that are classified.

    Args:
        data: The graph, or the graphs, each with its labels `y`.

    Returns:
        The statistics.

    Example:
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
