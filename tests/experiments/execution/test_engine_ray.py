import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from fates import HANGS, LOST, end_sweep, marked_processes, meet_fate, wait_until

from wtawp.core import AwpConfig
from wtawp.experiments.execution import engine_ray
from wtawp.experiments.execution.engine_ray import ray_cluster
from wtawp.experiments.execution.engines import EngineError, local
from wtawp.experiments.execution.training import train
from wtawp.experiments.spec import Run, Setting

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="RAY NOT CHECKED: pip install 'wtawp[cluster]'")


@pytest.fixture(scope="module")
def private() -> Iterator[None]:
    """A token for these Rays alone, lest Ray write one into the home folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        patch.delenv("RAY_ADDRESS", raising=False)
        yield


@pytest.fixture(scope="module")
def cluster(private: None) -> Iterator[str]:  # noqa: ARG001
    """A Ray with two CPUs and two GPUs, if only by name, that is not the engine's own; its address."""
    ray = engine_ray._import_ray()
    ray.init("local", num_cpus=2, num_gpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    for module in (__name__, "fates"):  # workers need not find the tests
        ray.cloudpickle.register_pickle_by_value(sys.modules[module])
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()


def double(x: int) -> int:
    return 2 * x


class Dies:
    """Kills its worker the first so many times it sees 3; as `train` does, it takes a SystemExit for a failed run."""

    def __init__(self, mark: Path, times: int, sent: signal.Signals) -> None:
        self.mark, self.times, self.sent = mark, times, sent

    def __call__(self, x: int) -> int:
        died = len(list(self.mark.parent.glob(f"{self.mark.name}*")))
        if x == 3 and died < self.times:
            self.mark.with_name(f"{self.mark.name}{died}").touch()
            try:
                os.kill(os.getpid(), self.sent)
                time.sleep(60)  # a signal may arrive a moment later
            except SystemExit:
                return -1
        return 2 * x


def stay(x: int, folder: Path) -> int:
    """Leave a note of the process, and do not come back; but chunk 0 does, once somebody stays."""
    if x == 0:
        wait_until(lambda: any(folder.iterdir()))
        return 0
    (folder / str(os.getpid())).touch()
    time.sleep(600)
    return x


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError, IndexError):  # the latter two while it ends
        return False


@needs_ray
@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("workers", [None, 1, 3])
def test_every_chunk_is_worked_on_once(workers: int | None) -> None:
    assert sorted(ray_cluster(workers=workers)(range(7), double)) == sorted(local()(range(7), double))
    assert list(ray_cluster(workers=workers)([], double)) == []


@needs_ray
@pytest.mark.usefixtures("cluster")
def test_records_are_those_of_this_machine_bit_for_bit() -> None:
    setting = Setting(dataset="wine", epochs=5, awp=AwpConfig(rho=0.5, lam=0.5), keep=("history",))
    chunks = [tuple(Run(setting, split, init) for init in range(2)) for split in range(4)]
    here, by_two, by_ray = (
        [[record.outcome for record in records] for _, records in sorted(engine(chunks, partial(train, device="cpu")))]
        for engine in (local(1), local(2), ray_cluster())
    )
    assert [outcome[5] for records in by_ray for outcome in records] == ["done"] * 8
    assert by_ray == here
    assert by_ray == by_two


@needs_ray
@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_that_dies_is_replaced(sent: signal.Signals, tmp_path: Path) -> None:
    results = sorted(ray_cluster()(range(6), Dies(tmp_path / "died", times=1, sent=sent)))
    assert results == [(i, 2 * i) for i in range(6)]


@needs_ray
@pytest.mark.usefixtures("cluster")
def test_of_twenty_chunks_four_kill_their_workers_one_hangs_and_fifteen_are_done() -> None:
    results = dict(ray_cluster(time_limit=5)(range(20), meet_fate))
    assert {i: r for i, r in results.items() if i not in LOST} == {i: 2 * i for i in range(20) if i not in LOST}
    for i in LOST:
        reason = "it was stopped after 5 s, the time limit" if i == HANGS else "its worker process died 3 times; after "
        assert results[i].reason.startswith(reason)  # type: ignore[union-attr]


