"""The one list of data sets: what each is, how large, and how to load it. Reading it imports nothing that computes.

Loaders are references such as "wtawp.graphs.loaders:karate", imported when a data set is loaded. The sizes are those of
what `load` returns, so that data sets can be listed without loading them; tests compare them with the loaded graphs.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

from wtawp.base import DataError, did_you_mean, is_reference, matching_name
from wtawp.graphs.download import RemoteFile
from wtawp.graphs.published_files import FILES, PLANETOID_PARTS

if TYPE_CHECKING:
    from torch_geometric.data import Data

Level = Literal["node", "graph"]
Source = Literal["embedded", "generated", "published", "user"]
TuFeatures = Literal["attribute", "label", "degree", "constant"]
SUFFIXES = (".npz", ".csv", ".pt", ".zip")  # a text with such an ending is the path of a graph, not a name


@dataclass(frozen=True, kw_only=True)
class DatasetSpec:
    """What there is to know about a data set without loading it.

    Attributes:
        name: The name that `load` takes. It must not contain a colon or end as the file of a graph does (.npz, ...).
        loader: A function, or a reference to one ("package.module:function"), that returns a PyG `Data`, or a list of
            them if graphs are classified. It is called with the paths of `files`, if there are any; with `seed=` if
            the source is "generated"; and with `features=` if there are `feature_choices`; with nothing else.
        level: What is classified: the nodes of one graph ("node") or graphs ("graph").
        source: "embedded": part of this package or of its dependencies. "generated": drawn from a seed. "published":
            in files that are fetched. "user", the default: registered by a user.
        nodes: Number of nodes, of all graphs together; None where it is not known.
        edges: Number of undirected edges, of all graphs together; None where it is not known.
        features: Number of feature columns, with the default features; None where it is not known.
        classes: Number of classes; None where it is not known.
        is_redrawn: Whether experiments draw the data anew for every split, so that one lucky draw does not decide. Only
            for generated data.
        files: The files of a published data set, in the order in which the loader takes them.
        has_identity_features: Whether every node has a feature of its own and nothing else, as where files have none.
        feature_choices: The values of `features` between which `load` lets the caller choose; none by default.

    Raises:
        DataError: If the fields contradict each other.

    Example:
        >>> dataset_spec("karate").nodes
        34
    """

    name: str
    loader: "str | Callable[..., Data | list[Data]]"
    level: Level = "node"
    source: Source = "user"
    nodes: int | None = None
    edges: int | None = None
    features: int | None = None
    classes: int | None = None
    is_redrawn: bool = False
    files: tuple[RemoteFile, ...] = ()
    feature_choices: tuple[str, ...] = ()
    has_identity_features: bool = False

    @property
    def reference(self) -> str:
        """Where the loader is defined, as "package.module:function"."""
        if isinstance(self.loader, str):
            return self.loader
        return f"{self.loader.__module__}:{self.loader.__qualname__}"

    def __post_init__(self) -> None:
        if self.level not in get_args(Level) or self.source not in get_args(Source):
            raise DataError(
                f"level must be one of {', '.join(get_args(Level))} and source one of {', '.join(get_args(Source))}, "
                f"got {self.level!r} and {self.source!r}"
            )
        if bool(self.files) != (self.source == "published"):
            raise DataError(
                f"{self.name}: a published data set needs files, and no other has any; "
                f"got {len(self.files)} files with source={self.source!r}"
            )
        if self.is_redrawn and self.source != "generated":
            raise DataError(f"{self.name}: only generated data can be redrawn, got source={self.source!r}")


def dataset_names() -> tuple[str, ...]:
    """The names of all data sets, built in and registered, in the order in which they are listed.

    Returns:
        The names.

    Example:
        >>> "cora" in dataset_names()
        True
    """
    return tuple(_DATASETS)


def dataset_spec(name: str) -> DatasetSpec:
    """The specification of a data set.

    Args:
        name: A name from `dataset_names()`, in upper or lower case, or a reference "package.module:function" to a
            function without parameters that returns the data.

    Returns:
        The specification, whose `name` is the registered spelling; for a reference one whose sizes are not known.

    Raises:
        DataError: If there is no data set of that name.

    Example:
        >>> dataset_spec("Cora").name, dataset_spec("cora").level
        ('cora', 'node')
    """
    if (registered := matching_name(name, _DATASETS)) is not None:
        return _DATASETS[registered]
    if is_reference(name):
        return DatasetSpec(name=name, loader=name)
    raise DataError(
        f"there is no graph called {name!r}; there are {', '.join(_DATASETS)}; "
        f"a file of your own must end in {', '.join(SUFFIXES)}{did_you_mean(name, _DATASETS)}"
    )


def level_of(name_or_path: str) -> Level:
    """What of a data set is classified, as far as it can be told without reading a file.

    Args:
        name_or_path: What `load` takes.

    Returns:
        "graph" for collections and for archives of graphs (.zip); "node" for all others, of which only a file that
        PyTorch saved (.pt) can turn out to hold a list of graphs.

    Raises:
        DataError: If there is no data set of that name.

    Example:
        >>> level_of("proteins"), level_of("mine.zip"), level_of("mine.csv")
        ('graph', 'graph', 'node')
    """
    if name_or_path.endswith(SUFFIXES):
        return "graph" if name_or_path.endswith(".zip") else "node"
    return dataset_spec(name_or_path).level


def user_datasets() -> tuple[DatasetSpec, ...]:
    """The data sets that `register_dataset` added, for other processes to register as well.

    Returns:
        Their specifications.
    """
    return tuple(spec for spec in _DATASETS.values() if spec not in _BUILT_IN)


def register_dataset(spec: DatasetSpec) -> None:
    """Add a data set of your own, so that `load`, plans and the command line know its name.

    The registration lasts as long as the process; sweeps send it along to their workers.

    Args:
        spec: The data set.

    Raises:
        DataError: If the name is taken, empty, contains a colon, or ends as the file of a graph does.
    """
    if (taken := matching_name(spec.name, _DATASETS)) is not None:
        raise DataError(f"there is a data set called {taken!r} already; choose another name")
    if not spec.name or ":" in spec.name or spec.name.endswith(SUFFIXES):
        raise DataError(
            f"the name of a data set must not be empty, contain a colon or end in {', '.join(SUFFIXES)}, "
            f"got {spec.name!r}"
        )
    _DATASETS[spec.name] = spec


def _toy(name: str, edges: int) -> DatasetSpec:
    """200 points in the plane with two classes, for sec:vanishing_gradient; the edges are those of seed 0."""
    return DatasetSpec(
        name=f"toy-{name}", loader=f"wtawp.graphs.loaders:toy_{name}", source="generated", is_redrawn=True,
        nodes=200, edges=edges, features=2, classes=2,
    )  # fmt: skip


def _embedded(name: str, nodes: int, edges: int, features: int, classes: int) -> DatasetSpec:
    """Real data that come with scikit-learn or PyG."""
    return DatasetSpec(
        name=name, loader=f"wtawp.graphs.loaders:{name.replace('-', '_')}", source="embedded",
        nodes=nodes, edges=edges, features=features, classes=classes,
    )  # fmt: skip


def _published(
    name: str, loader: str, paths: tuple[str, ...], nodes: int, edges: int, features: int, classes: int
) -> DatasetSpec:
    """A graph in published files."""
    return DatasetSpec(
        name=name, loader=loader, source="published", files=tuple(FILES[path] for path in paths),
        nodes=nodes, edges=edges, features=features, classes=classes,
    )  # fmt: skip


def _paper(name: str, nodes: int, edges: int, features: int, classes: int) -> DatasetSpec:
    """The paper's graphs: the largest component, raw binary features (PolBlogs: identity of all 1490 blogs)."""
    loader, paths = "wtawp.graphs.loaders:largest_npz_component", (f"metattack_npz/{name}.npz",)
    spec = _published(name, loader, paths, nodes, edges, features, classes)
    return replace(spec, has_identity_features=name == "polblogs")


