"""Many models as one: their parameters are stacked, and autograd works on the stacks.

Our models take stacks as they are. Other modules are mapped with `torch.func.vmap`. Those that vmap cannot handle run
one after another, with a warning; so do, silently, those that draw from torch's generators in a pass, such as
`nn.Dropout`, because each member draws from a random state of its own, as it would alone.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from wtawp.base import find_stack_level, isolated_rng
from wtawp.models.calls import Adapted, Forward, checked_output, explain_failure, is_out_of_memory
from wtawp.models.capabilities import HasExtraLoss, StackAware, StackAwareOnGraphs
from wtawp.models.dropout import masks
from wtawp.models.settings import difference_of

Stack = dict[str, Tensor]  # name -> [b, ...]
_RANDOMNESS_ERROR = "in randomness error mode"  # of what vmap says about a module that draws


class Ensemble:
    """Models of one architecture, evaluated together. Weights are passed to every call, so that they can be perturbed.

    Args:
        models: The members, at least one. They may differ in the values of parameters and buffers alone.
        forward: Called as `forward(model, data)` instead of the modules themselves; None calls the modules.
        seeds: For each member the seed of torch's random state in its passes; None lets all members draw from the
            global state, one after another. The draws of our models do not depend on it.

    Attributes:
        models: The members.
        template: The first member, with whose code all are computed.
        called: What is called with the arguments of a pass: the template, or the adapter around it.

    Raises:
        ValueError: If there is no model, the architectures differ, or `forward` is given for models that add a term of
            their own to the loss.
    """

    def __init__(
        self, models: Sequence[nn.Module], forward: Forward | None = None, *, seeds: Sequence[int] | None = None
    ) -> None:
        shapes = [{n: t.shape for n, t in (*m.named_parameters(), *m.named_buffers())} for m in models]
        if not models or any(s != shapes[0] for s in shapes):
            raise ValueError("an ensemble needs at least one model, and models of one architecture")
        for other in models[1:]:
            if other is not models[0] and (difference := difference_of(models[0], other)):
                raise ValueError(
                    f"models that are evaluated together must differ in their weights alone, and these differ in"
                    f" {difference}; evaluate them one by one"
                )
        self.models = list(models)
        self.template = models[0]
        if forward is not None and isinstance(models[0], HasExtraLoss):
            raise ValueError(f"{type(models[0]).__name__} has a loss of its own, which forward= would leave out")
        # The epochs of our models can also be replayed. An adapter is written for one model, and not for a stack.
        self.is_ours = forward is None and isinstance(models[0], StackAware | StackAwareOnGraphs)
        self.called = self.template if forward is None else Adapted(self.template, forward)
        self._prefix = "" if forward is None else "model."
        self.has_extra_loss = self.is_ours and isinstance(models[0], HasExtraLoss)
        self.draws_in_evaluation = isinstance(models[0], StackAware) and models[0].draws_in_evaluation
        self.is_mapped = len(models) > 1 and not self.is_ours
        self._states = None if seeds is None or not self.is_mapped else _seeded_states(seeds, self.template)
        self._modules = list(self.template.modules())
        self._places = _places(self.template) if self.is_ours else {}
        self._has_own_mode = any(type(module).train is not nn.Module.train for module in self._modules)

    def parameters(self) -> Stack:
        """Stack the parameters of the members.

        Returns:
            Name -> [b, ...]: new leaf tensors, which require gradients if the members' parameters do.
        """
        by_member = [dict(m.named_parameters()) for m in self.models]
        stacked = {n: torch.stack([named[n].detach() for named in by_member]) for n, _ in self._named()}
        return {n: stacked[n].requires_grad_(p.requires_grad) for n, p in self._named()}

    def buffers(self) -> Stack:
        """Stack the buffers of the members.

        Returns:
            Name -> [b, ...].

        Raises:
            ValueError: If a buffer has a layout that cannot be stacked.
        """
        by_member = [dict(m.named_buffers()) for m in self.models]
        for name, buffer in by_member[0].items():
            if buffer.layout not in (torch.strided, torch.sparse_coo):
                raise ValueError(
                    f"the buffer {name} of {type(self.template).__name__} is {buffer.layout}, which cannot be stacked;"
                    " register it as .to_sparse_coo(), or keep it in the graph"
                )
        return {n: torch.stack([buffers[n] for buffers in by_member]) for n in by_member[0]}

    def _named(self) -> list[tuple[str, nn.Parameter]]:
        """Name the parameters, which are called the same in all members."""
        return list(self.template.named_parameters())

    def write_back(self, parameters: Mapping[str, Tensor]) -> None:
        """Copy stacked parameters or buffers into the members.

        Args:
            parameters: Name -> [b, ...].
        """
        with torch.no_grad():
            for i, model in enumerate(self.models):
                tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
                for name, t in parameters.items():
                    tensors[name].copy_(t[i])

    def logits(self, parameters: Mapping[str, Tensor], buffers: Stack, arguments: tuple[object, ...],
               keys: Tensor | None, *, is_training: bool = True) -> Tensor:  # keys [b] -> [b, k, c]  # fmt: skip
        """Run the forward pass of every member.

        Args:
            parameters: Stacked parameters, name -> [b, ...].
            buffers: Stacked buffers, likewise. Those that a forward pass replaces are replaced here.
            arguments: Positional arguments of `forward`, shared by all members.
            keys: Keys of the dropout masks, [b]; None for evaluation mode.
            is_training: Whether keys mean training mode. Models that draw in evaluation mode need keys there, too.

        Returns:
            Logits, [b, k, c].
        """
        self._set_mode(is_training=is_training and keys is not None)
        keys = next(iter(parameters.values())).new_zeros(len(self.models), dtype=torch.int64) if keys is None else keys

        def one(parameters: Stack, buffers: Stack, key: Tensor) -> tuple[Tensor, Stack]:
            with masks(key):
                tensors = {f"{self._prefix}{n}": t for n, t in {**parameters, **buffers}.items()}
                output = checked_output(functional_call(self.called, tensors, arguments), self.template)
            after = {n: tensors[f"{self._prefix}{n}"] for n in buffers}
            return output, {n: t.detach() for n, t in after.items() if t is not buffers[n]}

        if self.is_ours:
            with masks(keys), self._holding(parameters, buffers):
                logits: Tensor = self.template(*arguments)
                return logits
        if self.is_mapped:
            buffers_before, states = {n: b.clone() for n, b in buffers.items()}, rng_states(keys.device)
            try:
                mapped: Tensor
                mapped, replaced = torch.func.vmap(one, randomness="error")(dict(parameters), dict(buffers), keys)
                if all(map(torch.equal, states, rng_states(keys.device))):
                    buffers.update(replaced)
                    return mapped
                set_rng_states(states, keys.device)  # an operation drew that vmap does not know to be random
            except RuntimeError as error:
                if is_out_of_memory(error):
                    raise
                if _RANDOMNESS_ERROR not in str(error):
                    warnings.warn(
                        f"vmap cannot take {type(self.template).__name__}, so members run one after another: {error}",
                        stacklevel=find_stack_level(),
                    )
            for n, before in buffers_before.items():  # what this call counted in buffers is undone
                buffers[n].copy_(before)
            self.is_mapped = False
        members = range(len(self.models))
        try:
            outputs = []
            for i in members:
                with self._drawing_as(i, keys.device):
                    outputs.append(one(_member(parameters, i), _member(buffers, i), keys[i]))
            buffers.update({n: torch.stack([replaced[n] for _, replaced in outputs]) for n in outputs[0][1]})
            return torch.stack([output for output, _ in outputs])
        except (RuntimeError, IndexError) as error:
            if is_out_of_memory(error):
                raise
            raise explain_failure(error, self.template, arguments) from error

    def logits_and_extra(self, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor],
                         arguments: tuple[object, ...], keys: Tensor) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Run the forward pass of models with an extra loss (see `HasExtraLoss`), in training mode.

        Args:
            parameters: Stacked parameters, name -> [b, ...].
            buffers: Stacked buffers, likewise.
            arguments: Positional arguments of `forward`, shared by all members.
            keys: Keys of the dropout masks, [b].

        Returns:
            Logits [b, k, c], and the extra loss of each member, [b].
        """
        self._set_mode(is_training=True)
        with masks(keys), self._holding(parameters, buffers):
            logits_and_term: tuple[Tensor, Tensor] = self.template(*arguments, with_extra_loss=True)
        return logits_and_term

    def random_states(self, device: torch.device) -> list[list[Tensor]]:
        """Copy the random states that a pass can draw from: torch's global ones, and those of each member.

        Args:
            device: The device of the members.

        Returns:
            The states.
        """
        return [rng_states(device), *([] if self._states is None else map(list, self._states))]

    def set_random_states(self, states: Sequence[list[Tensor]], device: torch.device) -> None:
        """Return to random states that `random_states` copied.

        Args:
            states: The states; those of the members are left as they are if there are only the global ones.
            device: The device of the members.
        """
        set_rng_states(states[0], device)
        if self._states is not None and len(states) > 1:
            self._states = [list(state) for state in states[1:]]

    def set_random_states_of(self, members: Tensor, states: Sequence[list[Tensor]]) -> None:
        """Return some members to random states of their own that `random_states` copied, if they have any.

        Args:
            members: Whether each member returns, [b].
            states: The states of all, as `random_states` returned them.
        """
        if self._states is not None:
            for i in members.nonzero()[:, 0].tolist():
                self._states[i] = list(states[1 + i])

    @property
    def draws_by_member(self) -> bool:
        """Whether each member draws from a random state of its own."""
        return self._states is not None

    @contextmanager
    def _drawing_as(self, i: int, device: torch.device) -> Iterator[None]:
        """Let torch draw from the random state of one member."""
        if self._states is None:
            yield
            return
        before = rng_states(device)
        set_rng_states(self._states[i], device)
        try:
            yield
        finally:
            self._states[i] = rng_states(device)
            set_rng_states(before, device)

    def _set_mode(self, *, is_training: bool) -> None:
        """Put the template into training or evaluation mode."""
        if not self.is_ours or self._has_own_mode:
            self.template.train(is_training)
            return
        for module in self._modules:  # what `train` does, which looks up each module by name
            module.__dict__["training"] = is_training

    @contextmanager
    def _holding(self, *stacks: Mapping[str, Tensor]) -> Iterator[None]:
        """Let the template compute with stacked tensors in place of its own: `functional_call`, but ten times cheaper.

        The difference matters in a step of a small model. Stacks have other shapes than a parameter may be given, so
        that they are put into the modules' dicts directly.
        """
        held = [(place, name, t) for stack in stacks for key, t in stack.items() for place, name in self._places[key]]
        own = [(place, name, place[name]) for place, name, _ in held]
        try:
            for place, name, t in held:
                place[name] = t
            yield
        finally:
            for place, name, before in own:
                place[name] = before


