import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp.base import CheckpointError, VanishingGradientWarning, digest_of, rng
from wtawp.core import AwpConfig
from wtawp.graphs import load, stratified
from wtawp.models import GCN, MLP
from wtawp.training import Fit, fit, fit_many
from wtawp.training.checkpoint import Checkpoint

DATA = load("wine")
SPLIT, OTHER_SPLIT = (stratified(DATA.y, seed=s) for s in range(2))


class Users(nn.Module):
    """A user's module with torch's own dropout and batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(13, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)

    def forward(self, x: Tensor, _edge_index: Tensor) -> Tensor:
        return self.last(F.dropout(self.norm(self.first(x)).relu(), 0.4, self.training))


def users(seed: int = 0) -> Users:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Users()


def content(models: list[nn.Module], results: list[Fit]) -> str:
    """A digest of everything that a training leaves."""
    return digest_of([[m.state_dict() for m in models], [[r.epoch, r.scores, r.loss, r.history] for r in results]])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the script forks")
def test_a_training_that_is_killed_and_continued_has_the_bits_of_an_uninterrupted_one(tmp_path: Path) -> None:
    script = Path(__file__).with_name("killed_trainings.py")
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}  # CUDA cannot be used in a fork
    command = [sys.executable, str(script), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert [report.pop("scenario") for report in reports] == ["alone", "mapped", "drawing", "not mapped", "ours"]
    left = [int(report.pop("files left in the middle of writing")) for report in reports]
    assert left[0] == 1  # and it did no harm
    assert left[-1] >= 2
    assert [len(report) for report in reports] == [4, 2, 2, 2, 4]
    for report in reports:
        assert set(report.values()) == {report["uninterrupted"]}, report


def sgd(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.3, momentum=0.9)


def step_lr(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 5])


def one_cycle(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, 12)


def warm_up(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    parts = [
        torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=3),
        torch.optim.lr_scheduler.LambdaLR(optimizer, lambda e: 0.9**e),
    ]
    return torch.optim.lr_scheduler.SequentialLR(optimizer, parts, [3])


def squared(output: Tensor, target: Tensor) -> Tensor:
    return (output.softmax(1) - F.one_hot(target, 3)).square().mean()


TRAININGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "patience": {"patience": 2, "lr": 0.5, "epochs": 40},
    "perturbed": {"awp": AwpConfig(rho=0.5, lam=0.5, steps=2)},
    "momentum": {"awp": AwpConfig(rho=0.5, lam=1.0, layers="*", radius="global", direction="momentum")},
    "momentum of SGD": {"awp": AwpConfig(rho=0.5, lam=0.7, direction="momentum"), "optimizer": sgd},
    "without edges": {"awp": AwpConfig(rho=0.5, lam=0.7, perturbed_gradient="without-edges")},
    "functional": {"awp": AwpConfig(rho=0.5, lam=0.7, perturbed_gradient="functional", every=2)},
    "scheduled": {"optimizer": sgd, "scheduler": step_lr},
    "one cycle": {"scheduler": one_cycle},
    "warm up": {"optimizer": torch.optim.RMSprop, "scheduler": warm_up, "select_on": "last"},
    "own loss": {"loss": squared, "metric": squared, "lower_is_better": True, "select_on": "metric"},
}


@pytest.mark.parametrize("name", TRAININGS)
def test_a_training_continues_from_every_epoch(name: str, tmp_path: Path) -> None:
    options = {"seed": 3, "epochs": 12, **TRAININGS[name]}
    path, model, reference = tmp_path / "training.pt", users(), users()
    expected = content([reference], [fit(reference, DATA, SPLIT, **options)])

    def keep(_model: nn.Module, epoch: int) -> None:  # the file has the state before this epoch
        shutil.copy(path, tmp_path / f"{epoch}.pt")

    result = fit(model, DATA, SPLIT, checkpoint=path, checkpoint_every=1, observe=keep, **options)
    assert content([model], [result]) == expected
    if name == "patience":
        assert len(result.history["val_loss"]) < 40
    for epoch in range(0, len(result.history["val_loss"]), 3):
        again, seen = users(), []
        found = fit(again, DATA, SPLIT, checkpoint=tmp_path / f"{epoch}.pt",
                    observe=lambda _, e, seen=seen: seen.append(e), **options)  # fmt: skip
        assert content([again], [found]) == expected, epoch
        assert seen == list(range(epoch, len(result.history["val_loss"])))


@pytest.mark.parametrize("name", ["perturbed", "functional"])
def test_a_stack_of_modules_that_draw_continues_from_its_middle(name: str, tmp_path: Path) -> None:
    options = {"seeds": [3, 4], "epochs": 6, **TRAININGS[name]}
    path, models, reference, again = tmp_path / "training.pt", *([users(0), users(1)] for _ in range(3))
    expected = content(reference, fit_many(reference, DATA, SPLIT, **options))

    def keep(_models: list[nn.Module], epoch: int) -> None:
        if epoch == 3:
            shutil.copy(path, tmp_path / "3.pt")

    fit_many(models, DATA, SPLIT, checkpoint=path, checkpoint_every=1, observe=keep, **options)
    assert content(again, fit_many(again, DATA, SPLIT, checkpoint=tmp_path / "3.pt", **options)) == expected


def test_a_finished_training_is_returned_without_training_again(tmp_path: Path) -> None:
    path, seen = tmp_path / "training.pt", []
    first, second = users(), users()
    result = fit(first, DATA, SPLIT, seed=0, epochs=5, checkpoint=path)
    changed = path.stat().st_mtime_ns
    again = fit(second, DATA, SPLIT, seed=0, epochs=5, checkpoint=str(path), observe=lambda *_: seen.append(1))
    assert (again, seen, path.stat().st_mtime_ns) == (result, [], changed)
    assert content([first], [result]) == content([second], [again])


def test_the_caller_s_random_state_is_left_alone(tmp_path: Path) -> None:
    state = torch.get_rng_state()
    for _ in range(2):
        fit(users(), DATA, SPLIT, seed=0, epochs=3, checkpoint=tmp_path / "training.pt")
    assert torch.equal(state, torch.get_rng_state())


def test_each_stack_has_a_file_of_its_own(tmp_path: Path) -> None:
    def train(path: Path | None) -> str:
        models = [MLP(13, 3, generator=rng("init", i)) for i in range(3)]
        splits = [SPLIT, OTHER_SPLIT, SPLIT]
        return content(models, fit_many(models, DATA, splits, seeds=[0, 1, 2], epochs=6, checkpoint=path))  # type: ignore[arg-type]

    expected = train(None)
    assert train(tmp_path / "runs.pt") == expected
    assert sorted(p.name for p in tmp_path.iterdir()) == ["runs-0.pt", "runs-1.pt"]
    (tmp_path / "runs-1.pt").unlink()  # as if it had been killed before the second stack
    assert train(tmp_path / "runs.pt") == expected


def test_the_warning_of_a_vanishing_gradient_is_not_lost(tmp_path: Path) -> None:
    data, path = load("toy-linear"), tmp_path / "training.pt"
    split, awp = stratified(data.y, seed=0), AwpConfig(rho=20.0, lam=1.0, layers="all")

    def train(observe: Callable[[nn.Module, int], None] | None) -> str:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fit(GCN(2, 2, generator=rng("init", 0, 0)), data, split, seed=0, awp=awp, epochs=100, observe=observe,
                checkpoint=path)  # fmt: skip
        return next(str(w.message) for w in caught if issubclass(w.category, VanishingGradientWarning))

    def keep(_model: nn.Module, epoch: int) -> None:
        shutil.copy(path, tmp_path / f"{epoch}.pt")

    expected = train(keep)
    for epoch in (25, 99):
        shutil.copy(tmp_path / f"{epoch}.pt", path)
        assert train(None) == expected


def started(tmp_path: Path) -> Path:
    """The file of a finished training of three epochs."""
    path = tmp_path / "training.pt"
    fit(users(), DATA, SPLIT, seed=0, epochs=3, checkpoint=path)
    return path


def flipped(data: Data, epoch: int) -> Data:  # noqa: ARG001
    return Data(x=-data.x, y=data.y, edge_index=data.edge_index)


OTHER_DATA = Data(x=DATA.x + 1, y=DATA.y, edge_index=DATA.edge_index)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"seed": 1}, r"seeds \(\[0\] in the file, \[1\] now\)"),
        ({"epochs": 4}, r"epochs \(3 in the file, 4 now\)"),
        ({"awp": AwpConfig(rho=0.5, lam=0.5)}, r"awp \(None in the file, AwpConfig\(rho=0.5, lam=0.5, .* now\)"),
        ({"lr": 0.5}, r"optimizer .*'lr': 0.01.*'lr': 0.5"),
        ({"optimizer": sgd}, r"optimizer .*Adam.*SGD"),
        ({"scheduler": step_lr}, r"scheduler \(None in the file, .*MultiStepLR"),
        ({"patience": 2}, r"patience \(None in the file, 2 now\)"),
        ({"select_on": "last"}, r"select_on \(either in the file, last now\)"),
        ({"loss": squared}, r"loss \(None in the file, .*squared \w+ now\)"),
        ({"augment": flipped}, r"augment \(None in the file, .*flipped \w+ now\)"),
        ({"split": OTHER_SPLIT}, r"splits \(\w+ in the file, \w+ now\)"),
        ({"data": OTHER_DATA}, r"data \(x \[178, 13\] torch.float32 \w+, edge_index"),
        ({"model": users(1)}, r"initial weights \(\w+ in the file, \w+ now\)"),
        (
            {"model": MLP(13, 3, generator=rng("init"))},
            r"model \(1 of .*Users in the file, 1 of .*MLP now\); parameters",
        ),
    ],
)
def test_the_file_of_another_training_is_refused_and_kept(changed: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = started(tmp_path)
    before = path.read_bytes()
    options = {"model": users(), "data": DATA, "split": SPLIT, "seed": 0, "epochs": 3, **changed}
    with pytest.raises(CheckpointError, match=rf"training\.pt was written by another training: .*{words}"):
        fit(**options, checkpoint=path)
    assert path.read_bytes() == before


def test_rules_that_no_state_shows_are_known_by_their_code(tmp_path: Path) -> None:
    def train(scheduler: Callable[[Any], Any]) -> None:
        fit(users(), DATA, SPLIT, seed=0, epochs=3, checkpoint=tmp_path / "training.pt", scheduler=scheduler)

    train(lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.9**epoch))
    with pytest.raises(
        CheckpointError, match=r"another training: code of scheduler \(\S+ \w+ in the file, \S+ \w+ now\)\."
    ):
        train(lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.8**epoch))


def test_only_what_differs_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError) as refused:
        fit(users(), DATA, SPLIT, seed=0, epochs=4, checkpoint=started(tmp_path))
    assert re.findall(r"(\w+) \(\S+ in the file", str(refused.value)) == ["epochs"]


def test_a_damaged_file_is_refused_wherever_the_damage_is(tmp_path: Path) -> None:
    path = started(tmp_path)
    whole, expected = path.read_bytes(), Checkpoint(path, 1, torch.load(path)["identity"]).read()
    refused = 0
    for position in range(7, len(whole), len(whole) // 60):
        damaged = bytearray(whole)
        damaged[position] ^= 0xFF
        path.write_bytes(damaged)
        try:  # a few bytes carry no meaning: padding, and times
            state = Checkpoint(path, 1, {}).read()
        except CheckpointError as error:
            assert str(path) in str(error)  # noqa: PT017
            assert "move the file away" in str(error)  # noqa: PT017
            refused += 1
        else:
            assert digest_of(state) == digest_of(expected)
    assert refused >= 50
    for size in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(CheckpointError, match="cannot be read, it is damaged or is not a checkpoint"):
            fit(users(), DATA, SPLIT, seed=0, epochs=3, checkpoint=path)
        assert path.stat().st_size == size


def test_a_foreign_file_and_an_unknown_format_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save(users().state_dict(), path)
    with pytest.raises(CheckpointError, match=r"model\.pt is not a checkpoint of a training; pass another path"):
        fit(users(), DATA, SPLIT, seed=0, epochs=3, checkpoint=path)
    torch.save({**torch.load(started(tmp_path)), "format": 99}, path)
    with pytest.raises(CheckpointError, match=r"has format 99, this version of wtawp reads format 4"):
        fit(users(), DATA, SPLIT, seed=0, epochs=3, checkpoint=path)
    path.write_text("hello")
    with pytest.raises(CheckpointError, match="cannot be read"):
        fit(users(), DATA, SPLIT, seed=0, epochs=3, checkpoint=path)


class Executes:
    """What a file must not do when it is read."""

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, ("raise SystemExit('executed')",)


def test_reading_executes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "evil.pt"
    torch.save({"kind": "wtawp training checkpoint", "format": 1, "state": Executes()}, path)
    with pytest.raises(CheckpointError, match="cannot be read"):
        Checkpoint(path, 1, {}).read()


def test_what_cannot_be_saved_fails_before_the_first_epoch(tmp_path: Path) -> None:
    seen: list[int] = []

    def train(**options: Any) -> None:
        fit(users(), DATA, SPLIT, seed=0, epochs=3, observe=lambda _, e: seen.append(e), **options)

    class Odd(torch.optim.lr_scheduler.StepLR):
        def state_dict(self) -> dict[str, Any]:
            return {"what": self}

    with pytest.raises(CheckpointError, match="its folder does not exist; make it first"):
        train(checkpoint=tmp_path / "nowhere" / "training.pt")
    with pytest.raises(ValueError, match=r"checkpoint_every must be a whole number of epochs >= 1, got 0"):
        train(checkpoint=tmp_path / "training.pt", checkpoint_every=0)
    with pytest.raises(ValueError, match=r"checkpoint_every=5 needs checkpoint=, the file"):
        train(checkpoint_every=5)
    with pytest.raises(ValueError, match=r'checkpoint must be the path of a file, such as "run.pt", got 3'):
        train(checkpoint=3)
    with pytest.raises(CheckpointError, match=r"cannot be saved: .*there is no digest of Odd"):
        train(checkpoint=tmp_path / "training.pt", scheduler=lambda optimizer: Odd(optimizer, 1))
    (tmp_path / "folder").mkdir()
    with pytest.raises(CheckpointError, match="folder"):
        train(checkpoint=tmp_path / "folder")
    assert seen == []
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_a_changed_state_is_noticed_by_its_digest(tmp_path: Path) -> None:
    path = started(tmp_path)
    content = torch.load(path)
    content["state"]["epochs_run"] = 2
    torch.save(content, path)
    with pytest.raises(CheckpointError, match=r"training\.pt is damaged, its content does not match its digest"):
        fit(users(), DATA, SPLIT, seed=0, epochs=3, checkpoint=path)


@pytest.mark.parametrize("change", [{"kind": torch.zeros(2)}, {"identity": {1: 2}}, {"state": [1]}, {"digest": None}])
def test_content_of_another_kind_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    path = started(tmp_path)
    torch.save({**torch.load(path), **change}, path)
    with pytest.raises(CheckpointError, match="is not a checkpoint of a training"):
        Checkpoint(path, 1, {}).read()
    path.unlink()
    torch.save({**torch.load(started(tmp_path)), "state": {"a": {1, 2}}}, path)
    with pytest.raises(CheckpointError, match="does not match its digest"):
        Checkpoint(path, 1, {}).read()


def test_checkpoints_of_trainings_without_the_newest_options_stay_readable(tmp_path: Path) -> None:
    path = tmp_path / "training.pt"
    fit(users(), DATA, SPLIT, seed=0, epochs=2, awp=AwpConfig(rho=0.5, lam=0.7), checkpoint=path)
    assert (
        b"AwpConfig(rho=0.5, lam=0.7, layers='all-but-last', radius='layer', projection='sphere', steps=1,"
        b" step_size=None, balance=None, exact=False, every=1, start=0)"
    ) in path.read_bytes()
    momentum = AwpConfig(rho=0.5, lam=0.7, direction="momentum")
    with pytest.raises(CheckpointError, match="direction='momentum'"):
        fit(users(), DATA, SPLIT, seed=0, epochs=2, awp=momentum, checkpoint=path)
