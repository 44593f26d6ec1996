"""Train runs: a chunk of a sweep as one stack, or a single model that is then inspected."""

import copy
import hashlib
import io
import time
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data

from wtawp.base import VanishingGradientWarning, part_of_progress, write_atomic
from wtawp.experiments.execution.building import build_model, data_of, graphs_of, split_of
from wtawp.experiments.execution.changed_files import ChangedFileError, FileHashes, refuse_changed
from wtawp.experiments.execution.checks import check_plan, noise_augmentation
from wtawp.experiments.execution.costs import training_share
from wtawp.experiments.execution.jobs import Job
from wtawp.experiments.execution.kept_weights import load_checkpoint, train_or_load
from wtawp.experiments.execution.monitors import CURVES, monitors_of, observer
from wtawp.experiments.execution.provenance import device_name, versions
from wtawp.experiments.execution.registrations import Registrations
from wtawp.experiments.measures.shared.interface import Result, TrainedModels
from wtawp.experiments.measures.shared.registry import run_measure
from wtawp.experiments.spec import MAX_INITS, Cell, Plan, PlanError, Record, Run, Setting
from wtawp.graphs import EdgeFlips, Split, inductive
from wtawp.models.calls import arguments_of
from wtawp.training import Fit, evaluate, fit, fit_batches, fit_many

# The fit of one run, the scores of its nodes if they are kept, and the results of its measures.
_Measured = tuple[Fit | None, list[float] | None, list[Result] | None]


def train_job(
    job: Job,
    *,
    device: str,
    tf32: bool,
    registrations: Registrations,
    weights: Path | None = None,
) -> list[Record]:
    """Train the runs of a job, perhaps in a process that knows no registrations yet.

    Args:
        job: The job.
        device: "cpu" or "cuda".
        tf32: Whether TF32 matrix products are allowed.
        registrations: What the user registered in the process that started the sweep.
        weights: The folder in which weights are kept; None keeps none.

    Returns:
        A record for each run that is not stored.

    Raises:
        ChangedFileError: If a file whose content is part of the keys changed meanwhile.
    """
    registrations.apply()
    return train(
        job.runs, job.flips, device=device, tf32=tf32, weights=weights, stored=job.stored, files=job.files
    )  # fmt: skip


def train(
    runs: tuple[Run, ...],
    flips: EdgeFlips | None = None,
    *,
    device: str,
    tf32: bool = False,
    weights: Path | None = None,
    stored: Collection[str] = (),
    files: FileHashes = (),
) -> list[Record]:
    """Train runs of one setting as one stack, on one thread, so that results do not depend on the number of cores.

    Args:
        runs: Runs of one setting.
        flips: The flips that poison the graph of their split, if the setting asks for it.
        device: "cpu" or "cuda".
        tf32: Whether TF32 matrix products are allowed.
        weights: The folder in which weights are kept, so that runs that differ in their measures alone are trained
            once; None keeps none.
        stored: The keys of runs that have a record already and are neither measured nor recorded, as in `Job`.
        files: The files whose content is part of the keys, with their hashes, as in `Job`.

    Returns:
        A record for each run that is not stored. An exception, or a call of `sys.exit`, is not raised; it makes all of
        them records of failed runs.

    Raises:
        ChangedFileError: If one of the files has changed, before the training or during it.
    """
    job = Job(runs, flips, frozenset(stored), files)
    start = time.perf_counter()
    outcomes: list[_Measured] = []
    seconds_of_measures: list[float] = []
    error = None
    with one_thread():
        try:
            outcomes = _train(job, device, tf32, weights, seconds_of_measures)
        except ChangedFileError:
            raise
        except (Exception, SystemExit):  # the sweep goes on; the records hold the traceback
            error = traceback.format_exc()
    refuse_changed(files)
    seconds = time.perf_counter() - start
    if error is not None:
        return failed_records(job, device=device, tf32=tf32, error=error, seconds=seconds)
    measuring = sum(seconds_of_measures)
    each = (seconds - measuring) / len(job.runs) + measuring / len(job.new_indices)
    return _records(job, outcomes, device=device, tf32=tf32, error=None, seconds=each)


def failed_records(job: Job, *, device: str, tf32: bool, error: str, seconds: float) -> list[Record]:
    """Make the records of a chunk that failed.

    Args:
        job: The chunk.
        device: "cpu" or "cuda".
        tf32: Whether TF32 matrix products are allowed.
        error: The traceback, or what else is known of the cause.
        seconds: The time that was spent on the chunk.

    Returns:
        A record for each run that is not stored, with the status "failed".
    """
    nothing: list[_Measured] = [(None, None, None)] * len(job.runs)
    return _records(job, nothing, device=device, tf32=tf32, error=error, seconds=seconds / len(job.new_indices))


