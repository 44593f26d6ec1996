"""Reports of a clean and of a poisoned plan, whose numbers are known."""

from collections.abc import Callable

import pytest

from wtawp.experiments.results.summary import PlanReport, summarise
from wtawp.experiments.spec import Cell, Plan, Record


@pytest.fixture
def reports(
    small_plan: Plan, poisoned_plan: Plan, poisoned_records: list[Record], make_records: Callable[..., list[Record]]
) -> list[PlanReport]:
    def accuracy(cell: Cell, split: int, _init: int) -> float:
        return 80.0 + split + (2.25 if cell.row == "WT-AWP" else 0.0) * (1 + split)

    return [
        summarise(small_plan, make_records(small_plan, accuracy)), summarise(poisoned_plan, poisoned_records)
    ]  # fmt: skip
