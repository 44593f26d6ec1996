"""The example of docs/audit.md runs as it is printed."""

import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[1] / "docs" / "audit.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)


def test_the_example_of_the_page_on_audits_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = PYTHON
    names: dict[str, object] = {}
    exec(compile(block, "docs/audit.md", "exec"), names)  # our own text
    printed = capsys.readouterr().out
    assert printed.startswith("In short: against GCN")
    assert "Test accuracy in per cent" in printed
    assert (tmp_path / "audit-example.sqlite").is_file()