@needs_ray
@pytest.mark.usefixtures("cluster")
def test_an_exception_comes_out_as_itself() -> None:
    with pytest.raises(KeyError, match="6") as caught:
        list(ray_cluster()(range(7), {i: i for i in range(6)}.__getitem__))
    assert caught.type is KeyError


@needs_ray
@pytest.mark.usefixtures("cluster")
def test_chunks_share_gpus() -> None:
    seen = dict(ray_cluster(gpus=0.5)(range(5), lambda _: os.environ["CUDA_VISIBLE_DEVICES"]))
    assert sorted(seen) == list(range(5))
    assert set(seen.values()) <= {"0", "1"}


@needs_ray
@pytest.mark.usefixtures("cluster")
def test_more_gpus_than_there_are_are_not_waited_for() -> None:
    with pytest.raises(
        EngineError, match=r"1 CPU and 3 GPUs for a chunk, all together have 2 CPUs and 2 GPUs; ask for"
    ):
        list(ray_cluster(gpus=3)(range(2), double))


def test_a_cluster_without_gpus_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    resources = {"CPU": 2.0}
    nodes = [{"Alive": True, "Resources": resources}]
    ray = SimpleNamespace(is_initialized=lambda: True, nodes=lambda: nodes, cluster_resources=lambda: resources)
    monkeypatch.setattr(engine_ray, "_import_ray", lambda: ray)
    with pytest.raises(EngineError, match=r"1 CPU and 0.5 GPUs for a chunk, all together have 2 CPUs and 0 GPUs"):
        list(ray_cluster(gpus=0.5)(range(2), double))


def test_a_chunk_must_find_all_it_needs_on_one_machine() -> None:
    def room(*nodes: dict[str, float], gpus: float) -> int:
        listed = [{"Alive": True, "Resources": node} for node in nodes]
        dead = {"Alive": False, "Resources": {"CPU": 99.0, "GPU": 99.0}}
        return engine_ray._capacity(SimpleNamespace(nodes=lambda: [*listed, dead]), gpus)  # type: ignore[arg-type]

    assert room({"CPU": 4.0}, {"CPU": 2.0, "GPU": 1.0}, gpus=0) == 6
    assert room({"CPU": 4.0}, {"CPU": 4.0, "GPU": 1.0}, gpus=0.5) == 2
    assert room({"CPU": 4.0, "GPU": 1.0}, {"CPU": 4.0, "GPU": 1.0}, gpus=2) == 0
    assert room({"CPU": 4.0}, {"GPU": 1.0}, gpus=1) == 0


@needs_ray
@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(("workers", "limit"), [(1, 1), (None, 4)])
def test_few_chunks_are_in_flight_at_a_time(workers: int | None, limit: int) -> None:
    taken: list[int] = []

    class Watched(Sequence[int]):
        def __len__(self) -> int:
            return 20

        def __getitem__(self, i: int) -> int:  # type: ignore[override]
            if i == 20:
                raise IndexError
            taken.append(i)
            return i

    for done, _ in enumerate(ray_cluster(workers=workers)(Watched(), double)):
        assert len(taken) - done <= limit
    assert taken == list(range(20))


@needs_ray
@pytest.mark.usefixtures("cluster")
def test_what_is_in_flight_is_cancelled_when_nobody_wants_it_any_more(tmp_path: Path) -> None:
    results = ray_cluster()(range(4), partial(stay, folder=tmp_path))
    assert next(results) == (0, 0)
    results.close()
    wait_until(lambda: not any(is_alive(int(note.name)) for note in tmp_path.iterdir()))
    assert dict(ray_cluster()(range(2), double)) == {0: 0, 1: 2}, "the CPUs are free again"
    assert len(list(tmp_path.iterdir())) <= 2, "and what was waiting has not been started"


