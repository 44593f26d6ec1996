"""The training loop over a stack of models. Everything that happens each epoch is one function of tensors."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp.base import isolated_rng, seed_of
from wtawp.core import AwpConfig, select
from wtawp.graphs import Split
from wtawp.models.dropout import mixed
from wtawp.models.ensemble import Ensemble
from wtawp.models.inputs import prepare
from wtawp.training.step import Stack, stack_gradient

SelectOn = Literal["either", "loss", "accuracy", "last"]
COLUMNS = ("train_loss", "gap", "gradient_norm", "perturbed_norm", "weight_norm", "val_loss", "val_accuracy")
MAX_PASSES = 1 << 20  # of the closure in one epoch; keeps (epoch, pass) apart in one number


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How long and how fast."""

    epochs: int
    lr: float
    weight_decay: float
    patience: int | None
    select_on: SelectOn  # what of the validation set must improve; "either" is the released code's rule, "last" nothing


@dataclass(frozen=True)
class StackRun:
    """What a stack of runs measured; every tensor ends in [b]."""

    epoch: Tensor
    accuracy: dict[str, Tensor]
    loss: dict[str, Tensor]
    history: dict[str, Tensor]  # [epochs, b]


@dataclass(frozen=True)
class _View:
    """How to get the logits of some nodes: arguments for the models, and the rows to take from their output."""

    arguments: tuple[object, ...]
    rows: Tensor | None  # [k], or [b, k] if members have different nodes; None takes all
    y: Tensor  # [k] or [b, k]

    def take(self, logits: Tensor) -> Tensor:  # [b, n, c] -> [b, k, c]
        if self.rows is None:
            return logits
        if self.rows.dim() == 1:
            return logits[:, self.rows]
        return logits.gather(1, self.rows[..., None].expand(-1, -1, logits.shape[2]))


def _view(model: nn.Module, data: Data, parts: list[Tensor]) -> _View:
    if all(part is parts[0] for part in parts):
        rows = parts[0].to(data.y.device)
        arguments, left = prepare(model, data, rows)
        return _View(arguments, left, data.y[rows])
    if len({len(part) for part in parts}) > 1:
        raise ValueError("runs trained together need splits of equal sizes")
    arguments, _ = prepare(model, data, None)
    rows = torch.stack(parts).to(data.y.device)
    return _View(arguments, rows, data.y[rows])


def _losses(logits: Tensor, y: Tensor) -> Tensor:  # [b, k, c], [k] or [b, k] -> [b]
    # The classes lie apart, so that the softmax can go over many nodes in one vector.
    return F.cross_entropy(logits.mT.contiguous(), y.expand(logits.shape[:2]), reduction="none").mean(1)


def _accuracies(logits: Tensor, y: Tensor) -> Tensor:
    return (logits.argmax(2) == y).to(torch.float32).mean(1)


