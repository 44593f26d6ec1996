import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wtawp.cli import app
from wtawp.graphs import dataset_names

RUN = CliRunner()


@pytest.mark.usefixtures("empty_home")
def test_data_list_names_everything_and_where_it_is() -> None:
    result = RUN.invoke(app, ["data", "list"])
    assert result.exit_code == 0, result.output
    rows = {cells[0]: cells for line in result.output.splitlines() if len(cells := line.strip("│ ").split("│")) == 6}
    rows = {name.strip(): [cell.strip() for cell in cells] for name, cells in rows.items()}
    assert set(dataset_names()) <= set(rows)
    assert rows["karate"] == ["karate", "nodes", "34", "78", "4", "embedded"]
    assert rows["proteins"] == ["proteins", "graphs", "43,471", "81,044", "2", "not here"]


def test_data_list_imports_nothing_that_computes() -> None:
    code = """if True:
        import sys
        import wtawp.base
        before = set(sys.modules)
        from wtawp.cli import app
        app(["data", "list"], standalone_mode=False)
        heavy = ("torch", "torch_geometric", "numba", "matplotlib", "sklearn", "scipy", "pooch")
        print("imported:", *(name for name in heavy if name in set(sys.modules) - before))
    """
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert "karate" in output
    assert output.splitlines()[-1] == "imported:"


@pytest.mark.usefixtures("empty_home")
def test_data_get_says_what_to_put_where_when_nothing_can_be_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # nobody listens there
    result = RUN.invoke(app, ["data", "get", "karate", "polblogs"])
    assert result.exit_code == 1
    flat = " ".join(result.output.split())
    assert "karate: comes with the package" in flat
    assert "could not fetch metattack_npz/polblogs.npz (sha256 cd0983c2" in flat
    assert "Traceback" not in flat


def test_data_get_refuses_an_unknown_name_before_it_fetches() -> None:
    result = RUN.invoke(app, ["data", "get", "cora", "core"])
    assert result.exit_code == 1
    assert "no graph called 'core'" in " ".join(result.output.split())


def test_data_get_finds_what_is_here(offline: Path) -> None:
    result = RUN.invoke(app, ["data", "get", "polblogs"])
    assert result.exit_code == 0, result.output
    assert f"polblogs: in {offline / 'metattack_npz'}" in result.output


def test_data_check_tells_intact_missing_and_damaged_apart(empty_home: Path, data_root: Path) -> None:
    result = RUN.invoke(app, ["data", "check"])
    assert (result.exit_code, result.output.strip()) == (0, "No published file is on this machine.")
    assert RUN.invoke(app, ["data", "check", "polblogs"]).exit_code == 1  # named, and missing
    cached = empty_home / "data/metattack_npz/polblogs.npz"
    cached.parent.mkdir(parents=True)
    cached.write_bytes((data_root / "metattack_npz/polblogs.npz").read_bytes())
    result = RUN.invoke(app, ["data", "check"])
    assert result.exit_code == 0
    assert "ok" in result.output
    cached.write_bytes(b"tampered")
    result = RUN.invoke(app, ["data", "check"])
    assert result.exit_code == 1
    assert "DAMAGED" in result.output


def test_data_info_describes_names_and_files(tmp_path: Path) -> None:
    result = RUN.invoke(app, ["data", "info", "karate"])
    assert result.exit_code == 0, result.output
    cells = " ".join(result.output.replace("│", " ").split())
    for fact in ("nodes 34", "undirected edges 78", "classes 4", "mean degree 4.59", "edge homophily 0.756"):
        assert fact in cells
    (tmp_path / "g.csv").write_text("0,1\n")
    result = RUN.invoke(app, ["data", "info", str(tmp_path / "g.csv")])
    assert result.exit_code == 1
    assert "needs its labels beside it" in " ".join(result.output.split())


@pytest.mark.usefixtures("offline")
def test_data_info_counts_the_graphs_of_a_collection() -> None:
    result = RUN.invoke(app, ["data", "info", "imdb-binary"])
    cells = " ".join(result.output.replace("│", " ").split())
    assert "graphs 1,000" in cells
    assert "majority share 0.5000" in cells
    assert "homophily" not in cells
