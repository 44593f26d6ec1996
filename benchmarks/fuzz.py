"""Read mutated files with every reader: each must be loaded, or be refused with an error of this package.

    python benchmarks/fuzz.py                                   # 1,000 inputs for each reader
    python benchmarks/fuzz.py --inputs 100000 npz pt            # 100,000 for two of them
    python benchmarks/fuzz.py --seed 0 --only 4711 npz          # one input again, in this process, with its traceback

An input is determined by the seed, the name of the reader and its number; number 0 is a valid file. Inputs are read in
child processes, which may take 1 GiB of memory more than they have at the start and 10 s an input. Counted are: crashes
(the child ended), hangs (10 s), foreign exceptions (no `WtawpError`), exhausted memory, and files that a reader left.
The program exits with status 1 if there are any. Needs fork and the limits of Linux.
"""

import argparse
import base64
import contextlib
import gzip
import io
import json
import mmap
import os
import pickle
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from fuzz_mutations import (
    any_value,
    json_line,
    members_of,
    mutated_bytes,
    mutated_npy,
    mutated_pickle,
    mutated_text,
    mutated_tree,
    mutated_zip,
    npy,
    packed,
    repeated_zeros,
)
from scipy.sparse import csr_matrix, save_npz
from torch_geometric.data import Data

from wtawp.base import WtawpError
from wtawp.certificates import Noise, Votes
from wtawp.experiments.inspection.checkpoints import read_state_dict
from wtawp.experiments.plans.toml_plan import read_plan
from wtawp.experiments.spec.run import key_of
from wtawp.experiments.store.json_lines import load_lines
from wtawp.graphs import EdgeFlips, load_attacked, load_split
from wtawp.graphs.feature_files import memory_mapped
from wtawp.graphs.published_files import PLANETOID_PARTS
from wtawp.graphs.published_readers import read_planetoid, read_tu
from wtawp.graphs.user_files import read
from wtawp.training.checkpoint import Checkpoint

Files = dict[str, bytes]
MEMORY, SECONDS = 2**30, 10.0
ROW = "| {reader} | {inputs:,} | {loaded:,} | {refused:,} | {findings} | {seconds:.0f} | {slowest_ms:.0f} |"
ROW += " {peak_mb:.0f} |"
RESULTS = Path(__file__).parents[1] / "results"
EDGES = np.array([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 5, 5]])
LABELS = np.array([0, 1, 0, 1, 1, 0])
ADJACENCY = csr_matrix((np.ones(6, dtype=np.float32), (EDGES[0], EDGES[1])), shape=(6, 6))
FEATURES = csr_matrix(np.arange(18, dtype=np.float32).reshape(6, 3) % 4)
TU_FEATURES = ("", "attribute", "degree", "constant")
IDENTITY = {"seeds": "[0]", "epochs": "3"}
PLAN = """name = "my sweep"
splits = 5
inits = 2

[base]
dataset = "wine"
model = "GCN"
epochs = 20
lr = 0.02
options = { hidden = [8, 8], dropout = 0.5 }

[[cell]]
row = "GCN"
keep = ["history"]

[[cell]]
row = "GCN + WT-AWP"
compare_with = "GCN"
awp = { rho = 1.0, lam = 0.7, layers = "all-but-last", steps = 2 }

[[cell]]
row = "GCN, attacked"
evasion = { attack = "pgd", budget = 0.05 }

[[cell]]
row = "GCN, poisoned"
poison = { attack = "random", budget = 3 }
measures = [{ name = "sharpness", rho = 0.1 }, { name = "spectrum", top = 1 }]
"""


def saved_npz(**arrays: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def csr_parts(prefix: str, matrix: csr_matrix) -> dict[str, np.ndarray]:
    parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr, "shape": np.array(matrix.shape)}
    return {f"{prefix}_{name}": array for name, array in parts.items()}


def one_object(value: object) -> np.ndarray:
    array = np.empty((), dtype=object)
    array[()] = value
    return array


def saved(value: object) -> bytes:
    out = io.BytesIO()
    torch.save(value, out)
    return out.getvalue()


