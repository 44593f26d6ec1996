"""Train classifiers of nodes, or of graphs, in the paper's protocol: one with `fit`, many at once with `fit_many`."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp.core import AwpConfig
from wtawp.graphs import Split, batched, is_collection
from wtawp.models.capabilities import StackAwareOnGraphs
from wtawp.models.inputs import arguments_of, check_kind
from wtawp.training.engine import Schedule, SelectOn, train_together

Augment = Callable[[Data, int], Data]


@dataclass(frozen=True)
class Fit:
    """What a training run measured. The selected epoch's weights are in the model that was passed in."""

    epoch: int  # the selected one
    accuracy: dict[str, float]  # on "train", "val", "test", at the selected epoch
    loss: dict[str, float]  # likewise, without dropout
    history: dict[str, list[float]]  # a number an epoch: losses, the gap, norms; the names are engine.COLUMNS


def fit(
    model: nn.Module,
    data: Data | Sequence[Data],
    split: Split,
    *,
    seed: int,
    awp: AwpConfig | None = None,
    epochs: int = 200,
    lr: float = 0.01,
    weight_decay: float = 5e-4,
    patience: int | None = None,
    select_on: SelectOn = "either",
    tf32: bool = False,
    augment: Augment | None = None,
    observe: Callable[[nn.Module, int], None] | None = None,
) -> Fit:
    """Train `model` full batch with Adam and keep the last epoch that improved validation loss or accuracy.

    `select_on` may narrow that to "loss" or "accuracy", or keep the "last" epoch, whatever it is. Any module called as
    `model(x, edge_index)` will do. A list of graphs, or PyG's `Batch` of them, makes graphs the samples: `split` then
    names graphs, and any module called as `model(x, edge_index, batch)` will do. `awp` says how weights are perturbed;
    None trains plainly. `augment(data, epoch)` may change what the training pass sees; `model` holds its current
    weights when it is called. `observe(model, epoch)` is called after each epoch, with that epoch's weights. `patience`
    stops after so many epochs without improvement.
    Dropout follows from `seed` alone, and the caller's random state is left as it was.
    """
    watch = None if observe is None else lambda models, epoch: observe(models[0], epoch)
    return fit_many(
        [model], data, split, seeds=[seed], awp=awp, epochs=epochs, lr=lr, weight_decay=weight_decay,
        patience=patience, select_on=select_on, tf32=tf32, augment=augment, observe=watch,
    )[0]  # fmt: skip


def fit_many(
    models: Sequence[nn.Module],
    data: Data | Sequence[Data],
    splits: Split | Sequence[Split],
    *,
    seeds: Sequence[int],
    awp: AwpConfig | None = None,
    epochs: int = 200,
    lr: float = 0.01,
    weight_decay: float = 5e-4,
    patience: int | None = None,
    select_on: SelectOn = "either",
    tf32: bool = False,
    augment: Augment | None = None,
    observe: Callable[[list[nn.Module], int], None] | None = None,
) -> list[Fit]:
    """Train models of one architecture at once, each with its own seed and, if `splits` is a sequence, its own split.

    Each ends as it would alone with `fit`. On the CPU the models of one split form a chunk, so that only the receptive
    field of its nodes is computed; on a GPU all go together over the whole graph. A module that `torch.func.vmap`
    cannot take is trained one member after another, after a warning; one with torch's own dropout is trained together,
    but then its masks are not those of a single run. Of graphs, one that is not ours is trained split by split on a GPU
    too: it must meet the training graphs alone.
    """
    parts = [splits] * len(models) if isinstance(splits, Split) else list(splits)
    if not len(models) == len(parts) == len(seeds):
        raise ValueError(
            f"each model needs a split and a seed, got {len(models)} models, {len(parts)} splits, {len(seeds)} seeds"
        )
    if epochs < 1:
        raise ValueError(f"epochs must be >= 1, got {epochs}")
    if awp is not None and not isinstance(awp, AwpConfig):
        raise ValueError(f"awp takes the options of the method, AwpConfig(rho=..., lam=...), got {type(awp).__name__}")
    device = next((p.device for p in models[0].parameters()), None)
    if device is None:
        raise ValueError(f"{type(models[0]).__name__} has no parameters to train")
    whole = copy.copy(batched(data)).to(device)  # a copy: Data.to moves the caller's tensors otherwise
    is_shared = not is_collection(whole) or isinstance(models[0], StackAwareOnGraphs)
    schedule = Schedule(epochs=epochs, lr=lr, weight_decay=weight_decay, patience=patience, select_on=select_on)
    results: dict[int, Fit] = {}
    with _matmul_precision(tf32):
        for chunk in _chunks(parts, together=device.type == "cuda" and is_shared):
            group = [models[i] for i in chunk]
            run = train_together(
                group, whole, [parts[i] for i in chunk], [seeds[i] for i in chunk], awp, schedule, augment, observe
            )
            for place, i in enumerate(chunk):
                history = {name: column[:, place].tolist() for name, column in run.history.items()}
                accuracy = {name: float(v[place]) for name, v in run.accuracy.items()}
                loss = {name: float(v[place]) for name, v in run.loss.items()}
                results[i] = Fit(int(run.epoch[place]), accuracy, loss, history)
    return [results[i] for i in range(len(models))]


def _chunks(splits: list[Split], *, together: bool) -> list[list[int]]:
    """Positions of the runs that are trained in one stack."""
    if together:
        return [list(range(len(splits)))]
    groups: dict[int, list[int]] = {}
    for i, split in enumerate(splits):
        groups.setdefault(id(split), []).append(i)
    return list(groups.values())


@contextmanager
def _matmul_precision(tf32: bool) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@torch.no_grad()
def evaluate(model: nn.Module, data: Data | Sequence[Data], rows: Tensor) -> tuple[float, float]:
    """Loss and accuracy on some nodes, or graphs, without dropout; leaves the model in evaluation mode."""
    whole = batched(data)
    check_kind(model, whole)
    logits, y = model.eval()(*arguments_of(whole))[rows], whole.y[rows]
    return float(F.cross_entropy(logits, y)), float((logits.argmax(1) == y).float().mean())
