"""A short training of a victim's own architecture, and the derivative of what it leads to by the edges of the graph.

The training is gradient descent with momentum on the cross-entropy of the training nodes, from random weights. The
derivative goes back through all its steps exactly. Only the weights after each step are stored: on the way back each
step is computed again and differentiated by itself, so that memory holds one step, whatever their number.
"""

from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from statistics import fmean
from typing import cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from wtawp.attacks.checks import refuse_nan
from wtawp.attacks.relaxed import Target
from wtawp.base import AttackError, isolated_rng
from wtawp.models.calls import is_out_of_memory
from wtawp.models.capabilities import Features, HasExtraLoss, StackAware
from wtawp.models.inputs import features

MOMENTUM = 0.9
RATES = tuple(0.5 / 2**power for power in range(8))  # learning rates to choose from
State = tuple[tuple[Tensor, ...], tuple[Tensor, ...]]  # weights, and the velocity of each
Graph = tuple[Tensor, Tensor]  # edges [2, e] and their weights [e]


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """The options of an unrolled training.

    Attributes:
        steps: The number of steps.
        lr: The learning rate; None: chosen by `UnrolledTraining.choose_rate`.
        weight_decay: The weight decay, of all weights.

    Raises:
        ValueError: If one of them is out of its range.
    """

    steps: int
    lr: float | None
    weight_decay: float

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"training_steps must be >= 1, got {self.steps}")
        if self.lr is not None and not 0 < self.lr < float("inf"):
            raise ValueError(f"lr must be positive, or None to choose it, got {self.lr}")
        if not 0 <= self.weight_decay < float("inf"):
            raise ValueError(f"weight_decay must be >= 0, got {self.weight_decay}")