def _records(
    job: Job, outcomes: list[_Measured], *, device: str, tf32: bool, error: str | None, seconds: float
) -> list[Record]:
    """Make the records of the runs of a chunk that are not stored, `seconds` each; runs without a fit have failed."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    provenance = versions() | {"stack": str(len(job.runs))}  # stacks of other sizes round differently
    if job.flips is not None:
        provenance |= {"flips": hashlib.sha256(job.flips.packed().encode()).hexdigest()[:12]}
    new = [(job.runs[i], outcomes[i]) for i in job.new_indices]
    return [
        Record(
            key=run.key, setting=run.setting.content, split=run.split, init=run.init,
            device=device_name(device, tf32=tf32), status="failed" if fitted is None else "done",
            epoch=None if fitted is None else fitted.epoch,
            accuracy=None if fitted is None else fitted.accuracy,
            loss=None if fitted is None else fitted.loss,
            history=fitted.history if fitted is not None and CURVES & set(run.setting.keep) else None,
            scores=scores, measured=measured, error=error, seconds=seconds, created=now,
            versions=provenance,
        )
        for run, (fitted, scores, measured) in new
    ]  # fmt: skip


def train_one(
    run: Run, *, device: str, save: Path | None = None, progress: Callable[[float, str], None] | None = None
) -> Fit:
    """Train one run without storing a record.

    Args:
        run: The run.
        device: "cpu" or "cuda".
        save: A file for the selected weights (a state dict).
        progress: Called with the share that is done, and a description, after each epoch.

    Returns:
        The selected epoch, accuracies, losses and curves of the training.

    Raises:
        OutputError: If the weights cannot be written to the file.
    """
    model, data, split = untrained_model(run, device=device)
    measured = _fit(run, model, data, split, progress)
    if save is not None:
        buffer = io.BytesIO()
        torch.save({name: t.cpu() for name, t in model.state_dict().items()}, buffer)
        write_atomic(save, buffer.getvalue())
    return measured


def train_model(
    run: Run, *, device: str, progress: Callable[[float, str], None] | None = None
) -> tuple[nn.Module, Data, Split]:
    """Train one run and return its model.

    Args:
        run: The run.
        device: "cpu" or "cuda".
        progress: Called with the share that is done, and a description, after each epoch.

    Returns:
        The model with the weights of the selected epoch, its data on the device, and its split.

    Raises:
        PlanError: If the run cannot be trained.
    """
    model, data, split = untrained_model(run, device=device)
    _fit(run, model, data, split, progress)
    return model, data, split


def untrained_model(run: Run, *, device: str) -> tuple[nn.Module, Data, Split]:
    """Build the model of a run, with its data and its split, without training it.

    Args:
        run: The run, which is checked as a plan is.
        device: "cpu" or "cuda".

    Returns:
        The model and its data, both on the device, and its split.

    Raises:
        PlanError: If the run cannot be trained.
    """
    setting = run.setting
    device_name(device, tf32=False)
    if setting.batch_size is not None:
        raise PlanError("a single training uses the full batch; put batch_size into a plan, or call fit_batches")
    check_plan(Plan("this training", "", (Cell("", "", setting, splits=run.split + 1),)))
    data = data_of(setting, run.split)
    return build_model(run, data).to(device), copy.copy(data).to(device), split_of(setting, data, run.split)


def _fit(run: Run, model: nn.Module, data: Data, split: Split, progress: Callable[[float, str], None] | None) -> Fit:
    """Train one model with the options of its setting."""
    setting = run.setting

    def report(_: nn.Module, epoch: int) -> None:
        if progress is not None:
            progress((epoch + 1) / setting.epochs, f"epoch {epoch + 1}")

    seen, known = inductive(data, split) if setting.inductive else (data, split)
    fitted = fit(
        model, seen, known, seed=seed_of_run(run), **schedule_of(setting), augment=noise_augmentation(setting),
        observe=report,
    )  # fmt: skip
    return tested_on(data, split, model, fitted) if setting.inductive else fitted


def tested_on(data: Data, split: Split, model: nn.Module, fitted: Fit) -> Fit:
    """Measure a model on test nodes that were not in the graph it was trained on.

    Args:
        data: The full graph.
        split: Its split.
        model: The trained model.
        fitted: What was measured in the training.

    Returns:
        The same with the loss and the accuracy of the test part.
    """
    loss, accuracy = evaluate(model, data, split.test)
    return replace(fitted, scores={**fitted.scores, "test": accuracy}, loss={**fitted.loss, "test": loss})


def _train(
    job: Job, device: str, tf32: bool, weights: Path | None, seconds_of_measures: list[float]
) -> list[_Measured]:
    """Build and train the runs of a job, and measure those that are not stored; the times of measures are appended."""
    runs, flips, setting = job.runs, job.flips, job.runs[0].setting
    data = data_of(setting, runs[0].split)
    if setting.poison is not None:
        if flips is None:
            raise PlanError(
                f"the attack failed that should poison split {runs[0].split}; see the record of its surrogate"
            )
        data = flips.apply(data)
    models = [build_model(run, data).to(device) for run in runs]
    by_number = {number: split_of(setting, data, number) for number in dict.fromkeys(run.split for run in runs)}
    splits = [by_number[run.split] for run in runs]
    refuse_changed(job.files)  # all of them are loaded by now, but for attacks and measures
    trained_at = training_share(setting)
    with warnings.catch_warnings(), part_of_progress(0.0, trained_at):
        warnings.simplefilter("ignore", VanishingGradientWarning)  # some plans provoke it; it shows in the history
        seen, known = inductive(data, splits[0]) if setting.inductive else (data, None)
        fits = _fits(runs, models, seen, splits if known is None else [known] * len(runs), device, tf32, weights)
    if setting.inductive:
        full = copy.copy(data).to(device)
        each = zip(models, splits, fits, strict=True)
        fits = [tested_on(full, split, model, fitted) for model, split, fitted in each]
    scores = [_scores(model, data, device) if "scores" in setting.keep else None for model in models]
    measured: list[list[Result] | None] = [None] * len(runs)
    if setting.measures:
        new = job.new_indices
        run_ids = [(runs[i].split, runs[i].init) for i in new]
        trained = TrainedModels(
            [models[i] for i in new], copy.copy(data).to(device), setting.dataset, [splits[i] for i in new], run_ids,
            setting.model, str(setting.awp),
        )  # fmt: skip
        results, step = [], (1.0 - trained_at) / len(setting.measures)
        for i, measure in enumerate(setting.measures):
            with part_of_progress(trained_at + i * step, trained_at + (i + 1) * step):
                start = time.perf_counter()
                results.append(run_measure(measure, trained))
                seconds_of_measures.append(time.perf_counter() - start)
        for i, results_of_run in zip(new, zip(*results, strict=True), strict=True):
            measured[i] = list(results_of_run)
    return list(zip(fits, scores, measured, strict=True))


def _fits(
    runs: tuple[Run, ...], models: list[nn.Module], data: Data, splits: list[Split], device: str, tf32: bool,
    weights: Path | None,
) -> list[Fit]:  # fmt: skip
    """Train the models, or load weights: those of a checkpoint, or those that an earlier training kept."""
    if runs[0].setting.weights is not None:
        return load_checkpoint(runs, models, copy.copy(data).to(device), splits, weights)
    train_now = partial(_train_stack, runs, models, data, splits, device, tf32)
    if weights is None:
        return train_now()
    return train_or_load(runs, models, data, weights, train_now, device=device, tf32=tf32)


def _train_stack(
    runs: tuple[Run, ...], models: list[nn.Module], data: Data, splits: list[Split], device: str, tf32: bool
) -> list[Fit]:
    """Train the models, as one stack or one by one in batches of graphs; histories include the monitors' curves."""
    setting, seeds = runs[0].setting, [seed_of_run(run) for run in runs]
    if setting.batch_size is not None:
        graphs, fits = graphs_of(setting), []
        for i, (model, split, seed) in enumerate(zip(models, splits, seeds, strict=True)):
            with part_of_progress(i / len(models), (i + 1) / len(models)):
                options = schedule_of(setting)
                fits.append(fit_batches(model, graphs, split, seed=seed, batch_size=setting.batch_size, **options))
        return fits
    monitors = monitors_of(setting, data, splits, device)
    fits = fit_many(
        models, data, splits, seeds=seeds, **schedule_of(setting), tf32=tf32, augment=noise_augmentation(setting),
        observe=observer(monitors),
    )  # fmt: skip
    for kind in monitors:
        pairs = zip(fits, kind, strict=True)
        fits = [replace(fitted, history={**fitted.history, **monitor.history}) for fitted, monitor in pairs]
    return fits


def seed_of_run(run: Run) -> int:
    """Compute the seed of a run's dropout and batches.

    Args:
        run: The run.

    Returns:
        A number that no other split and initialisation has.
    """
    return run.split * MAX_INITS + run.init


def schedule_of(setting: Setting) -> dict[str, Any]:
    """Collect the options of a setting that all training functions take.

    Args:
        setting: The setting.

    Returns:
        Arguments for `fit` and `fit_many`, by name, and for `fit_batches`, which a setting with an average never uses.
    """
    options = {name: getattr(setting, name) for name in ("awp", "epochs", "lr", "weight_decay", "select_on")}
    return options if setting.average is None else {**options, "average": setting.average}


@torch.no_grad()
def _scores(model: nn.Module, data: Data, device: str) -> list[float]:
    """The probability of class 1 minus that of class 0, for every node or graph."""
    p = model.eval()(*arguments_of(model, copy.copy(data).to(device))).softmax(1)
    return [round(float(s), 4) for s in p[:, 1] - p[:, 0]]


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread, and restore the number of threads at the end.

    Returns:
        A context manager.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
