"""The training loop over a stack of models.

All that happens in an epoch is one function of tensors, which a GPU can record as a CUDA graph and replay.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp.base import isolated_rng, seed_of
from wtawp.core import AwpConfig, VanishingGradientMonitor, VanishingMembersMonitor, select
from wtawp.graphs import Split
from wtawp.models.dropout import mixed
from wtawp.models.ensemble import Ensemble
from wtawp.models.inputs import prepare
from wtawp.training.options import Schedule, SelectOn
from wtawp.training.step import Stack, stack_gradient

COLUMNS = ("train_loss", "gap", "gradient_norm", "perturbed_norm", "weight_norm", "val_loss", "val_accuracy")
MAX_PASSES = 1 << 20  # limit of passes in one epoch, so that one number can identify (epoch, pass)


@dataclass(frozen=True)
class StackRun:
    """What a stack of runs measured. Every tensor ends in [b], one entry for each member.

    Attributes:
        epoch: The selected epoch.
        accuracy: Accuracy at the selected epoch on "train", "val" and "test".
        loss: Loss at the selected epoch on "train", "val" and "test".
        history: For each of `COLUMNS` one row per epoch, [epochs, b].
    """

    epoch: Tensor
    accuracy: dict[str, Tensor]
    loss: dict[str, Tensor]
    history: dict[str, Tensor]


@dataclass(frozen=True)
class _Subset:
    """How to compute the logits of some nodes: arguments for the models, and the rows to take from their output."""

    arguments: tuple[object, ...]
    rows: Tensor | None  # [k], or [b, k] if members have different nodes; None takes all
    y: Tensor  # [k] or [b, k]

    def take(self, logits: Tensor) -> Tensor:  # [b, n, c] -> [b, k, c]
        """The logits of these nodes."""
        if self.rows is None:
            return logits
        if self.rows.dim() == 1:
            return logits[:, self.rows]
        return logits.gather(1, self.rows[..., None].expand(-1, -1, logits.shape[2]))


def _subset(model: nn.Module, data: Data, parts: list[Tensor]) -> _Subset:
    """The nodes of each member; if all members share them, only their receptive field is computed."""
    if all(part is parts[0] for part in parts):
        rows = parts[0].to(data.y.device)
        arguments, remaining = prepare(model, data, rows)
        return _Subset(arguments, remaining, data.y[rows])
    if len({len(part) for part in parts}) > 1:
        raise ValueError("runs trained together need splits of equal sizes")
    arguments, _ = prepare(model, data, None)
    rows = torch.stack(parts).to(data.y.device)
    return _Subset(arguments, rows, data.y[rows])


def _losses(logits: Tensor, y: Tensor) -> Tensor:  # [b, k, c], [k] or [b, k] -> [b]
    """The mean cross-entropy of each member. The layout lets the softmax process many nodes in one vector."""
    return F.cross_entropy(logits.mT.contiguous(), y.expand(logits.shape[:2]), reduction="none").mean(1)


def _accuracies(logits: Tensor, y: Tensor) -> Tensor:  # [b, k, c], [k] or [b, k] -> [b]
    """The accuracy of each member."""
    return (logits.argmax(2) == y).to(torch.float32).mean(1)


def train_stack(
    models: list[nn.Module],
    data: Data,
    splits: list[Split],
    *,
    seeds: list[int],
    awp: AwpConfig | None,
    schedule: Schedule,
    augment: Callable[[Data, int], Data] | None,
    observe: Callable[[list[nn.Module], int], None] | None,
    monitor: VanishingMembersMonitor | None,
    positions: list[int],
) -> StackRun:
    """Train a stack of models and write the selected weights into its members.

    Args:
        models: Modules of one architecture on one device.
        data: The graph, on the same device.
        splits: The split of each member.
        seeds: The seed of each member.
        awp: How the weights are perturbed; None is plain training.
        schedule: How long and how fast to train.
        augment: Returns the graph that the training pass of an epoch uses; None uses `data`.
        observe: Called with the models and the epoch after each epoch.
        monitor: Is given the gradient norms of the members at the epochs it checks; None checks nothing.
        positions: Under which number the monitor knows each member.

    Returns:
        The selected epochs, accuracies, losses, and the history.

    Raises:
        ValueError: If the members have different architectures, or splits of different sizes.
    """
    ensemble = Ensemble(models)
    names = () if awp is None or awp.is_plain else select(models[0], awp.layers)
    subsets = {part: _subset(models[0], data, [getattr(s, part) for s in splits]) for part in ("train", "val")}
    device = data.y.device
    dropout_seeds = torch.tensor([seed_of("dropout", seed) for seed in seeds], device=device)
    theta, buffers = ensemble.parameters(), ensemble.buffers()
    trained = [w for w in theta.values() if w.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=schedule.lr, weight_decay=schedule.weight_decay, fused=True,
                                 capturable=device.type == "cuda")  # fmt: skip
    selection = Selection(theta, buffers, len(models), device, schedule.select_on)
    history = torch.zeros(schedule.epochs, len(COLUMNS), len(models), dtype=trained[0].dtype, device=device)

    def epoch_step(epoch: Tensor, train: _Subset) -> None:
        """All of one epoch, as a function of tensors, so that a GPU can replay it."""

        def losses(weights: Stack, number: int) -> Tensor | tuple[Tensor, Tensor]:
            statistics = buffers if number == 0 else {n: b.clone() for n, b in buffers.items()}
            keys = mixed(dropout_seeds + mixed(epoch * MAX_PASSES + number))
            if number == 0 and ensemble.has_extra_loss:  # at the natural weights alone, as in the released code
                logits, extra = ensemble.logits_and_extra(weights, statistics, train.arguments, keys)
                return _losses(train.take(logits), train.y), extra
            return _losses(train.take(ensemble.logits(weights, statistics, train.arguments, keys)), train.y)

        result = stack_gradient(losses, theta, names, awp)
        for name, weight in theta.items():
            weight.grad = result.gradient[name].contiguous() if name in result.gradient else None
        optimizer.step()
        with torch.no_grad():
            val = subsets["val"]
            logits = val.take(ensemble.logits(theta, buffers, val.arguments, None))
            loss, accuracy = _losses(logits, val.y), _accuracies(logits, val.y)
            selection.update(epoch, loss, accuracy, schedule.patience)
            norms = result.natural_norm, result.perturbed_norm, result.weight_norm
            row = [result.loss, result.gap, *norms, loss, accuracy]
            history.index_copy_(0, epoch[None], torch.stack([r.to(history.dtype) for r in row])[None])

    epochs_run = schedule.epochs
    with isolated_rng("torch dropout", *seeds):
        can_replay = device.type == "cuda" and augment is None and ensemble.is_ours
        step = _CudaGraphStep(epoch_step, device) if can_replay else epoch_step
        for number in range(schedule.epochs):
            train = subsets["train"]
            if augment is not None:
                ensemble.write_back({**theta, **buffers})  # `augment` may use the models, for example to attack them
                train = _subset(models[0], augment(data, number), [s.train for s in splits])
            step(torch.tensor(number, device=device), train)
            if observe is not None:
                ensemble.write_back({**theta, **buffers})
                observe(models, number)
            if monitor is not None and VanishingGradientMonitor.is_due(number + 1):
                _check_gradients(monitor, positions, number + 1, history[number], selection.stopped)
            if schedule.patience is not None and bool(selection.stopped.all()):
                epochs_run = number + 1
                break

    ensemble.write_back(selection.best)
    ensemble.write_back(selection.best_buffers)
    del step, train  # which hold the training nodes, and on a GPU the memory of the recorded epoch
    accuracy, loss = {}, {}
    with torch.no_grad():
        for part in ("train", "val", "test"):  # each is freed before the next is built: test is nearly the whole graph
            subset = subsets.pop(part) if part in subsets else _subset(models[0], data, [s.test for s in splits])
            logits = subset.take(ensemble.logits(selection.best, selection.best_buffers, subset.arguments, None))
            accuracy[part], loss[part] = _accuracies(logits, subset.y).cpu(), _losses(logits, subset.y).cpu()
            del subset, logits
    table = history[:epochs_run].cpu()
    return StackRun(
        epoch=selection.epoch.cpu(),
        accuracy=accuracy,
        loss=loss,
        history={name: table[:, i] for i, name in enumerate(COLUMNS)},
    )


def _check_gradients(
    monitor: VanishingMembersMonitor, positions: list[int], step: int, row: Tensor, stopped: Tensor
) -> None:
    """Give the monitor the norms in one row of the history, [columns, b], of the members that have not stopped."""
    columns = [COLUMNS.index(name) for name in ("gradient_norm", "perturbed_norm", "train_loss")]
    numbers = torch.cat([row[columns], stopped[None].to(row.dtype)]).T.tolist()  # the only wait for a GPU
    for position, (natural, perturbed, loss, has_stopped) in zip(positions, numbers, strict=True):
        if not has_stopped:
            monitor.check(position, step, natural, perturbed, loss)


class _CudaGraphStep:
    """An epoch on a GPU: called as it is a few times, then recorded as a CUDA graph and replayed without the CPU."""

    WARM_UP = 3

    def __init__(self, step: Callable[[Tensor, _Subset], None], device: torch.device) -> None:
        self.step, self.calls = step, 0
        self.graph, self.epoch = torch.cuda.CUDAGraph(), torch.zeros((), dtype=torch.int64, device=device)
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def __call__(self, epoch: Tensor, train: _Subset) -> None:
        self.calls += 1
        if self.calls <= self.WARM_UP:
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                self.step(epoch, train)
            torch.cuda.current_stream().wait_stream(self.stream)
            return
        if self.calls == self.WARM_UP + 1:
            with torch.cuda.graph(self.graph, stream=self.stream):
                self.step(self.epoch, train)
        self.epoch.copy_(epoch)
        self.graph.replay()


class Selection:
    """The best weights so far of every member: those of the last epoch that improved on the validation set.

    Args:
        theta: The stacked weights that are trained in place.
        buffers: The stacked buffers that are updated in place.
        size: Number of members.
        device: Where they are.
        select_on: What must improve, see `Schedule`.
    """

    def __init__(self, theta: Stack, buffers: Stack, size: int, device: torch.device, select_on: SelectOn) -> None:
        self.theta, self.buffers, self.select_on = theta, buffers, select_on
        self.best = {n: w.detach().clone() for n, w in theta.items()}
        self.best_buffers = {n: b.clone() for n, b in buffers.items()}
        self.loss = torch.full((size,), torch.inf, device=device)
        self.accuracy = torch.full((size,), -1.0, device=device)
        self.epoch = torch.zeros(size, dtype=torch.int64, device=device)
        self.stopped = torch.zeros(size, dtype=torch.bool, device=device)

    def update(self, epoch: Tensor, loss: Tensor, accuracy: Tensor, patience: int | None) -> None:
        """Keep the current weights of the members that have improved.

        Args:
            epoch: Number of the epoch, counted from 0.
            loss: Validation loss of each member, [b].
            accuracy: Validation accuracy of each member, [b].
            patience: Number of epochs without improvement after which a member stops; None for never.
        """
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
