"""The loop of a search: trials of all arms in turn, until their number or the time is reached."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from wtawp.experiments.execution.costs import START_SECONDS, cost_of
from wtawp.experiments.spec import Plan, Run, Setting
from wtawp.experiments.tuning.objective import STAGES, Trainer
from wtawp.experiments.tuning.space import Arm
from wtawp.experiments.tuning.study import FIRST_STAGE, Study, Trial

RECENT = 5  # trials by which the time of the next one is estimated
LARGEST_RESERVE = 0.4  # of the time, for the comparison
SAFETY = 1.15  # by which an estimate of the comparison is multiplied
CLOSING = 1.5  # times the seconds that the start took, for tables, figures and the end of all processes
MIN_COMPARED = 2  # splits of a comparison

Progress = Callable[[float, str], None]  # is called with the share that is done, and what was done last


@dataclass(frozen=True)
class TimeBudget:
    """The time of a search and of the comparison that follows it.

    Attributes:
        start: When the search started, by `time.monotonic`.
        end: When everything shall be over; infinity without a limit.
    """

    start: float
    end: float

    @staticmethod
    def of_minutes(minutes: float | None, *, start: float) -> "TimeBudget":
        """Make a budget.

        Args:
            minutes: The time; None for no limit.
            start: When it starts, by `time.monotonic`.

        Returns:
            The budget.
        """
        return TimeBudget(start, math.inf if minutes is None else start + 60 * minutes)

    def without_closing(self) -> "TimeBudget":
        """Keep time back for what follows the comparison, when the search is about to begin.

        Returns:
            The budget without some seconds: those of a start of this program on this machine, which may be busy, and
            half as many again.
        """
        return TimeBudget(self.start, self.end - CLOSING * (time.monotonic() - self.start))

    @property
    def total(self) -> float:
        """All seconds."""
        return self.end - self.start

    @property
    def share(self) -> float:
        """The share of the time that is over, between 0 and 1; 0 without a limit."""
        return min(1.0, (time.monotonic() - self.start) / max(self.total, 1.0))


@dataclass(frozen=True)
class Comparison:
    """How large the comparison after a search may become.

    Attributes:
        plan_of: Makes the plan with a number of splits, or of initialisations where there is a single split.
        most: The largest such number.
        is_parallel: Whether worker processes are started for it, which takes time.
    """

    plan_of: Callable[[int], Plan]
    most: int
    is_parallel: bool = False


def run_search(
    study: Study,
    trainer: Trainer,
    base: Setting,
    comparison: Comparison,
    *,
    max_trials: int | None,
    budget: TimeBudget,
    progress: Progress,
) -> int:
    """Make trials of all arms, equally many of each, and keep enough time back for the comparison.

    At least one trial of each arm is made. A new round of trials begins only if all of them can end in time, as far as
    the last ones tell.

    Args:
        study: The file of the trials.
        trainer: Trains their models.
        base: What all trials share.
        comparison: What follows the search.
        max_trials: The number of trials of each arm, those of earlier calls included; None for any number.
        budget: The time.
        progress: Called with the share that is done, and a description, after each trial.

    Returns:
        How many splits, or initialisations of a single split, the comparison has time for; at least two.

    Raises:
        PlanError: If a model cannot be trained.
        StudyError: If the file cannot be written.
    """
    arms = tuple(study.spaces)
    while True:
        counts = {arm: len(study.trials(arm)) for arm in arms}
        arm = min(arms, key=lambda a: counts[a])
        if max_trials is not None and counts[arm] >= max_trials:
            break
        if 0 < counts[arm] == max(counts.values()):
            _, reserve = _affordable(study, base, comparison, budget)
            if time.monotonic() + sum(_usual_seconds(study, a) for a in arms) > budget.end - reserve:
                break
        run_trial(study, trainer, base, arm)
        done = sum(counts.values()) + 1
        by_number = 0.0 if max_trials is None else (1 - LARGEST_RESERVE) * done / (len(arms) * max_trials)
        progress(max(budget.share, by_number), _describe(study, arm))
    return _affordable(study, base, comparison, budget)[0]


def run_trial(study: Study, trainer: Trainer, base: Setting, arm: Arm) -> Trial:
    """Make one trial: train it stage by stage, until it is pruned or all models are trained.

    Args:
        study: The file of the trials.
        trainer: Trains the models.
        base: What all trials share.
        arm: The arm.

    Returns:
        The finished trial.

    Raises:
        PlanError: If a model cannot be trained.
        StudyError: If the file cannot be written.
    """
    start = time.monotonic()
    active = study.begin(arm)
    setting = study.spaces[arm].setting(base, active.parameters)
    mean, done = 0.0, 0
    for stage, end in enumerate(STAGES, FIRST_STAGE):
        mean = (done * mean + (end - done) * trainer.accuracy(setting, done, end)) / end
        done = end
        if active.is_hopeless(mean, stage) and end < STAGES[-1]:
            break
    active.finish(mean if done == STAGES[-1] else None, time.monotonic() - start)
    return study.trials(arm)[-1]


def _describe(study: Study, arm: Arm) -> str:
    """What the progress bar says after a trial."""
    best = study.best(arm)
    value = "pruned" if best is None or best.accuracy is None else f"best {100 * best.accuracy:.2f} %"
    return f"{arm} trial {len(study.trials(arm))}: {value}"


def _usual_seconds(study: Study, arm: Arm) -> float:
    """The seconds of a trial that is not pruned: the median of the last ones, since the very first warms up."""
    recent = [trial.seconds for trial in study.trials(arm) if trial.accuracy is not None][-RECENT:]
    return median(recent) if recent else 0.0


def _affordable(study: Study, base: Setting, comparison: Comparison, budget: TimeBudget) -> tuple[int, float]:
    """How large the comparison may be, and the seconds that it takes."""
    rates = [
        _usual_seconds(study, arm) / (STAGES[-1] * _cost(study, base, arm)) for arm in study.spaces
    ]  # seconds for a unit of cost, all processes together
    sizes = range(comparison.most, MIN_COMPARED - 1, -1) or [comparison.most]
    size, seconds = comparison.most, 0.0
    for size in sizes:
        cost = sum(cost_of((run,)) for run in comparison.plan_of(size).runs())
        seconds = SAFETY * max(rates) * cost + START_SECONDS * comparison.is_parallel
        if seconds <= LARGEST_RESERVE * budget.total:
            break
    return size, seconds


def _cost(study: Study, base: Setting, arm: Arm) -> float:
    """The cost of one training of an arm, which its hyper-parameters do not change."""
    trials = study.trials(arm)
    return cost_of((Run(study.spaces[arm].setting(base, trials[0].parameters), 0, 0),)) if trials else 1.0
