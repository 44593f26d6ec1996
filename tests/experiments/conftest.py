from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from wtawp.core import AwpConfig
from wtawp.experiments import Demo, run_demo
from wtawp.experiments.plans.robustness import attack_plan
from wtawp.experiments.report.drawing import observe_figures
from wtawp.experiments.results.summary import PlanReport, summarise
from wtawp.experiments.spec import Cell, Contender, Plan, Record, Run, Setting

Accuracy = Callable[[Cell, int, int], float]  # of a cell, a split and an initialisation, in per cent
MakeRecords = Callable[..., list[Record]]


@pytest.fixture(scope="session")
def small_demo() -> Demo:
    """The demonstration, too short to mean anything."""
    return run_demo(dataset="wine", num_splits=2, epochs=3, workers=1)


def as_printed(cell: Cell, split: int, init: int) -> float:
    """Near the printed number, or 85: a shift for each split, and a smaller one for each initialisation."""
    noise = np.random.default_rng([split, init, len(cell.row), len(cell.column)])
    shared = np.random.default_rng(split).normal(0, 0.5)
    return float((cell.printed or (85.0, None))[0] + shared + noise.normal(0, 0.1))


def made_up(run: Run, accuracy: float, device: str) -> Record:
    """A record that nobody trained, with curves and scores where the setting keeps them."""
    rng = np.random.default_rng([run.split, run.init, int(run.key[:8], 16)])
    epochs = np.arange(run.setting.epochs)
    fall = np.exp(-epochs / 40)
    wobble = np.exp(rng.normal(0, 0.1, len(epochs)))
    history = {
        "train_loss": 0.1 + 0.6 * fall * wobble,
        "gap": 0.3 * fall * wobble,
        "gradient_norm": 0.2 * fall * wobble,
        "perturbed_norm": np.exp(-epochs / 5) * wobble,
        "weight_norm": 5 + epochs / 50,
    }
    return Record(
        key=run.key,
        setting=run.setting.content,
        split=run.split,
        init=run.init,
        device=device,
        status="done",
        epoch=len(epochs) - 1,
        accuracy={"train": 1.0, "val": accuracy / 100, "test": accuracy / 100},
        loss={"train": 0.1, "val": 0.5, "test": 0.5},
        history={k: v.tolist() for k, v in history.items()} if "history" in run.setting.keep else None,
        scores=rng.uniform(-1, 1, 200).tolist() if "scores" in run.setting.keep else None,
        seconds=0.5,
        created="2023-02-07T00:00:00+00:00",
        versions={"torch": "2.13.0", "wtawp": "0.1"},
    )


@pytest.fixture(scope="session")
def make_records() -> MakeRecords:
    """Records for every run of a plan."""

    def make(plan: Plan, accuracy: Accuracy = as_printed, device: str = "cpu") -> list[Record]:
        def each() -> Iterator[Record]:
            for cell in plan.cells:
                yield from (made_up(run, accuracy(cell, run.split, run.init), device) for run in cell.runs())

        return list(each())

    return make


@pytest.fixture(scope="session")
def small_plan() -> Plan:
    """Two rows, two columns, one pair; 4 splits of 2 initialisations."""
    cells = []
    for dataset, printed in (("cora", (84.0, 85.0)), ("karate", (70.0, 70.2))):
        for row, awp, number in (("GCN", None, printed[0]), ("WT-AWP", AwpConfig(rho=1.0, lam=0.7), printed[1])):
            setting = Setting(dataset=dataset, awp=awp)
            cells.append(Cell(row, dataset, setting, 4, 2, printed=(number, 0.5)))
    return Plan("tab:small", "A small table", tuple(cells), (("GCN", "WT-AWP"),))


@pytest.fixture
def plotted() -> Iterator[list[list[Any]]]:
    """The axes of every figure that the test draws, as they are when the figure is saved."""
    drawn: list[list[Any]] = []
    with observe_figures(lambda figure: drawn.append(list(figure.axes))):
        yield drawn


@pytest.fixture(scope="session")
def poisoned_plan() -> Plan:
    """A GCN with and without WT-AWP on a clean and on a poisoned graph, three splits of two initialisations."""
    return attack_plan(
        Setting(dataset="wine"), "dice", [0.05], awp=AwpConfig(rho=1.0, lam=0.7), poison=True, adaptive=False, splits=3,
        inits=2,
    )  # fmt: skip


@pytest.fixture(scope="session")
def poisoned_records(poisoned_plan: Plan, make_records: MakeRecords) -> list[Record]:
    """The attack takes 10 points from the GCN, and 1.0, 1.5 and 0.5 less than that from WT-AWP, split by split."""

    def accuracy(cell: Cell, split: int, init: int) -> float:
        clean = 90.0 + split + 0.1 * init + (2.0 if cell.setting.awp else 0.0)
        less = (1.0, 1.5, 0.5)[split] if cell.setting.awp else 0.0
        return clean if cell.setting.poison is None else clean - 10.0 + less

    return make_records(poisoned_plan, accuracy)


@pytest.fixture(scope="session")
def league_report() -> PlanReport:
    """Three methods of two trials on four data sets, four splits each.

    The first trial of each is better on test nodes, the second on validation nodes, which is the one that counts.
    """
    gains = {"plain": (0.0, 0.0, 0.0, 0.0), "WT-AWP": (2.0, 1.0, 3.0, -1.0), "SAM": (0.5, 0.0, -0.5, 0.5)}
    awps = {"plain": None, "WT-AWP": AwpConfig(rho=1.0, lam=0.7), "SAM": AwpConfig(rho=0.1, lam=1.0, layers="all")}
    columns, decays = ("cora", "citeseer", "wine", "digits"), (1e-3, 1e-4)
    cells, records = [], []
    for name, by_column in gains.items():
        for column, gain in zip(columns, by_column, strict=True):
            for decay in decays:
                setting = Setting(dataset=column, awp=awps[name], weight_decay=decay)
                cell, counts = Cell(f"{name}: {decay}", column, setting, 4, 1), decay == decays[1]
                cells.append(cell)
                for run in cell.runs():
                    test = 80.0 + run.split + gain * (1 + 0.1 * run.split) + (0.0 if counts else 5.0)
                    overfits = (columns.index(column) + 1) / 10
                    records.append(replace(
                        made_up(run, test, "cpu"), seconds=1.0 if name == "plain" else 2.5,
                        accuracy={"train": 1.0, "val": 0.9 if counts else 0.8, "test": test / 100},
                        loss={"train": 1 - overfits, "val": 1 + overfits, "test": 1.0},
                    ))  # fmt: skip
    league = tuple(Contender(name, tuple(f"{name}: {decay}" for decay in decays)) for name in gains)
    return summarise(Plan("league", "A league", tuple(cells), league=league), records)
