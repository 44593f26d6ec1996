"""Cache the weights of trained models in files, so that several plans can measure a model that is trained once.

A file holds the models of one chunk and what their training measured. Its name is made of all that the weights depend
on: the setting without its measures, the seeds, the device, the versions and the poisoned graph. A chunk whose file is
there is not trained again; its records are those of a training, bit for bit. Given checkpoints are kept here, too.
"""

import hashlib
import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.base import DamagedCacheWarning, find_stack_level, write_atomic
from wtawp.experiments.execution.building import build_model
from wtawp.experiments.execution.provenance import device_name, versions
from wtawp.experiments.spec import PlanError, Run
from wtawp.graphs import Split
from wtawp.models.calls import arguments_of
from wtawp.training import Fit, evaluate

PARTS = ("train", "val", "test")


def train_or_load(
    runs: Sequence[Run],
    models: Sequence[nn.Module],
    data: Data,
    folder: Path,
    train: Callable[[], list[Fit]],
    *,
    device: str,
    tf32: bool,
) -> list[Fit]:
    """Load the weights of a chunk if they are kept; otherwise train it, and keep them.

    Args:
        runs: The runs of the chunk.
        models: Their models with initial weights, which are changed in place.
        data: Their graph, as it is after a poisoning.
        folder: Where the files are.
        train: Trains the models and returns what was measured.
        device: "cpu" or "cuda".
        tf32: Whether TF32 matrix products are allowed.

    Returns:
        What the training of each run measured, now or then.
    """
    path = folder / f"{_name(runs, data, device, tf32)}.pt"
    kept = _read(path) if path.is_file() else None
    if kept is not None:
        fits, states = kept
        for model, state in zip(models, states, strict=True):
            model.load_state_dict(state)
        return fits
    fits = train()
    states = [{name: tensor.cpu() for name, tensor in model.state_dict().items()} for model in models]
    if all(_restores(run, model, state, data) for run, model, state in zip(runs, models, states, strict=True)):
        buffer = io.BytesIO()
        torch.save({"fits": [asdict(fit) for fit in fits], "states": states}, buffer)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(path, buffer.getvalue())
    return fits


def keep_checkpoint(state: Mapping[str, Tensor], folder: Path) -> str:
    """Keep the weights of a model that somebody trained, for settings that name them in `weights`.

    Args:
        state: The state dict.
        folder: Where the files are.

    Returns:
        The hash of the weights, which is the value of `Setting.weights`.
    """
    content = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name].detach().cpu().contiguous()
        content.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        content.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
    digest = content.hexdigest()[:16]
    buffer = io.BytesIO()
    torch.save({name: tensor.detach().cpu() for name, tensor in state.items()}, buffer)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / f"{digest}.pt", buffer.getvalue())
    return digest


def load_checkpoint(
    runs: Sequence[Run], models: Sequence[nn.Module], data: Data, splits: Sequence[Split], folder: Path | None
) -> list[Fit]:
    """Give models the weights that their setting names, in place of a training.

    Args:
        runs: The runs of a chunk.
        models: Their models, which are changed in place.
        data: Their graph, on their device.
        splits: The split of each model.
        folder: Where `keep_checkpoint` keeps weights.

    Returns:
        Accuracies and losses of each model; the epoch is 0, and there are no curves.

    Raises:
        PlanError: If the weights are not in the folder.
    """
    path = None if folder is None else folder / f"{runs[0].setting.weights}.pt"
    if path is None or not path.is_file():
        raise PlanError(
            f"the weights {runs[0].setting.weights} are not kept here; audit the checkpoint again: wtawp audit MODEL "
            "--checkpoint FILE"
        )
    state = torch.load(path, weights_only=True)
    fits = []
    for model, split in zip(models, splits, strict=True):
        model.load_state_dict(state)
        model.eval()  # as after a training
        measured = {part: evaluate(model, data, getattr(split, part)) for part in PARTS}
        losses, accuracies = ({part: value[i] for part, value in measured.items()} for i in (0, 1))
        fits.append(Fit(0, accuracies, losses, {}))
    return fits


def _name(runs: Sequence[Run], data: Data, device: str, tf32: bool) -> str:
    """A hash of all that the weights of a chunk depend on."""
    setting = replace(runs[0].setting, measures=(), hash_sources=False)
    software = {name: version for name, version in versions().items() if name != "commit"}
    edges = hashlib.sha256(data.edge_index.cpu().numpy().tobytes()).hexdigest() if setting.poison is not None else ""
    run_ids = [(run.split, run.init) for run in runs]
    content = (setting.content_json, run_ids, device_name(device, tf32=tf32), sorted(software.items()), edges)
    return hashlib.sha256(repr(content).encode()).hexdigest()[:16]


@torch.no_grad()
def has_same_outputs(model: nn.Module, other: nn.Module, data: Data, *, tolerance: float = 0.0) -> bool:
    """Compare what two models compute for a graph in evaluation mode.

    Args:
        model: The first model; its mode is restored.
        other: The second model, which is left in evaluation mode, on the device of the first one.
        data: The graph, on any device.
        tolerance: The largest difference that counts as none, as a share of the largest output.

    Returns:
        Whether the outputs have the same shape and values.
    """
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    on_device = data if data.x is not None and data.x.device == device else data.clone().to(device)
    before = [module.training for module in model.modules()]
    try:
        first, second = (each.eval()(*arguments_of(each, on_device)) for each in (model, other.to(device)))
    finally:
        for module, was_training in zip(model.modules(), before, strict=True):
            module.training = was_training
    finite = first[first.isfinite()].abs()
    if tolerance == 0.0 or first.shape != second.shape or not finite.numel():
        return bool(torch.equal(first, second))
    return bool(torch.allclose(first, second, rtol=0.0, atol=tolerance * float(finite.max()), equal_nan=True))


def _restores(run: Run, model: nn.Module, state: Mapping[str, Tensor], data: Data) -> bool:
    """Whether a new model with this state computes what the trained one does: not all modules keep all in theirs."""
    again = build_model(run, data)
    again.load_state_dict(dict(state))
    return has_same_outputs(model, again, data)


def _read(path: Path) -> tuple[list[Fit], list[dict[str, Tensor]]] | None:
    """What a file holds; None, with a warning, if it is damaged: the chunk is then trained again."""
    try:
        content = torch.load(path, weights_only=True)
        return [Fit(**fit) for fit in content["fits"]], content["states"]
    except Exception as error:  # torch raises errors of many kinds for a damaged file
        message = f"the weights in {path} cannot be read ({error}); their models are trained again"
        warnings.warn(message, DamagedCacheWarning, stacklevel=find_stack_level())
        return None
