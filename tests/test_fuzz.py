"""Mutated files of every reader are loaded or refused with an error of ours; `benchmarks/fuzz.py` reads many more."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
INPUTS = 2_000
# In two halves that take the same time, so that two processes can share the work.
READERS = (
    ("npz", "graphdata", "planetoid", "tu", "csv", "pt", "npy", "flips", "votes"),
    ("attacked", "split-file", "packed-flips", "checkpoint", "weights", "toml", "records"),
)


def read_inputs(home: Path, inputs: int, *readers: str) -> list[list[str]]:
    """The rows that the program prints, without the head of the table; it must find nothing."""
    environment = {"WTAWP_HOME": str(home), "PYTHONPATH": str(ROOT / "src"), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, str(ROOT / "benchmarks" / "fuzz.py"), "--inputs", str(inputs), "--seed", "7", *readers]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return [line.strip("| ").split(" | ") for line in done.stdout.splitlines()[2:]]


@pytest.mark.skipif(sys.platform != "linux", reason="the program forks, and limits memory as Linux does")
@pytest.mark.parametrize("readers", READERS, ids=["first half", "second half"])
def test_mutated_files_are_loaded_or_refused_with_an_error_of_ours(readers: tuple[str, ...], tmp_path: Path) -> None:
    rows = read_inputs(tmp_path, INPUTS, *readers)
    assert [row[0] for row in rows] == list(readers)
    for name, inputs, loaded, refused, findings, *_ in rows:
        assert (inputs, findings) == (f"{INPUTS:,}", "0"), name
        numbers = [int(number.replace(",", "")) for number in (loaded, refused)]
        assert sum(numbers) == INPUTS
        assert min(numbers) > INPUTS // 30, name  # mutations are small enough that readers look at all of a file


@pytest.mark.skipif(sys.platform != "linux", reason="the program forks, and limits memory as Linux does")
def test_no_reader_is_forgotten(tmp_path: Path) -> None:
    rows = read_inputs(tmp_path, 1)
    assert sorted(row[0] for row in rows) == sorted(name for half in READERS for name in half)
