import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from wtawp.base import DataError
from wtawp.graphs import is_memory_mapped, memory_mapped


def test_the_tensor_holds_the_file_and_warns_of_nothing(tmp_path: Path) -> None:
    for dtype in (np.float16, np.float32, np.float64):
        array = np.arange(12, dtype=dtype).reshape(4, 3)
        np.save(tmp_path / "x.npy", array)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            x = memory_mapped(tmp_path / "x.npy")
        assert torch.equal(x, torch.from_numpy(array))
        assert is_memory_mapped(x)
        assert not is_memory_mapped(x[:2])
        assert not is_memory_mapped(x.clone())
    assert not is_memory_mapped(array)
    assert not is_memory_mapped(None)


def test_files_that_are_no_tables_of_numbers_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    with pytest.raises(DataError, match="there is no file"):
        memory_mapped(path)
    refused = {
        "must be a table of nodes": np.ones(3, np.float32),
        "or more columns": np.ones((3, 0), np.float32),
        "must be float32, float64 or float16, got int64": np.ones((3, 2), np.int64),
        "must be float32, float64 or float16, got >f4": np.ones((3, 2), ">f4"),
        "in Fortran order": np.asfortranarray(np.ones((3, 2), np.float32)),
    }
    for message, array in refused.items():
        np.save(path, array)
        with pytest.raises(DataError, match=message):
            memory_mapped(str(path))
    np.save(path, np.array([["text"]], dtype=object))  # a pickle, which is not opened
    with pytest.raises(DataError, match="must be float32, float64 or float16, got object"):
        memory_mapped(path)
    np.save(path, np.ones((300, 20), np.float32))
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(DataError, match=r"is cut short: it declares more numbers than it holds, \(300, 20\)"):
        memory_mapped(path)
    path.write_bytes(b"no array at all")
    with pytest.raises(DataError, match="is not an array of NumPy"):
        memory_mapped(path)
    np.savez(tmp_path / "x.npz", x=np.ones((3, 2), np.float32))
    with pytest.raises(DataError, match="is not an array of NumPy"):
        memory_mapped(tmp_path / "x.npz")


WITHIN_A_LIMIT = """
import resource, sys
import torch
from torch_geometric.data import Data
from wtawp.base import rng
from wtawp.core import AwpConfig
from wtawp.graphs import Split, memory_mapped
from wtawp.models import GAT, GCN, GraphSAGE
from wtawp.training import evaluate, fit

torch.set_num_threads(1)
ring = torch.arange(64)
edges = torch.stack([torch.cat([ring, (ring + 1) % 64]), torch.cat([(ring + 1) % 64, ring])])
split = Split(ring[:20], ring[20:30], ring[30:40])

def train(kind, x):
    model = kind(x.shape[1], 2, dropout=0.0, generator=rng("init"))  # a GAT's masks depend on the number of nodes
    y = torch.arange(len(x)) % 2
    result = fit(model, Data(x=x, edge_index=edges, y=y), split, seed=0, awp=AwpConfig(rho=0.5, lam=0.5), epochs=2)
    return model, result

mapped = memory_mapped(sys.argv[1])
kinds = (GCN, GraphSAGE, GAT)
expected = [train(kind, mapped[:64].clone()) for kind in kinds]  # the other nodes have no edges
held = next(int(l.split()[1]) * 1024 for l in open("/proc/self/status") if l.startswith("VmData"))
limit = held + mapped.nbytes // 4
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
try:
    mapped.clone()
except RuntimeError:
    pass
else:
    sys.exit("the limit does not hold: the whole file could be copied")
for kind, (model, result) in zip(kinds, expected):
    trained, again = train(kind, mapped)
    assert again == result, (again, result)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), trained.parameters()))
    if kind is GCN:
        whole = Data(x=mapped, edge_index=edges, y=torch.arange(len(mapped)) % 2)
        loss, accuracy = evaluate(trained, whole, split.test)
        assert abs(loss - again.loss["test"]) < 1e-5 and accuracy == again.accuracy["test"]
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit on a process's memory is Linux's")
def test_training_on_a_file_copies_only_the_rows_it_needs(tmp_path: Path) -> None:
    """The process may use a quarter of the file's size, and gets the numbers that features in memory give."""
    path = tmp_path / "x.npy"
    file = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(1 << 17, 1 << 10))  # 512 MiB of holes
    file[:64] = np.random.RandomState(0).randn(64, 1 << 10)
    file.flush()
    command = [sys.executable, "-c", WITHIN_A_LIMIT, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
