"""Lightning: a callback that logs and saves the perturbation, and the scale that half precision needs.

The step itself needs nothing from here. With automatic optimization `training_step` returns `awp.loss(fn)`; with manual
optimization it calls `awp.backward(closure, backward=self.manual_backward)`.
"""

from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import DeepSpeedStrategy, FSDPStrategy
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor
from torch.utils.hooks import RemovableHandle
from typing_extensions import override

from wtawp.core.awp import WTAWP
from wtawp.core.observation import StepStatistics

_CLEARED = (
    "training_step called awp.backward(...), but automatic optimization clears the gradients afterwards; return"
    " awp.loss(fn) from training_step, or set self.automatic_optimization = False"
)


def gradient_scale(trainer: Trainer) -> Tensor | None:
    """Find the factor by which a trainer scales losses, for `awp.loss(fn, scale=gradient_scale(self.trainer))`.

    With precision="16-mixed", `awp.loss` needs it so that no gradient underflows. With every other precision it is None
    and changes nothing, so it can always be passed.

    Args:
        trainer: The trainer of the module.

    Returns:
        The current scale, on the device of the trainer and without waiting for it; None if losses are not scaled.

    Example:
        >>> gradient_scale(Trainer(accelerator="cpu", barebones=True)) is None
        True
    """
    scaler: torch.amp.GradScaler | None = getattr(trainer.precision_plugin, "scaler", None)
    if scaler is None:
        return None
    return scaler.scale(torch.ones((), device=trainer.strategy.root_device))


