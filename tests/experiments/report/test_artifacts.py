import base64
import json
import math
from pathlib import Path

import pytest

from wtawp.base import AnalysisError
from wtawp.experiments.report.artifacts import Artifact, read_artifacts
from wtawp.experiments.report.tables import Entry, Table

TABLE = Table("What it is.", ("model", "loss"), ((Entry("GCN"), Entry("0.5", 0.5)), (Entry("other"), Entry("inf"))))


def draw(png: Path | None) -> str:
    if png is not None:
        png.write_bytes(b"pixels")
    return "<svg><text>a figure</text></svg>"


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    artifact = Artifact(TABLE, {"losses": {"GCN": [0.5, math.inf, math.nan]}}, draw)
    svg, png, numbers = artifact.write(tmp_path / "new", "b", "A title", {"GCN": "GCN on wine"})
    artifact.write(tmp_path / "new", "a")
    assert png.read_bytes() == b"pixels"
    assert json.loads(numbers.read_text(encoding="utf-8"))["losses"] == {"GCN": [0.5, None, None]}
    first, second = read_artifacts(tmp_path / "new")
    assert (first.name, second.name) == ("a", "b")
    assert second.table == TABLE
    assert (second.title, second.sources) == ("A title", {"GCN": "GCN on wine"})
    kind, _, picture = second.address.partition(",")
    assert kind == "data:image/svg+xml;base64"
    assert base64.b64decode(picture).decode() == svg.read_text(encoding="utf-8")


def test_what_is_no_artifact_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match="there is no artifact in"):
        read_artifacts(tmp_path)
    path = tmp_path / "x.json"
    for text in ("no JSON", "[]", '{"table": 3}', '{"title": "x", "sources": {}, "table": {"rows": [[{}]]}}'):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(AnalysisError, match=r"x\.json is not what `--out`"):
            read_artifacts(tmp_path)
    path.unlink()
    svg, _, _ = Artifact(TABLE, {}, draw).write(tmp_path, "x")
    svg.unlink()
    with pytest.raises(AnalysisError, match=r"x\.svg cannot be read"):
        read_artifacts(tmp_path)


def test_another_artifact_of_the_same_name_gets_a_number_and_the_same_one_does_not(tmp_path: Path) -> None:
    first, second = Artifact(TABLE, {"split": 0}, draw), Artifact(TABLE, {"split": 1}, draw)
    for artifact in (first, second, first, second):
        artifact.write(tmp_path, "x")
    assert sorted(path.name for path in tmp_path.glob("*.json")) == ["x-2.json", "x.json"]
    assert len(read_artifacts(tmp_path)) == 2
