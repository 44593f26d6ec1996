"""The objective of a search: the accuracy on validation nodes, computed by code that holds no label of a test node.

A `ValidationView` is all that a trial is given of the data. The labels of all other nodes than those for training and
validation are overwritten when it is made, so that no mistake further down can let a test label decide.
"""

import copy
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import wait
from statistics import fmean

import torch
from torch_geometric.data import Data

from wtawp.base import DataError, VanishingGradientWarning, rng
from wtawp.experiments.execution.building import build_model, data_of, mask_splits_of, split_of
from wtawp.experiments.execution.registrations import Registrations
from wtawp.experiments.execution.training import one_thread, schedule_of, seed_of_run
from wtawp.experiments.execution.workers import Worker, WorkerDiedError, WorkShare
from wtawp.experiments.spec import PlanError, Run, RunId, Setting
from wtawp.graphs import Split
from wtawp.training import fit_many

STAGES = (2, 4, 8)  # trainings of a trial at the end of each stage; between stages it may be pruned
FIRST_SPLIT = 1_000_000  # of the random splits of a search; comparisons count from 0
SPLITS_OF_SEED = 100  # random splits that belong to one seed
FIRST_INIT = 500  # of a search on masks; comparisons count from 0

Job = tuple[Setting, int, tuple[int, ...]]  # a setting, the number of a split, and initialisations


@dataclass(frozen=True)
class ValidationView:
    """The data of a split without the labels of its test part.

    Attributes:
        number: The number of the split.
        data: The graph, or the graphs as one batch. Labels outside of the training and validation parts are all equal.
        split: The training part, and both halves of the validation part: the first selects the epoch, and the second,
            in the place of the test part, measures the result.
    """

    number: int
    data: Data
    split: Split


