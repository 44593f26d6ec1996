"""Mutated files of every reader are loaded or refused with an error of ours; `benchmarks/fuzz.py` reads many more."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(sys.platform != "linux", reason="the program forks, and limits memory as Linux does")
def test_mutated_files_are_loaded_or_refused_with_an_error_of_ours(tmp_path: Path) -> None:
    environment = {"WTAWP_HOME": str(tmp_path), "PYTHONPATH": str(ROOT / "src"), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, str(ROOT / "benchmarks" / "fuzz.py"), "--inputs", "300", "--seed", "7"]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()[2:]]
    assert done.returncode == 0, done.stderr
    assert len(rows) == 14
    for name, inputs, loaded, refused, findings, *_ in rows:
        assert (inputs, findings) == ("300", "0"), name
        assert int(loaded) + int(refused) == 300
        assert int(loaded) > 10, name  # mutations are small enough that readers look at all of a file
        assert int(refused) > 100, name
