from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from wtawp.experiments.execution.costs import cost_of
from wtawp.experiments.execution.estimate import describe_cost
from wtawp.experiments.execution.jobs import Job
from wtawp.experiments.measures.shared.flips import flips_to_result
from wtawp.experiments.plans.robustness import poisoning
from wtawp.experiments.spec import Record, Run, Setting
from wtawp.experiments.store import Store
from wtawp.graphs import EdgeFlips, load

LONG = Setting(dataset="karate", epochs=2000)


def cost(chunk: tuple[Run, ...]) -> float:
    return float(len(chunk) * chunk[0].setting.epochs)


def test_the_estimate_scales_what_a_stored_run_of_the_same_data_and_model_took(
    tmp_path: Path, make_record: Callable[..., Record]
) -> None:
    jobs = [Job((Run(LONG, 0, 0), Run(LONG, 0, 1))), Job((Run(LONG, 1, 0),))]
    with Store(tmp_path / "s.sqlite") as store:
        assert "there is no estimate" in describe_cost(store, jobs, "cpu", cost)
        old = make_record(0, seconds=100.0, created="2020-01-01T00:00:00+00:00", setting=LONG.content)
        store.add([make_record(0, seconds=0.5), make_record(1, seconds=0.5), replace(old, key=Run(LONG, 0, 0).key)])
        # 200 epochs took 0.5 s, by the newest record; 3 runs of 2000 epochs take 15 s.
        assert describe_cost(store, jobs, "cpu", cost) == (
            "3 runs to train in 2 chunks, about 15 s of work for one process, by what stored runs of the same data, "
            "models, measures and attacks took."
        )
        assert "there is no estimate" in describe_cost(store, jobs, "another device", cost)

        def refuse(_: tuple[Run, ...]) -> float:
            raise ValueError("a measure that nobody registered")

        assert "there is no estimate" in describe_cost(store, jobs, "cpu", refuse)
        partly = Job(jobs[0].runs, stored=frozenset({Run(LONG, 0, 0).key}))
        assert describe_cost(store, [partly], "cpu", cost).startswith(
            "1 runs to train in 1 chunks (with 1 known ones of the same chunks, whose records stay as they are), about"
            " 10 s of work"
        ), "a run without measures is trained at full cost"
        other = replace(LONG, dataset="wine")
        assert describe_cost(store, [*jobs, Job((Run(other, 0, 0),))], "cpu", cost).endswith(
            "3 of the runs are about 15 s of work for one process, by what stored runs of the same data, models, "
            "measures and attacks took; there is no estimate for the other 1, which may take much longer."
        )


def surrogate_with(attack: str) -> Setting:
    setting = replace(LONG, poison=poisoning(attack, 0.1)).surrogate
    assert setting is not None
    return setting


def test_the_time_of_an_attack_is_that_of_stored_runs_with_the_same_attack(
    tmp_path: Path, make_record: Callable[..., Record]
) -> None:
    jobs = [Job((Run(surrogate_with("metattack"), 0, 0),)), Job((Run(LONG, 0, 0),))]
    amount = "2 runs to train in 2 chunks, 1 of them surrogates (models on which an attack finds its flips)"
    flips = flips_to_result(EdgeFlips.of(torch.tensor([[0], [9]]), 34), load("karate"))

    def add(setting: Setting, seconds: float) -> None:
        measured = [flips] if setting.measures else None
        key = Run(setting, 1, 0).key
        store.add([make_record(1, key=key, setting=setting.content, seconds=seconds, measured=measured)])

    def describe() -> str:
        return describe_cost(store, jobs, "cpu", cost_of, num_surrogates=1)

    with Store(tmp_path / "s.sqlite") as store:
        assert describe().startswith(f"{amount}. No run of the same data, model, measures and attack is stored")
        add(LONG, 2.0)
        assert describe().startswith(f"{amount}. 1 of the runs are about 2 s of work for one process, by what stored")
        assert describe().endswith("there is no estimate for the other 1, which may take much longer.")
        add(surrogate_with("dice"), 9.0)  # another attack
        assert describe().startswith(f"{amount}. 1 of the runs are about 2 s of work for one process")
        add(surrogate_with("metattack"), 5.0)
        assert describe().startswith(f"{amount}, about 7 s of work for one process, by what stored runs")


@pytest.mark.parametrize(("epochs", "words"), [(40_000, "100 s"), (400_000, "17 min"), (40_000_000, "28 h")])
def test_long_times_are_said_in_minutes_and_hours(
    tmp_path: Path, make_record: Callable[..., Record], epochs: int, words: str
) -> None:
    with Store(tmp_path / "s.sqlite") as store:
        store.add([make_record(0, seconds=0.5)])
        job = Job((Run(replace(LONG, epochs=epochs), 0, 0),))
        assert f"about {words} of work" in describe_cost(store, [job], "cpu", cost)
