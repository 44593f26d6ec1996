"""The recipes of docs/own_loop.md run as they are printed, one after another, and learn."""

import gc
import re
from pathlib import Path
from typing import Any

import pytest
import torch

TEXT = (Path(__file__).parents[1] / "docs" / "own_loop.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)


@pytest.mark.filterwarnings("ignore:.*GLOO:")
def test_the_recipes_run_and_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    assert len(PYTHON) == 10
    names: dict[str, Any] = {}
    with torch.random.fork_rng():
        for block in PYTHON:
            exec(compile(block, "docs/own_loop.md", "exec"), names)  # our own text
    for result in ("relational", "hetero_fit", "several"):
        assert names[result].accuracy["test"] > 0.8, result
    assert names["accuracy"] == pytest.approx(names["relational"].accuracy["test"])
    assert names["hetero_accuracy"] > 0.8
    assert names["link_accuracy"] > 0.7
    assert float(names["loss"]) < 0.8
    assert 1 <= len(names["flips"]) <= 5
    names.clear()
    gc.collect()  # what a recipe leaves open is reported here, not in another test
