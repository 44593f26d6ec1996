"""The passes of one training step over a stack of models, and what other gradients can be computed from them."""

import torch
from torch import Tensor

from wtawp.core import AwpConfig
from wtawp.models.ensemble import Ensemble
from wtawp.training.objective import Objective
from wtawp.training.optimizers import StackOptimizer
from wtawp.training.step import Stack, Substitutes, gradient_of_losses
from wtawp.training.subsets import Subset


class TrainingPasses:
    """The losses of all members on their training samples, at any weights, for one step.

    Args:
        ensemble: The models.
        objective: The loss.
        train: The training samples.
        buffers: The stacked buffers, which pass 0 updates.
        keys: The keys of the dropout masks of each pass, [passes, b].
        is_linearised: Whether `linearised_losses` will be called.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        objective: Objective,
        train: Subset,
        buffers: Stack,
        keys: Tensor,
        *,
        is_linearised: bool = False,
    ) -> None:
        self._ensemble, self._objective, self._train = ensemble, objective, train
        self._buffers, self._keys = buffers, keys
        self._outputs: Tensor | None = None  # of pass 0
        self._draws_elsewhere = is_linearised and not ensemble.is_ours  # from torch's global random state, perhaps
        self._rng_states: list[list[Tensor]] = []  # before pass 0
        self._rng_states_after: list[list[Tensor]] = []  # after it

    def losses(self, weights: Stack, number: int) -> Tensor | tuple[Tensor, Tensor]:
        """Compute the losses in training mode.

        Args:
            weights: The stacked weights.
            number: The number of the pass.

        Returns:
            The losses [b]; in pass 0 of models that add a term to their loss, also that term, [b].
        """
        if number == 0 and self._draws_elsewhere:
            self._rng_states = self._ensemble.random_states(self._train.y.device)
        if number > 0 or not self._ensemble.has_extra_loss:
            rows, extra = self._rows(weights, number, self._train), None
        else:  # as in the released code, models add their term at theta alone
            arguments, keys = self._train.arguments, self._keys[number]
            logits, extra = self._ensemble.logits_and_extra(weights, self._buffers, arguments, keys)
            rows = self._train.take(logits)
        if number == 0:
            self._outputs = rows.detach()
            if self._ensemble.draws_by_member:
                self._rng_states_after = self._ensemble.random_states(self._train.y.device)
        return self._losses_of(rows) if extra is None else (self._losses_of(rows), extra)

    def losses_without_edges(self, weights: Stack, number: int) -> Tensor:
        """Compute the losses of the models on the graph without its edges.

        Args:
            weights: The stacked weights.
            number: The number of the pass, greater than 0.

        Returns:
            The losses, [b].
        """
        assert self._train.without_edges is not None, "the training arranges these samples before the first epoch"
        return self._losses_of(self._rows(weights, number, self._train.without_edges))

    def linearised_losses(self, weights: Stack) -> tuple[Tensor, Tensor]:
        """Compute the losses as functions of the outputs that are linear, with the slope that they have after pass 0.

        Their gradient is the derivative of the outputs at these weights, times that of the loss at the weights of pass
        0. Masks of dropout are those of pass 0, so that both factors belong to one function.

        Args:
            weights: The stacked weights.

        Returns:
            The linear losses [b] up to a constant, and the losses themselves [b].
        """
        assert self._outputs is not None, "pass 0 comes first"
        with torch.enable_grad():
            outputs = self._outputs.requires_grad_()
            (slope,) = torch.autograd.grad(self._losses_of(outputs).sum(), outputs)
        if not self._draws_elsewhere:
            rows = self._rows(weights, 0, self._train, updates_buffers=False)
        else:
            device = self._train.y.device
            here = self._ensemble.random_states(device)  # the passes of the ascent may have drawn since
            self._ensemble.set_random_states(self._rng_states, device)
            rows = self._rows(weights, 0, self._train, updates_buffers=False)
            self._ensemble.set_random_states(here, device)
        with torch.no_grad():
            losses = self._losses_of(rows)
        return (rows * slope).flatten(1).sum(1), losses

    def forget_draws_of_plain(self, is_plain: Tensor) -> None:
        """Let members that are trained plainly continue with the random states of pass 0, the only one that counts.

        Args:
            is_plain: Whether the perturbed loss of each member has no weight in this epoch, [b].
        """
        if self._rng_states_after:
            self._ensemble.set_random_states_of(is_plain, self._rng_states_after)

    def _rows(self, weights: Stack, number: int, samples: Subset, *, updates_buffers: bool = True) -> Tensor:
        """The output rows of the samples, [b, k, ...]. Only pass 0 may update the buffers."""
        is_first = number == 0 and updates_buffers
        buffers = self._buffers if is_first else {n: b.clone() for n, b in self._buffers.items()}
        return samples.take(self._ensemble.logits(weights, buffers, samples.arguments, self._keys[number]))

    def _losses_of(self, rows: Tensor) -> Tensor:
        """The losses of output rows, [b]."""
        return self._objective.losses(rows, self._train.y, is_shared=self._train.is_shared)


def substitutes_of(config: AwpConfig, passes: TrainingPasses, optimizer: StackOptimizer, theta: Stack) -> Substitutes:
    """Choose what takes the place of gradients of Algorithm 1.

    Args:
        config: The options, of which `direction` and `perturbed_gradient` decide.
        passes: The passes of the step.
        optimizer: The optimizer, before the step.
        theta: The stacked weights.

    Returns:
        The substitutes.
    """

    def downhill() -> Stack:  # momentum-SAM subtracts rho * v / |v|, where v averages gradients
        return {name: -moment for name, moment in optimizer.momentum().items()}

    @torch.enable_grad()
    def uphill_without_edges() -> Stack:
        return gradient_of_losses(passes.losses_without_edges(theta, config.steps + 1), theta)

    def without_edges(weights: Stack, number: int) -> tuple[Tensor, Tensor]:
        losses = passes.losses_without_edges(weights, number)
        return losses, losses

    def functional(weights: Stack, number: int) -> tuple[Tensor, Tensor]:  # noqa: ARG001, masks are those of pass 0
        return passes.linearised_losses(weights)

    directions = {"momentum": downhill, "without-edges": uphill_without_edges}
    perturbed = {"functional": functional, "without-edges": without_edges}
    return Substitutes(directions.get(config.direction), perturbed.get(config.perturbed_gradient))


def needs_samples_without_edges(config: AwpConfig | None) -> bool:
    """Whether the training samples are needed on the graph without its edges, too.

    Args:
        config: The options; None is plain training.

    Returns:
        True if the direction or the perturbed gradient is that of the model without edges, and anything is perturbed.
    """
    return (
        config is not None and not config.is_plain and "without-edges" in (config.direction, config.perturbed_gradient)
    )
