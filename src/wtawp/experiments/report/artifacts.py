"""What was seen of a model, as files: written by the commands for flatness, read back for the report's page.

It loads nothing that trains.
"""

import base64
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Any

from wtawp.base import AnalysisError, write_atomic
from wtawp.experiments.report.tables import Entry, Table


@dataclass(frozen=True)
class Artifact:
    """What was seen: for people, for machines, and as a drawing that `draw(png)` makes."""

    table: Table
    content: Mapping[str, Any]
    draw: Callable[[Path | None], str]

    def to_json(self, title: str = "", sources: Mapping[str, str] | None = None) -> str:
        """The content under a title, with the table; `sources` says of each model how it was made.

        JSON knows no infinity: numbers that are not finite are null.
        """
        whole = {"title": title, "sources": dict(sources or {}), "table": asdict(self.table), **self.content}
        return json.dumps(_finite(whole), allow_nan=False)

    def write(self, folder: Path, name: str, title: str = "", sources: Mapping[str, str] | None = None) -> list[Path]:
        """The figure as SVG and PNG, and the numbers as JSON; says where.

        Where another look has the name already, a number is added to it.
        """
        folder.mkdir(parents=True, exist_ok=True)
        content = self.to_json(title, sources)
        names = chain([name], (f"{name}-{i}" for i in count(2)))
        free = next(n for n in names if not _is_other(folder / f"{n}.json", content))
        paths = [folder / f"{free}.{kind}" for kind in ("svg", "png", "json")]
        paths[0].write_text(self.draw(paths[1]), encoding="utf-8")
        write_atomic(paths[2], content.encode())
        return paths


def _is_other(path: Path, content: str) -> bool:
    """Whether the file is there and says something else."""
    return path.is_file() and path.read_text(encoding="utf-8") != content


@dataclass(frozen=True)
class StoredArtifact:
    """A look read back: what a page shows of it."""

    name: str
    title: str
    sources: dict[str, str]
    table: Table
    svg: str = field(repr=False)

    @property
    def address(self) -> str:
        """The figure as an image's address: a picture runs no script, whoever wrote the file."""
        return f"data:image/svg+xml;base64,{base64.b64encode(self.svg.encode()).decode()}"


def read_artifacts(folder: Path) -> list[StoredArtifact]:
    """All looks in a folder, by name."""
    files = sorted(folder.glob("*.json"))
    if not files:
        raise AnalysisError(f"there is no look in {folder}; `wtawp landscape DATASET --out {folder}` writes one")
    return [_read(file) for file in files]


def _read(file: Path) -> StoredArtifact:
    figure = file.with_suffix(".svg")
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        table = kept["table"]
        rows = tuple(tuple(Entry(str(e["text"]), e["order"]) for e in row) for row in table["rows"])
        shown = Table(str(table["caption"]), tuple(map(str, table["headers"])), rows)
        sources = {str(name): str(source) for name, source in kept["sources"].items()}
        return StoredArtifact(file.stem, str(kept["title"]), sources, shown, figure.read_text(encoding="utf-8"))
    except OSError as error:
        raise AnalysisError(
            f"{error.filename} cannot be read: {error.strerror}; a look is a .json and a .svg"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise AnalysisError(
            f"{file} is not what `--out` of wtawp landscape, smoothness, sharpness or bound writes: remove it, or "
            "write it again with this version"
        ) from error


def _finite(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _finite(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