class UnrolledTraining:
    """Trainings of a victim's architecture on graphs with edge weights, in the mode that the victim is in.

    Only parameters are trained. Buffers are the victim's and stay: in evaluation mode, batch norms use the means and
    variances that the victim has learned.

    Args:
        victim: The model, called as `victim(x, edge_index, edge_weight)`. Tensors take the place of its parameters,
            which are left as they are.
        training: The training nodes with their labels, as a target.
        aim: The nodes, labels and loss that the attack raises.
        options: The options of the training.
        seed: The seed of what a victim draws that is random in evaluation mode too.

    Raises:
        ValueError: If the victim has no weights that can learn.
    """

    def __init__(
        self, victim: nn.Module, training: Target, aim: Target, options: TrainingOptions, *, seed: int
    ) -> None:
        self.victim, self.training, self.aim, self.options, self.seed = victim, training, aim, options, seed
        self.rate = options.lr or RATES[0]
        parameters = {name: p.detach() for name, p in victim.named_parameters() if p.requires_grad}
        if not parameters:
            raise ValueError(
                f"{type(victim).__name__} has no weights that can learn; use pgd, which attacks models as they are"
            )
        self.names, self.trained = tuple(parameters), tuple(parameters.values())
        x = aim.data.x
        self.features: Features = features(x) if isinstance(victim, StackAware) else x
        self.may_draw = not isinstance(victim, StackAware) or victim.draws_in_evaluation

    def first_weights(self, generator: torch.Generator) -> State:
        """Draw weights to start from: the entries of each of the victim's parameters in random order.

        They have the scale that suits the architecture, whoever wrote it, and nothing of what the victim has learned.

        Args:
            generator: Draws the order.

        Returns:
            The weights, and velocities of zero.
        """
        orders = [torch.randperm(p.numel(), generator=generator).to(p.device) for p in self.trained]
        weights = tuple(p.flatten()[order].view_as(p) for p, order in zip(self.trained, orders, strict=True))
        return weights, tuple(torch.zeros_like(weight) for weight in weights)

    def train(self, start: State, graph: Graph) -> list[State]:
        """Train on a graph.

        Args:
            start: The first weights.
            graph: The edges and their weights.

        Returns:
            The state before each step, and the last one.
        """
        states = [start]
        with torch.enable_grad():
            for step in range(self.options.steps):
                weights, velocity = states[-1]
                leaves = tuple(weight.detach().requires_grad_() for weight in weights)
                states.append(_detached(self._step((leaves, velocity), graph, step, create_graph=False)))
        return states

    def choose_rate(self, starts: Sequence[State], graph: Graph) -> None:
        """Choose the learning rate, unless it is given: that of `RATES` with the lowest mean training loss afterwards.

        They are tried from the largest to the smallest, and no further once one does no better than the best before
        it: a smaller rate that were better still would be missed.

        Args:
            starts: First weights of one or more trainings, over which losses are averaged.
            graph: The edges and their weights.

        Raises:
            AttackError: If the trainings do not lower the loss of the training nodes at any rate, or at the given one.
        """
        before = lowest = fmean(self._training_loss(start, graph) for start in starts)
        best, rates = None, RATES if self.options.lr is None else (self.options.lr,)
        for rate in rates:
            self.rate = rate
            with suppress(AttackError):  # it diverges at this rate
                after = fmean(self._training_loss(self.train(start, graph)[-1], graph) for start in starts)
                if after < lowest:
                    best, lowest = rate, after
                    continue
            if best is not None:
                break
        if best is None:
            tried = f"lr={rates[0]:g}" if len(rates) == 1 else f"any lr from {rates[0]:g} to {rates[-1]:g}"
            raise AttackError(
                f"{self.options.steps} steps of training do not lower the loss of the training nodes, {before:.3g}, at"
                f" {tried}; choose another lr, or raise training_steps"
            )
        self.rate = best

    @torch.no_grad()
    def _training_loss(self, state: State, graph: Graph) -> float:
        """The mean cross-entropy of the training nodes."""
        return float(self.training.losses(self._logits(state[0], graph, self.options.steps)[0][None])[0])

    @torch.no_grad()
    def damage(self, state: State, graph: Graph) -> tuple[float, float]:
        """The share of the attacked nodes that are misclassified, and the loss that the attack raises."""
        logits = self._logits(state[0], graph, self.options.steps)[0][None]
        return float(self.aim.lost(logits)[0]), float(self.aim.losses(logits)[0])

    def gradient(self, start: State, graph: Graph) -> Tensor:  # -> [e]
        """Differentiate the loss after the training by the weights of the edges: the meta-gradient.

        Args:
            start: The first weights.
            graph: The edges and their weights.

        Returns:
            The gradient, which includes the effect of the edges on the training.

        Raises:
            AttackError: If the victim cannot be differentiated twice, or a gradient is not finite.
        """
        edges, edge_weight = graph[0], graph[1].detach()
        with torch.enable_grad():
            states = self.train(start, (edges, edge_weight))
            try:
                total = self._differentiated(states, edges, edge_weight.requires_grad_())
            except (RuntimeError, ValueError) as error:
                if is_out_of_memory(error):
                    raise
                raise AttackError(
                    f"{type(self.victim).__name__} cannot be differentiated twice, by its weights and by edge weights:"
                    f" {error}. Poison it by flips that were found on another model: use metattack, which trains a"
                    " linear GCN of its own, or attack a GCN (on the command line: --no-adaptive) and apply its flips"
                ) from error
        refuse_nan(total)
        return total

    def _differentiated(self, states: list[State], edges: Tensor, edge_weight: Tensor) -> Tensor:  # -> [e]
        """Go back through the steps; `to_weights` and `to_velocity` are the gradients at the state after a step."""
        graph = edges, edge_weight
        weights = tuple(weight.detach().requires_grad_() for weight in states[-1][0])
        value = self.aim.losses(self._logits(weights, graph, self.options.steps)[0][None])[0]
        value = value + 0 * edge_weight.sum()  # so that a victim that ignores the graph has a gradient, of zero
        *to_weights, total = _gradients([value], [*weights, edge_weight], [torch.ones_like(value)])
        to_velocity = [torch.zeros_like(weight) for weight in weights]
        for step in reversed(range(self.options.steps)):
            before = [t.detach().requires_grad_() for part in states[step] for t in part]
            half = len(before) // 2
            after = self._step((tuple(before[:half]), tuple(before[half:])), graph, step, create_graph=True)
            outputs = [*after[0], *after[1]]
            *to_before, direct = _gradients(outputs, [*before, edge_weight], [*to_weights, *to_velocity])
            to_weights, to_velocity, total = to_before[:half], to_before[half:], total + direct
        return total

    def _step(self, state: State, graph: Graph, step: int, *, create_graph: bool) -> State:
        """One step of gradient descent with momentum."""
        weights, velocity = state
        logits, extra = self._logits(weights, graph, step)
        loss = self.training.losses(logits[None])[0] + extra
        gradients = torch.autograd.grad(loss, weights, create_graph=create_graph, materialize_grads=True)
        decayed = [g + self.options.weight_decay * w for g, w in zip(gradients, weights, strict=True)]
        velocity = tuple(MOMENTUM * v + g for v, g in zip(velocity, decayed, strict=True))
        return tuple(w - self.rate * v for w, v in zip(weights, velocity, strict=True)), velocity

    def _logits(self, weights: tuple[Tensor, ...], graph: Graph, step: int) -> tuple[Tensor, Tensor | float]:
        """The logits of all nodes, and the term that some models add to the loss; a step has the same random draws."""
        parameters = dict(zip(self.names, weights, strict=True))
        arguments = (self.features, *graph)
        draws = isolated_rng("attack", "unrolled training", self.seed, step) if self.may_draw else nullcontext()
        with draws:
            if isinstance(self.victim, HasExtraLoss):
                both = functional_call(self.victim, parameters, arguments, {"with_extra_loss": True})
                return cast(tuple[Tensor, Tensor], both)
            return cast(Tensor, functional_call(self.victim, parameters, arguments)), 0.0


def _gradients(outputs: list[Tensor], inputs: list[Tensor], to_outputs: list[Tensor]) -> list[Tensor]:
    """The gradient at each input, zeros where an input has no effect."""
    return list(torch.autograd.grad(outputs, inputs, to_outputs, materialize_grads=True))


def _detached(state: State) -> State:
    """The same numbers, without the graph of their computation."""
    return tuple(w.detach() for w in state[0]), tuple(v.detach() for v in state[1])
