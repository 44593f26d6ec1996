"""A sweep, disturbed and undisturbed."""

import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import active_children, get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from runpy import run_path

import pytest

from wtawp.base import AttackError
from wtawp.core import AwpConfig
from wtawp.experiments.execution import training
from wtawp.experiments.execution.engines import LostChunk, local
from wtawp.experiments.execution.provenance import device_name
from wtawp.experiments.execution.runner import SweepCounts, run_plans, surrogate_of
from wtawp.experiments.execution.training import PlanError
from wtawp.experiments.measures import poison as poison_measure
from wtawp.experiments.measures.shared.interface import Result, TrainedModels
from wtawp.experiments.measures.shared.registry import run_measure
from wtawp.experiments.plans.robustness import evading, poisoning
from wtawp.experiments.spec import Cell, MeasureRequest, Plan, Record, Setting
from wtawp.experiments.spec.record import checked
from wtawp.experiments.store import Store, StoreError, UnreadableRecordWarning

PLAIN = Setting(dataset="wine", epochs=8)
PLAN = Plan(
    "sweep",
    "A small sweep",
    (
        Cell("GCN", "wine", PLAIN, 3, 2),
        Cell("GCN+WT-AWP", "wine", replace(PLAIN, awp=AwpConfig(rho=0.5, lam=0.5)), 3, 2),
        Cell("GAT", "wine", replace(PLAIN, model="GAT", keep=("history",)), 2, 1),
    ),
)
SCRIPT = """
from pathlib import Path
from runpy import run_path
from wtawp.experiments.execution.engines import local
from wtawp.experiments.execution.runner import run_plans
from wtawp.experiments.store.database import Store
PLAN = run_path({here!r})["PLAN"]
Path({ready!r}).touch()
with Store({store!r}) as store:
    run_plans([PLAN], store, engine=local(1))
"""
HERE = device_name("cpu", tf32=False)
PROCESSES = get_context("forkserver")  # children of a process that has loaded everything once
PROCESSES.set_forkserver_preload(["wtawp.experiments.execution.runner"])


SPLIT_OF_WINE = "wine: split at random: 17 nodes to train, 18 to validate, 143 to test."


def outcomes(store: Store) -> list[tuple[object, ...]]:
    return [record.outcome for record in store.records()]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[object, ...]]:
    with Store(tmp_path_factory.mktemp("store") / "whole.sqlite") as store:
        assert run_plans([PLAN], store, engine=local(1)) == SweepCounts(trained=14, known=0, failed=0)
        return outcomes(store)


def test_a_sweep_done_is_not_done_again(tmp_path: Path, undisturbed: list[tuple[object, ...]]) -> None:
    shares: list[float] = []
    with Store(tmp_path / "s.sqlite") as store:
        run_plans([PLAN], store, engine=local(1), progress=lambda share, _: shares.append(share))
        assert shares[-1] == pytest.approx(1.0)
        assert shares == sorted(shares)
        assert len(set(shares)) > 8, "there are 8 chunks, and the bar moves inside of them"
        assert run_plans([PLAN], store, engine=local(1)) == SweepCounts(trained=0, known=14, failed=0)
        assert outcomes(store) == undisturbed


@pytest.mark.parametrize("describe", [evading, poisoning])
def test_one_edge_and_all_edges_are_other_budgets(
    tmp_path: Path, describe: Callable[[str, float | int], MeasureRequest]
) -> None:
    def setting(budget: float | int) -> Setting:
        attack = describe("dice", budget)
        return Setting(
            dataset="wine", epochs=3, **{"poison": attack} if attack.name == "poison" else {"measures": (attack,)}
        )

    one, all_edges = (Plan("p", "", (Cell("a", "b", setting(budget), 1, 1),)) for budget in (1, 1.0))
    both = Plan("p", "", tuple(replace(plan.cells[0], row=str(i)) for i, plan in enumerate((one, all_edges))))
    assert both.num_runs == 2
    with Store(tmp_path / "both.sqlite") as together, Store(tmp_path / "apart.sqlite") as apart:
        run_plans([both], together, engine=local(1))
        for plan in (one, all_edges):
            run_plans([plan], apart, engine=local(1))
        assert outcomes(together) == outcomes(apart)


def test_two_workers_give_the_records_of_one_also_if_one_is_killed(
    tmp_path: Path, undisturbed: list[tuple[object, ...]]
) -> None:
    killed: list[int] = []

    def kill_one_once(_: float, __: str) -> None:
        if not killed:
            killed.extend(worker.pid for worker in active_children()[:1] if worker.pid is not None)
            os.kill(killed[0], signal.SIGKILL)

    with Store(tmp_path / "s.sqlite") as store:
        run_plans([PLAN], store, engine=local(2), progress=kill_one_once)
        assert outcomes(store) == undisturbed


