from pathlib import Path

import pytest
import typer

from wtawp.cli.options import as_bad_parameter, refuse_unwritable


def test_a_path_is_accepted_if_a_file_can_be_written_there(tmp_path: Path) -> None:
    (tmp_path / "old.html").write_text("old")
    for path in (None, tmp_path / "new.html", tmp_path / "old.html", Path("in_the_working_folder.html")):
        refuse_unwritable(path)
    assert [file.name for file in tmp_path.iterdir()] == ["old.html"], "nothing is created"


def test_a_folder_or_a_path_in_a_missing_folder_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing" / "page.html"):
        with pytest.raises(typer.BadParameter, match="cannot be a file: its folder does not exist, or it is a folder"):
            refuse_unwritable(path)


def test_value_errors_and_no_others_become_bad_parameters() -> None:
    with pytest.raises(typer.BadParameter, match="rho must be positive") as caught, as_bad_parameter():
        raise ValueError("rho must be positive")
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(TypeError, match="another error"), as_bad_parameter():
        raise TypeError("another error")
    with as_bad_parameter():
        pass
