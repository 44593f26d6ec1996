import os

import pytest

from wtawp.core import AwpConfig
from wtawp.experiments.execution import costs
from wtawp.experiments.execution.costs import (
    cost_of,
    local_if_worthwhile,
    remaining_share,
    seconds_of,
    training_share,
    worthwhile_workers,
)
from wtawp.experiments.execution.jobs import Job
from wtawp.experiments.spec import MeasureRequest, Run, Setting


def job(**options: object) -> Job:
    return Job((Run(Setting(dataset="wine", **options), 0, 0),))  # type: ignore[arg-type]


def test_a_chunk_costs_its_epochs_passes_and_runs() -> None:
    plain, perturbed = (job(epochs=100, awp=awp).runs for awp in (None, AwpConfig(rho=1.0, lam=0.5)))
    assert cost_of(plain) == 150
    assert cost_of(perturbed) == 250
    assert cost_of(plain * 3) == 450
    momentum = AwpConfig(rho=0.3, lam=1.0, layers="*", radius="global", direction="momentum")
    assert cost_of(job(epochs=100, awp=momentum).runs) == 150, "one pass a step"


def test_the_share_of_training_is_what_measures_leave_of_the_time() -> None:
    assert training_share(Setting(dataset="wine", epochs=100)) == 1.0
    attacked = Setting(
        dataset="wine", epochs=100, measures=(MeasureRequest("evasion", (("attack", "pgd"), ("budget", 0.05))),)
    )
    assert training_share(attacked) == 150 / (150 + 15_000)


def test_stored_runs_of_a_chunk_cost_their_training_alone() -> None:
    measured = MeasureRequest("evasion", (("attack", "pgd"), ("budget", 0.05)))
    setting = Setting(dataset="wine", epochs=100, measures=(measured,))
    runs = tuple(Run(setting, 0, init) for init in range(3))
    share = remaining_share(Job(runs, stored=frozenset({runs[0].key})))
    assert share * cost_of(runs) == pytest.approx(3 * 150 + 2 * 15_000)
    assert remaining_share(Job(runs)) == 1.0


def test_large_graphs_take_longer_than_small_ones() -> None:
    large = Job((Run(Setting(dataset="citation"), 0, 0),))
    assert seconds_of(job()) < seconds_of(large) < 10 * seconds_of(job())


def test_workers_are_started_only_if_they_save_time() -> None:
    assert worthwhile_workers(9.0, 2) == 1
    assert worthwhile_workers(11.0, 2) == 2
    assert worthwhile_workers(1000.0, 1) == 1


def test_tiny_jobs_are_done_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(local_if_worthwhile(2)([job(epochs=1), job(epochs=2)], process_of)) == [
        (0, os.getpid()),
        (1, os.getpid()),
    ]
    monkeypatch.setattr(costs, "START_SECONDS", 0.0)
    assert os.getpid() not in dict(local_if_worthwhile(2)([job(epochs=1)], process_of)).values()


def process_of(_: object) -> int:
    return os.getpid()
