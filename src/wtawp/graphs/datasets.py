"""`load(name)`: every graph of this package by name, as PyG `Data`."""

from collections.abc import Callable

import numpy as np
import torch
from sklearn import datasets as sklearn_datasets
from sklearn.preprocessing import StandardScaler
from torch_geometric.data import Data
from torch_geometric.datasets import KarateClub

from wtawp.base import DataError
from wtawp.graphs.generate import citation, knn_edges, toy

TOYS = ("linear", "moons", "rings", "gaussians")
POINTS: dict[str, Callable[..., tuple[np.ndarray, np.ndarray]]] = {
    "digits": sklearn_datasets.load_digits,
    "wine": sklearn_datasets.load_wine,
    "breast-cancer": sklearn_datasets.load_breast_cancer,
}
NAMES = (*(f"toy-{name}" for name in TOYS), *POINTS, "karate", "citation")


def load(name: str, *, seed: int = 0) -> Data:
    """The graph called `name`; `seed` tells apart the draws of generated graphs and means nothing to the others.

    >>> load("karate")
    Data(x=[34, 34], edge_index=[2, 156], y=[34], name='karate')
    """
    if name not in NAMES:
        raise DataError(f"there is no graph called {name!r}; there are {', '.join(NAMES)}")
    if name in POINTS:
        data = _points(name)
    elif name == "karate":
        karate = KarateClub()[0]
        data = Data(x=karate.x, edge_index=karate.edge_index, y=karate.y)
    elif name == "citation":
        data = citation(seed=seed)
    else:
        data = toy(name.removeprefix("toy-"), seed=seed)
    data.name = name
    return data


def _points(name: str, k: int = 5) -> Data:
    """Real measurements inside scikit-learn, standardised, as the k-NN graph of their rows."""
    table, labels = POINTS[name](return_X_y=True)
    x = torch.from_numpy(StandardScaler().fit_transform(table)).float()
    return Data(x=x, y=torch.from_numpy(labels).long(), edge_index=knn_edges(x, k))
