"""The examples of docs/coming_from.md run as they are printed, one after another."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

TEXT = (Path(__file__).parents[1] / "docs" / "coming_from.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)


def test_the_examples_for_people_who_come_from_other_libraries_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.mkdtemp", lambda: str(tmp_path))
    assert len(PYTHON) == 4
    names: dict[str, Any] = {}
    blocks = [compile(block, "docs/coming_from.md", "exec") for block in PYTHON]  # our own text
    exec(blocks[0], names)
    assert torch.equal(names["data"].edge_index, names["attacked"].edge_index)
    assert len(names["flips"]) == 20
    exec(blocks[1], names)
    assert len(names["flips"]) == 5
    assert names["result"].accuracy["test"] > 2 / 7
    exec(blocks[2], names)
    assert 1 <= len(names["flips"]) <= 20
    exec(blocks[3], names)
    assert names["with_awp"].accuracy["test"] > 2 / 7


def test_every_name_of_ours_in_the_tables_exists() -> None:
    import wtawp
    from wtawp import graphs, models, training
    from wtawp.attacks import attack_names

    assert set(re.findall(r'method="(\w+)"', TEXT)) <= set(attack_names())
    ours = [line.split(" | ")[-1] for line in TEXT.splitlines() if line.startswith("| ")]
    called = {name for cell in ours for name in re.findall(r"`(\w+)\(", cell)} - {"flips"}
    assert len(called) > 12
    for name in called:
        assert any(hasattr(package, name) for package in (wtawp, graphs, models, training)), name
