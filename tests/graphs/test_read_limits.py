import gzip
import io
from pathlib import Path

import pytest

from wtawp.base import DataError
from wtawp.graphs.read_limits import DEFAULT_MB, EXPANSION, VARIABLE, allowed_bytes, check_memory, limited_lines

MB = 2**20


def test_small_content_and_content_in_proportion_to_its_file_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert allowed_bytes(0) == DEFAULT_MB * MB
    assert allowed_bytes(0, default_mb=3) == 3 * MB
    assert allowed_bytes(100 * MB) == EXPANSION * 100 * MB


def test_the_variable_raises_and_lowers_the_limit_for_small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1000")
    assert allowed_bytes(0) == allowed_bytes(0, default_mb=3) == 1000 * MB
    monkeypatch.setenv(VARIABLE, "1")
    assert allowed_bytes(10) == MB
    check_memory(MB, 10, where="here")
    with pytest.raises(
        DataError, match=rf"here: the content needs 2 MB .* 10 bytes; up to 1 MB .*{VARIABLE}.*; or pack"
    ):
        check_memory(MB + 1, 10, where="here", advice="pack")


@pytest.mark.parametrize("chosen", ["0", "-1", "1.5", "much", "9" * 30])
def test_a_limit_that_is_no_number_of_megabytes_is_refused(chosen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, chosen)
    with pytest.raises(DataError, match=rf"\${VARIABLE} must be a whole number of megabytes >= 1"):
        allowed_bytes(0)


def test_a_number_that_no_machine_has_is_refused_with_a_message() -> None:
    with pytest.raises(DataError, match="more than any machine has"):
        check_memory(10**5000, 10, where="here")


def test_lines_are_read_up_to_the_limit_and_no_further(tmp_path: Path) -> None:
    lines = [b"one\n", b"\n", b"three"]
    assert list(limited_lines(io.BytesIO(b"".join(lines)), 10, where="f")) == lines
    with pytest.raises(DataError, match=rf"f holds more than .*{VARIABLE}"):
        list(limited_lines(io.BytesIO(b"".join(lines)), 9, where="f"))
    with gzip.open(tmp_path / "f.gz", "wb") as file:
        file.write(bytes(5 * MB))  # one line
    with gzip.open(tmp_path / "f.gz") as stream, pytest.raises(DataError, match="more than the 1 MB"):
        list(limited_lines(stream, MB, where="f"))
    with gzip.open(tmp_path / "f.gz") as stream:
        assert stream.readline(MB + 1) == bytes(MB + 1)  # what is held in memory at most
