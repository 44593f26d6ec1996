import os
import subprocess
import sys
from pathlib import Path

import pytest

from wtawp.attacks.registry import attack_names
from wtawp.cli.completion import complete_attack, complete_dataset, complete_model
from wtawp.graphs.registry import dataset_names
from wtawp.models.registry import model_names


def test_everything_that_is_registered_is_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for offer, names in (
        (complete_dataset, dataset_names),
        (complete_model, model_names),
        (complete_attack, attack_names),
    ):
        assert [name for name, _ in offer("")] == list(names())
        assert [name for name, _ in offer("zzz")] == []


def test_files_of_graphs_are_offered_beside_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("graphs").mkdir()
    for file in ("mine.npz", "mine.txt", "graphs/other.csv"):
        Path(file).touch()
    assert complete_dataset("mi") == [("mine.npz", "file")]
    assert complete_dataset("graphs/") == [("graphs/other.csv", "file")]
    assert complete_dataset("nowhere/") == []
    assert complete_dataset("")[-1] == ("mine.npz", "file")
    assert complete_dataset("kar") == [("karate", "classifies nodes, 34 nodes")]


def test_a_shell_is_answered_without_importing_anything_that_computes() -> None:
    code = """if True:
        import sys
        from wtawp.cli import app
        try:
            app(prog_name="wtawp")
        except SystemExit:
            pass
        print("imported:", *(name for name in ("torch", "torch_geometric", "numpy", "scipy") if name in sys.modules))
    """
    for words, expected in (("wtawp train plan", "planetoid-cora"), ("wtawp train cora --model GCNJ", "GCNJaccard")):
        count = str(len(words.split()) - 1)
        shell = {"_WTAWP_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": count}
        done = subprocess.run([sys.executable, "-c", code], env=os.environ | shell, capture_output=True, text=True)
        assert expected in done.stdout.splitlines(), done.stdout + done.stderr
        assert done.stdout.splitlines()[-1] == "imported:"
