"""Write what the steps of the method compute as scalars of TensorBoard, or of any writer with the same method."""

from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from wtawp.core.awp import WTAWP
from wtawp.core.observation import StepStatistics


class SupportsAddScalar(Protocol):
    """What is needed of a writer: `torch.utils.tensorboard.SummaryWriter` and that of tensorboardX have it."""

    @property
    def add_scalar(self) -> Callable[..., object]:
        """Writes one number: called with a tag, a number and the number of the step."""


class ScalarLogger:
    """Writes losses, their gap, gradient norms, lam and |delta| / |theta| of each perturbed parameter.

    Each step that is observed is written when the next one comes, so that nothing waits for a GPU; the last one is
    written by `close`, or at the end of a `with` block.

    Args:
        awp: The perturbation whose steps are observed.
        writer: Gets the scalars through `add_scalar(tag, value, step)`. It is not closed.
        every: Write every `every`-th call of `awp.backward` or `awp.loss`.
        prefix: First part of each tag, as in "wtawp/gap".

    Raises:
        ValueError: If the writer has no method `add_scalar`, if `every` is not a positive integer, or if `awp` cannot
            be observed.

    Example:
        >>> class Printer:
        ...     def add_scalar(self, tag, value, step):
        ...         print(tag, step)
        >>> from torch import nn, ones
        >>> model = nn.Linear(2, 2)
        >>> with ScalarLogger(WTAWP(model, rho=0.5, lam=0), Printer()) as log:
        ...     loss = log.awp.backward(lambda: model(ones(3, 2)).square().mean())
        wtawp/natural_loss 0
        wtawp/lam 0
    """

    def __init__(self, awp: WTAWP, writer: SupportsAddScalar, *, every: int = 10, prefix: str = "wtawp") -> None:
        if not callable(getattr(writer, "add_scalar", None)):
            raise ValueError(f"writer needs add_scalar(tag, value, step), as SummaryWriter has; got {writer!r}")
        self.awp, self._writer, self._prefix = awp, writer, prefix
        self._pending: StepStatistics | None = None
        self._handle = awp.register_step_hook(self._observe, every=every)

    def flush(self) -> None:
        """Write the last step that was observed, if it is not written yet."""
        pending, self._pending = self._pending, None
        if pending is not None:
            for name, value in pending.as_floats().items():
                self._writer.add_scalar(f"{self._prefix}/{name}", value, pending.step)

    def close(self) -> None:
        """Write the last step, and stop to observe."""
        self._handle.remove()
        self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _observe(self, step: StepStatistics) -> None:
        """Write the step before this one, whose numbers are there by now."""
        self.flush()
        self._pending = step
