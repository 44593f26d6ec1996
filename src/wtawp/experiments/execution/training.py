"""How a chunk of runs is trained: the one place where a plan meets data, models and the training loops."""

import copy
import hashlib
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from platform import python_version
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data

from wtawp import __version__
from wtawp.analysis import SaturationMonitor, SharpnessMonitor, refuse_bound
from wtawp.base import DataError, VanishingGradientWarning, WtawpError, isolated_rng, rng
from wtawp.certificates import Noise, noisy_training
from wtawp.certificates.noise import Augment
from wtawp.core import select
from wtawp.experiments.measures import registry as measures
from wtawp.experiments.measures.geometry import OF_GRAPHS, WATCHED
from wtawp.experiments.spec.plan import CURVES, MAX_INITS, Cell, Plan, Run, Setting, add_cwd_to_sys_path
from wtawp.experiments.spec.record import Record
from wtawp.graphs import EdgeFlips, Split, batched, get, is_collection, load, stratified
from wtawp.models import (
    APPNP,
    GAT,
    GCN,
    GCNSVD,
    GIN,
    MLP,
    RGCN,
    GCNJaccard,
    GNNGuard,
    GraphSAGE,
    PooledGCN,
    PooledGIN,
    PooledSAGE,
    SimPGCN,
    SoftMedianGCN,
)
from wtawp.models.adapter import arguments_of, check_kind
from wtawp.training import Fit, fit, fit_batches, fit_many

MODELS: dict[str, Callable[..., nn.Module]] = {
    "GCN": GCN, "GAT": GAT, "PPNP": APPNP, "MLP": MLP, "GraphSAGE": GraphSAGE, "GIN": GIN,
    "GCNJaccard": GCNJaccard, "GCNSVD": GCNSVD, "RGCN": RGCN, "SimPGCN": SimPGCN,
    "GNNGuard": GNNGuard, "SoftMedianGCN": SoftMedianGCN,
    "PooledGCN": PooledGCN, "PooledGIN": PooledGIN, "PooledSAGE": PooledSAGE,
}  # fmt: skip


Watch = SaturationMonitor | SharpnessMonitor
# What one run measured, the scores of its nodes if wanted, and what its measures gave.
Outcome = tuple[Fit | None, list[float] | None, list[measures.Result] | None]


class PlanError(WtawpError):
    """A plan that cannot be carried out."""


def check(plan: Plan) -> None:
    """Refuse, before anything is trained, a plan with data that are not there or options that no model takes."""
    tried: set[tuple[object, ...]] = set()
    for setting in dict.fromkeys(cell.setting for cell in plan.cells):
        try:
            if not Path(setting.dataset).suffix:
                get(setting.dataset)
            data = _data(setting.dataset, 0, setting.features)
            split = _split(data, 0)
            model = _build(Run(setting, 0, 0), data)
            _check_kind(setting, model, data)
            if setting.awp is not None and not setting.awp.is_plain:
                select(model, setting.awp.layers)
            if (augment := _augment(setting)) is not None:
                augment(data, 0)
            surrogate = setting.surrogate
            for owner in (setting,) if surrogate is None else (setting, surrogate):
                for wanted in owner.measures:
                    measures.check(wanted, data)
                    about: tuple[object, ...] = (owner.dataset, owner.model, owner.options, wanted)
                    if about not in tried:
                        measures.smoke_test(wanted, _build(Run(owner, 0, 0), data), data, split)
                        tried.add(about)
            about = setting.dataset, setting.model, setting.options
            if about not in tried:
                with torch.no_grad():
                    model.eval()(*arguments_of(data))  # a model may need features that the graph does not have
                tried.add(about)
        except (WtawpError, ValueError, TypeError) as error:
            raise PlanError(f"{plan.name}: {setting} cannot be trained: {error}") from error


def device_name(device: str, *, tf32: bool) -> str:
    """What records call the device."""
    if device == "cpu":
        return "cpu"
    if device != "cuda":
        raise PlanError(f"the device is cpu or cuda, got {device!r}")
    if not torch.cuda.is_available():
        raise PlanError("there is no CUDA device here; use --device cpu")
    return torch.cuda.get_device_name() + (", TF32" if tf32 else "")