def test_lost_chunks_are_recorded_as_failed_the_others_go_on_and_they_are_tried_again(
    tmp_path: Path, undisturbed: list[tuple[object, ...]]
) -> None:
    def loses_the_second(chunks: list[object], work: Callable[[object], object], _: object) -> object:
        for i, chunk in enumerate(chunks):
            yield i, LostChunk("it was stopped after 5 s", 6.0) if i == 1 else work(chunk)

    with Store(tmp_path / "s.sqlite") as store:
        counts = run_plans([PLAN], store, engine=loses_the_second)  # type: ignore[arg-type]
        assert counts == SweepCounts(trained=12, known=0, failed=2)
        for failed in store.records(status="failed"):
            assert failed.error == "The chunk was lost: it was stopped after 5 s."
            assert (failed.seconds, failed.accuracy, failed.versions["stack"]) == (3.0, None, "2")
            assert checked(failed) is failed
        assert run_plans([PLAN], store, engine=local(1)) == SweepCounts(trained=2, known=12, failed=0)
        assert outcomes(store) == undisturbed


def start(store: Path, number: int) -> tuple[ForkServerProcess, Path]:
    script, ready = store.with_name(f"sweep{number}.py"), store.with_name(f"ready{number}")
    script.write_text(SCRIPT.format(here=__file__, store=str(store), ready=str(ready)), encoding="utf-8")
    child = PROCESSES.Process(target=run_path, args=(str(script),))
    child.start()
    return child, ready


def test_killed_at_ten_moments_it_ends_with_the_same_records(
    tmp_path: Path, undisturbed: list[tuple[object, ...]]
) -> None:
    path, dice = tmp_path / "s.sqlite", random.Random(0)
    kept = 0
    for number in range(10):
        child, ready = start(path, number)
        while not ready.exists():
            time.sleep(0.01)
        time.sleep(dice.uniform(0.0, 1.2))
        child.kill()
        child.join()
        if path.exists():
            with Store(path) as store:
                stored = outcomes(store)
            assert set(map(str, stored)) <= set(map(str, undisturbed))  # whole records, the right ones
            assert len(stored) >= kept
            kept = len(stored)
    with Store(path) as store:
        run_plans([PLAN], store, engine=local(1))
        assert outcomes(store) == undisturbed


def test_two_sweeps_into_one_store_both_complete(tmp_path: Path, undisturbed: list[tuple[object, ...]]) -> None:
    path = tmp_path / "s.sqlite"
    both = [start(path, number)[0] for number in range(2)]
    for child in both:
        child.join(timeout=120)
    assert [child.exitcode for child in both] == [0, 0]
    with Store(path) as store:
        assert outcomes(store) == undisturbed


