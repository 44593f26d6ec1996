"""What identifies a training, so that a checkpoint is continued by the call that wrote it and by no other."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from wtawp.base import describe_function, digest_of
from wtawp.graphs import Split
from wtawp.models.settings import settings_of

MAX_ENTRIES = 1 << 26  # of larger tensors, which may be files, only blocks are digested
NUM_BLOCKS, BLOCK = 64, 1 << 14  # entries


def describe_training(
    models: Sequence[nn.Module],
    data: Data | HeteroData,
    splits: Sequence[Split],
    *,
    seeds: Sequence[int],
    options: Mapping[str, object],
    functions: Mapping[str, object],
) -> dict[str, str]:
    """Describe a training by what its result depends on.

    Args:
        models: The models, with the weights from which the training starts.
        data: The graph, or graphs as one batch.
        splits: The split of each model.
        seeds: The seed of each model.
        options: Plain values, by name.
        functions: Functions of the caller, by name, or None. Functions are known by their code and by plain values in
            their closures and arguments.

    Returns:
        Name -> text. Trainings whose descriptions are equal have equal results on one machine.
    """
    model = models[0]
    tensors = _tensors_of(data, every="forward" in functions)
    shapes = ", ".join(f"{n} {list(p.shape)} {p.dtype}" for n, p in model.named_parameters())
    buffers = ", ".join(f"{n} {list(b.shape)} {b.dtype}" for n, b in model.named_buffers())
    described = {
        "model": f"{len(models)} of {type(model).__module__}.{type(model).__qualname__}",
        "parameters": shapes,
        "buffers": buffers,
        "initial weights": digest_of([[dict(m.named_parameters()), dict(m.named_buffers())] for m in models]),
        "device": next(model.parameters()).device.type,
        "data": ", ".join(f"{n} {list(t.shape)} {t.dtype} {_digest_of_entries(t)}" for n, t in tensors.items()),
        "splits": digest_of([[s.train, s.val, s.test] for s in splits]),
        "seeds": str([int(seed) for seed in seeds]),
    }
    described.update({f"{name} of the model": value for name, value in settings_of(model).items()})
    described.update({name: str(value) for name, value in options.items()})
    described.update({name: describe_function(f) for name, f in functions.items()})
    return described


def _tensors_of(data: Data | HeteroData, *, every: bool) -> dict[str, Tensor]:
    """The tensors of a graph on which a training can depend: those that `fit` reads, or every one."""
    if isinstance(data, Data) and not every:
        read = (
            "x",
            "edge_index",
            "y",
            "batch",
            "edge_label_index",
            "edge_label",
            "edge_weight",
            "edge_attr",
            "edge_type",
        )
        return {n: t for n in read if isinstance(t := getattr(data, n, None), Tensor)}
    return {f"{store._key} {n}": t for store in data.stores for n, t in sorted(store.items()) if isinstance(t, Tensor)}


def _digest_of_entries(t: Tensor) -> str:
    """A digest of the entries of a tensor: of all, or of some if there are very many."""
    if t.layout != torch.strided:
        entries = t.to_sparse().coalesce()
        return digest_of([entries.indices(), entries.values()])
    flat = t.detach().reshape(-1)
    if len(flat) <= MAX_ENTRIES:
        return digest_of(flat)
    starts = torch.linspace(0, len(flat) - BLOCK, NUM_BLOCKS, dtype=torch.float64).long().tolist()
    return digest_of([flat[start : start + BLOCK] for start in starts])