def train(runs: tuple[Run, ...], flips: EdgeFlips | None = None, *, device: str, tf32: bool = False) -> list[Record]:
    """Train runs of one setting as one stack. What goes wrong becomes records of failed runs, never an exception.

    A poisoned setting needs the `flips` of its split. One thread, whatever the machine has: workers share the cores,
    and sums come out the same everywhere.
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
    """Train one run outside any store, telling `progress` of every epoch; `save` gets the selected weights."""
    model, data, split = model_of(run, device=device)
    measured = _fit(run, model, data, split, progress)
    if save is not None:
        torch.save({name: t.cpu() for name, t in model.state_dict().items()}, save)
    return measured


def train_model(
    run: Run, *, device: str, progress: Callable[[float, str], None] | None = None
) -> tuple[nn.Module, Data, Split]:
    """The same for whoever wants the model: with the selected weights, and the data where it is."""
    model, data, split = model_of(run, device=device)
    _fit(run, model, data, split, progress)
    return model, data, split


def model_of(run: Run, *, device: str) -> tuple[nn.Module, Data, Split]:
    """The model of a run as it is before training, with its data on the device and its split."""
    setting = run.setting
    device_name(device, tf32=False)
    if setting.batch_size is not None:
        raise PlanError("one training at a time is full batch; put batch_size into a plan, or call fit_batches")
    check(Plan("this training", "", (Cell("", "", setting),)))
    data = _data(setting.dataset, run.split if setting.is_redrawn else 0, setting.features)
    return _build(run, data).to(device), copy.copy(data).to(device), _split(data, run.split)


def _fit(run: Run, model: nn.Module, data: Data, split: Split, progress: Callable[[float, str], None] | None) -> Fit:
    setting = run.setting

    def tell(_: nn.Module, epoch: int) -> None:
        if progress is not None:
            progress((epoch + 1) / setting.epochs, f"epoch {epoch + 1}")

    return fit(
        model, data, split, seed=run.split * MAX_INITS + run.init, awp=setting.awp,
        epochs=setting.epochs, lr=setting.lr, weight_decay=setting.weight_decay, select_on=setting.select_on,
        augment=_augment(setting), observe=tell,
    )  # fmt: skip


def _train(runs: tuple[Run, ...], flips: EdgeFlips | None, device: str, tf32: bool) -> list[Outcome]:
    setting = runs[0].setting
    data = _data(setting.dataset, runs[0].split if setting.is_redrawn else 0, setting.features)
    if setting.poison is not None:
        if flips is None:
            raise PlanError(f"the attack failed that should poison split {runs[0].split}; see the run of its surrogate")
        data = flips.apply(data)
    models = [_build(run, data).to(device) for run in runs]
    splits = {split: _split(data, split) for split in dict.fromkeys(run.split for run in runs)}
    parts, seeds = [splits[run.split] for run in runs], [run.split * MAX_INITS + run.init for run in runs]
    how: dict[str, Any] = {
        name: getattr(setting, name) for name in ("awp", "epochs", "lr", "weight_decay", "select_on")
    }
    watches = _watches(setting, data, parts, device)
    with warnings.catch_warnings():  # sweeps train settings that vanish on purpose, and the record's history shows it
        warnings.simplefilter("ignore", VanishingGradientWarning)
        if setting.batch_size is None:
            fits = fit_many(
                models, data, parts, seeds=seeds, **how, tf32=tf32, augment=_augment(setting), observe=_observe(watches)
            )
        else:
            graphs = _graphs(setting.dataset, 0, setting.features)
            each = zip(models, parts, seeds, strict=True)
            fits = [fit_batches(m, graphs, part, seed=s, batch_size=setting.batch_size, **how) for m, part, s in each]
    for of_a_kind in watches:
        seen = zip(fits, of_a_kind, strict=True)
        fits = [replace(one, history={**one.history, **watch.history}) for one, watch in seen]
    shown = [_scores(model, data, device) if "scores" in setting.keep else None for model in models]
    measured: list[list[measures.Result] | None] = [None] * len(runs)
    if setting.measures:
        places = [(run.split, run.init) for run in runs]
        where = copy.copy(data).to(device)
        trained = measures.Trained(models, where, setting.dataset, parts, places, setting.model, str(setting.awp))
        results = [measures.measure(wanted, trained) for wanted in setting.measures]
        measured = [list(of_a_run) for of_a_run in zip(*results, strict=True)]
    return list(zip(fits, shown, measured, strict=True))


def _watches(setting: Setting, data: Data, splits: list[Split], device: str) -> list[list[Watch]]:
    """What looks at the models while they are trained: of each kind that is to be kept, one for each model."""
    where = copy.copy(data).to(device)
    found: list[list[Watch]] = []
    if "saturation" in setting.keep:
        found.append([SaturationMonitor(where, split.train, setting.awp) for split in splits])
    if "sharpness" in setting.keep:
        found.append([SharpnessMonitor(where, split.train, rhos=WATCHED) for split in splits])
    return found


def _observe(watches: list[list[Watch]]) -> Callable[[list[nn.Module], int], None] | None:
    def observe(models: list[nn.Module], epoch: int) -> None:
        for each in watches:
            for watch, model in zip(each, models, strict=True):
                watch(model, epoch)

    return observe if watches else None


@torch.no_grad()
def _scores(model: nn.Module, data: Data, device: str) -> list[float]:
    """The probability of class 1 less that of class 0, of every node, or graph."""
    p = model.eval()(*arguments_of(copy.copy(data).to(device))).softmax(1)
    return [round(float(s), 4) for s in p[:, 1] - p[:, 0]]


def _augment(setting: Setting) -> Augment | None:
    """Noise in training: a function of the epoch alone, so that it does not matter which runs are trained together."""
    if setting.noise is None:
        return None
    if setting.noise.name != "noise":
        raise PlanError(f"noise must be a measure called noise, got {setting.noise.name!r}")
    told: dict[str, Any] = dict(setting.noise.options)
    return noisy_training(**{told.pop("on"): Noise(**told)}, seed=0)


def _build(run: Run, data: Data) -> nn.Module:
    setting, sizes = run.setting, (data.num_features, int(data.y.max()) + 1)
    if setting.model in MODELS:
        generator = rng("init", run.split, run.init)
        return MODELS[setting.model](*sizes, **dict(setting.options), generator=generator)
    build = _own_model(setting.model)
    with isolated_rng("init", run.split, run.init):  # somebody's own module draws from torch's global generator
        model = build(*sizes, **dict(setting.options))
    if not isinstance(model, nn.Module):
        raise PlanError(f"{setting.model} must make a torch.nn.Module, got {type(model).__name__}")
    return model


def _own_model(place: str) -> Callable[..., object]:
    """The class that `package.module:Class` names; modules of the working folder are found too."""
    module, _, name = place.partition(":")
    add_cwd_to_sys_path()
    try:
        found: Callable[..., object] = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise PlanError(f"there is no model {place}: {error}; write package.module:Class") from error
    return found


def _check_kind(setting: Setting, model: nn.Module, data: Data) -> None:
    """Nodes, or graphs? The model must fit, and what is only there for the one must not be asked of the other."""
    check_kind(model, data)
    asked = [measure.name for measure in setting.measures if measure.name not in OF_GRAPHS]
    asked += [name for name in ("noise", "poison") if getattr(setting, name) is not None]
    if is_collection(data) and asked:
        raise DataError(f"{setting.dataset} is a list of graphs, and {asked[0]} is for the nodes of one graph")
    if any(measure.name == "bound" for measure in setting.measures):
        refuse_bound(model, data)
    if setting.batch_size is not None and not is_collection(data):
        raise DataError(f"batch_size counts graphs, and {setting.dataset} is one graph; leave it out")


def _split(data: Data, seed: int) -> Split:
    """The paper's shares: of nodes 10 / 10 / 80, of graphs 80 / 10 / 10 (sec:datagraphc)."""
    return stratified(data.y, seed=seed, train=0.8 if is_collection(data) else 0.1, val=0.1)


