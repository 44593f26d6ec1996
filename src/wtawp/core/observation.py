"""What a step of the method computed, for those who log it; it is recorded only in steps that somebody observes."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle


@dataclass(frozen=True, kw_only=True)
class StepStatistics:
    """What one call of `WTAWP.backward` or `WTAWP.loss` computed.

    All tensors are detached scalars on the device of the model, so that nobody waits for a GPU before their values are
    read. Losses and gradient norms are those of this process's own batch, without the factor of a gradient scaler or of
    accumulation. A call of plain training (lam=0, rho=0, before `start`, or between the calls that `every` selects) has
    only a natural loss.

    Args:
        step: Number of calls before this one.
        lam: Weight of the perturbed loss in this call; 0 in plain training.
        natural_loss: L(theta).
        perturbed_loss: L(theta + delta); None in plain training.
        natural_gradient_norm: Norm of the gradient of L(theta) over all parameters. None in plain training, and where
            gradients arrive in parts: a parameter that several blocks with reentrant checkpointing share.
        perturbed_gradient_norm: The same of L(theta + delta), before `balance` clips it.
        relative_perturbation: Name of each perturbed parameter -> |delta| / |theta|. It is infinite for weights that
            are all 0, and NaN if their perturbation is 0, too.
    """

    step: int
    lam: float
    natural_loss: Tensor
    perturbed_loss: Tensor | None = None
    natural_gradient_norm: Tensor | None = None
    perturbed_gradient_norm: Tensor | None = None
    relative_perturbation: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def gap(self) -> Tensor | None:
        """How much the perturbation raised the loss in this step.

        Returns:
            L(theta + delta) - L(theta); None in plain training.
        """
        return None if self.perturbed_loss is None else self.perturbed_loss - self.natural_loss

    def as_tensors(self) -> dict[str, Tensor]:
        """Collect everything that is known, under the name by which it is logged; nothing waits for a GPU.

        Returns:
            Name -> scalar: the names of the attributes, "gap", and "relative_perturbation/" with a parameter's name.

        Example:
            >>> list(StepStatistics(step=0, lam=0.0, natural_loss=torch.tensor(0.5)).as_tensors())
            ['natural_loss', 'lam']
        """
        values = {
            "natural_loss": self.natural_loss,
            "perturbed_loss": self.perturbed_loss,
            "gap": self.gap,
            "natural_gradient_norm": self.natural_gradient_norm,
            "perturbed_gradient_norm": self.perturbed_gradient_norm,
            "lam": torch.full_like(self.natural_loss, self.lam),
        }
        values |= {f"relative_perturbation/{n}": r for n, r in self.relative_perturbation.items()}
        return {name: value for name, value in values.items() if value is not None}

    def as_floats(self) -> dict[str, float]:
        """Read what `as_tensors` collects; this waits for a GPU once.

        Returns:
            Name -> number.

        Example:
            >>> StepStatistics(step=0, lam=0.0, natural_loss=torch.tensor(0.5)).as_floats()
            {'natural_loss': 0.5, 'lam': 0.0}
        """
        tensors = self.as_tensors()
        numbers = torch.stack([t.to(self.natural_loss.device) for t in tensors.values()]).tolist()
        return dict(zip(tensors, numbers, strict=True)) | {"lam": self.lam}


StepHook = Callable[[StepStatistics], object]


class StepHooks:
    """The functions that observe the steps of a `WTAWP`."""

    def __init__(self) -> None:
        self._hooks: OrderedDict[int, tuple[int, StepHook]] = OrderedDict()

    def register(self, hook: StepHook, every: int) -> RemovableHandle:
        """Add a function.

        Args:
            hook: Is called with the `StepStatistics` of a step.
            every: Observe every `every`-th call, beginning with the first.

        Returns:
            A handle whose `remove()` ends it.

        Raises:
            ValueError: If `hook` cannot be called, or `every` is not a positive integer.
        """
        if not callable(hook):
            raise ValueError(f"hook must be a function of one StepStatistics, got {hook!r}")
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ValueError(f"every must be a positive integer, got {every!r}")
        handle = RemovableHandle(self._hooks)
        self._hooks[handle.id] = every, hook
        return handle

    def start(self, step: int) -> "StepRecorder | None":
        """Begin to record a step if anybody observes it.

        Args:
            step: Number of calls before this one.

        Returns:
            The recorder, or None.
        """
        if not self._hooks:
            return None
        hooks = [hook for every, hook in self._hooks.values() if step % every == 0]
        return StepRecorder(step, hooks) if hooks else None


class StepRecorder:
    """Records one step during its passes, and reports it.

    Args:
        step: Number of calls before this one.
        hooks: The functions that get the statistics.
    """

    def __init__(self, step: int, hooks: list[StepHook]) -> None:
        self._step, self._hooks = step, hooks
        self._norms: dict[str, Tensor | None] = {}
        self._relative: dict[str, Tensor] = {}

    @contextmanager
    def gradient_of(
        self, kind: Literal["natural", "perturbed"], leaves: Iterable[Tensor], *, weight: float = 1.0
    ) -> Iterator[None]:
        """Record the norm of the gradient that a pass computes, before processes reduce it and before it is added up.

        Args:
            kind: Which gradient it is.
            leaves: The leaves that may get one.
            weight: Number by which the loss is multiplied in this pass.

        Returns:
            A context manager for the pass.
        """
        norms: dict[Tensor, list[Tensor]] = {leaf: [] for leaf in leaves}

        def record(leaf: Tensor, gradient: Tensor) -> None:
            norms[leaf].append(norm_of(gradient))

        handles = [leaf.register_hook(partial(record, leaf)) for leaf in norms]  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
        arrived = [n for n in norms.values() if n]
        is_known = arrived and all(len(n) == 1 for n in arrived)
        self._norms[kind] = _total([n[0] for n in arrived]) / weight if is_known else None

    def perturbation(self, delta: Mapping[Tensor, Tensor], named: Mapping[str, Tensor]) -> None:
        """Record how far the parameters move, before they do.

        Args:
            delta: The perturbation.
            named: The parameters of the model by name, at theta; a shared one is reported under its first name.
        """
        first_names = {p: n for n, p in reversed(list(named.items()))}
        self._relative = {first_names[p]: whole_tensor(norm_of(d)) / whole_tensor(norm_of(p)) for p, d in delta.items()}

    def divide_by(self, factor: Tensor | None) -> None:
        """Take the factor of the caller's backward out of the norms.

        Args:
            factor: The factor; None for 1.
        """
        if factor is not None:
            self._norms = {k: None if n is None else n / factor.to(n.device) for k, n in self._norms.items()}

    def report(self, natural: Tensor, perturbed: Tensor | None, lam: float) -> None:
        """Call the hooks.

        Args:
            natural: L(theta).
            perturbed: L(theta + delta); None in plain training.
            lam: Weight of the perturbed loss.
        """
        statistics = StepStatistics(
            step=self._step,
            lam=0.0 if perturbed is None else lam,
            natural_loss=_scalar(natural),
            perturbed_loss=None if perturbed is None else _scalar(perturbed),
            natural_gradient_norm=self._norms.get("natural"),
            perturbed_gradient_norm=self._norms.get("perturbed"),
            relative_perturbation=self._relative,
        )
        for hook in self._hooks:
            hook(statistics)


def norm_of(tensor: Tensor) -> Tensor:
    """Compute the Euclidean norm of a gradient in float32 or wider.

    Args:
        tensor: The gradient, dense or sparse.

    Returns:
        The norm, without dimensions.
    """
    values = tensor.detach().coalesce().values() if tensor.is_sparse else tensor.detach()
    norm: Tensor = torch.linalg.vector_norm(values, dtype=torch.promote_types(values.dtype, torch.float32))
    return norm


def _total(norms: list[Tensor]) -> Tensor:
    """The norm of several gradients together."""
    whole = [whole_tensor(n) for n in norms]
    total: Tensor = torch.stack([n.to(whole[0].device) for n in whole]).norm()
    return total


def _scalar(loss: Tensor) -> Tensor:
    """A loss as a detached tensor without dimensions that shares no memory with the loss."""
    whole = whole_tensor(loss.detach())
    return whole.to(torch.promote_types(whole.dtype, torch.float32), copy=True).reshape(())


def whole_tensor(tensor: Any) -> Tensor:
    """Join the parts of a distributed tensor; the norm of one is distributed itself until then.

    Args:
        tensor: An ordinary tensor, or a distributed one, on all processes alike.

    Returns:
        An ordinary tensor.
    """
    whole: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return whole
