import json
from pathlib import Path

import pytest
import torch
from commands import invoke

from wtawp.experiments.audit import runner
from wtawp.experiments.audit.sizes import Sizes

TINY = Sizes(splits=2, poisoned_splits=0, budgets=(0.1,), searched_budgets=(), certified=(), votes=5)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes at which a command takes a second."""
    monkeypatch.setattr(runner, "fit_sizes", lambda *_, **__: TINY)


@pytest.mark.usefixtures("few")
def test_one_command_writes_the_page_and_prints_the_summary(tmp_path: Path) -> None:
    common = ("--dataset", "wine", "--epochs", 3, "--workers", 1, "--store", tmp_path / "r.sqlite")
    page = tmp_path / "a.html"
    shown = invoke("audit", "GCN", *common, "--html", page)
    assert "Accuracy: on clean data GCN" in shown
    assert "Not measured: poisoning: too little time" in shown
    assert "Written:" in shown
    assert "How robust and how flat is GCN?" in page.read_text(encoding="utf-8")
    data = json.loads(invoke("audit", "GCN", *common, "--html", page, "--json"))
    assert data["rows"] == ["GCN", "GCN+WT-AWP", "GCN+WT-AWP auto"]
    assert data["summary"][1].partition(". ")[0].partition(": ")[2] in page.read_text(encoding="utf-8")


def test_a_checkpoint_is_audited_without_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "fit_sizes", lambda *_, **__: Sizes(**{**vars(TINY), "splits": 1}))
    weights, page = tmp_path / "w.pt", tmp_path / "a.html"
    invoke("train", "wine", "--plain", "--epochs", 3, "--save", weights)
    options = ("--dataset", "wine", "--checkpoint", weights, "--store", tmp_path / "r.sqlite", "--html", page)
    refused = " ".join(invoke("audit", "GCN", *options, code=2).split())
    assert "the weights are given" in refused
    assert "--split-file" in refused
    data = json.loads(invoke("audit", "GCN", *options, "--split", "random", "--json"))
    assert data["rows"] == ["GCN, given weights"]
    assert "The data are split at random" in data["summary"][0]
    assert {"what": "poisoning", "why": "the weights are given, and nothing is trained that could be poisoned"} in data[
        "left_out"
    ]
    assert "about training" in invoke("audit", "GCN", *options, "--epochs", 7, code=2)


def test_mistakes_are_refused_before_anything_is_trained(tmp_path: Path) -> None:
    assert "Missing option" in invoke("audit", "GCN", code=2)
    assert "above 0" in invoke("audit", "GCN", "--dataset", "wine", "--minutes", 0, code=2)
    assert "there is no module" in invoke("audit", "no_such_module:GNN", "--dataset", "wine", code=2)
    assert "there is no file" in invoke("audit", "GCN", "--dataset", tmp_path / "no.npz", code=1)
    torch.save({}, tmp_path / "w.pt")
    same = ("--checkpoint", tmp_path / "w.pt", "--html", tmp_path / "w.pt")
    assert "would be overwritten" in invoke("audit", "GCN", "--dataset", "wine", *same, code=2)
