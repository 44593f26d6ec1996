"""Run a search from its options to its report: check, search, compare."""

import hashlib
import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from wtawp.base import home
from wtawp.core import AwpConfig
from wtawp.experiments.execution.building import build_model, data_of, describe_split
from wtawp.experiments.execution.checks import check_plan
from wtawp.experiments.execution.costs import seconds_of, worthwhile_workers
from wtawp.experiments.execution.engines import Engine
from wtawp.experiments.execution.jobs import Job
from wtawp.experiments.execution.runner import SweepCounts
from wtawp.experiments.spec import Cell, Plan, PlanError, Run, RunId, Setting
from wtawp.experiments.store import Store
from wtawp.experiments.tuning.comparison import comparison_plan, run_comparison
from wtawp.experiments.tuning.objective import Trainer, search_run_ids
from wtawp.experiments.tuning.report import TuningReport, best_settings
from wtawp.experiments.tuning.search import Comparison, Progress, TimeBudget, run_search
from wtawp.experiments.tuning.space import Arm, Space, search_spaces, varies_dropout
from wtawp.experiments.tuning.study import Study, StudyError
from wtawp.graphs.composed_names import short_name


@dataclass(frozen=True)
class Search:
    """A search that was checked and can be run.

    Attributes:
        base: The setting of plain training without tuning.
        spaces: What each arm varies.
        run_ids: The splits and initialisations of a trial.
        seed: The seed of the sampler and of random splits.
    """

    base: Setting
    spaces: Mapping[Arm, Space]
    run_ids: tuple[RunId, ...]
    seed: int

    @property
    def identity(self) -> dict[str, object]:
        """What the search belongs to, as plain data: data and code with their hashes, options, space, splits, seed."""
        searched = ("awp", "lr", "weight_decay", "keep")
        shared = {name: value for name, value in self.base.content.items() if name not in searched}
        spaces = {arm: space.content for arm, space in self.spaces.items()}
        return {**shared, "seed": self.seed, "splits and initialisations": self.run_ids, "space": spaces}

    @property
    def default_path(self) -> Path:
        """The file of the trials if the user chooses none; other searches have other files. Its folder is created."""
        text = json.dumps(self.identity, sort_keys=True)
        names = re.sub(r"[^A-Za-z0-9]+", "-", f"{short_name(self.base.dataset)}-{self.base.model}").strip("-")
        folder = home() / "studies"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StudyError(f"cannot create {folder}: {error.strerror}; choose a file with --study") from error
        return folder / f"{names}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.sqlite"

    def announcements(self, study: Study) -> Iterator[str]:
        """Say what is going to be searched.

        Args:
            study: The trials that there are already.

        Yields:
            Sentences for the user.
        """
        yield describe_split(self.base, self.run_ids[0][0])
        varied = (f"{', '.join(space.dimensions) or 'nothing'} ({arm})" for arm, space in self.spaces.items())
        yield f"Varied: {'; '.join(varied)}. Trials are kept in {study.path}."
        if "dropout" not in dict(self.base.options) and not varies_dropout(self.base):
            yield f"Dropout is not varied: {self.base.model} has no argument dropout with a number as its default."
        if done := sum(len(study.trials(arm)) for arm in study.spaces):
            yield f"The search continues after {done} trials that were made before."


def prepare_search(
    base: Setting, awp: AwpConfig, *, user_set: Collection[str], seed: int, methods: Sequence[str] = ()
) -> Search:
    """Choose what every arm varies, and check that the model can be trained with the first setting of each.

    Args:
        base: The setting of plain training without tuning; its split is random or by masks.
        awp: The perturbation without tuning.
        user_set: Names of the hyper-parameters that the user chose, which are not varied.
        seed: The seed of the search.
        methods: The names of methods that are tuned beside plain training and WT-AWP.

    Returns:
        The search.

    Raises:
        PlanError: If the model cannot be trained on the data, or not with one of the methods.
        ValueError: If a method cannot be used with so few epochs.
    """
    perturbed = comparison_plan(base, {"plain": base, "WT-AWP": base}, 2)
    check_plan(Plan("this search", "", tuple(Cell("", "", cell.setting, 1) for cell in perturbed.cells)))
    run_ids = search_run_ids(base, seed)
    model = build_model(Run(base, *run_ids[0]), data_of(base, run_ids[0][0]))
    spaces = search_spaces(base, awp, model, user_set, methods)
    for space in spaces.values():
        _check_space(base, space)
    return Search(base, spaces, run_ids, seed)


