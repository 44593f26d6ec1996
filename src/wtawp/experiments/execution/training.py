"""How runs are trained: a chunk of a sweep as one stack, or one model for whoever wants to look at it."""

import copy
import hashlib
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data

from wtawp.base import VanishingGradientWarning
from wtawp.experiments.execution.building import build_model, data_of, graphs_of, split_of
from wtawp.experiments.execution.checks import check_plan, noise_augmentation
from wtawp.experiments.execution.monitors import CURVES, monitors_of, observer
from wtawp.experiments.execution.provenance import device_name, versions
from wtawp.experiments.measures.shared.interface import Result, TrainedModels
from wtawp.experiments.measures.shared.registry import run_measure
from wtawp.experiments.spec import MAX_INITS, Cell, Plan, PlanError, Record, Run, Setting
from wtawp.graphs import EdgeFlips, Split
from wtawp.models.inputs import arguments_of
from wtawp.training import Fit, fit, fit_batches, fit_many

# What one run measured, the scores of its nodes if they are kept, and the results of its measures.
Outcome = tuple[Fit | None, list[float] | None, list[Result] | None]


def train_job(job: tuple[tuple[Run, ...], EdgeFlips | None], *, device: str, tf32: bool) -> list[Record]:
    """Call `train` with the runs and flips of a job, which is what engines pass on."""
    return train(*job, device=device, tf32=tf32)


def train(runs: tuple[Run, ...], flips: EdgeFlips | None = None, *, device: str, tf32: bool = False) -> list[Record]:
    """Train runs of one setting as one stack, on one thread, so that sums are the same on every machine.

    Args:
        runs: Runs of one setting.
        flips: The flips that poison the graph of their split, where the setting asks for it.
        device: "cpu" or "cuda".
        tf32: Whether TF32 matrix products are allowed.

    Returns:
        A record for each run. What goes wrong becomes records of failed runs, never an exception.
    """
    start = time.perf_counter()
    outcomes: list[Outcome] = []
    error = None
    with _one_thread():
        try:
            outcomes = _train(runs, flips, device, tf32)
        except Exception:  # a sweep goes on; the record says what happened
            error = traceback.format_exc()
    seconds, now = (time.perf_counter() - start) / len(runs), datetime.now(UTC).isoformat(timespec="seconds")
    known = versions() | {"stack": str(len(runs))}  # how many were trained as one: sums are rounded otherwise
    if flips is not None:
        known |= {"flips": hashlib.sha256(flips.packed().encode()).hexdigest()[:12]}
    if not outcomes:
        outcomes = [(None, None, None)] * len(runs)
    return [
        Record(
            key=run.key, setting=run.setting.content, split=run.split, init=run.init,
            device=device_name(device, tf32=tf32), status="failed" if one is None else "done",
            epoch=None if one is None else one.epoch,
            accuracy=None if one is None else one.accuracy,
            loss=None if one is None else one.loss,
            history=one.history if one is not None and CURVES & set(run.setting.keep) else None,
            scores=scores, measured=measured, error=error, seconds=seconds, created=now, versions=known,
        )
        for run, (one, scores, measured) in zip(runs, outcomes, strict=True)
    ]  # fmt: skip


def train_one(
    run: Run, *, device: str, save: Path | None = None, progress: Callable[[float, str], None] | None = None
) -> Fit:
    """Train one run outside any store.

    Args:
        run: The run.
        device: "cpu" or "cuda".
        save: A file for the selected weights (a state dict).
        progress: Called with the share that is done, and a description, after each epoch.

    Returns:
        What the training measured.
    """
    model, data, split = untrained_model(run, device=device)
    measured = _fit(run, model, data, split, progress)
    if save is not None:
        torch.save({name: t.cpu() for name, t in model.state_dict().items()}, save)
    return measured


def train_model(
    run: Run, *, device: str, progress: Callable[[float, str], None] | None = None
) -> tuple[nn.Module, Data, Split]:
    """Train one run and return the model with the selected weights, its data on the device, and its split."""
    model, data, split = untrained_model(run, device=device)
    _fit(run, model, data, split, progress)
    return model, data, split


