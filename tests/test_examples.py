"""Every example runs as a script and prints how well its model does. Examples that share libraries share a process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
GROUPS = {
    ("amp.py", "your_own_model.py"): (),
    ("ddp.py",): (),
    ("fabric.py", "lightning_automatic.py", "lightning_manual.py"): ("lightning",),
    ("accelerate_accumulation.py", "tensorboard_scalars.py"): ("accelerate", "tensorboard"),
}
RUN_ALL = """
import runpy, sys
paths = sys.argv[1:]
for path in paths:
    sys.argv = [path]
    runpy.run_path(path, run_name="__main__")
"""


def test_every_example_belongs_to_a_group() -> None:
    assert sorted(name for names in GROUPS for name in names) == sorted(p.name for p in EXAMPLES.glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("names", GROUPS, ids=lambda names: " ".join(names))
def test_examples_run_and_print_a_good_accuracy(names: tuple[str, ...], tmp_path: Path) -> None:
    for library in GROUPS[names]:
        pytest.importorskip(library, reason=f"EXAMPLES NOT CHECKED: {library} is not installed")
    paths = [str(EXAMPLES / name) for name in names]
    command = [sys.executable, *paths] if len(paths) == 1 else [sys.executable, "-c", RUN_ALL, *paths]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src"), "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    accuracies = [line.split("test accuracy ")[1][:5] for line in done.stdout.splitlines() if "test accuracy" in line]
    expected = len(names) + ("your_own_model.py" in names)  # which trains twice
    assert len(accuracies) == expected, done.stdout
    assert all(0.7 < float(accuracy) <= 1 for accuracy in accuracies), done.stdout
