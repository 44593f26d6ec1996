from pathlib import Path

import pytest
import typer

from wtawp.cli.options import as_bad_parameter, check_outputs


def test_a_path_is_accepted_if_a_file_can_be_written_there(tmp_path: Path) -> None:
    (tmp_path / "old.html").write_text("old")
    for path in (None, tmp_path / "new.html", tmp_path / "old.html", Path("in_the_working_folder.html")):
        check_outputs({"--html": path}, ["cora", None, tmp_path / "graph.pt"])
    assert [file.name for file in tmp_path.iterdir()] == ["old.html"], "nothing is created"


def test_a_folder_or_a_path_in_a_missing_folder_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing" / "page.html"):
        with pytest.raises(typer.BadParameter, match="cannot be a file: its folder does not exist, or it is a folder"):
            check_outputs({"--html": path})


def test_row_9_an_output_that_would_overwrite_an_input_is_refused(tmp_path: Path) -> None:
    graph, labels = tmp_path / "g.csv", tmp_path / "g.labels.csv"
    graph.write_text("edges")
    labels.write_text("labels")
    (tmp_path / "soft.pt").symlink_to(graph)
    (tmp_path / "hard.pt").hardlink_to(graph)
    (tmp_path / "folder").mkdir()
    for path in (graph, labels, tmp_path / "soft.pt", tmp_path / "hard.pt", tmp_path / "folder" / ".." / "g.csv"):
        with pytest.raises(typer.BadParameter, match="is a file that this command reads, and would be overwritten"):
            check_outputs({"--save": path}, [str(graph)])
    with pytest.raises(typer.BadParameter, match="is the file of --html already"):
        check_outputs({"--html": tmp_path / "new", "--markdown": tmp_path / "folder" / ".." / "new"})


def test_value_errors_and_no_others_become_bad_parameters() -> None:
    with pytest.raises(typer.BadParameter, match="rho must be positive") as caught, as_bad_parameter():
        raise ValueError("rho must be positive")
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(TypeError, match="another error"), as_bad_parameter():
        raise TypeError("another error")
    with as_bad_parameter():
        pass
