"""`load(name)`: every graph of this package by name, and a user's own by its path, as PyG `Data`."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, overload

import numpy as np
import torch
from sklearn import datasets as sklearn_datasets
from sklearn.preprocessing import StandardScaler
from torch_geometric.data import Data
from torch_geometric.datasets import KarateClub

from wtawp.base import DataError
from wtawp.graphs.download import FILES, Place, RemoteFile, fetch, locate
from wtawp.graphs.files import PLANETOID_PARTS, TuFeatures, read_graphdata, read_npz, read_planetoid, read_tu
from wtawp.graphs.generate import citation, knn_edges, toy
from wtawp.graphs.sanitize import largest_component
from wtawp.graphs.user_files import SUFFIXES, read

TOYS = ("linear", "moons", "rings", "gaussians")
POINTS: dict[str, Callable[..., tuple[np.ndarray, np.ndarray]]] = {
    "digits": sklearn_datasets.load_digits,
    "wine": sklearn_datasets.load_wine,
    "breast-cancer": sklearn_datasets.load_breast_cancer,
}
EMBEDDED = (*(f"toy-{name}" for name in TOYS), *POINTS, "karate", "citation")
Collection = Literal["proteins", "imdb-binary", "imdb-multi"]


@dataclass(frozen=True)
class Published:
    """A data set in files to be fetched, with the sizes `load` returns, so that it can be listed without them."""

    kind: Literal["node", "graph"]  # what is classified
    files: tuple[RemoteFile, ...]
    read: Callable[..., Data | list[Data]]  # of the files and, for graphs to classify, of the wanted features
    nodes: int  # of all graphs together
    edges: int  # undirected
    classes: int


def _npz(name: str, nodes: int, edges: int, classes: int) -> Published:
    """The paper's graphs: the largest component, raw binary features (PolBlogs: identity of all 1490 blogs)."""
    file = FILES[f"metattack_npz/{name}.npz"]
    return Published("node", (file,), lambda paths: largest_component(read_npz(paths[0])), nodes, edges, classes)


def _planetoid(name: str, nodes: int, edges: int, classes: int) -> Published:
    files = tuple(FILES[f"planetoid/ind.{name}.{part}"] for part in PLANETOID_PARTS)

    def read_all(paths: list[Path]) -> Data:
        return read_planetoid(dict(zip(PLANETOID_PARTS, paths, strict=True)))

    return Published("node", files, read_all, nodes, edges, classes)


def _graphdata(name: str, nodes: int, edges: int, classes: int) -> Published:
    file = FILES[f"graphdata_npz/{name}.npz"]
    return Published("node", (file,), lambda paths: read_graphdata(paths[0]), nodes, edges, classes)


def _tu(name: str, nodes: int, edges: int, classes: int) -> Published:
    file = FILES[f"tudataset/{name}.zip"]
    return Published("graph", (file,), lambda paths, features=None: read_tu(paths[0], features), nodes, edges, classes)


PUBLISHED = {
    "cora": _npz("cora", 2485, 5069, 7),
    "citeseer": _npz("citeseer", 2110, 3668, 6),
    "polblogs": _npz("polblogs", 1222, 16714, 2),
    "planetoid-cora": _planetoid("cora", 2708, 5278, 7),
    "planetoid-citeseer": _planetoid("citeseer", 3327, 4552, 6),
    "planetoid-pubmed": _planetoid("pubmed", 19717, 44324, 3),
    "amazon-computers": _graphdata("amazon_cs", 13752, 245861, 10),
    "coauthor-physics": _graphdata("coauthor_phy", 34493, 247962, 5),
    "proteins": _tu("PROTEINS", 43471, 81044, 2),
    "imdb-binary": _tu("IMDB-BINARY", 19773, 96531, 2),
    "imdb-multi": _tu("IMDB-MULTI", 19502, 98903, 3),
}
NAMES = (*EMBEDDED, *PUBLISHED)


@overload
def load(name_or_path: Collection, *, seed: int = 0, features: TuFeatures | None = None) -> list[Data]: ...
@overload
def load(name_or_path: str | Path, *, seed: int = 0, features: TuFeatures | None = None) -> Data: ...
def load(name_or_path: str | Path, *, seed: int = 0, features: TuFeatures | None = None) -> Data | list[Data]:
    """The graph called so or in that file; a list of graphs for proteins, imdb-binary, imdb-multi and TU archives.

    `seed` tells apart the draws of generated graphs and means nothing to the others. Published graphs are fetched if
    they are not here. Text that ends in .npz, .csv, .pt or .zip is a path. Edges are undirected, without weights,
    self-loops or duplicates; a label of -1 is unknown; features of more than 2**26 numbers (coauthor-physics, and no
    other data set by name) are a sparse CSR tensor. `features` chooses those of lists of graphs: "attribute" (the
    default where there are any: labels one-hot, attributes standardised), "degree" (one-hot) or "constant".

    >>> load("karate")
    Data(x=[34, 34], edge_index=[2, 156], y=[34], name='karate')
    """
    if isinstance(name_or_path, Path) or name_or_path.endswith(SUFFIXES):
        path = Path(name_or_path).expanduser()
        data, name = read(path, features), path.stem
    else:
        name = name_or_path
        if features is None:
            data = _embedded(name, seed) if name in EMBEDDED else _published(name).read(get(name))
        elif name in EMBEDDED or _published(name).kind == "node":
            raise DataError(f"{name} brings its own features; features={features!r} is for lists of graphs")
        else:
            data = _published(name).read(get(name), features)
    if isinstance(data, Data):
        data.name = name
    return data


def get(name: str) -> list[Path]:
    """The files of a data set, fetched where they are not here; none for those that need none."""
    return [] if name in EMBEDDED else [fetch(file) for file in _published(name).files]


def files_of(name: str) -> tuple[RemoteFile, ...]:
    """What `get` would fetch."""
    return () if name in EMBEDDED else _published(name).files


def place_of(name: str) -> Place | Literal["embedded"]:
    """Where a data set is, without looking at its bytes: "not here" as soon as one of its files is not."""
    places: list[Place] = [locate(file)[0] for file in files_of(name)]
    if not places:
        return "embedded"
    return next((place for place in ("not here", "cache") if place in places), "root")


def _published(name: str) -> Published:
    if name not in PUBLISHED:
        raise DataError(
            f"there is no graph called {name!r}; there are {', '.join(NAMES)}; "
            f"a file of your own must end in {', '.join(SUFFIXES)}"
        )
    return PUBLISHED[name]


def _embedded(name: str, seed: int) -> Data:
    if name in POINTS:
        return _points(name)
    if name == "karate":
        karate = KarateClub()[0]
        return Data(x=karate.x, edge_index=karate.edge_index, y=karate.y)
    if name == "citation":
        return citation(seed=seed)
    return toy(name.removeprefix("toy-"), seed=seed)


def _points(name: str, k: int = 5) -> Data:
    """Real measurements inside scikit-learn, standardised, as the k-NN graph of their rows."""
    table, labels = POINTS[name](return_X_y=True)
    x = torch.from_numpy(StandardScaler().fit_transform(table)).float()
    return Data(x=x, y=torch.from_numpy(labels).long(), edge_index=knn_edges(x, k))
