"""A stack of models in training: its state, one epoch of it, and what is measured at the end.

All that happens in an epoch is one function of tensors, which a GPU can record as a CUDA graph and replay.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from wtawp.base import find_stack_level, isolated_rng, seed_of
from wtawp.core import AwpConfig, VanishingGradientMonitor, VanishingMembersMonitor, select
from wtawp.core.auto import MAX_SUSPICIOUS, AutoState, follow_gap, follow_rise, zero_if_negligible
from wtawp.core.perturb import isolated_buffers
from wtawp.graphs import Split
from wtawp.graphs.splitmix64 import splitmix64
from wtawp.models.calls import Forward
from wtawp.models.ensemble import Ensemble
from wtawp.training.averages import WeightAverage
from wtawp.training.best_weights import BestWeights
from wtawp.training.objective import Objective
from wtawp.training.optimizers import StackOptimizer
from wtawp.training.options import Schedule
from wtawp.training.passes import TrainingPasses, needs_samples_without_edges, substitutes_of
from wtawp.training.step import Stack, Strength, stack_gradient
from wtawp.training.subsets import Decoder, Subset, build_subset, without_edges

# What a history has; if lam follows the training, "lam" and "rho" too.
COLUMNS = ("train_loss", "gap", "gradient_norm", "perturbed_norm", "weight_norm", "val_loss", "val_score")
MAX_PASSES = 1 << 20  # limit of passes in one epoch, so that one number can identify (epoch, pass)

Check = tuple[int, list[list[float]]]  # a step; for each member two norms, the loss, and whether it has stopped


@dataclass(frozen=True)
class StackRun:
    """What a stack of runs measured. Every tensor ends in [b], one entry for each member.

    Attributes:
        epoch: The selected epoch.
        scores: The metric at the selected epoch on "train", "val" and "test".
        loss: Loss at the selected epoch on "train", "val" and "test".
        history: For each of `COLUMNS`, and "lam" and "rho" if they followed the training, one row per epoch,
            [epochs, b]. Columns that perturbed epochs do not measure are left out.
    """

    epoch: Tensor
    scores: dict[str, Tensor]
    loss: dict[str, Tensor]
    history: dict[str, Tensor]


class StackTraining:
    """A stack of models while it is trained: all state that changes from one epoch to the next.

    Args:
        models: Modules of one architecture on one device.
        data: The graph, on the same device.
        splits: The split of each member.
        seeds: The seed of each member.
        awp: How the weights are perturbed; None is plain training.
        schedule: How long and how fast to train.
        objective: The loss and the metric.
        decoder: For pairs of nodes: turns the rows of both ends into one row for each pair.
        forward: The adapter through which the models are called; None calls the models themselves.
        make_optimizer: Builds the optimizer of the stacked weights.

    Raises:
        ValueError: If the members have different architectures, or splits of different sizes.
    """

    def __init__(
        self,
        models: list[nn.Module],
        data: Data | HeteroData,
        splits: list[Split],
        *,
        seeds: list[int],
        awp: AwpConfig | None,
        schedule: Schedule,
        objective: Objective,
        decoder: Decoder | None,
        forward: Forward | None,
        make_optimizer: Callable[[Stack], StackOptimizer],
    ) -> None:
        self.data, self.splits, self.awp, self.schedule = data, splits, awp, schedule
        self.objective, self.decoder, self.device = objective, decoder, next(models[0].parameters()).device
        self.forward, self.ensemble = forward, Ensemble(models, forward, seeds=seeds)
        is_auto = awp is not None and awp.is_auto and not awp.is_plain
        self.monitored_parts = ("train", "val") if is_auto else ("val",)  # measured after each epoch, in one pass
        self.subsets = {"train": self.train_samples(data), "monitored": self.subset(data, *self.monitored_parts)}
        self.names = () if awp is None or awp.is_plain else self._select(awp)
        self.dropout_seeds = torch.tensor([seed_of("dropout", seed) for seed in seeds], device=self.device)
        self.passes = torch.arange(1 if awp is None else awp.steps + 2, device=self.device)  # of one epoch, at most
        self.theta, self.buffers = self.ensemble.parameters(), self.ensemble.buffers()
        self.optimizer = make_optimizer(self.theta)
        self.follows_momentum = awp is not None and awp.direction == "momentum" and not awp.is_plain
        if self.follows_momentum and self.optimizer.no_momentum is not None:
            raise ValueError(
                'direction="momentum" needs an optimizer that averages gradients, such as Adam, or SGD with'
                f" momentum=0.9; got {self.optimizer.no_momentum}"
            )
        self.average = (
            None if schedule.average is None else WeightAverage(self.theta, schedule.average, schedule.epochs)
        )
        self.measured = self.theta if self.average is None else self.average.weights  # what is measured and selected
        first = 0 if self.average is None else self.average.first
        self.selection = BestWeights(
            self.measured, self.buffers, len(models), self.device, schedule.select_on, first=first
        )
        dtype = next(w.dtype for w in self.theta.values() if w.requires_grad)
        ones = torch.ones(len(models), dtype=torch.float64, device=self.device)
        self.auto_state = AutoState(lam=0 * ones, first_loss=torch.inf * ones, peak=0 * ones) if is_auto else None
        self.rho_share = ones  # of rho, where lam is "auto"
        self.smallest_loss = torch.zeros(len(models), dtype=dtype, device=self.device)  # that lam followed last
        self.columns = (*COLUMNS, "lam", "rho") if is_auto else COLUMNS
        self.history = torch.zeros(schedule.epochs, len(self.columns), len(models), dtype=dtype, device=self.device)
        self.epochs_run = 0
        self.checks: list[Check] = []  # what the monitor was given

    @property
    def is_finished(self) -> bool:
        """Whether all epochs were run, or all members have stopped."""
        is_stopped = self.schedule.patience is not None and bool(self.selection.stopped.all())
        return is_stopped or self.epochs_run == self.schedule.epochs

    def subset(self, data: Data | HeteroData, *parts: str) -> Subset:
        """Arrange the samples of one part of the splits, or of several parts one after another.

        Args:
            data: The graph.
            *parts: "train", "val" or "test".

        Returns:
            The samples of all members.
        """
        samples = {}  # by split: members share samples if they are the same tensor
        for split in {id(s): s for s in self.splits}.values():
            pieces = [getattr(split, part) for part in parts]
            samples[id(split)] = pieces[0] if len(pieces) == 1 else torch.cat(pieces)
        members = [samples[id(s)] for s in self.splits]
        return build_subset(self.ensemble.template, data, members, self.decoder, self.forward)

    def train_samples(self, data: Data | HeteroData) -> Subset:
        """Arrange the training samples, also on the graph without its edges if the perturbation needs them there.

        Args:
            data: The graph.

        Returns:
            The samples of all members.
        """
        samples = self.subset(data, "train")
        if not needs_samples_without_edges(self.awp):
            return samples
        return replace(samples, without_edges=self.subset(without_edges(data), "train"))

    def _select(self, awp: AwpConfig) -> tuple[str, ...]:
        """The perturbed parameters. Our layers are registered in the order of the forward pass; others need one."""
        if self.ensemble.is_ours:
            return select(self.ensemble.template, awp.layers)

        def outputs() -> object:
            model = self.ensemble.called
            with isolated_rng("order of layers"), isolated_buffers(model):
                return model.eval()(*self.subsets["train"].arguments)

        return select(self.ensemble.template, awp.layers, outputs=outputs)

    def is_perturbed(self, number: int) -> bool:
        """Whether the weights are perturbed in an epoch.

        Args:
            number: Number of the epoch, counted from 0.

        Returns:
            False for plain training, for the plain epochs that `start` and `every` leave, and while lam follows the
            training and is near 0 for all members; to know that, the CPU waits for a GPU.
        """
        if self.awp is None or not self.awp.perturbs(number):
            return False
        return self.auto_state is None or bool(zero_if_negligible(self.auto_state.lam).any())

    def is_checked(self, number: int) -> bool:
        """Whether the gradient at the perturbed weights is checked after a perturbed epoch.

        Args:
            number: Number of the epoch, counted from 0.

        Returns:
            True for the first epoch that may be perturbed and every tenth one.
        """
        first, every = (0, 1) if self.awp is None else (self.awp.start, self.awp.every)
        return VanishingGradientMonitor.is_due((number - first) // every + 1)

    def run_epoch(self, epoch: Tensor, train: Subset, *, is_perturbed: bool) -> None:
        """All of one epoch, as a function of tensors, so that a GPU can replay it.

        Args:
            epoch: Number of the epoch, counted from 0.
            train: The samples to train with.
            is_perturbed: Whether the weights are perturbed; otherwise the epoch is plain training.
        """
        ensemble, objective, theta, buffers = self.ensemble, self.objective, self.theta, self.buffers
        keys_of_pass = splitmix64(
            self.dropout_seeds + splitmix64(epoch * MAX_PASSES + self.passes)[:, None]
        )  # [passes, b]
        awp = self.awp if is_perturbed else None
        is_linearised = awp is not None and awp.perturbed_gradient == "functional"
        passes = TrainingPasses(ensemble, objective, train, buffers, keys_of_pass, is_linearised=is_linearised)
        substitutes = None if awp is None else substitutes_of(awp, passes, self.optimizer, theta)
        strength = self._strength()
        result = stack_gradient(passes.losses, theta, self.names, awp, strength, substitutes)
        if is_perturbed and strength is not None:
            passes.forget_draws_of_plain(strength.lam == 0)
        self.optimizer.step(result.gradient)
        if self.follows_momentum and self.epochs_run == 0:
            self._refuse_missing_momentum()
        if self.average is not None:
            self.average.update(epoch)
        with torch.no_grad():
            loss, scores, train_loss = self._measure_monitored(epoch)
            self.selection.update(epoch, loss, objective.goodness(scores), self.schedule.patience)
            norms = result.natural_norm, result.perturbed_norm, result.weight_norm
            row = [result.loss, result.rise, *norms, loss, scores]
            if self.auto_state is not None and strength is not None and train_loss is not None:
                row += [strength.lam if is_perturbed else torch.zeros_like(strength.lam), strength.rho]
                if is_perturbed:
                    share = follow_rise(self.rho_share, result.rise, loss)
                    self.rho_share.copy_(torch.where(strength.lam > 0, share, self.rho_share))
                self._follow_gap(epoch, result.own_loss, train_loss, loss)
                self.smallest_loss.copy_(torch.minimum(train_loss, loss))
            rows = torch.stack([r.to(self.history.dtype) for r in row])
            self.history.index_copy_(0, epoch[None], rows[None])
        self.optimizer.end_epoch(loss)

    def _refuse_missing_momentum(self) -> None:
        """Refuse an optimizer that has made a step and has no averaged gradient of the weights to be perturbed."""
        known = self.optimizer.momentum()
        if known.keys().isdisjoint(self.names):
            raise ValueError(
                f'direction="momentum": after a step, the state of the optimizer has a first moment ("exp_avg" or'
                f' "momentum_buffer") of {list(known) or "no parameter"}, and of none of {list(self.names)}, which are'
                " to be perturbed; train these, choose others by layers=, or take one of torch's optimizers"
            )

    def _strength(self) -> Strength | None:
        """How strongly each member is perturbed in the next epoch, if that follows the training."""
        if self.auto_state is None or self.awp is None:
            return None
        return Strength(zero_if_negligible(self.auto_state.lam), (self.awp.rho * self.rho_share).to(self.history.dtype))

    def _follow_gap(self, epoch: Tensor, step_loss: Tensor, train_loss: Tensor, val_loss: Tensor) -> None:
        """Set lam for the next epoch; the loss of the first step is kept beside it."""
        assert self.auto_state is not None
        first_loss = torch.where(epoch == 0, step_loss.to(self.auto_state.lam.dtype), self.auto_state.first_loss)
        following = follow_gap(self.auto_state._replace(first_loss=first_loss), train_loss, val_loss)
        for present, value in zip(self.auto_state, following, strict=True):
            present.copy_(value)

    def measure(self, logits: Tensor, y: Tensor, *, is_shared: bool) -> tuple[Tensor, Tensor]:
        """Compute the loss and the metric of each member.

        Args:
            logits: The rows of the samples, [b, k, ...].
            y: Their targets, [k, ...] or [b, k, ...].
            is_shared: Whether all members have the same samples.

        Returns:
            The losses [b], and the values of the metric [b].
        """
        losses = self.objective.losses(logits, y, is_shared=is_shared)
        return losses, self.objective.scores(logits, y, is_shared=is_shared)

    def _evaluated(self, subset: Subset, weights: Stack, buffers: Stack, epoch: Tensor) -> Tensor:
        """The rows of a part in evaluation mode. Models that draw there, too, draw the same numbers for an epoch."""
        keys = None
        if self.ensemble.draws_in_evaluation:
            keys = splitmix64(self.dropout_seeds + splitmix64(epoch * MAX_PASSES + MAX_PASSES - 1))
        return subset.take(self.ensemble.logits(weights, buffers, subset.arguments, keys, is_training=False))

    def _measure_monitored(self, epoch: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """The validation loss and metric at the present weights, without dropout; and if it is needed, L_train."""
        subset, first, parts = self.subsets["monitored"], 0, {}
        logits = self._evaluated(subset, self.measured, self.buffers, epoch)
        for part in self.monitored_parts:
            rows = slice(first, first + len(getattr(self.splits[0], part)))
            parts[part] = logits[:, rows], subset.y[rows] if subset.is_shared else subset.y[:, rows]
            first = rows.stop
        loss, scores = self.measure(*parts["val"], is_shared=subset.is_shared)
        if "train" not in parts:
            return loss, scores, None
        return loss, scores, self.objective.losses(*parts["train"], is_shared=subset.is_shared)

    def check_gradients(self, monitor: VanishingMembersMonitor, positions: list[int]) -> None:
        """Give a monitor the gradient norms of the last epoch, of the members that have not stopped.

        Args:
            monitor: The monitor.
            positions: Under which number the monitor knows each member.
        """
        row, stopped = self.history[self.epochs_run - 1], self.selection.stopped
        columns = [COLUMNS.index(name) for name in ("gradient_norm", "perturbed_norm", "train_loss")]
        numbers = torch.cat([row[columns], stopped[None].to(row.dtype)]).T.tolist()  # the only wait for a GPU
        self.checks.append((self.epochs_run, numbers))
        _check_members(monitor, positions, self.epochs_run, numbers)

    def repeat_checks(self, monitor: VanishingMembersMonitor, positions: list[int]) -> None:
        """Give a new monitor what the one of an interrupted training was given.

        Args:
            monitor: The monitor.
            positions: Under which number the monitor knows each member.
        """
        for step, numbers in self.checks:
            _check_members(monitor, positions, step, numbers)

    def refuse_negative_losses(self) -> None:
        """Refuse losses below 0 in the last epoch, if lam follows them.

        Raises:
            ValueError: If a loss of the caller's has such a value.
        """
        if self.auto_state is None or self.objective.loss is None:
            return
        if bool((self.smallest_loss < 0).any()):
            smallest = float(self.smallest_loss.min())
            raise ValueError(
                f'lam="auto" compares losses by their ratio and needs them >= 0, but the loss is {smallest:.4g} in'
                f" epoch {self.epochs_run - 1}; choose lam as a number"
            )

    def warn_if_never_below_first_loss(self) -> None:
        """Warn where lam stayed 0 because a loss of the caller's was never below that of the first step."""
        if self.auto_state is None or self.objective.loss is None or self.epochs_run < MAX_SUSPICIOUS:
            return
        first, losses = self.auto_state.first_loss, self.history[: self.epochs_run, COLUMNS.index("val_loss")]
        held = (losses >= first).all(0)
        if bool(held.any()):
            where = int(held.nonzero()[0])
            warnings.warn(
                f'lam="auto" has trained {int(held.sum())} of {len(held)} models plainly, because the validation loss,'
                f" {float(losses[-1, where]):.4g} at the end, was never below the training loss of the first epoch,"
                f" {float(first[where]):.4g}; loss= must have one scale for all parts of the split: a mean over the"
                " samples, not their sum",
                stacklevel=find_stack_level(),
            )

    def state_dict(self) -> dict[str, Any]:
        """Collect what must be saved to continue the training, including torch's random state.

        Returns:
            Tensors and plain values.
        """
        (own, *members) = self.ensemble.random_states(self.device)
        rng_states = dict(zip(("cpu", "cuda"), own, strict=False))
        return {
            "epochs_run": self.epochs_run,
            "weights": {n: w.detach() for n, w in self.theta.items()},
            "buffers": dict(self.buffers),
            "optimizer": self.optimizer.state_dict(),
            "selection": self.selection.state_dict(),
            "history": self.history[: self.epochs_run].clone(),
            "checks": self.checks,
            "rng_states": rng_states,
            "is_mapped": self.ensemble.is_mapped,
            **({"member_rng_states": members} if members else {}),
            **({} if self.auto_state is None else {"course": self.auto_state._asdict(), "share": self.rho_share}),
            **({} if self.average is None else {"average": self.average.state_dict()}),
        }

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a saved state, including torch's random state.

        Args:
            state: What `state_dict` returned, with tensors on the CPU.
        """
        self.epochs_run, self.checks = state["epochs_run"], state["checks"]
        for own, saved in ((self.theta, state["weights"]), (self.buffers, state["buffers"])):
            for name, t in own.items():
                t.copy_(saved[name])
        self.optimizer.load_state_dict(state["optimizer"])
        self.selection.load_state_dict(state["selection"])
        self.history[: self.epochs_run] = state["history"].to(self.device)
        if self.auto_state is not None:
            for name, value in self.auto_state._asdict().items():
                value.copy_(state["course"][name])
            self.rho_share.copy_(state["share"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        states = [list(state["rng_states"].values()), *state.get("member_rng_states", [])]
        self.ensemble.set_random_states(states, self.device)
        self.ensemble.is_mapped = state["is_mapped"]  # and need not be found out again

    def finish(self) -> StackRun:
        """Write the selected weights into the models, and measure them.

        Returns:
            The selected epochs, values of the metric, losses, and the history.
        """
        ensemble, selection, subsets = self.ensemble, self.selection, self.subsets
        if self.monitored_parts == ("val",):
            subsets["val"] = subsets["monitored"]
        del subsets["monitored"]
        ensemble.write_back(selection.best)
        ensemble.write_back(selection.best_buffers)
        loss, scores = {}, {}
        with torch.no_grad():
            for part in ("train", "val", "test"):
                if not len(getattr(self.splits[0], part)):  # of a split without a test part
                    loss[part] = scores[part] = torch.full((len(self.splits),), torch.nan)
                    continue
                subset = subsets.pop(part) if part in subsets else self.subset(self.data, part)
                logits = self._evaluated(subset, selection.best, selection.best_buffers, selection.epoch)
                loss[part], scores[part] = (
                    measured.cpu() for measured in self.measure(logits, subset.y, is_shared=subset.is_shared)
                )
                del subset, logits  # before the next is built: test is nearly the whole graph
        table = self.history[: self.epochs_run].cpu()
        has_natural_gradient = self.awp is None or self.awp.is_plain or self.awp.needs_natural_gradient
        unmeasured = () if has_natural_gradient else ("gap", "gradient_norm")
        return StackRun(
            epoch=selection.epoch.cpu(),
            scores=scores,
            loss=loss,
            history={name: table[:, i] for i, name in enumerate(self.columns) if name not in unmeasured},
        )


def _check_members(
    monitor: VanishingMembersMonitor, positions: list[int], step: int, numbers: list[list[float]]
) -> None:
    """Give the monitor the norms and the loss of each member that has not stopped."""
    for position, (natural, perturbed, loss, has_stopped) in zip(positions, numbers, strict=True):
        if not has_stopped:
            monitor.check(position, step, natural, perturbed, loss)
