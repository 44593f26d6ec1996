from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from wtawp.experiments.execution.estimate import describe_cost
from wtawp.experiments.spec import Record, Run, Setting
from wtawp.experiments.store import Store

LONG = Setting(dataset="karate", epochs=2000)


def cost(chunk: tuple[Run, ...]) -> float:
    return float(len(chunk) * chunk[0].setting.epochs)


def test_the_estimate_scales_what_a_stored_run_of_the_same_data_and_model_took(
    tmp_path: Path, make_record: Callable[..., Record]
) -> None:
    chunks = [(Run(LONG, 0, 0), Run(LONG, 0, 1)), (Run(LONG, 1, 0),)]
    with Store(tmp_path / "s.sqlite") as store:
        assert "there is no estimate" in describe_cost(store, chunks, "cpu", cost)
        old = make_record(0, seconds=100.0, created="2020-01-01T00:00:00+00:00", setting=LONG.content)
        store.add([make_record(0, seconds=0.5), make_record(1, seconds=0.5), replace(old, key=Run(LONG, 0, 0).key)])
        # 200 epochs took 0.5 s, by the newest record; 3 runs of 2000 epochs take 15 s.
        assert describe_cost(store, chunks, "cpu", cost) == (
            "3 runs to train in 2 chunks, about 15 s of work for one process, by what stored runs of the same data and "
            "models took."
        )
        assert "there is no estimate" in describe_cost(store, chunks, "another device", cost)

        def refuse(_: tuple[Run, ...]) -> float:
            raise ValueError("a measure that nobody registered")

        assert "there is no estimate" in describe_cost(store, chunks, "cpu", refuse)
        other = replace(LONG, dataset="wine")
        assert "there is no estimate" in describe_cost(store, [*chunks, (Run(other, 0, 0),)], "cpu", cost)


@pytest.mark.parametrize(("epochs", "words"), [(40_000, "100 s"), (400_000, "17 min"), (40_000_000, "28 h")])
def test_long_times_are_said_in_minutes_and_hours(
    tmp_path: Path, make_record: Callable[..., Record], epochs: int, words: str
) -> None:
    with Store(tmp_path / "s.sqlite") as store:
        store.add([make_record(0, seconds=0.5)])
        chunk = (Run(replace(LONG, epochs=epochs), 0, 0),)
        assert f"about {words} of work" in describe_cost(store, [chunk], "cpu", cost)
