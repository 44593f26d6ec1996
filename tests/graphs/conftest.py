import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
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


# Serves lines "module:function path": each file is read in a fork, which has already imported what it needs
READING_SERVER = """
import importlib, os, resource, sys
from pathlib import Path
from wtawp.graphs import published_readers, user_files
for line in sys.stdin:
    reader, path = line.rstrip(chr(10)).split(" ", 1)
    module, name = reader.split(":")
    end, start = os.pipe()
    pid = os.fork()
    if not pid:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + 2**30,) * 2)
        try:
            getattr(importlib.import_module(module), name)(Path(path))
            outcome = "loaded"
        except BaseException as error:
            outcome = f"{type(error).__name__}: {error}"
        os.write(start, outcome.encode(errors="replace")[:4000])
        os._exit(0)
    os.close(start)
    with open(end, "rb") as pipe:
        outcome = pipe.read().decode(errors="replace").replace(chr(10), " ")
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print(outcome if status == 0 else f"ended by signal {-status}", flush=True)
"""


@pytest.fixture(scope="session")
def outcomes() -> Iterator[Callable[[str, Sequence[Path]], list[str]]]:
    """What a reader, "module:function", does with each file: "loaded", the exception, or the signal that ended it.

    Every file is read in a process of its own, which may allocate 1 GiB more than it has.
    """
    if not Path("/proc/self/statm").exists():
        pytest.skip("the limit on memory needs Linux")
    command = [sys.executable, "-W", "ignore", "-c", READING_SERVER]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        requests, answers = server.stdin, server.stdout

        def outcome(reader: str, path: Path) -> str:
            requests.write(f"{reader} {path}\n")
            requests.flush()
            return answers.readline().rstrip("\n") or "no answer"

        yield lambda reader, paths: [outcome(reader, path) for path in paths]
        requests.close()
