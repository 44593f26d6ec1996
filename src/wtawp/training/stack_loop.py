"""The epochs of a stack of models: continued from a checkpoint, observed, and replayed as a CUDA graph on a GPU."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

from wtawp.base import isolated_rng, report_progress
from wtawp.core import VanishingMembersMonitor
from wtawp.models.ensemble import draws_of
from wtawp.training.checkpoint import Checkpoint
from wtawp.training.stack_training import StackRun, StackTraining
from wtawp.training.subsets import Subset

Observe = Callable[[list[nn.Module], int], None]
Augment = Callable[[Any, int], Any]  # a graph and the number of the epoch -> a graph of the same kind


def train_stack(
    training: StackTraining,
    *,
    seeds: list[int],
    augment: Augment | None,
    observe: Observe | None,
    monitor: VanishingMembersMonitor | None,
    positions: list[int],
    checkpoint: Checkpoint | None,
) -> StackRun:
    """Train a stack of models and write the selected weights into its members.

    Args:
        training: The stack, before its first epoch.
        seeds: The seed of each member.
        augment: Returns the graph that the training pass of an epoch uses; None uses the graph itself.
        observe: Called with the models and the epoch after each epoch.
        monitor: Is given the gradient norms of the members at the epochs it checks; None checks nothing.
        positions: Under which number the monitor knows each member.
        checkpoint: The file from which the training continues, and in which it is saved; None saves nothing.

    Returns:
        The selected epochs, values of the metric, losses, and the history.

    Raises:
        ValueError: If `augment` does not return a graph.
        CheckpointError: If the file cannot be used.
    """
    with isolated_rng(*draws_of(*seeds)):
        if checkpoint is not None:
            _continue_from(checkpoint, training, monitor, positions)
        _run_epochs(training, augment, observe, monitor, positions, checkpoint)
        training.warn_if_never_below_first_loss()
        return training.finish()


def _run_epochs(
    training: StackTraining,
    augment: Augment | None,
    observe: Observe | None,
    monitor: VanishingMembersMonitor | None,
    positions: list[int],
    checkpoint: Checkpoint | None,
) -> None:
    """Run the epochs that are left. At the end nothing refers to the training samples or to a recorded epoch."""
    ensemble = training.ensemble
    steps = _steps(training, can_replay=augment is None)
    while not training.is_finished:
        number, train = training.epochs_run, training.subsets["train"]
        if augment is not None:
            ensemble.write_back({**training.theta, **training.buffers})  # `augment` may use the models
            graph = augment(training.data, number)
            if not isinstance(graph, Data | HeteroData):
                raise ValueError(f"augment must return a graph, a PyG Data, for each epoch, got {type(graph).__name__}")
            train = training.train_samples(graph)
        is_perturbed = training.is_perturbed(number)
        steps[is_perturbed](torch.tensor(number, device=training.device), train)
        training.epochs_run += 1
        report_progress(training.epochs_run / training.schedule.epochs)
        training.refuse_negative_losses()
        if observe is not None:
            ensemble.write_back({**training.measured, **training.buffers})
            observe(ensemble.models, number)
        if monitor is not None and is_perturbed and training.is_checked(number):
            training.check_gradients(monitor, positions)
        if checkpoint is not None and (training.is_finished or training.epochs_run % checkpoint.every == 0):
            checkpoint.write(training.state_dict())


def _steps(training: StackTraining, *, can_replay: bool) -> dict[bool, Callable[[Tensor, Subset], None]]:
    """The functions that run a plain epoch (False) and a perturbed one (True), replayed on a GPU where possible."""
    can_replay = (
        can_replay
        and training.device.type == "cuda"
        and training.ensemble.is_ours
        and training.objective.is_default
        and training.decoder is None
        and training.optimizer.can_replay
    )
    steps: dict[bool, Callable[[Tensor, Subset], None]] = {
        is_perturbed: partial(training.run_epoch, is_perturbed=is_perturbed) for is_perturbed in (False, True)
    }
    return {which: _CudaGraphStep(step, training.device) for which, step in steps.items()} if can_replay else steps


def _continue_from(
    checkpoint: Checkpoint, training: StackTraining, monitor: VanishingMembersMonitor | None, positions: list[int]
) -> None:
    """Continue from the file; if there is none, write one, so that a path which cannot be written fails at once."""
    state = checkpoint.read()
    if state is None:
        checkpoint.write(training.state_dict())
        return
    training.load_state_dict(state)
    if monitor is not None:
        training.repeat_checks(monitor, positions)


class _CudaGraphStep:
    """An epoch on a GPU: called as it is a few times, then recorded as a CUDA graph and replayed without the CPU."""

    WARM_UP = 3

    def __init__(self, step: Callable[[Tensor, Subset], None], device: torch.device) -> None:
        self.step, self.calls = step, 0
        self.graph, self.epoch = torch.cuda.CUDAGraph(), torch.zeros((), dtype=torch.int64, device=device)
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def __call__(self, epoch: Tensor, train: Subset) -> None:
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
