"""The loaders of the built-in data sets, which the registry refers to by name."""

from functools import partial
from pathlib import Path

import torch
from torch_geometric.data import Data
from torch_geometric.datasets import KarateClub

from wtawp.graphs.generate import knn_edges, toy
from wtawp.graphs.published_files import PLANETOID_PARTS
from wtawp.graphs.published_readers import read_npz, read_planetoid
from wtawp.graphs.sanitize import largest_component


def karate() -> Data:
    """Zachary's karate club with identity features and PyG's four classes."""
    club = KarateClub()[0]
    return Data(x=club.x, edge_index=club.edge_index, y=club.y)


def largest_npz_component(path: Path) -> Data:
    """The largest component of a graph in the metattack format, as the paper uses it."""
    return largest_component(read_npz(path))


def planetoid(*paths: Path) -> Data:
    """A graph in Planetoid's eight files, in the order of `PLANETOID_PARTS`."""
    return read_planetoid(dict(zip(PLANETOID_PARTS, paths, strict=True)))


def _points(name: str, k: int = 5) -> Data:
    """Real measurements that come with scikit-learn, standardised, as the k-NN graph of their rows."""
    from sklearn import datasets  # it takes a second, which no other data set needs
    from sklearn.preprocessing import StandardScaler

    table, labels = getattr(datasets, f"load_{name}")(return_X_y=True)
    x = torch.from_numpy(StandardScaler().fit_transform(table)).float()
    return Data(x=x, y=torch.from_numpy(labels).long(), edge_index=knn_edges(x, k))


digits = partial(_points, "digits")
wine = partial(_points, "wine")
breast_cancer = partial(_points, "breast_cancer")
toy_linear = partial(toy, "linear")
toy_moons = partial(toy, "moons")
toy_rings = partial(toy, "rings")
toy_gaussians = partial(toy, "gaussians")
