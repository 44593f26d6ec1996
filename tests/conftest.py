import os
from pathlib import Path

import pytest

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
