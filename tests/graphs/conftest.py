import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from wtawp.base import rng
from wtawp.graphs import registry


@pytest.fixture
def random_matrix() -> Tensor:
    """A sparse 7 x 5 matrix, written out."""
    g = rng("matrix", 0)
    return torch.randn(7, 5, generator=g, dtype=torch.float64) * (torch.rand(7, 5, generator=g) < 0.4)


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data sets that the test registers are forgotten after it."""
    monkeypatch.setattr(registry, "_DATASETS", dict(registry._DATASETS))


OUTCOMES = """
import importlib, os, resource, sys
module, name = sys.argv[1].split(":")
reader = getattr(importlib.import_module(module), name)
from wtawp.base import DataError
from pathlib import Path
for path in sys.argv[2:]:
    end, start = os.pipe()
    pid = os.fork()
    if not pid:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + 2**30,) * 2)
        try:
            reader(Path(path))
            outcome = "loaded"
        except BaseException as error:
            outcome = f"{type(error).__name__}: {error}"
        os.write(start, outcome.encode()[:4096])
        os._exit(0)
    os.close(start)
    with open(end, "rb") as pipe:
        outcome = pipe.read().decode(errors="replace").replace(chr(10), " ")
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print(outcome if status == 0 else f"ended by signal {-status}")
"""


@pytest.fixture
def outcomes() -> Callable[[str, Sequence[Path]], list[str]]:
    """What a reader, "module:function", does with each file: "loaded", the exception, or the signal that ended it.

    Every file is read in a process of its own, which may allocate 1 GiB more than it has.
    """
    if not Path("/proc/self/statm").exists():
        pytest.skip("the limit on memory needs Linux")

    def read_all(reader: str, paths: Sequence[Path]) -> list[str]:
        command = [sys.executable, "-W", "ignore", "-c", OUTCOMES, reader, *map(str, paths)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    return read_all