def written(write: Callable[[Path], object]) -> bytes:
    """What a function writes into a file."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "file")
        return (Path(folder) / "file").read_bytes()


def change_npy(g: Random, _name: str, content: bytes) -> bytes:
    return mutated_npy(g, content)


def change_pickled_npy(g: Random, name: str, content: bytes) -> bytes:
    """Change the pickle after the header of an array of objects, or the array itself."""
    start = 10 + struct.unpack("<H", content[8:10])[0] if len(content) > 10 else 0
    if not start or b"'|O'" not in content[:start] or g.random() < 0.2:
        return change_npy(g, name, content)
    return content[:start] + mutated_pickle(g, content[start:])


def change_text(g: Random, _name: str, content: bytes) -> bytes:
    return mutated_text(g, content.decode("latin1")).encode("utf-8", errors="replace")


def change_torch(g: Random, name: str, content: bytes) -> bytes:
    return mutated_pickle(g, content) if name.endswith("data.pkl") and g.random() < 0.95 else mutated_bytes(g, content)


def from_archives(
    file: str, bases: list[bytes], change: Callable[[Random, str, bytes], bytes], *, deflate: bool = True
) -> Callable[[Random], Files]:
    """Inputs of one archive, made from one of several valid ones."""
    contents = [members_of(base) for base in bases]
    return lambda g: {file: mutated_zip(g, g.choice(contents), change, deflate=deflate)}


def change_torch_mostly_pickles(g: Random, name: str, content: bytes) -> bytes:
    """As `change_torch`, but leaves most of the members alone that say nothing about tensors."""
    is_plain = not name.endswith("data.pkl") and "/data/" not in name
    return content if is_plain and g.random() < 0.7 else change_torch(g, name, content)


def planetoid_files() -> Files:
    one_hot = np.eye(2, dtype=np.int32)[LABELS]
    content: dict[str, object] = {
        "x": FEATURES[:2], "y": one_hot[:2], "allx": FEATURES[:4], "ally": one_hot[:4], "tx": FEATURES[4:],
        "ty": one_hot[4:], "graph": {0: [1, 5], 1: [2], 2: [3], 3: [4], 4: [5], 6: []},
    }  # fmt: skip
    files = {f"ind.{part}": pickle.dumps(value, 3) for part, value in content.items()}
    return {**files, "ind.test.index": b"6\n4\n"}


def make_planetoid(g: Random) -> Files:
    files = planetoid_files()
    for _ in range(g.choice([1, 1, 2])):
        name = g.choice(sorted(files))
        change = change_text if name.endswith("index") else lambda g, _, content: mutated_pickle(g, content)
        files[name] = change(g, name, files[name])
    return files


def tu_archive() -> bytes:
    texts = {
        "A": "1, 2\n2, 1\n3, 4\n4, 3\n5, 6\n6, 5\n",
        "graph_indicator": "1\n1\n2\n2\n3\n3\n",
        "graph_labels": "1\n-1\n1\n",
        "node_labels": "0\n1\n2\n0\n1\n2\n",
        "node_attributes": "0.5, 1\n1, 2\n-3, 4\n0, 0\n1e3, 5\n2, 2\n",
        "README": "x\n",
    }
    return packed([(f"T/T_{name}.txt", text.encode()) for name, text in texts.items()], deflate=True)


def make_tu(g: Random) -> Files:
    archive = from_archives("T.zip", [tu_archive()], change_text)(g)
    return {**archive, "features": g.choice(TU_FEATURES).encode()}


def make_csv(g: Random) -> Files:
    files = {
        "g.csv": "source,target,weight\n0,1,1\n1,2,0.5\n2,3,1\n3,4,2\n",
        "g.labels.csv": "node,label,a,b\n0,0,1,0\n1,1,0.5,-2\n2,0,3e2,4\n3,1,5,6\n4,,0,0\n",
    }
    for _ in range(g.choice([1, 1, 2, 3])):
        name = g.choice(sorted(files))
        files[name] = mutated_text(g, files[name])
    return {name: text.encode("utf-8", errors="replace") for name, text in files.items()}


def graph_tensors() -> list[object]:
    """Graphs as users save them."""
    edges, y, x = torch.from_numpy(EDGES), torch.from_numpy(LABELS), torch.from_numpy(FEATURES.toarray())
    mask = torch.tensor([True, False] * 3)
    plain = {"edge_index": edges, "y": y}
    with warnings.catch_warnings(action="ignore"):
        sparse = [x.to_sparse(), x.to_sparse_csr(), x.to_sparse_csc()]
    return [
        {**plain, "x": x, "edge_weight": torch.ones(6), "train_mask": mask},
        Data(x=x.bfloat16(), edge_index=edges, y=y, test_mask=mask),
        {**plain, "x": x.t().contiguous().t(), "name": "graph", "more": [1, (2.0, None)]},
        {**plain, "x": torch.nn.Parameter(x.double())},
        {**plain, "x": torch.ones(1, 1).expand(6, 3)},
        *({**plain, "x": each} for each in sparse),
    ]


def make_flips(g: Random) -> Files:
    return from_archives("f.npz", [_flips_file()], change_npy)(g)


@lru_cache
def _flips() -> EdgeFlips:
    return EdgeFlips(torch.tensor([[0, 0, 2], [1, 3, 5]]), 6, (("attack", "pgd"), ("seed", "0")))


@lru_cache
def _flips_file() -> bytes:
    return written(_flips().save)


def make_packed(g: Random) -> Files:
    text, num_nodes = _flips().packed(), any_value(g) if g.random() < 0.2 else 6
    columns = zlib.decompress(base64.b64decode(text))
    if g.random() < 0.6:
        text = base64.b64encode(zlib.compress(mutated_bytes(g, columns))).decode()
    elif g.random() < 0.02:
        text = base64.b64encode(repeated_zeros(3_000_000_000, 15)).decode()
    else:
        text = mutated_text(g, text)
    if num_nodes != num_nodes or isinstance(num_nodes, float):  # JSON would change them
        num_nodes = 0.5
    return {"flips.json": json.dumps([text, num_nodes]).encode()}


def read_packed(folder: Path) -> object:
    text, num_nodes = json.loads((folder / "flips.json").read_bytes())
    return EdgeFlips.unpacked(text, num_nodes)


@lru_cache
def _attacked() -> tuple[Data, list[bytes]]:
    """A graph, and adjacency matrices of it in every format."""
    matrix = ADJACENCY + ADJACENCY.T
    edges, labels = torch.from_numpy(np.stack(matrix.nonzero())).long(), torch.from_numpy(LABELS)
    graph = Data(x=torch.from_numpy(FEATURES.toarray()), edge_index=edges, y=labels)
    return graph, [saved_matrix(matrix.asformat(kind)) for kind in ("csr", "csc", "coo")]


def saved_matrix(matrix: csr_matrix) -> bytes:
    out = io.BytesIO()
    save_npz(out, matrix)
    return out.getvalue()


def make_split(g: Random) -> Files:
    content: Any = {"idx_train": [4, 0], "idx_val": [1], "idx_test": [2, 3]}
    for _ in range(g.choice([0, 1, 1, 2])):
        content = mutated_tree(g, content)
    text = json_line(g, content)
    return {"s.json": (mutated_text(g, text) if g.random() < 0.4 else text).encode("utf-8", errors="replace")}


@lru_cache
def _votes_file() -> bytes:
    noise = {"features": Noise(p_add=0.01, p_del=0.3), "edges": Noise(p_add=0.001, p_del=0.4)}
    votes = Votes(torch.tensor([[7, 3], [0, 10], [10, 0]]), 10, noise, 0, (("graph", "ab"), ("victim", "GCN")))
    return written(votes.save)


def training_state() -> dict[str, Any]:
    return {
        "weights": {"a.weight": torch.arange(6.0).reshape(2, 3), "a.bias": torch.zeros(2)},
        "optimizer": {"state": {0: {"step": torch.tensor(3.0)}}, "param_groups": [{"lr": 0.1, "betas": (0.9, 0.99)}]},
        "history": [0.5, float("nan")], "epochs_run": 2, "stopped": False, "rng": torch.zeros(4, dtype=torch.uint8),
    }  # fmt: skip


@lru_cache
def _checkpoint_members() -> list[tuple[str, bytes]]:
    return members_of(written(lambda path: Checkpoint(path, 1, IDENTITY).write(training_state())))


def make_checkpoint(g: Random) -> Files:
    if g.random() < 0.15:  # with the right digest, but other content
        state = mutated_tree(g, training_state())
        with contextlib.suppress(WtawpError, TypeError, ValueError, RuntimeError, OverflowError):
            return {"training.pt": written(lambda path: Checkpoint(path, 1, IDENTITY).write(state))}
    return {"training.pt": mutated_zip(g, _checkpoint_members(), change_torch_mostly_pickles, deflate=False)}


def make_weights(g: Random) -> Files:
    return from_archives("weights.pt", [_weights()], change_torch_mostly_pickles, deflate=False)(g)


@lru_cache
def _weights() -> bytes:
    return saved(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).state_dict())


def make_toml(g: Random) -> Files:
    text = PLAN
    for _ in range(g.choice([1, 1, 2, 3])):
        text = mutated_text(g, text)
    return {"plan.toml": text.encode("utf-8", errors="replace")}


@lru_cache
def _records() -> list[dict[str, Any]]:
    """A few records of every file of results, none of them long."""
    records = []
    for path in sorted(RESULTS.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            short = [line for _, line in zip(range(200), lines, strict=False) if len(line) < 8_000]
        records += [json.loads(line) for line in short[:3]]
    for record in records:
        record.pop("checksum", None)  # with it, every change is noticed before anything else is read
    return records


def make_records(g: Random) -> Files:
    lines = []
    for _ in range(2):
        record = g.choice(_records())
        for _ in range(g.choice([0, 1, 1, 2])):
            record = mutated_tree(g, record)
        with contextlib.suppress(Exception):  # a key that fits, so that the reader looks further
            if g.random() < 0.7:
                record = {**record, "key": key_of(record["setting"], record["split"], record["init"])}
        lines.append(json_line(g, record))
    text = "\n".join(lines)
    if g.random() < 0.2:
        text = mutated_text(g, text)
    content = text.encode("utf-8", errors="replace")
    if g.random() < 0.3:
        packed_lines = gzip.compress(content, 1)
        if g.random() < 0.01:
            packed_lines = repeated_zeros(g.choice([500_000_000, 5_000_000_000]), 31)
        return {"r.jsonl.gz": mutated_bytes(g, packed_lines) if g.random() < 0.3 else packed_lines}
    return {"r.jsonl": content}


@dataclass(frozen=True)
class Reader:
    """How inputs of a format are made and read. `valid` makes the files without a mutation."""

    valid: Callable[[], Files]
    make: Callable[[Random], Files]
    read: Callable[[Path], object]


def read_records(folder: Path) -> object:
    return [list(load_lines(path)) for path in sorted(folder.iterdir())]


def read_tu_folder(folder: Path) -> object:
    return read_tu(folder / "T.zip", (folder / "features").read_text() or None)  # type: ignore[arg-type]


def readers() -> dict[str, Reader]:
    """Every reader of files of other people."""
    npz = saved_npz(**csr_parts("adj", ADJACENCY), **csr_parts("attr", FEATURES), labels=LABELS, names=np.array(["a"]))
    named = saved_npz(**csr_parts("adj", ADJACENCY), labels=np.array(list("abaabb")))
    objects = saved_npz(adj_matrix=one_object(ADJACENCY), node_attr=one_object(FEATURES), node_label=LABELS)
    tensors = [saved(each) for each in graph_tensors()]
    table = npy(FEATURES.toarray())
    return {
        "npz": Reader(
            lambda: {"g.npz": npz}, from_archives("g.npz", [npz, named], change_npy), lambda f: read(f / "g.npz")
        ),
        "graphdata": Reader(
            lambda: {"g.npz": objects},
            from_archives("g.npz", [objects], change_pickled_npy),
            lambda f: read(f / "g.npz"),
        ),
        "attacked": Reader(
            lambda: {"a.npz": _attacked()[1][0]},
            from_archives("a.npz", _attacked()[1], change_npy),
            lambda f: load_attacked(f / "a.npz", base=_attacked()[0]),
        ),
        "split-file": Reader(
            lambda: {"s.json": b'{"idx_train": [4, 0], "idx_val": [1], "idx_test": [2, 3]}'},
            make_split,
            lambda f: load_split(f / "s.json", 6),
        ),
        "planetoid": Reader(
            planetoid_files,
            make_planetoid,
            lambda f: read_planetoid({part: f / f"ind.{part}" for part in PLANETOID_PARTS}),
        ),
        "tu": Reader(lambda: {"T.zip": tu_archive(), "features": b""}, make_tu, read_tu_folder),
        "csv": Reader(
            lambda: {"g.csv": b"0,1\n1,2\n", "g.labels.csv": b"0,a\n1,b\n2,a\n"}, make_csv, lambda f: read(f / "g.csv")
        ),
        "pt": Reader(
            lambda: {"g.pt": tensors[0]},
            from_archives("g.pt", tensors, change_torch_mostly_pickles, deflate=False),
            lambda f: read(f / "g.pt"),
        ),
        "npy": Reader(
            lambda: {"x.npy": table},
            lambda g: {"x.npy": mutated_npy(g, table)},
            lambda f: memory_mapped(f / "x.npy").sum(),
        ),
        "flips": Reader(lambda: {"f.npz": _flips_file()}, make_flips, lambda f: EdgeFlips.load(f / "f.npz")),
        "packed-flips": Reader(
            lambda: {"flips.json": json.dumps([_flips().packed(), 6]).encode()}, make_packed, read_packed
        ),
        "votes": Reader(
            lambda: {"v.npz": _votes_file()},
            from_archives("v.npz", [_votes_file()], change_npy),
            lambda f: Votes.load(f / "v.npz"),
        ),
        "checkpoint": Reader(
            lambda: {"training.pt": written(lambda p: Checkpoint(p, 1, IDENTITY).write(training_state()))},
            make_checkpoint,
            lambda f: Checkpoint(f / "training.pt", 1, IDENTITY).read(),
        ),
        "weights": Reader(
            lambda: {"weights.pt": _weights()}, make_weights, lambda f: read_state_dict(f / "weights.pt")
        ),
        "toml": Reader(lambda: {"plan.toml": PLAN.encode()}, make_toml, lambda f: read_plan(f / "plan.toml")),
        "records": Reader(lambda: {"r.jsonl": json.dumps(_records()[0]).encode()}, make_records, read_records),
    }


def make_input(name: str, reader: Reader, seed: int, number: int) -> Files:
    """The files of an input; those of number 0 are valid."""
    return reader.make(Random(f"{seed}/{name}/{number}")) if number else reader.valid()


def write_input(folder: Path, files: Files) -> None:
    """Replace the content of a folder."""
    for left in os.listdir(folder):
        os.unlink(folder / left)
    for file, content in files.items():
        (folder / file).write_bytes(content)


def has_memory_error(error: BaseException | None) -> bool:
    """Whether an error, or one behind it, says that memory is exhausted."""
    while error is not None:
        if isinstance(error, MemoryError) or "allocate" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


@dataclass
class Counts:
    """What became of the inputs, in memory that the child shares with its parent."""

    shared: mmap.mmap
    NAMES = ("number", "loaded", "refused", "peak", "slowest")

    def __getitem__(self, name: str) -> int:
        return int(struct.unpack_from("<q", self.shared, 8 * self.NAMES.index(name))[0])

    def __setitem__(self, name: str, value: int) -> None:
        struct.pack_into("<q", self.shared, 8 * self.NAMES.index(name), value)


def peak_kilobytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def address_space() -> int:
    """The virtual memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def read_inputs(name: str, reader: Reader, seed: int, numbers: range, counts: Counts, folder: Path, log: Path) -> None:
    """What a child does: read inputs one after another, and write a line for each finding."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process, also inside of a library
    limit = address_space() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    baseline = peak_kilobytes()
    for number in numbers:
        counts["number"] = number
        write_input(folder, files := make_input(name, reader, seed, number))
        finding, start = "", time.perf_counter()
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        try:
            reader.read(folder)
            counts["loaded"] += 1
        except WtawpError as error:
            counts["refused"] += 1
            finding = f"memory, at {_place(error)}" if has_memory_error(error) else ""
            if number == 0:
                finding = f"a valid file is refused: {error}"
        except BaseException as error:
            kind = "memory, " if has_memory_error(error) else ""
            finding = f"{kind}{type(error).__name__}: {str(error)[:200]} at {_place(error)}"
        signal.setitimer(signal.ITIMER_REAL, 0)
        counts["slowest"] = max(counts["slowest"], int(1e6 * (time.perf_counter() - start)))
        counts["peak"] = max(counts["peak"], peak_kilobytes() - baseline)
        if {*os.listdir(folder)} != {*files}:
            finding = "left a file"
        if finding:
            with log.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps([number, finding]) + "\n")


def _place(error: BaseException) -> str:
    """Where an error was raised: the last frame in this package, and the last of all."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "wtawp" in frame.filename] or frames
    return " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in (ours[-1], frames[-1]))