@needs_ray
@pytest.mark.usefixtures("cluster")
def test_workers_without_the_package_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = ModuleType("only_here")
    exec("def double(x): return 2 * x", elsewhere.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", elsewhere)
    with pytest.raises(EngineError, match=r"cannot load the work \(.*'only_here'\); install this version of wtawp"):
        list(ray_cluster()(range(2), elsewhere.double))


JOIN = """
import os
from wtawp.experiments.execution.engine_ray import ray_cluster

for place, home in sorted(ray_cluster()(range(2), lambda _: os.environ["WTAWP_HOME"])):
    print(place, home)
import ray
print("connected" if ray.is_initialized() else "left")
"""
STARTS_RAY = """
import os, signal, sys, time
from pathlib import Path
from wtawp.experiments.execution.engine_ray import ray_cluster

signal.signal(signal.SIGINT, signal.default_int_handler)  # tests that a shell runs behind its back ignore interrupts
folder = Path(sys.argv[1])

def stay(_):
    (folder / str(os.getpid())).touch()
    time.sleep(600)

try:
    list(ray_cluster(workers=2)(range(5), stay))
except KeyboardInterrupt:
    import ray
    print("interrupted, connected:", ray.is_initialized())
"""


@needs_ray
def test_a_cluster_that_was_joined_is_left_running(cluster: str, tmp_path: Path) -> None:
    environment = os.environ | {"WTAWP_HOME": str(tmp_path), "RAY_ADDRESS": cluster}
    process = subprocess.run([sys.executable, "-c", JOIN], env=environment, capture_output=True, text=True, timeout=120)
    assert process.stdout.split() == ["0", str(tmp_path), "1", str(tmp_path), "left"], process.stderr
    assert dict(ray_cluster()(range(2), double)) == {0: 0, 1: 2}


@needs_ray
@pytest.mark.usefixtures("private")
def test_a_ray_of_our_own_ends_with_the_sweep_also_when_interrupted(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTS_RAY, tmp_path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as sweep:
        try:
            wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
            sweep.send_signal(signal.SIGINT)
            assert sweep.communicate(timeout=60) == ("interrupted, connected: False\n", "")
        finally:
            sweep.kill()
    assert not [note for note in tmp_path.iterdir() if is_alive(int(note.name))]


@needs_ray
@pytest.mark.usefixtures("private")
@pytest.mark.skipif(sys.platform != "linux", reason="finds processes in /proc")
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_no_process_of_our_own_ray_is_left_after_the_sweep_was_killed(tmp_path: Path, sent: signal.Signals) -> None:
    mark = secrets.token_hex(8)
    command = [sys.executable, "-c", STARTS_RAY, tmp_path]
    with subprocess.Popen(command, env=os.environ | {"MARK": mark}, stderr=subprocess.DEVNULL) as sweep:
        end_sweep(sweep, tmp_path, sent)
    wait_until(lambda: not marked_processes(mark), 30)  # 10 s where tests do not share the machine: benchmarks/kills.py


@needs_ray
def test_a_cluster_that_does_not_answer_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    with pytest.raises(EngineError, match=r"cannot join the Ray cluster at localhost:1: .*efused; if it runs"):
        list(ray_cluster(address="localhost:1")(range(2), double))


def test_without_ray_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(EngineError, match=r"a cluster needs Ray .*; pip install 'ray>=2.40'"):
        ray_cluster()


def test_ray_is_not_loaded_before_it_is_used() -> None:
    code = "import sys; from wtawp.experiments.execution.engine_ray import ray_cluster; sys.exit('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"workers": 0}, "workers must be >= 1, got 0"),
        ({"time_limit": 0}, "time_limit must be a number of seconds > 0"),
        ({"gpus": -1}, "gpus must be a share of one GPU or a whole number of them, got -1"),
        ({"gpus": 1.5}, "got 1.5"),
        ({"gpus": float("inf")}, "got inf"),
        ({"gpus": float("nan")}, "got nan"),
    ],
)
def test_impossible_requests_are_refused(options: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ray_cluster(**options)  # type: ignore[arg-type]
