"""The comparison after a search, on splits that the search did not use: ordinary runs, stored as all others are."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache

import torch

from wtawp.core import AwpConfig
from wtawp.experiments.execution.building import mask_splits_of
from wtawp.experiments.execution.engines import Engine
from wtawp.experiments.execution.provenance import device_name
from wtawp.experiments.execution.runner import SweepCounts, run_plans
from wtawp.experiments.plans.defaults import default_awp
from wtawp.experiments.results.summary import PlanReport, summarise
from wtawp.experiments.spec import Cell, Plan, Setting
from wtawp.experiments.store import Store
from wtawp.experiments.tuning.objective import num_fresh_masks
from wtawp.experiments.tuning.search import MIN_COMPARED, Progress
from wtawp.experiments.tuning.space import Arm
from wtawp.models.registry import model_spec

AUTO_RHO = 1.0  # with lam="auto"


@dataclass(frozen=True)
class RowNames:
    """The names of the rows of a comparison.

    Attributes:
        plain: Plain training, tuned.
        tuned: WT-AWP, tuned.
        paper: WT-AWP with the paper's setting.
        auto: WT-AWP whose lam follows the training.
    """

    plain: str
    tuned: str
    paper: str
    auto: str

    def of_method(self, name: str) -> str:
        """Name the row of another method, tuned.

        Args:
            name: The name of the method.

        Returns:
            The name of the row.
        """
        return self.plain.replace(", tuned", f"+{name}, tuned")

    @staticmethod
    def of_model(model: str) -> "RowNames":
        """Name the rows of a model.

        Args:
            model: The name of the model.

        Returns:
            The names.

        Example:
            >>> RowNames.of_model("GCN").tuned
            'GCN+WT-AWP, tuned'
        """
        return RowNames(f"{model}, tuned", *(f"{model}+WT-AWP, {way}" for way in ("tuned", "paper's setting", "auto")))


def comparison_plan(base: Setting, tuned: Mapping[Arm, Setting], size: int, *, includes_untuned: bool = True) -> Plan:
    """Make the plan that compares the results of a search, and WT-AWP as it is used without tuning.

    Args:
        base: The setting of plain training without tuning.
        tuned: The best setting of each arm.
        size: The number of random splits. Splits of masks are those that the search did not use, each with so many
            initialisations that there are at least `size` trainings.
        includes_untuned: Whether there are rows for WT-AWP without tuning: with the paper's setting, and with
            lam="auto". They are compared with tuned WT-AWP; without them, the other tuned methods are.

    Returns:
        The plan; its splits count from 0, as those of all comparisons do.

    Raises:
        ValueError: If the weights of the model cannot be perturbed.
    """
    names = RowNames.of_model(base.model)
    paper = default_awp(base.model, base.dataset)
    if paper is None:
        raise ValueError(f"the weights of {base.model} cannot be perturbed")
    auto = AwpConfig(rho=AUTO_RHO, lam="auto", layers=model_spec(base.model).layers)
    others = {names.of_method(arm): setting for arm, setting in tuned.items() if arm not in ("plain", "WT-AWP")}
    untuned = {
        names.paper: replace(base, awp=paper, hash_sources=False),
        names.auto: replace(base, awp=auto, hash_sources=False),
    } if includes_untuned else {}  # fmt: skip
    settings = {names.plain: tuned["plain"], names.tuned: tuned["WT-AWP"], **others, **untuned}
    splits, inits = (size, 1) if base.split_rule.is_random else _sizes_of_masks(base.dataset, size)
    cells = tuple(Cell(row, base.dataset, setting, splits, inits) for row, setting in settings.items())
    compared_with_tuned = untuned if includes_untuned else others
    pairs = (
        *((names.plain, row) for row in settings if row != names.plain),
        *((row, names.tuned) for row in compared_with_tuned),
    )
    return Plan(
        "tuning", f"{base.model} tuned with and without WT-AWP, on splits that the search did not use", cells, pairs
    )


def run_comparison(
    plan_of: Callable[[int], Plan],
    size: int,
    store: Store,
    *,
    engine: Engine,
    device: str,
    end: float,
    progress: Progress,
) -> tuple[PlanReport, SweepCounts | None]:
    """Train the runs of a comparison split by split, all rows of a split together, until the time is over.

    Args:
        plan_of: Makes the plan of a size.
        size: The number of splits, or of initialisations of a single split.
        store: Where the records are stored.
        engine: Where chunks are trained.
        device: "cpu" or "cuda".
        end: When it shall be over, by `time.monotonic`. Two splits are trained in any case.
        progress: Called with the share that is done, and a description, after each chunk.

    Returns:
        The comparison on the splits that all rows have; and the numbers of runs, None if the time was over before all
        of them were trained.

    Raises:
        PlanError: If a plan cannot be run.
        StoreError: If the store cannot be written.
        EngineError: If worker processes cannot be started.
    """
    sizes = [plan_of(n) for n in range(1, size + 1)]
    by_split = Plan(sizes[-1].name, sizes[-1].title, tuple(cell for plan in sizes for cell in plan.cells))
    smallest, where = sizes[min(MIN_COMPARED, size) - 1], device_name(device, tf32=False)

    pauses, last_time = [0.0], time.monotonic()

    def report_or_stop(share: float, last: str) -> None:
        nonlocal last_time
        progress(share, last)
        now = time.monotonic()
        pauses.append(now - last_time)
        last_time = now
        # The first pause includes the start of worker processes.
        if now + max(pauses[2:], default=0.0) > end and share < 1 and _is_complete(smallest, store, where):
            raise _TimeIsUpError

    counts: SweepCounts | None = None
    try:
        counts = run_plans([by_split], store, engine=engine, device=device, progress=report_or_stop)
    except _TimeIsUpError:
        sizes = [plan for plan in sizes if _is_complete(plan, store, where)]
    records = store.records(run.key for run in sizes[-1].runs())
    return summarise(sizes[-1], records, where), counts


class _TimeIsUpError(Exception):
    """Raised between two chunks to end a comparison."""


def _is_complete(plan: Plan, store: Store, device: str) -> bool:
    """Whether all runs of a plan are stored from this device."""
    keys = [run.key for run in plan.runs()]
    return len(store.done(keys, device, str(torch.__version__))) == len(keys)


@cache
def _sizes_of_masks(dataset: str, size: int) -> tuple[int, int]:
    """The numbers of splits and of initialisations on masks."""
    splits = num_fresh_masks(mask_splits_of(dataset))
    return splits, max(1, -(-size // splits))
