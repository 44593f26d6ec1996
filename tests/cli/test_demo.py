from pathlib import Path

import pytest
from typer.testing import CliRunner

from wtawp.cli import app

RUN = CliRunner()


@pytest.mark.slow
def test_the_demo_prints_a_verdict_and_writes_its_page(tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    result = RUN.invoke(app, ["demo", "Wine", "--html", str(out), "--splits", "2", "--epochs", "2"])
    assert result.exit_code == 0, result.output
    flat = " ".join(result.output.split())
    assert "95 % interval" in flat
    assert "WT-AWP is" in flat
    assert out.name in flat
    assert "Adversarial weight perturbation, demonstrated" in out.read_text(encoding="utf-8")


@pytest.mark.parametrize(("dataset", "words"), [("proteins", "is a list of graphs"), ("wien", "did you mean wine?")])
def test_data_that_the_demo_cannot_show_are_refused_in_a_sentence(dataset: str, words: str) -> None:
    for call in (["demo", dataset], ["demo", "--dataset", dataset]):
        result = RUN.invoke(app, call)
        assert result.exit_code == 1
        assert words in " ".join(result.output.split())
        assert "Traceback" not in result.output


def test_a_folder_that_is_not_there_is_named_before_any_work(tmp_path: Path) -> None:
    result = RUN.invoke(app, ["demo", "--out", str(tmp_path / "missing" / "page.html")])
    assert result.exit_code == 2
    assert "its folder does not exist" in " ".join(
        result.output.replace("│", " ").split()
    )  # a long path wraps in its frame