def search_run_ids(setting: Setting, seed: int) -> tuple[RunId, ...]:
    """Choose the splits and initialisations on which all trials of a search are trained.

    Args:
        setting: The setting, whose split is random or by masks.
        seed: The seed of the search.

    Returns:
        Splits that no comparison uses, as comparisons count from 0; if masks describe a single split, other
        initialisations of it; if they describe several, the later half of them.
    """
    if setting.split_rule.is_random:
        first = FIRST_SPLIT + SPLITS_OF_SEED * seed
        return tuple((first + i, 0) for i in range(STAGES[-1]))
    available = mask_splits_of(setting.dataset)
    numbers = range(num_fresh_masks(available), available) or range(1)
    run_ids = [(numbers[i % len(numbers)], FIRST_INIT + i // len(numbers)) for i in range(STAGES[-1])]
    return tuple(sorted(run_ids, key=lambda run_id: run_id[1]))


def num_fresh_masks(available: int) -> int:
    """How many of the splits that masks describe a search leaves to the comparison.

    Args:
        available: The number of splits.

    Returns:
        Half of them; of a single one, that one.

    Example:
        >>> [num_fresh_masks(available) for available in (1, 2, 3, 10)]
        [1, 1, 2, 5]
    """
    return (available + 1) // 2


def validation_view(setting: Setting, number: int) -> ValidationView:
    """Load the data of a split and overwrite all labels but those for training and validation.

    Args:
        setting: The setting.
        number: The number of the split.

    Returns:
        The data that a search may see.
    """
    data = data_of(setting, number)
    split = split_of(setting, data, number)
    return ValidationView(number, hide_test_labels(data, split), halve_validation(split, number))


def halve_validation(split: Split, number: int) -> Split:
    """Replace the test part of a split by half of its validation part.

    The accuracy on nodes that selected the epoch is too high, and the more so the more it fluctuates: a search for the
    highest one finds fluctuation. On Cora it preferred settings that were 1.4 points worse on test nodes.

    Args:
        split: The split.
        number: The number of the split, which is the seed of the halves.

    Returns:
        The training part and two halves of the validation part, drawn at random.

    Raises:
        DataError: If the validation part has less than two nodes.
    """
    if len(split.val) < 2:
        raise DataError(f"a search needs two validation nodes or more, got {len(split.val)}; choose a larger --val")
    order = torch.randperm(len(split.val), generator=rng("halves", number)).to(split.val.device)
    return Split(split.train, split.val[order[::2]], split.val[order[1::2]])


def hide_test_labels(data: Data, split: Split) -> Data:
    """Overwrite all labels but those for training and validation.

    Args:
        data: The graph, or the graphs as one batch; it is left as it is.
        split: The split.

    Returns:
        The same data with other labels: elsewhere all are that of the first training node.
    """
    visible = torch.cat([split.train, split.val])
    labels = torch.full_like(data.y, int(data.y[split.train[0]]))
    labels[visible] = data.y[visible]
    hidden = copy.copy(data)
    hidden.y = labels
    return hidden


def train_view(
    job: Job, *, views: Mapping[int, ValidationView], device: str, registrations: Registrations
) -> list[float]:
    """Train models on one split and measure them on its validation part.

    Args:
        job: The setting, the number of the split, and the initialisations, which are trained as one stack.
        views: The data by the number of the split.
        device: "cpu" or "cuda".
        registrations: What the user registered in the process that started the search.

    Returns:
        The accuracy of each model at its selected epoch, between 0 and 1, on the half of the validation part that did
        not select it.

    Raises:
        PlanError: If the models cannot be trained.
    """
    registrations.apply()
    setting, number, inits = job
    view, runs = views[number], [Run(setting, number, init) for init in inits]
    with one_thread(), warnings.catch_warnings():
        # Some trials are bad, which their accuracy says.
        warnings.simplefilter("ignore", VanishingGradientWarning)
        warnings.filterwarnings("ignore", message="the training loss of")
        try:
            models = [build_model(run, view.data).to(device) for run in runs]
            fits = fit_many(
                models, view.data, view.split, seeds=[seed_of_run(run) for run in runs], **schedule_of(setting)
            )
        except Exception as error:  # of a model of the user, any
            raise PlanError(f"{type(error).__name__}: {error} [{setting}]") from error
    return [fitted.scores["test"] for fitted in fits]  # the second half of the validation part


class Trainer:
    """Trains the models of trials, in this process or in worker processes that live as long as the search.

    Args:
        setting: What all trials share.
        run_ids: The splits and initialisations of a trial.
        device: "cpu" or "cuda".
        workers: The number of processes; 1 trains in this one.
    """

    def __init__(self, setting: Setting, run_ids: Sequence[RunId], *, device: str, workers: int) -> None:
        self._run_ids = tuple(run_ids)
        numbers = dict.fromkeys(number for number, _ in self._run_ids)
        views = {number: validation_view(setting, number) for number in numbers}
        self._work = partial(train_view, views=views, device=device, registrations=Registrations.collect())
        self._num_workers = min(workers, len(numbers))
        self._workers: list[Worker] = []

    def accuracy(self, setting: Setting, first: int, last: int) -> float:
        """Train some of the models of a trial.

        Args:
            setting: The setting of the trial.
            first: The index of the first run.
            last: The index after the last run.

        Returns:
            Their mean validation accuracy, between 0 and 1.

        Raises:
            PlanError: If the models cannot be trained, or a worker process died.
        """
        inits: dict[int, list[int]] = {}
        for number, init in self._run_ids[first:last]:
            inits.setdefault(number, []).append(init)
        jobs = [(setting, number, tuple(each)) for number, each in inits.items()]
        results = [self._work(job) for job in jobs] if self._num_workers == 1 else self._distribute(jobs)
        return fmean(accuracy for result in results for accuracy in result)

    def _distribute(self, jobs: list[Job]) -> list[list[float]]:
        """Let the workers train the jobs; the order of the results is that of the jobs."""
        if not self._workers:
            self._workers = [Worker(self._work) for _ in range(self._num_workers)]
            for worker in self._workers:
                self._answer_of(worker)
        results: list[list[float]] = []
        for start in range(0, len(jobs), len(self._workers)):
            busy = list(zip(self._workers, jobs[start:], strict=False))
            for i, (worker, job) in enumerate(busy):
                worker.begin(start + i, job)
            results += [self._answer_of(worker) for worker, _ in busy]
        return results

    def _answer_of(self, worker: Worker) -> list[float]:
        """Wait for the answer of a worker, which also says now and then how much it has done."""
        try:
            while True:
                wait([worker.connection])
                answer: list[float] | WorkShare = worker.receive()
                if not isinstance(answer, WorkShare):
                    return answer
        except WorkerDiedError as death:
            raise PlanError(f"a worker process {death}; --workers 1 trains without worker processes") from death

    def close(self) -> None:
        """End the worker processes."""
        for worker in self._workers:
            worker.kill()
        self._workers = []