def _planetoid(name: str, nodes: int, edges: int, features: int, classes: int) -> DatasetSpec:
    """Planetoid's versions, with their public split."""
    paths = tuple(f"planetoid/ind.{name}.{part}" for part in PLANETOID_PARTS)
    loader = "wtawp.graphs.loaders:planetoid"
    return _published(f"planetoid-{name}", loader, paths, nodes, edges, features, classes)


def _graphdata(name: str, file: str, nodes: int, edges: int, features: int, classes: int) -> DatasetSpec:
    """Amazon's and Coauthor's graphs."""
    loader, paths = "wtawp.graphs.published_readers:read_graphdata", (f"graphdata_npz/{file}.npz",)
    return _published(name, loader, paths, nodes, edges, features, classes)


def _tu(name: str, nodes: int, edges: int, features: int, classes: int) -> DatasetSpec:
    """Collections of graphs from the TU archive."""
    return DatasetSpec(
        name=name, loader="wtawp.graphs.published_readers:read_tu", level="graph", source="published",
        files=(FILES[f"tudataset/{name.upper()}.zip"],), feature_choices=get_args(TuFeatures),
        nodes=nodes, edges=edges, features=features, classes=classes,
    )  # fmt: skip


_BUILT_IN = (
    _toy("linear", 367),
    _toy("moons", 391),
    _toy("rings", 382),
    _toy("gaussians", 383),
    _embedded("digits", 1797, 6427, 64, 10),
    _embedded("wine", 178, 634, 13, 3),
    _embedded("breast-cancer", 569, 2168, 30, 2),
    _embedded("karate", 34, 78, 34, 4),
    DatasetSpec(
        name="citation", loader="wtawp.graphs.generate:citation", source="generated",
        nodes=2000, edges=4000, features=800, classes=7,
    ),
    _paper("cora", 2485, 5069, 1433, 7),
    _paper("citeseer", 2110, 3668, 3703, 6),
    _paper("polblogs", 1222, 16714, 1490, 2),
    _planetoid("cora", 2708, 5278, 1433, 7),
    _planetoid("citeseer", 3327, 4552, 3703, 6),
    _planetoid("pubmed", 19717, 44324, 500, 3),
    _graphdata("amazon-computers", "amazon_cs", 13752, 245861, 767, 10),
    _graphdata("coauthor-physics", "coauthor_phy", 34493, 247962, 8415, 5),
    _tu("proteins", 43471, 81044, 4, 2),
    _tu("imdb-binary", 19773, 96531, 136, 2),
    _tu("imdb-multi", 19502, 98903, 89, 3),
)  # fmt: skip
_DATASETS = {spec.name: spec for spec in _BUILT_IN}