def _places(model: nn.Module) -> dict[str, list[tuple[dict[str, Tensor | None], str]]]:
    """Where a model holds each parameter and buffer: dicts of its modules and the names there, several if shared."""
    names = {id(t): name for name, t in (*model.named_parameters(), *model.named_buffers())}
    places: dict[str, list[tuple[dict[str, Tensor | None], str]]] = {name: [] for name in names.values()}
    for module in model.modules():
        for place in (module._parameters, module._buffers):
            for name, t in place.items():
                if t is not None and id(t) in names:
                    places[names[id(t)]].append((cast(dict[str, Tensor | None], place), name))
    return places


def _member(stack: Mapping[str, Tensor], i: int) -> Stack:
    """Take one member out of a stack."""
    return {name: t[i] for name, t in stack.items()}


def _seeded_states(seeds: Sequence[int], model: nn.Module) -> list[list[Tensor]]:
    """The random state from which each member draws at first: that of a training of it alone."""
    device, states = next(model.parameters()).device, []
    for seed in seeds:
        with isolated_rng(*draws_of(seed)):
            states.append(rng_states(device))
    return states


def draws_of(*seeds: int) -> tuple[str | int, ...]:
    """Name torch's random state in the training of a stack.

    Args:
        *seeds: The seed of each member.

    Returns:
        Arguments of `isolated_rng`.
    """
    return "torch dropout", *seeds


def rng_states(device: torch.device) -> list[Tensor]:
    """Copy torch's global random states that a module on a device can draw from.

    Args:
        device: The device.

    Returns:
        The state of the CPU and, on a GPU, that of the GPU.
    """
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]


def set_rng_states(states: list[Tensor], device: torch.device) -> None:
    """Return to random states that `rng_states` copied.

    Args:
        states: The states.
        device: The device.
    """
    torch.set_rng_state(states[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states[1], device)