def untrained_model(run: Run, *, device: str) -> tuple[nn.Module, Data, Split]:
    """The model of a run before training, with its data on the device and its split.

    Args:
        run: The run, which is checked as a plan is.
        device: "cpu" or "cuda".

    Returns:
        Model, data and split.

    Raises:
        PlanError: If the run cannot be trained.
    """
    setting = run.setting
    device_name(device, tf32=False)
    if setting.batch_size is not None:
        raise PlanError("one training at a time is full batch; put batch_size into a plan, or call fit_batches")
    check_plan(Plan("this training", "", (Cell("", "", setting),)))
    data = data_of(setting, run.split)
    return build_model(run, data).to(device), copy.copy(data).to(device), split_of(data, run.split)


def _fit(run: Run, model: nn.Module, data: Data, split: Split, progress: Callable[[float, str], None] | None) -> Fit:
    setting = run.setting

    def report(_: nn.Module, epoch: int) -> None:
        if progress is not None:
            progress((epoch + 1) / setting.epochs, f"epoch {epoch + 1}")

    return fit(
        model, data, split, seed=_seed(run), **_schedule(setting), augment=noise_augmentation(setting), observe=report
    )  # fmt: skip


def _train(runs: tuple[Run, ...], flips: EdgeFlips | None, device: str, tf32: bool) -> list[Outcome]:
    setting = runs[0].setting
    data = data_of(setting, runs[0].split)
    if setting.poison is not None:
        if flips is None:
            raise PlanError(f"the attack failed that should poison split {runs[0].split}; see the run of its surrogate")
        data = flips.apply(data)
    models = [build_model(run, data).to(device) for run in runs]
    by_number = {number: split_of(data, number) for number in dict.fromkeys(run.split for run in runs)}
    splits = [by_number[run.split] for run in runs]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", VanishingGradientWarning)  # plans study it on purpose; the history shows it
        fits = _fits(runs, models, data, splits, device, tf32)
    scores = [_scores(model, data, device) if "scores" in setting.keep else None for model in models]
    measured: list[list[Result] | None] = [None] * len(runs)
    if setting.measures:
        places = [(run.split, run.init) for run in runs]
        on_device = copy.copy(data).to(device)
        trained = TrainedModels(models, on_device, setting.dataset, splits, places, setting.model, str(setting.awp))
        results = [run_measure(wanted, trained) for wanted in setting.measures]
        measured = [list(of_a_run) for of_a_run in zip(*results, strict=True)]
    return list(zip(fits, scores, measured, strict=True))


def _fits(
    runs: tuple[Run, ...], models: list[nn.Module], data: Data, splits: list[Split], device: str, tf32: bool
) -> list[Fit]:
    """Train the models, together or in batches of graphs, with the curves of the monitors in their histories."""
    setting, seeds = runs[0].setting, [_seed(run) for run in runs]
    if setting.batch_size is not None:
        graphs, one_by_one = graphs_of(setting), zip(models, splits, seeds, strict=True)
        return [
            fit_batches(m, graphs, split, seed=s, batch_size=setting.batch_size, **_schedule(setting))
            for m, split, s in one_by_one
        ]
    monitors = monitors_of(setting, data, splits, device)
    fits = fit_many(
        models, data, splits, seeds=seeds, **_schedule(setting), tf32=tf32, augment=noise_augmentation(setting),
        observe=observer(monitors),
    )  # fmt: skip
    for of_a_kind in monitors:
        pairs = zip(fits, of_a_kind, strict=True)
        fits = [replace(one, history={**one.history, **monitor.history}) for one, monitor in pairs]
    return fits


def _seed(run: Run) -> int:
    return run.split * MAX_INITS + run.init


def _schedule(setting: Setting) -> dict[str, Any]:
    """What all training loops take from a setting."""
    return {name: getattr(setting, name) for name in ("awp", "epochs", "lr", "weight_decay", "select_on")}


@torch.no_grad()
def _scores(model: nn.Module, data: Data, device: str) -> list[float]:
    """The probability of class 1 less that of class 0, of every node, or graph."""
    p = model.eval()(*arguments_of(copy.copy(data).to(device))).softmax(1)
    return [round(float(s), 4) for s in p[:, 1] - p[:, 0]]


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