def fuzz(name: str, reader: Reader, seed: int, inputs: int) -> tuple[dict[str, Any], list[tuple[int, str]]]:
    """Read so many inputs in children, each of which replaces the one that was ended by an input."""
    counts, start = Counts(mmap.mmap(-1, 4096)), time.perf_counter()
    findings: list[tuple[int, str]] = []
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as temporary:
        folder, log = Path(temporary) / "input", Path(temporary) / "log"
        folder.mkdir()
        log.touch()
        following = 0
        while following < inputs:
            child = os.fork()
            if child == 0:
                try:
                    read_inputs(name, reader, seed, range(following, inputs), counts, folder, log)
                    os._exit(0)
                except BaseException:
                    traceback.print_exc()
                    os._exit(3)
            _, status = os.waitpid(child, 0)
            if status == 0:
                break
            what = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"status {os.WEXITSTATUS(status)}"
            findings.append((counts["number"], "hang" if os.WTERMSIG(status) == signal.SIGALRM else f"crash: {what}"))
            following = counts["number"] + 1
        findings += [tuple(json.loads(line)) for line in log.read_text().splitlines()]
    row = {
        "reader": name, "inputs": inputs, "loaded": counts["loaded"], "refused": counts["refused"],
        "findings": len(findings), "seconds": time.perf_counter() - start, "slowest_ms": counts["slowest"] / 1e3,
        "peak_mb": counts["peak"] / 1024,
    }  # fmt: skip
    return row, sorted(findings)