def train_together(
    models: list[nn.Module],
    data: Data,
    splits: list[Split],
    seeds: list[int],
    awp: AwpConfig | None,
    schedule: Schedule,
    augment: Callable[[Data, int], Data] | None,
    observe: Callable[[list[nn.Module], int], None] | None,
) -> StackRun:
    """Train the stack and write the selected weights into its members."""
    ensemble = Ensemble(models)
    names = () if awp is None or awp.is_plain else select(models[0], awp.layers)
    views = {part: _view(models[0], data, [getattr(s, part) for s in splits]) for part in ("train", "val")}
    device = data.y.device
    base = torch.tensor([seed_of("dropout", seed) for seed in seeds], device=device)
    theta, buffers = ensemble.parameters(), ensemble.buffers()
    trained = [w for w in theta.values() if w.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=schedule.lr, weight_decay=schedule.weight_decay, fused=True,
                                 capturable=device.type == "cuda")  # fmt: skip
    state = Selection(theta, buffers, len(models), device, schedule.select_on)
    history = torch.zeros(schedule.epochs, len(COLUMNS), len(models), dtype=trained[0].dtype, device=device)

    def epoch_step(epoch: Tensor, view: _View) -> None:
        """All of one epoch, as a function of tensors, so that a GPU can replay it."""

        def losses(weights: Stack, number: int) -> Tensor | tuple[Tensor, Tensor]:
            statistics = buffers if number == 0 else {n: b.clone() for n, b in buffers.items()}
            keys = mixed(base + mixed(epoch * MAX_PASSES + number))
            if number == 0 and ensemble.has_extra_loss:  # of the natural weights alone, as in the released code
                logits, extra = ensemble.logits_and_extra(weights, statistics, view.arguments, keys)
                return _losses(view.take(logits), view.y), extra
            return _losses(view.take(ensemble.logits(weights, statistics, view.arguments, keys)), view.y)

        result = stack_gradient(losses, theta, names, awp)
        for name, weight in theta.items():
            weight.grad = result.gradient[name].contiguous() if name in result.gradient else None
        optimizer.step()
        with torch.no_grad():
            val = views["val"]
            logits = val.take(ensemble.logits(theta, buffers, val.arguments, None))
            loss, accuracy = _losses(logits, val.y), _accuracies(logits, val.y)
            state.keep_if_better(epoch, loss, accuracy, schedule.patience)
            norms = result.natural_norm, result.perturbed_norm, result.weight_norm
            row = [result.loss, result.gap, *norms, loss, accuracy]
            history.index_copy_(0, epoch[None], torch.stack([r.to(history.dtype) for r in row])[None])

    done = schedule.epochs
    with isolated_rng("torch dropout", *seeds):
        step = (
            _Replayed(epoch_step, device)
            if device.type == "cuda" and augment is None and ensemble.is_ours
            else epoch_step
        )
        for number in range(schedule.epochs):
            view = views["train"]
            if augment is not None:
                ensemble.write_back({**theta, **buffers})  # for one that looks at the models, to attack them
                view = _view(models[0], augment(data, number), [s.train for s in splits])
            step(torch.tensor(number, device=device), view)
            if observe is not None:
                ensemble.write_back({**theta, **buffers})
                observe(models, number)
            if schedule.patience is not None and bool(state.stopped.all()):
                done = number + 1
                break

    ensemble.write_back(state.best)
    ensemble.write_back(state.best_buffers)
    views["test"] = _view(models[0], data, [s.test for s in splits])  # nearly the whole graph: not held till now
    with torch.no_grad():
        found = {
            part: v.take(ensemble.logits(state.best, state.best_buffers, v.arguments, None))
            for part, v in views.items()
        }
    table = history[:done].cpu()
    return StackRun(
        epoch=state.epoch.cpu(),
        accuracy={part: _accuracies(logits, views[part].y).cpu() for part, logits in found.items()},
        loss={part: _losses(logits, views[part].y).cpu() for part, logits in found.items()},
        history={name: table[:, i] for i, name in enumerate(COLUMNS)},
    )


class _Replayed:
    """An epoch on a GPU: run as it is a few times, then recorded as a CUDA graph and replayed without the CPU."""

    WARM_UP = 3

    def __init__(self, step: Callable[[Tensor, _View], None], device: torch.device) -> None:
        self.step, self.calls = step, 0
        self.graph, self.epoch = torch.cuda.CUDAGraph(), torch.zeros((), dtype=torch.int64, device=device)
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def __call__(self, epoch: Tensor, view: _View) -> None:
        self.calls += 1
        if self.calls <= self.WARM_UP:
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                self.step(epoch, view)
            torch.cuda.current_stream().wait_stream(self.stream)
            return
        if self.calls == self.WARM_UP + 1:
            with torch.cuda.graph(self.graph, stream=self.stream):
                self.step(self.epoch, view)
        self.epoch.copy_(epoch)
        self.graph.replay()


class Selection:
    """The best weights so far of every member: those of the last epoch that improved on the validation set."""

    def __init__(self, theta: Stack, buffers: Stack, size: int, device: torch.device, select_on: SelectOn) -> None:
        self.theta, self.buffers, self.select_on = theta, buffers, select_on
        self.best = {n: w.detach().clone() for n, w in theta.items()}
        self.best_buffers = {n: b.clone() for n, b in buffers.items()}
        self.loss = torch.full((size,), torch.inf, device=device)
        self.accuracy = torch.full((size,), -1.0, device=device)
        self.epoch = torch.zeros(size, dtype=torch.int64, device=device)
        self.stopped = torch.zeros(size, dtype=torch.bool, device=device)

    def keep_if_better(self, epoch: Tensor, loss: Tensor, accuracy: Tensor, patience: int | None) -> None:
        lower, higher = loss < self.loss, accuracy > self.accuracy
        rules = {"either": lower | higher, "loss": lower, "accuracy": higher, "last": torch.ones_like(lower)}
        better = rules[self.select_on] & ~self.stopped
        self.loss.copy_(torch.minimum(self.loss, loss.to(self.loss.dtype)))
        self.accuracy.copy_(torch.maximum(self.accuracy, accuracy))
        self.epoch.copy_(torch.where(better, epoch, self.epoch))
        if patience is not None:
            self.stopped |= epoch - self.epoch >= patience
        pairs = [(self.best, self.theta), (self.best_buffers, self.buffers)]
        if better.device.type == "cpu":  # few members improve in late epochs: copy those alone
            for i in better.nonzero()[:, 0].tolist():
                for best, now in pairs:
                    for n in best:
                        best[n][i].copy_(now[n][i].detach())
        else:
            for best, now in pairs:
                for n in best:
                    best[n].copy_(torch.where(better.view(-1, *[1] * (best[n].dim() - 1)), now[n].detach(), best[n]))
