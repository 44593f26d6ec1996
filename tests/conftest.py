import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wtawp.experiments.spec import Record, Run, Setting

BESIDE = Path(__file__).parents[2] / "shared" / "data"  # where a checkout finds the published files, if anywhere


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder with the published data sets; the test is skipped, loudly, where there is none."""
    for folder in (os.environ.get("WTAWP_DATA"), BESIDE):
        if folder and (Path(folder) / "metattack_npz").is_dir():
            return Path(folder)
    pytest.skip(f"PUBLISHED DATA NOT CHECKED: set WTAWP_DATA to its folder, or put it in {BESIDE}")


@pytest.fixture
def offline(data_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Published data sets come from the offline root."""
    monkeypatch.setenv("WTAWP_DATA", str(data_root))
    return data_root


@pytest.fixture
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No offline root, and a cache of our own with nothing in it."""
    monkeypatch.delenv("WTAWP_DATA", raising=False)
    monkeypatch.setenv("WTAWP_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def make_record() -> Callable[..., Record]:
    """Records of real runs with made-up numbers; any field may be given otherwise."""

    def make(split: int = 0, init: int = 0, *, dataset: str = "karate", torch: str = "2.6.0", **changed: Any) -> Record:
        run = Run(Setting(dataset=dataset), split, init)
        given: dict[str, Any] = {
            "key": run.key, "setting": run.setting.content, "split": split, "init": init, "device": "cpu",
            "status": "done", "epoch": 7, "accuracy": {"test": 0.75 + 0.1 * (split % 3)},
            "loss": {"test": float("nan")}, "seconds": 0.5, "created": "2023-02-07T00:00:00+00:00",
            "versions": {"torch": torch, "commit": "abc"},
        }  # fmt: skip
        return Record(**{**given, **changed})

    return make


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Thirty paths and thirty rings of three to eight nodes, in the format of TU."""
    indicator, edges, labels, node = [], [], [], 0
    for i in range(60):
        size = 3 + i % 6
        nodes = list(range(node + 1, node + size + 1))
        ends = list(zip(nodes, nodes[1:] + nodes[: i % 2], strict=False))  # every other one is closed
        edges += [f"{a}, {b}" for pair in ends for a, b in (pair, pair[::-1])]
        indicator += [str(i + 1)] * size
        labels.append(str(i % 2))
        node += size
    path = tmp_path_factory.mktemp("tu") / "rings.zip"
    with zipfile.ZipFile(path, "w") as content:
        for part, lines in (("A", edges), ("graph_indicator", indicator), ("graph_labels", labels)):
            content.writestr(f"RINGS/RINGS_{part}.txt", "\n".join(lines) + "\n")
    return str(path)
