"""Trains small models in child processes, kills them with SIGKILL, continues them, and prints digests of the results.

Called by `test_checkpoint.py` as `python killed_trainings.py FOLDER`. For each scenario it prints one JSON line: the
digest of the uninterrupted training, and for each way to be killed the digest of the continued one.
"""

import json
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp.base import digest_of, rng
from wtawp.core import AwpConfig
from wtawp.graphs import load, stratified
from wtawp.models import MLP
from wtawp.training import fit_many

EPOCHS, AWP = 9, AwpConfig(rho=0.5, lam=0.5)
# Epochs between two saves, and when to be killed: after so many epochs, at the end of so many writes, or at any moment.
KILLS: dict[str, list[tuple[int, tuple[str, int] | None]]] = {
    "alone": [(1, ("epoch", 1)), (2, ("epoch", 8)), (1, ("write", 5))],
    "mapped": [(2, ("epoch", 4))],
    "drawing": [(2, ("epoch", 4))],
    "not mapped": [(1, ("epoch", 3))],
    "ours": [(2, ("epoch", 12)), (1, ("write", 1)), (3, None)],
}


class Users(nn.Module):
    """A user's module with torch's own dropout and batch norm."""

    def __init__(self, dropout: float = 0.4) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(13, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)
        self.dropout = dropout

    def forward(self, x: Tensor, _edge_index: Tensor) -> Tensor:
        return self.last(F.dropout(self.norm(self.first(x)).relu(), self.dropout, self.training))


class NotMappable(Users):
    """Draws random numbers and does what vmap refuses: a decision that depends on values."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out = super().forward(x, edge_index)
        return out if bool((out.detach() < 1e9).all()) else -out


def noisy(data: Data, epoch: int) -> Data:  # noqa: ARG001
    return Data(x=data.x + 0.1 * torch.randn_like(data.x), y=data.y, edge_index=data.edge_index)


def scenarios() -> dict[str, Callable[[], dict[str, Any]]]:
    wine = load("wine")
    one, other = (stratified(wine.y, seed=s) for s in range(2))

    def users(kind: Callable[[], nn.Module], size: int) -> list[nn.Module]:
        torch.manual_seed(0)
        return [kind() for _ in range(size)]

    def momentum(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.3, momentum=0.9)

    def cosine(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)

    def plateau(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
        return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)

    return {
        "alone": lambda: {"models": users(Users, 1), "splits": one, "awp": AWP, "patience": 4, "lr": 0.1},
        "mapped": lambda: {
            "models": users(partial(Users, 0.0), 2), "splits": one, "optimizer": momentum, "scheduler": cosine,
        },
        "drawing": lambda: {"models": users(Users, 2), "splits": one, "optimizer": momentum, "scheduler": cosine},
        "not mapped": lambda: {"models": users(NotMappable, 2), "splits": one, "awp": AWP, "scheduler": plateau},
        "ours": lambda: {
            "models": [MLP(13, 3, generator=rng("init", i)) for i in range(3)],
            "splits": [one, other, one], "awp": AWP, "augment": noisy,
        },
    }  # fmt: skip


def train(options: dict[str, Any], path: Path | None, every: int, kill: tuple[str, int] | None) -> str:
    models, epochs_seen, writes = options.pop("models"), 0, 0

    def observe(_models: list[nn.Module], _epoch: int) -> None:
        nonlocal epochs_seen
        epochs_seen += 1
        if kill == ("epoch", epochs_seen):
            os.kill(os.getpid(), signal.SIGKILL)

    def replace(source: Path, target: Path) -> None:
        nonlocal writes
        writes += 1
        if kill == ("write", writes):
            os.kill(os.getpid(), signal.SIGKILL)  # the new file is complete, but has not its name yet
        os.rename(source, target)

    os.replace = replace
    if path is not None:
        options |= {"checkpoint": path, "checkpoint_every": every}
    results = fit_many(models, load("wine"), seeds=list(range(len(models))), epochs=EPOCHS, observe=observe, **options)
    return digest_of([[m.state_dict() for m in models], [[r.epoch, r.scores, r.loss, r.history] for r in results]])


def in_child(out: Path, work: Callable[[], str], seconds: float | None = None) -> int:
    """Run something in a process of its own, which is killed after some time; 0 or the signal that ended it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            out.write_text(work())
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name, make in scenarios().items():
        out, report = folder / "digest", {"scenario": name}
        assert in_child(out, lambda make=make: train(make(), None, 1, None)) == 0
        report["uninterrupted"] = out.read_text()
        for every, kill in KILLS[name]:
            path = folder / f"{name}-{kill[0] if kill else 'any'}-{kill[1] if kill else 0}.pt"
            if kill is not None:
                ended = in_child(out, lambda make=make, p=path, e=every, k=kill: train(make(), p, e, k))
                assert ended == -signal.SIGKILL, (name, kill, ended)
            else:  # killed again and again, at any moment
                for i in range(4):
                    in_child(out, lambda make=make, p=path, e=every: train(make(), p, e, None), 0.004 + 0.012 * i)
            out.unlink(missing_ok=True)
            assert in_child(out, lambda make=make, p=path, e=every: train(make(), p, e, None)) == 0
            report[str(kill)] = out.read_text()
        report["files left in the middle of writing"] = str(len(list(folder.glob(".*.part"))))
        print(json.dumps(report), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(Path(sys.argv[1]))
