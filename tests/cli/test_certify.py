import json
from pathlib import Path

import pytest
import torch
from click.testing import Result
from typer.testing import CliRunner

from wtawp.cli import app
from wtawp.graphs import citation

RUN = CliRunner()


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small graph in a file with binary features; results go to an empty folder."""
    monkeypatch.setenv("WTAWP_HOME", str(tmp_path / "home"))
    data, path = citation(seed=0, num_nodes=200, num_words=30), tmp_path / "small.pt"
    torch.save({"x": data.x, "y": data.y, "edge_index": data.edge_index}, path)
    return path


def invoke(*arguments: object, code: int = 0) -> str:
    result: Result = RUN.invoke(app, ["certify", *map(str, arguments)])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return " ".join((result.stdout if "--json" in arguments else result.output).split())


def test_both_methods_are_certified_drawn_and_kept(graph: Path, tmp_path: Path) -> None:
    how = (graph, "--on", "features", "--on", "edges", "--epochs", 5, "--workers", 1, "--out", tmp_path / "out")
    shown = invoke(*how, "--samples", 60)
    assert "GCN+WT-AWP" in shown
    assert "smoothed, features" in shown
    assert "abstains" in shown
    assert "2 runs trained" in shown
    files = sorted(file.name for file in (tmp_path / "out").iterdir())
    assert files == ["certified-small-GCN-features-edges.png", "certified-small-GCN-features-edges.svg"]
    assert len(list((tmp_path / "home" / "votes").iterdir())) == 4
    assert "0 runs trained, 2 known before" in invoke(*how, "--samples", 60)
    invoke(*how, "--samples", 90)
    assert len(list((tmp_path / "home" / "votes").iterdir())) == 4, "more samples were added to the votes"


def test_the_grid_comes_as_json(graph: Path) -> None:
    output = invoke(graph, "--samples", 60, "--epochs", 5, "--workers", 1, "--plain", "--p-add", 0.05, "--json")
    (report,) = json.loads(output)
    (certified,) = report["certified"]
    assert certified["row"] == "GCN"
    assert 0 <= certified["certified"][0][0] <= 100


def test_training_under_the_noise_is_another_training(graph: Path) -> None:
    how = (graph, "--samples", 60, "--epochs", 5, "--workers", 1, "--plain", "--json")
    plain, trained = (json.loads(invoke(*how, *more))[0]["certified"] for more in ((), ("--train-under-noise",)))
    assert plain != trained


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (("--on", "features", "--on", "edges", "--train-under-noise"), "takes a single --on"),
        (("--on", "labels"), "on features or on edges"),
        (("--min-confidence", 1.5), "less than or equal to"),
        (("--on", "features", "--on", "edges", "--p-add", 0.1), "need different noise"),
    ],
)
def test_bad_options_are_refused_in_plain_words(graph: Path, options: tuple[object, ...], match: str) -> None:
    assert match in invoke(graph, *options, code=2)


def test_impossible_noise_and_features_are_refused_before_anything_is_trained(graph: Path) -> None:
    assert "less than 1" in invoke(graph, "--p-add", 0.5, "--p-del", 0.5, "--workers", 1, code=1)
    assert "must lie in [0, 1), got 1.0" in invoke(graph, "--min-confidence", 1, "--workers", 1, code=1)
    assert "data.x > 0" in invoke("wine", "--samples", 20, "--workers", 1, code=1)


def test_nodes_are_certified_together_from_the_same_votes(graph: Path, tmp_path: Path) -> None:
    how = (graph, "--samples", 60, "--epochs", 5, "--workers", 1, "--plain", "--p-add", 0.05)
    invoke(*how)
    shown = invoke(*how, "--collective", "--out", tmp_path / "out")
    assert "collective, features" in shown
    assert "average flips, together" in shown
    assert (tmp_path / "out" / "collective-small-GCN-features.svg").is_file()
    assert len(list((tmp_path / "home" / "votes").iterdir())) == 1


def test_collective_certificates_that_are_not_sound_are_refused(graph: Path) -> None:
    assert "p_add = 0 (--p-add 0)" in invoke(graph, "--on", "edges", "--collective", "--workers", 1, code=1)
    assert "--hops is for --collective" in invoke(graph, "--hops", 2, code=2)