class PerturbationCallback(Callback):
    """Logs what the steps of a `WTAWP` compute, and saves its state in the trainer's checkpoints.

    The scalars go through `LightningModule.log`, at the steps that `Trainer(log_every_n_steps=...)` selects; other
    steps are not slowed. In several processes, losses and gradient norms are those of the first process's own batch.

    Args:
        awp: The perturbation with which the module trains.
        prefix: First part of each name, as in "wtawp/gap". Two callbacks of one trainer need different ones.
        val_loss: Name under which `validation_step` logs the validation loss, which lam="auto" follows.
        train_loss: Name under which the training loss without dropout is logged, if it is; None uses the losses of the
            steps, in which dropout hides overfitting.

    Raises:
        ValueError: If `awp` is not a `WTAWP`, or has exact=True, which cannot be observed.

    Example:
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
        >>> trainer = Trainer(callbacks=[PerturbationCallback(WTAWP(model, rho=0.5, lam=0.5))], accelerator="cpu",
        ...                   logger=False, enable_checkpointing=False, enable_progress_bar=False)
    """

    def __init__(
        self, awp: WTAWP, *, prefix: str = "wtawp", val_loss: str = "val_loss", train_loss: str | None = None
    ) -> None:
        if not isinstance(awp, WTAWP):
            raise ValueError(f"awp must be the WTAWP with which the module trains, got {type(awp).__name__}")
        awp.register_step_hook(self._observe).remove()  # refuses what cannot be observed
        self.awp, self._prefix, self._val_loss, self._train_loss = awp, prefix, val_loss, train_loss
        self._handle: RemovableHandle | None = None
        self._step: StepStatistics | None = None
        self._is_differentiated = False
        self._calls_before_batch = self._calls_before_epoch = self._batches_of_epoch = 0

    @property
    @override
    def state_key(self) -> str:
        """The key of the state in a checkpoint.

        Returns:
            Name of the class and the prefix.
        """
        return self._generate_state_key(prefix=self._prefix)

    @override
    def state_dict(self) -> dict[str, Any]:
        """Return the state of the perturbation, for a checkpoint.

        Returns:
            Plain data.
        """
        return self.awp.state_dict()

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a checkpoint.

        Args:
            state_dict: What `state_dict` returned.
        """
        self.awp.load_state_dict(state_dict)

    @override
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse strategies with which the perturbation cannot be right.

        Args:
            trainer: The trainer.
            pl_module: The module that is trained.
            stage: What the trainer is about to do.

        Raises:
            ValueError: If the strategy hides parameters or gradients.
        """
        if isinstance(trainer.strategy, FSDPStrategy | DeepSpeedStrategy):
            raise ValueError(
                f"{type(trainer.strategy).__name__} hides the parameters or their gradients from the perturbation; use"
                ' strategy="ddp", or ModelParallelStrategy with fully_shard'
            )

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Refuse a distributed model that cannot be differentiated inside of `training_step`.

        Args:
            trainer: The trainer.
            pl_module: The module that is trained.

        Raises:
            ValueError: If it has a static graph, with automatic optimization.
        """
        if pl_module.automatic_optimization and getattr(trainer.strategy.model, "static_graph", False):
            raise ValueError(
                "DDPStrategy(static_graph=True) counts one backward pass for each training_step, awp.loss(fn) makes"
                " more; use static_graph=False, or manual optimization and awp.backward(...)"
            )

    @override
    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Remember how often the perturbation was called.

        Args:
            trainer: The trainer.
            pl_module: The module that is trained.
        """
        self._calls_before_epoch, self._batches_of_epoch = self._calls(), 0

    @override
    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Observe the steps of a batch that will be logged.

        Args:
            trainer: The trainer.
            pl_module: The module that is trained.
            batch: The batch.
            batch_idx: Its number in the epoch.
        """
        self._calls_before_batch, self._is_differentiated, self._step = self._calls(), False, None
        every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]  # 0 in barebones mode
        # Lightning counts batches: with automatic optimization those after which the optimizer steps, otherwise all.
        done = trainer.global_step if pl_module.automatic_optimization else trainer.fit_loop.total_batch_idx
        if every and (done + 1) % every == 0:
            self._handle = self.awp.register_step_hook(self._observe)

    @override
    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: Tensor) -> None:
        """Note that a loss is differentiated, and refuse it if `awp.backward(...)` has computed gradients already.

        Lightning has cleared them before it comes here, so that only those of the loss would be left.

        Args:
            trainer: The trainer.
            pl_module: The module that is trained.
            loss: The loss.

        Raises:
            ValueError: If the gradients of the perturbation are lost.
        """
        was_called = self._calls() > self._calls_before_batch
        if pl_module.automatic_optimization and was_called and self.awp.last_call == "backward":
            raise ValueError(_CLEARED)
        self._is_differentiated = True

    @override
    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Log what was observed.

        Args:
            trainer: The trainer.
            pl_module: The module that is trained.
            outputs: What `training_step` returned.
            batch: The batch.
            batch_idx: Its number in the epoch.

        Raises:
            ValueError: If the gradient of the perturbation was lost.
        """
        self._stop()
        self._batches_of_epoch += 1
        was_called = self._calls() > self._calls_before_batch
        if pl_module.automatic_optimization and was_called and not self._is_differentiated:
            raise ValueError(_CLEARED)
        if self._step is not None:
            values = {f"{self._prefix}/{name}": value for name, value in self._step.as_tensors().items()}
            pl_module.log_dict(values, on_step=True, on_epoch=False)

    @override
    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Refuse a module that trains without the perturbation.

        Args:
            trainer: The trainer.
            pl_module: The module that is trained.

        Raises:
            ValueError: If no batch of the epoch used the perturbation.
        """
        if self._batches_of_epoch and self._calls() == self._calls_before_epoch:
            raise ValueError(
                "no training_step of this epoch used the WTAWP of this callback: return awp.loss(fn) from it, or call"
                " awp.backward(closure, backward=self.manual_backward) with manual optimization"
            )

    @override
    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let lam="auto" follow the validation loss.

        Args:
            trainer: The trainer.
            pl_module: The module that is trained.

        Raises:
            ValueError: If the module does not log a loss that is to be followed.
        """
        if not self.awp.config.is_auto or trainer.sanity_checking or trainer.state.fn != TrainerFn.FITTING:
            return
        if self._val_loss not in trainer.callback_metrics:
            raise ValueError(
                f'lam="auto" follows the validation loss, but nothing is logged as {self._val_loss!r}: write'
                f' self.log({self._val_loss!r}, loss) in validation_step, or PerturbationCallback(awp, val_loss="...")'
            )
        if self._train_loss is not None and self._train_loss not in trainer.callback_metrics:
            raise ValueError(
                f"nothing is logged as {self._train_loss!r}: log the training loss without dropout under that name, or"
                " leave out train_loss to use the losses of the steps"
            )
        train_loss = None if self._train_loss is None else trainer.callback_metrics[self._train_loss]
        self.awp.observe(val_loss=trainer.callback_metrics[self._val_loss], train_loss=train_loss)

    @override
    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Stop to observe.

        Args:
            trainer: The trainer.
            pl_module: The module that is trained.
            exception: What ended the training.
        """
        self._stop()

    def _observe(self, step: StepStatistics) -> None:
        """Keep the latest step of the batch."""
        self._step = step

    def _stop(self) -> None:
        """Stop to observe."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def _calls(self) -> int:
        """How often the perturbation was called."""
        calls: int = self.awp.state_dict()["calls"]
        return calls
