"""The examples of docs/minibatches.md run as they are printed, one after another."""

import re
from pathlib import Path

import torch

TEXT = (Path(__file__).parents[1] / "docs" / "minibatches.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)


def test_the_examples_of_the_page_on_minibatches_run() -> None:
    assert len(PYTHON) == 4
    names: dict[str, object] = {}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for block in PYTHON:
            exec(compile(block, "docs/minibatches.md", "exec"), names)  # our own text
    assert names["logits"].shape[1] == 7
    assert names["result"].accuracy["test"] > 1 / 7
