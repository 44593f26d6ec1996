"""Artifacts of single models as files: written by the commands that inspect models, read back for the report's page.

This module loads nothing that trains.
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
    """The result of inspecting models.

    Attributes:
        table: The numbers for people.
        content: The numbers for machines, as data that JSON can hold.
        draw: Takes a file for pixels, or None, and returns the figure as SVG text.
    """

    table: Table
    content: Mapping[str, Any]
    draw: Callable[[Path | None], str]

    def to_json(self, title: str = "", sources: Mapping[str, str] | None = None) -> str:
        """Write title, sources, table and content as JSON.

        Args:
            title: What the artifact shows.
            sources: How each model was made, by its name in the table.

        Returns:
            The text. Numbers that are not finite are null, as JSON has no infinity.
        """
        document = {"title": title, "sources": dict(sources or {}), "table": asdict(self.table), **self.content}
        return json.dumps(_finite(document), allow_nan=False)

    def write(self, folder: Path, name: str, title: str = "", sources: Mapping[str, str] | None = None) -> list[Path]:
        """Write the figure as SVG and PNG, and the numbers as JSON.

        Args:
            folder: Where to write; it is created if necessary.
            name: The name of the files. Where another artifact has it already, a number is appended.
            title: What the artifact shows.
            sources: How each model was made, by its name in the table.

        Returns:
            The three files.
        """
        folder.mkdir(parents=True, exist_ok=True)
        content = self.to_json(title, sources)
        names = chain([name], (f"{name}-{i}" for i in count(2)))
        free = next(n for n in names if not _is_other(folder / f"{n}.json", content))
        paths = [folder / f"{free}.{kind}" for kind in ("svg", "png", "json")]
        write_atomic(paths[0], self.draw(paths[1]).encode())
        write_atomic(paths[2], content.encode())
        return paths


def _is_other(path: Path, content: str) -> bool:
    """Whether the file exists and has other content."""
    return path.is_file() and path.read_text(encoding="utf-8") != content


@dataclass(frozen=True)
class StoredArtifact:
    """An artifact read back from its files.

    Attributes:
        name: The name of the files.
        title: What it shows.
        sources: How each model was made, by its name in the table.
        table: The numbers.
        svg: The figure.
    """

    name: str
    title: str
    sources: dict[str, str]
    table: Table
    svg: str = field(repr=False)

    @property
    def address(self) -> str:
        """The figure as a data URL for an `img` element, which runs no script, whoever wrote the file."""
        return f"data:image/svg+xml;base64,{base64.b64encode(self.svg.encode()).decode()}"


def read_artifacts(folder: Path) -> list[StoredArtifact]:
    """Read all artifacts in a folder.

    Args:
        folder: Where the commands wrote them.

    Returns:
        The artifacts, sorted by name.

    Raises:
        AnalysisError: If there is none, or a file cannot be read or has another format.
    """
    files = sorted(folder.glob("*.json"))
    if not files:
        raise AnalysisError(f"there is no artifact in {folder}; `wtawp landscape DATASET --out {folder}` writes one")
    return [_read(file) for file in files]


def _read(file: Path) -> StoredArtifact:
    """Read an artifact from its JSON file and the figure beside it."""
    figure = file.with_suffix(".svg")
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        table = document["table"]
        rows = tuple(tuple(Entry(str(e["text"]), e["order"]) for e in row) for row in table["rows"])
        read_table = Table(str(table["caption"]), tuple(map(str, table["headers"])), rows)
        sources = {str(name): str(source) for name, source in document["sources"].items()}
        return StoredArtifact(
            file.stem, str(document["title"]), sources, read_table, figure.read_text(encoding="utf-8")
        )
    except OSError as error:
        raise AnalysisError(
            f"{error.filename} cannot be read: {error.strerror}; an artifact is a .json and a .svg"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise AnalysisError(
            f"{file} is not what `--out` of wtawp landscape, smoothness, sharpness or bound writes: remove it, or "
            "write it again with this version"
        ) from error


def _finite(content: Any) -> Any:
    """The same data with None for numbers that are not finite."""
    if isinstance(content, dict):
        return {name: _finite(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content