def _check_space(base: Setting, space: Space) -> None:
    """Raise PlanError if the model cannot be trained with the first setting of an arm."""
    try:
        setting = space.setting(base, space.example)
    except (TypeError, ValueError) as error:
        raise PlanError(f"{base.model} cannot be trained with {space.arm}: {error}") from error
    check_plan(Plan(f"the search of {space.arm}", "", (Cell("", "", setting, 1),)))


def num_processes(search: Search, *, max_trials: int | None, budget: TimeBudget) -> int:
    """Choose between one process and one for each core.

    Args:
        search: The search.
        max_trials: The number of trials of each arm; None for any number.
        budget: The time.

    Returns:
        The number of processes, 1 where it takes longer to start them than they save.
    """
    one = sum(seconds_of(Job((Run(search.base, *run_id),))) for run_id in search.run_ids)
    seconds = budget.total if max_trials is None else min(budget.total, len(search.spaces) * max_trials * one)
    return worthwhile_workers(seconds, os.cpu_count() or 1)


def run_tuning(
    search: Search,
    study: Study,
    store: Store,
    *,
    max_trials: int | None,
    most_compared: int,
    budget: TimeBudget,
    workers: int,
    device: str,
    engine: Engine,
    progress: Progress,
    announce: Callable[[str], None],
    includes_untuned: bool = True,
) -> tuple[TuningReport, SweepCounts | None]:
    """Search, then compare what was found on other splits.

    Args:
        search: The search.
        study: The file of its trials.
        store: Where the records of the comparison are stored.
        max_trials: The number of trials of each arm; None for any number.
        most_compared: The largest number of splits of the comparison, or of initialisations of a single split.
        budget: The time for both.
        workers: The number of processes that train trials.
        device: "cpu" or "cuda".
        engine: Where the comparison is trained.
        progress: Called with the share that is done, and a description.
        announce: Called with sentences about what is done.
        includes_untuned: Whether the comparison has rows for WT-AWP without tuning.

    Returns:
        The report; and the numbers of runs of the comparison, None if the time was over before all were trained.

    Raises:
        PlanError: If a model cannot be trained.
        StudyError: If the file of the trials cannot be written.
        StoreError: If the store cannot be written.
        EngineError: If worker processes cannot be started.
    """
    base = search.base

    def plan_of(size: int) -> Plan:
        return comparison_plan(base, best_settings(study, base), size, includes_untuned=includes_untuned)

    budget = budget.without_closing()
    store.add([])  # a store that cannot be written is noticed now, not after the search
    for sentence in search.announcements(study):
        announce(sentence)
    with closing(Trainer(base, search.run_ids, device=device, workers=workers)) as trainer:
        comparison = Comparison(plan_of, most_compared, is_parallel=workers > 1)
        size = run_search(study, trainer, base, comparison, max_trials=max_trials, budget=budget, progress=progress)
    before, num_trials = budget.share, sum(len(study.trials(arm)) for arm in study.spaces)
    unit = "splits" if base.split_rule.is_random else "trainings of each row"
    announce(f"{num_trials} trials are made; their best are compared on {size} {unit} that the search did not use.")
    compared, counts = run_comparison(
        plan_of, size, store, engine=engine, device=device, end=budget.end,
        progress=lambda share, last: progress(before + (1 - before) * share, last),
    )  # fmt: skip
    return TuningReport(study, base, search.run_ids, compared), counts