@lru_cache(maxsize=8)
def _data(name: str, seed: int, features: str | None) -> Data:
    return batched(_graphs(name, seed, features))


@lru_cache(maxsize=2)
def _graphs(name: str, seed: int, features: str | None) -> Data | list[Data]:
    return load(name, seed=seed, features=features)  # type: ignore[arg-type]  # `load` says what it takes


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Of what the numbers depend on: `source` names this very code, `commit` what the checkout says of itself."""
    code = hashlib.sha256()
    for file in sorted(Path(__file__).parents[2].rglob("*.py")):
        code.update(file.read_bytes())
    found = {"wtawp": __version__, "torch": torch.__version__, "python": python_version()}
    found["source"] = code.hexdigest()[:12]
    return found | ({"commit": commit} if (commit := _commit()) else {})


def _commit() -> str | None:
    """Read from .git as it lies there, without asking git."""
    folder = Path(__file__).parents[4] / ".git"
    head = folder / "HEAD"
    if not head.is_file():
        return None
    text = head.read_text(encoding="utf-8").strip()
    if not text.startswith("ref: "):
        return text[:12]
    ref = text.removeprefix("ref: ")
    if (folder / ref).is_file():
        return (folder / ref).read_text(encoding="utf-8").strip()[:12]
    packed = folder / "packed-refs"
    lines = packed.read_text(encoding="utf-8").splitlines() if packed.is_file() else []
    return next((line[:12] for line in lines if line.endswith(f" {ref}")), None)
