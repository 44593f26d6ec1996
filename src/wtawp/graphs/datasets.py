"""`load(name)`: every registered graph by name, and a graph of your own by its path, as PyG `Data`.

Importing this module loads neither torch nor PyG: whoever only lists or locates data sets does not wait for them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast, overload

from wtawp.base import DataError, WtawpError, checked_seed, resolve
from wtawp.graphs.composed_names import composed_name
from wtawp.graphs.download import Place, fetch, locate
from wtawp.graphs.registry import SUFFIXES, DatasetSpec, TuFeatures, dataset_spec

if TYPE_CHECKING:
    from torch_geometric.data import Data

CollectionName = Literal["proteins", "imdb-binary", "imdb-multi"]  # for type checkers: these are lists of graphs


@overload
def load(name_or_path: CollectionName, *, seed: int = 0, features: TuFeatures | None = None) -> "list[Data]": ...
@overload
def load(name_or_path: str | Path, *, seed: int = 0, features: TuFeatures | None = None) -> "Data": ...
def load(name_or_path: str | Path, *, seed: int = 0, features: TuFeatures | None = None) -> "Data | list[Data]":
    """Load a data set by its name, or a graph of your own from its file.

    Published graphs are fetched if their files are not on this machine. Edges are undirected, without weights,
    self-loops or duplicates.

    Args:
        name_or_path: A name from `dataset_names()`, in upper or lower case; a reference "package.module:function" to
            a function that returns the data; or the path of a file. Text that ends in .npz, .csv, .pt or .zip is one.
            "NAME@FILE.npz" is a data set with the edges of a file, as `load_attacked` takes them, and "NAME@FILE.json",
            or "NAME@FILE.npz@FILE.json", one with masks from a file, as `load_split` reads it.
        seed: Number of the draw of a generated graph; without meaning for all others.
        features: The features of graphs that are classified: "attribute" (labels one-hot, attributes standardised),
            "label" (without the attributes), "degree" (one-hot) or "constant". None: attributes where there are any,
            else degrees.

    Returns:
        One graph, or a list of graphs for collections (proteins, imdb-binary, imdb-multi and TU archives). A label of
        -1 is unknown. Features of more than 2**26 numbers are a sparse CSR tensor; of the named data sets only
        coauthor-physics has so many.

    Raises:
        DataError: If there is no such data set or file, if a file is damaged, if `features` is not for this data, or if
            a function of the user that loads the data fails.
        DownloadError: If a file is neither on this machine nor can be fetched.

    Example:
        >>> load("karate")
        Data(x=[34, 34], edge_index=[2, 156], y=[34], name='karate')
    """
    seed = checked_seed(seed)
    given: object = name_or_path  # which nobody may have type-checked
    if not isinstance(given, str | Path):
        is_loaded = hasattr(given, "edge_index") or isinstance(given, list)
        advice = "; it is loaded already, so pass it on as it is" if is_loaded else ""
        raise DataError(
            "load takes the name of a data set, such as 'cora', the path of a file or 'package.module:function', got"
            f" {type(given).__name__}{advice}"
        )
    if isinstance(name_or_path, str) and (composed := composed_name(name_or_path)) is not None:
        if features is not None:
            raise DataError(f"{name_or_path} brings its own features; features={features!r} is for lists of graphs")
        from wtawp.graphs.attacked_files import load_composed

        return load_composed(composed, seed=seed)
    if isinstance(name_or_path, Path) or name_or_path.endswith(SUFFIXES):
        from wtawp.graphs.user_files import read

        try:
            path = Path(name_or_path).expanduser()
        except RuntimeError as error:  # there is no user of this name
            raise DataError(f"{name_or_path}: {error}") from error
        try:
            data, name = read(path, features), path.stem
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror}") from error
    else:
        spec = dataset_spec(name_or_path)
        data, name = _load_spec(spec, seed, features), spec.name
    if not isinstance(data, list):
        data.name = name
    return data


def fetch_dataset(name: str) -> list[Path]:
    """Fetch the files of a data set that are not on this machine, and verify the others.

    Args:
        name: A name from `dataset_names()`.

    Returns:
        The path of each file; none for data sets without files.

    Raises:
        DataError: If there is no such data set, or a file in the offline root is damaged.
        DownloadError: If a file cannot be fetched.
    """
    return [fetch(file) for file in dataset_spec(name).files]


def locate_dataset(name: str) -> Place | Literal["embedded", "user"]:
    """Where a data set is, without reading its files.

    Args:
        name: A name from `dataset_names()`.

    Returns:
        "root" (the offline root), "cache", or "not here" as soon as one of its files is missing; for data sets without
        files "embedded", or "user" if they were registered by a user.

    Raises:
        DataError: If there is no such data set.

    Example:
        >>> locate_dataset("karate")
        'embedded'
    """
    spec = dataset_spec(name)
    if not spec.files:
        return "user" if spec.source == "user" else "embedded"
    places: list[Place] = [locate(file)[0] for file in spec.files]
    return next((place for place in ("not here", "cache") if place in places), "root")


def _load_spec(spec: DatasetSpec, seed: int, features: str | None) -> "Data | list[Data]":
    """Call the loader of a data set with what its specification says that it takes."""
    if features is not None and not spec.feature_choices:
        raise DataError(f"{spec.name} brings its own features; features={features!r} is for lists of graphs")
    if features is not None and features not in spec.feature_choices:
        raise DataError(f"features must be one of {', '.join(spec.feature_choices)}, got {features!r}")
    options: dict[str, object] = {}
    if spec.source == "generated":
        options["seed"] = seed
    if spec.feature_choices:
        options["features"] = features
    files, loader = [fetch(file) for file in spec.files], _loader(spec)
    with _user_errors_named(spec, "fails"):
        data = loader(*files, **options)

    from torch_geometric.data import Data  # the loader has imported it

    if not isinstance(data, Data) and not (isinstance(data, list) and all(isinstance(graph, Data) for graph in data)):
        raise DataError(
            f"the loader of {spec.name} must return a PyG Data or a list of them, got {type(data).__name__}"
        )
    if spec.source == "published":
        return data
    from wtawp.graphs.sanitize import complete

    return complete(data, where=f"the loader of {spec.name}")


def _loader(spec: DatasetSpec) -> "Callable[..., Data | list[Data]]":
    """The function that loads a data set, imported if the specification holds a reference to it."""
    if not isinstance(spec.loader, str):
        return spec.loader
    with _user_errors_named(spec, "cannot be imported"):
        try:
            return cast("Callable[..., Data | list[Data]]", resolve(spec.loader))
        except ImportError as error:
            raise DataError(f"the loader {spec.loader} of a data set cannot be imported: {error}") from error


def _name_of(loader: object) -> str:
    """The name of a function, or the type of another callable."""
    return str(getattr(loader, "__qualname__", type(loader).__qualname__))


@contextmanager
def _user_errors_named(spec: DatasetSpec, what: str) -> Iterator[None]:
    """Turn an exception of a user's code into an error that names its function; what the code cannot help passes."""
    try:
        yield
    except (WtawpError, MemoryError):
        raise
    except Exception as error:
        named = spec.loader if isinstance(spec.loader, str) else f"{spec.loader.__module__}:{_name_of(spec.loader)}"
        if named.startswith("wtawp."):
            raise
        of = f" of the data set {spec.name}" if spec.name != named else ""
        message = f"the loader {named}{of} {what}: {type(error).__name__}"
        raise DataError(f"{message}: {error}" if str(error) else message) from error
