from dataclasses import replace
from pathlib import Path

from wtawp.experiments.execution.engines import local
from wtawp.experiments.execution.flip_files import save_flips
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