def test_a_failed_run_is_recorded_the_sweep_goes_on_and_it_is_tried_again(
    tmp_path: Path, undisturbed: list[tuple[object, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = training.train

    def fails_on_gat(*job: object, **how: object) -> list[Record]:
        records = real(*job, **how)  # type: ignore[arg-type]
        if records[0].setting["model"] != "GAT":
            return records
        nothing = dict.fromkeys(("accuracy", "loss", "epoch", "history"))
        return [replace(r, status="failed", error="Traceback: boom", **nothing) for r in records]

    with Store(tmp_path / "s.sqlite") as store:
        monkeypatch.setattr(training, "train", fails_on_gat)
        assert run_plans([PLAN], store, engine=local(1)) == SweepCounts(trained=12, known=0, failed=2)
        assert {r.error for r in store.records(status="failed")} == {"Traceback: boom"}
        monkeypatch.setattr(training, "train", real)
        assert run_plans([PLAN], store, engine=local(1)) == SweepCounts(trained=2, known=12, failed=0)
        assert outcomes(store) == undisturbed


def test_poisoned_runs_share_the_flips_of_their_split_and_find_them_again(tmp_path: Path) -> None:
    poisoned = replace(PLAIN, poison=poisoning("dice", 0.2))
    cells = (Cell("GCN", "", poisoned, 2, 2), Cell("GAT", "", replace(poisoned, model="GAT"), 2, 1))
    plan = Plan("poisoned", "", cells)
    with Store(tmp_path / "s.sqlite") as store:
        assert run_plans([plan], store, engine=local(1)) == SweepCounts(trained=8, known=0, failed=0, surrogates=2)
        records = store.records(run.key for run in plan.runs())
        assert len({(r.split, r.versions["flips"]) for r in records}) == 2
        first = store.records(surrogate_of(run).key for run in plan.runs() if surrogate_of(run))  # type: ignore[union-attr]
        assert [len(r.measured or []) for r in first] == [1, 1]
        assert run_plans([plan], store, engine=local(1)) == SweepCounts(trained=0, known=6, failed=0)
        store.prune(keep=[r.key for r in first])
        elsewhere = [replace(r, device="a GPU") for r in first]
        store.prune(device=HERE)
        store.add(elsewhere)  # flips from another machine are taken as they are
        assert run_plans([plan], store, engine=local(1)) == SweepCounts(trained=6, known=0, failed=0)
        again = store.records((run.key for run in plan.runs()), device=HERE)
        assert [r.outcome for r in again] == [r.outcome for r in records]


def test_each_draw_of_a_poisoning_has_flips_of_its_own(tmp_path: Path) -> None:
    poisoned = replace(PLAIN, poison=poisoning("pgd", 0.2, steps=5, samples=2, draws=2))
    plan = Plan(
        "poisoned", "", (Cell("GCN", "", poisoned, 1, 4), Cell("GAT", "", replace(poisoned, model="GAT"), 1, 2))
    )
    with Store(tmp_path / "s.sqlite") as store:
        assert run_plans([plan], store, engine=local(1)) == SweepCounts(trained=8, known=0, failed=0, surrogates=2)
        flips = {(r.init % 2, r.versions["flips"]) for r in store.records(run.key for run in plan.runs())}
    assert len(flips) == len({digest for _, digest in flips}) == 2


def test_a_sweep_continued_on_another_kind_of_cpu_says_so_and_keeps_both(tmp_path: Path) -> None:
    plan = Plan("short", "", (Cell("GCN", "wine", replace(PLAIN, epochs=2), 2, 1),))
    sentences: list[str] = []
    with Store(tmp_path / "s.sqlite") as store:
        run_plans([plan], store, engine=local(1), announce=sentences.append)
        assert sentences.pop().startswith("2 runs to train in ")
        assert sentences == [SPLIT_OF_WINE]
        sentences.clear()
        records = store.records()
        other = [replace(r, device="cpu (other, numba)", loss={"test": 9.0}) for r in records]
        store.prune(device=HERE)
        store.add([other[0]])
        assert run_plans([plan], store, engine=local(1), announce=sentences.append).trained == 2
        assert sentences.pop().startswith("2 runs to train in ")
        assert sentences == [
            SPLIT_OF_WINE,
            "The store has 1 from cpu (other, numba) of the 2 runs to train. Another kind of device rounds differently,"
            f" so they are kept apart and trained again on {HERE}; a report uses the runs of one device.",
        ]
        assert [r.outcome for r in store.records(device=HERE)] == [r.outcome for r in records]
        assert store.add([other[1]]) == (1, 0)  # as an import does: both are answers of their machines
        sentences.clear()
        run_plans([plan], store, engine=local(1), announce=sentences.append)
        assert sentences[0] == SPLIT_OF_WINE
        when = records[0].created[:10]
        assert sentences[1].startswith(f"2 of 2 runs are known from before: they were trained at {when}")
        assert len(sentences) == 2


def test_stored_runs_of_a_chunk_are_trained_with_the_others_but_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = replace(PLAIN, measures=(evading("random", 0.1),))
    plan = Plan("measured", "", (Cell("GCN", "wine", setting, 2, 3),))
    with Store(tmp_path / "whole.sqlite") as store:
        assert run_plans([plan], store, engine=local(1)).trained == 6
        right, records = outcomes(store), store.records()
    measured_models = []

    def count(measure: MeasureRequest, trained: TrainedModels) -> list[Result]:
        measured_models.append(len(trained.models))
        return run_measure(measure, trained)

    monkeypatch.setattr(training, "run_measure", count)
    with Store(tmp_path / "part.sqlite") as store:
        stored = next(record for record in records if (record.split, record.init) == (0, 1))
        store.add([replace(stored, created="2020-01-01T00:00:00+00:00")])
        counts = run_plans([plan], store, engine=local(1))
        assert counts == SweepCounts(trained=5, known=1, failed=0)
        assert measured_models == [2, 3]
        assert outcomes(store) == right
        assert store.records([stored.key])[0].created.startswith("2020"), "the record stays as it was"


def test_row_1_fresh_trains_known_runs_again_and_replaces_their_records(tmp_path: Path) -> None:
    plan = Plan("short", "", (Cell("GCN", "wine", replace(PLAIN, epochs=2), 2, 1),))
    sentences: list[str] = []
    with Store(tmp_path / "s.sqlite") as store:
        run_plans([plan], store, engine=local(1))
        right = outcomes(store)
        store.add([replace(r, loss={"test": 9.0}) for r in store.records()], replace=True)
        assert outcomes(store) != right
        assert run_plans([plan], store, engine=local(1)).known == 2
        counts = run_plans([plan], store, engine=local(1), fresh=True, announce=sentences.append)
        assert counts == SweepCounts(trained=2, known=0, failed=0)
        assert outcomes(store) == right
        assert sentences.pop().startswith("2 runs to train in ")
        assert sentences == [SPLIT_OF_WINE]


def test_malformed_surrogate_records_do_not_stop_a_sweep(tmp_path: Path) -> None:
    plan = Plan("poisoned", "", (Cell("GCN", "", replace(PLAIN, poison=poisoning("dice", 0.2)), 1, 2),))
    surrogate = surrogate_of(plan.runs()[0])
    assert surrogate is not None
    with Store(tmp_path / "whole.sqlite") as store:
        run_plans([plan], store, engine=local(1))
        (right,) = store.records([surrogate.key])
        expected = [r.outcome for r in store.records()]
    for number, measured in enumerate((None, [{}], [{**(right.measured or [])[0], "flips": "none"}])):
        with Store(tmp_path / f"{number}.sqlite") as store:
            store.add([replace(right, measured=measured)])  # as an import without checks did
            with pytest.warns(UnreadableRecordWarning, match=f"{surrogate.key}.*measured cannot be right"):
                assert run_plans([plan], store, engine=local(1)) == SweepCounts(
                    trained=3, known=0, failed=0, surrogates=1
                )
            assert [r.outcome for r in store.records()] == expected


def test_runs_whose_poisoning_failed_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise AttackError("no luck")

    monkeypatch.setattr(poison_measure, "find_flips", fails)
    poisoned = replace(PLAIN, poison=poisoning("dice", 0.1))
    plan = Plan("poisoned", "", (Cell("GCN", "", poisoned, 1, 2),))
    with Store(tmp_path / "s.sqlite") as store:
        assert run_plans([plan], store, engine=local(1)) == SweepCounts(trained=0, known=0, failed=3)
        errors = [str(r.error) for r in store.records(status="failed")]
    assert sum("no luck" in e for e in errors) == 1
    assert sum("the attack failed that should poison split 0" in e for e in errors) == 2


def test_a_store_that_cannot_be_written_is_reported_and_loses_nothing(
    tmp_path: Path, make_record: Callable[..., Record]
) -> None:
    path = tmp_path / "s.sqlite"
    with Store(path) as store:
        store.add([make_record()])
        store._db.execute("PRAGMA max_page_count = 1")  # a full disk
        with pytest.raises(StoreError, match="disk is full"):
            run_plans([PLAN], store, engine=local(1))
    with Store(path) as store:
        assert make_record().key in {record.key for record in store.records()}


def test_a_store_that_may_only_be_read_is_refused_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "train", lambda *_, **__: pytest.fail("it was trained"))
    with Store(tmp_path / "s.sqlite") as store:
        store._db.execute("PRAGMA query_only = ON")
        with pytest.raises(StoreError, match="it may only be read here"):
            run_plans([PLAN], store, engine=local(1))


def test_nothing_is_trained_if_one_of_the_plans_cannot_be(tmp_path: Path) -> None:
    wrong = Plan("wrong", "Wrong", (Cell("GCN", "x", Setting(dataset="coral")),))
    with Store(tmp_path / "s.sqlite") as store:
        with pytest.raises(PlanError, match=r"there is no graph called 'coral'.* \[wrong: "):
            run_plans([PLAN, wrong], store, engine=local(1))
        assert store.records() == []


def test_an_interrupt_keeps_what_is_done(tmp_path: Path) -> None:
    def interrupted(chunks: object, work: object, _: object) -> object:
        for i, result in local(1)(chunks, work):  # type: ignore[call-overload]
            yield i, result
            raise KeyboardInterrupt

    with Store(tmp_path / "s.sqlite") as store:
        with pytest.raises(KeyboardInterrupt):
            run_plans([PLAN], store, engine=interrupted)  # type: ignore[arg-type]
        assert len(store.records()) == 2