def repeat(name: str, reader: Reader, seed: int, number: int, keep: Path | None) -> None:
    """Read one input in this process, without limits."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_input(folder, make_input(name, reader, seed, number))
        if keep is not None:
            shutil.copytree(folder, keep)
        print(f"{name} {number}: {reader.read(folder)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("readers", nargs="*", help="their names; none: all")
    parser.add_argument("--inputs", type=int, default=1000, help="inputs for each reader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="the number of the only input to read, in this process")
    parser.add_argument("--keep", type=Path, help="with --only: a new folder for its files")
    parser.add_argument("--json", type=Path, help="a file to which the rows are written")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    known = readers()
    if unknown := set(args.readers) - set(known):
        parser.error(f"there is no reader {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    chosen = {name: known[name] for name in args.readers or known}
    if args.only is not None:
        for name, reader in chosen.items():
            repeat(name, reader, args.seed, args.only, args.keep)
        return
    print("| reader | inputs | loaded | refused | findings | seconds | slowest, ms | peak, MB |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    rows, findings = [], 0
    for name, reader in chosen.items():
        row, found = fuzz(name, reader, args.seed, args.inputs)
        print(ROW.format(**row), flush=True)
        for number, what in found[:20]:
            print(f"    {name} --seed {args.seed} --only {number}: {what}", file=sys.stderr, flush=True)
        rows.append(row)
        findings += len(found)
    if args.json is not None:
        args.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
