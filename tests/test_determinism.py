"""What changes the last digits of a training: the rows of docs/reliability.md that have no tests elsewhere.

Workers, engines, chunks, checkpoints and devices have tests beside their code; that page names them.
"""

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[1]
KINDS = {
    "this": ([], {}),
    "other instructions": ([], {"ATEN_CPU_CAPABILITY": "default"}),
    "no numba": (["--without-numba"], {}),
}


@pytest.fixture(scope="module")
def reports() -> dict[str, dict[str, Any]]:
    """What each kind of machine trained, all at the same time."""
    paths = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
    script = ROOT / "tests" / "support" / "trained_weights.py"
    children = {
        name: subprocess.Popen(
            [sys.executable, str(script), *arguments],
            env=os.environ | {"PYTHONPATH": paths} | variables,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name, (arguments, variables) in KINDS.items()
    }
    outputs = {name: child.communicate(timeout=300)[0] for name, child in children.items()}
    assert [child.returncode for child in children.values()] == [0] * len(children)
    return {name: json.loads(output.splitlines()[-1]) for name, output in outputs.items()}


def test_the_number_of_threads_does_not_change_a_bit(reports: dict[str, dict[str, Any]]) -> None:
    for report in reports.values():
        assert report["threads"]["1"] == report["threads"]["2"]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="NOT CHECKED: other processors have one instruction set")
@pytest.mark.parametrize("kind", ["other instructions", "no numba"])
def test_another_kind_of_cpu_rounds_differently_and_has_another_name(
    kind: str, reports: dict[str, dict[str, Any]]
) -> None:
    this, other = reports["this"], reports[kind]
    if this["device"] == other["device"]:
        pytest.skip(f"NOT CHECKED: {this['device']} is the only kind there is here")
    assert this["threads"]["1"] != other["threads"]["1"]
    torch.testing.assert_close(*(torch.tensor(r["threads"]["1"]) for r in (this, other)), rtol=2e-3, atol=2e-4)


def test_the_page_on_reliability_names_tests_that_exist() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    table = page.partition("## What is bit-equal to what")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("|") and ".py`" in line]
    assert len(rows) >= 9
    files = {path.name: path for path in (ROOT / "tests").rglob("test_*.py")}
    for row in rows:
        for reference in row.rsplit("|", 2)[1].split(";"):
            file, *names = re.findall(r"`([^`]+)`", reference)
            code = files[Path(file).name].read_text(encoding="utf-8")
            assert all(re.search(rf"def test_\w*{name}", code) for name in names), reference
