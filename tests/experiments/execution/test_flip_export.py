from dataclasses import replace
from pathlib import Path

from wtawp.experiments.execution.engines import local
from wtawp.experiments.execution.flip_export import save_flips
from wtawp.experiments.execution.runner import run_plans
from wtawp.experiments.plans.robustness import evading, poisoning
from wtawp.experiments.spec import Cell, Plan, Setting
from wtawp.experiments.store.database import Store
from wtawp.graphs import EdgeFlips


def test_flips_of_evasions_and_of_poisonings_come_out_of_records(tmp_path: Path) -> None:
    base = Setting(dataset="wine", epochs=2)
    cells = (
        Cell("evaded", "", replace(base, measures=(evading("dice", 0.05), evading("dice", 0.1))), 2, 1),
        Cell("poisoned", "", replace(base, poison=poisoning("dice", 0.2)), 2, 2),
    )
    with Store(tmp_path / "s.sqlite") as store:
        plan = Plan("mine", "", cells)
        run_plans([plan], store, engine=local(1))
        files = save_flips(plan, store, tmp_path / "flips")
    assert sorted(files) == sorted((tmp_path / "flips").iterdir())
    budgets = [dict(EdgeFlips.load(file).provenance)["budget"] for file in files]
    assert sorted(budgets) == ["0.05", "0.05", "0.1", "0.1", "0.2", "0.2"]
    names = {f"wine-GCN-dice-{budget}-split{i}-init0.npz" for budget in ("0.05", "0.1", "0.2") for i in (0, 1)}
    assert {file.name for file in files} == names


def test_flips_whose_names_would_be_the_same_are_told_apart_by_their_keys(tmp_path: Path) -> None:
    short, long = (Setting(dataset="wine", epochs=epochs, measures=(evading("dice", 0.05),)) for epochs in (1, 2))
    plan = Plan("mine", "", (Cell("short", "", short, 1, 1), Cell("long", "", long, 1, 1)))
    with Store(tmp_path / "s.sqlite") as store:
        run_plans([plan], store, engine=local(1))
        files = save_flips(plan, store, tmp_path / "flips")
    keys = [run.key for run in plan.runs()]
    assert len(set(files)) == 2
    assert all(any(file.name.startswith(f"wine-GCN-dice-0.05-split0-init0-{key}") for file in files) for key in keys)
