from pathlib import Path

import pytest

from wtawp.cli.shared import console


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables that do not wrap, whatever the terminal was when the console was made."""
    monkeypatch.setattr(console, "_width", 200)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The path of a store that is not there yet."""
    return tmp_path / "results.sqlite"
