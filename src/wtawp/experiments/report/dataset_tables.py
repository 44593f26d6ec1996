"""The paper's two tables of data sets beside our counts."""

from collections.abc import Iterable, Sequence

from wtawp.experiments.plans.paper import DATASET_TABLE, GRAPH_DATASET_TABLE
from wtawp.experiments.report.tables import NOTHING, Entry, Table
from wtawp.graphs.registry import dataset_spec


def node_dataset_table() -> Table:
    """tab:dataset: the printed sizes of the node-level data sets beside those of the graphs that we load.

    Nothing is downloaded: features are counted where the files are on this machine.

    Returns:
        The table.
    """
    from wtawp.graphs import describe, load, locate_dataset  # here, because it takes seconds to import

    rows = []
    for name, printed in DATASET_TABLE.items():
        ours = dataset_spec(name)
        is_local = locate_dataset(name) != "not here"
        features = describe(load(name)).features if is_local else None
        rows.append((Entry(name), *_beside(printed, (ours.nodes, ours.edges, features, ours.classes))))
    return Table(
        "tab:dataset, printed / ours. Ours are the largest components, on which the released code trains; the paper "
        "prints the sizes of the whole Cora and Citeseer. PolBlogs has no features: each blog is its own.",
        ("data set", "nodes", "edges", "features", "classes"),
        tuple(rows),
    )


def graph_dataset_table() -> Table:
    """tab:cladataset: the printed sizes of the graph-level data sets beside ours.

    Nothing is downloaded: what the package does not know is counted where the files are on this machine.

    Returns:
        The table.
    """
    from wtawp.graphs import load, locate_dataset

    rows = []
    for name, printed in GRAPH_DATASET_TABLE.items():
        largest = mean = graphs = None
        if locate_dataset(name) != "not here":
            sizes = [graph.num_nodes for graph in load(name)]
            largest, mean, graphs = max(sizes), sum(sizes) / len(sizes), len(sizes)
        rows.append((Entry(name), *_beside(printed, (largest, mean, graphs, dataset_spec(name).classes))))
    return Table(
        "tab:cladataset, printed / ours.", ("data set", "largest graph", "mean size", "graphs", "classes"), tuple(rows)
    )


def _beside(printed: Sequence[float | None], ours: Sequence[float | None]) -> Iterable[Entry]:
    """Entries "printed / ours", sorted by ours."""
    for theirs, counted in zip(printed, ours, strict=True):
        yield Entry(f"{_size(theirs)} / {_size(counted)}", counted)


def _size(value: float | None) -> str:
    """A count or a mean, with separators of thousands."""
    return NOTHING if value is None else f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"
