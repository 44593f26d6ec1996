"""Many models as one: parameters stacked, autograd outside.

Our modules take the stack as it is; others are mapped with `torch.func.vmap`, and what vmap cannot take is run member
by member, after saying so.
"""

import warnings
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from wtawp.models.capabilities import HasExtraLoss, StackAware, StackAwareOnGraphs
from wtawp.models.dropout import masks

Stack = dict[str, Tensor]  # name -> [b, ...]


class Ensemble:
    """Models of one architecture. The weights are handed in with every call, so that they can be perturbed."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        shapes = [{n: p.shape for n, p in m.named_parameters()} for m in models]
        if not models or any(s != shapes[0] for s in shapes):
            raise ValueError("an ensemble needs at least one model, and models of one architecture")
        self.models = list(models)
        self.template = models[0]
        self.is_ours = isinstance(
            models[0], StackAware | StackAwareOnGraphs
        )  # takes a stack as it is, and its epochs can be replayed
        self.has_extra_loss = self.is_ours and isinstance(models[0], HasExtraLoss)
        self.is_mapped = len(models) > 1 and not self.is_ours

    def parameters(self) -> Stack:
        """The members' parameters, stacked: leaves that require gradients wherever the members' do."""
        stacked = {
            n: torch.stack([dict(m.named_parameters())[n].detach() for m in self.models]) for n, _ in self._named()
        }
        return {n: stacked[n].requires_grad_(p.requires_grad) for n, p in self._named()}

    def buffers(self) -> Stack:
        """The members' buffers, stacked."""
        own = [dict(m.named_buffers()) for m in self.models]
        return {n: torch.stack([buffers[n] for buffers in own]) for n in own[0]}

    def _named(self) -> list[tuple[str, nn.Parameter]]:
        return list(self.template.named_parameters())

    def write_back(self, parameters: Mapping[str, Tensor]) -> None:
        """Copy stacked parameters or buffers into the members."""
        with torch.no_grad():
            for i, model in enumerate(self.models):
                own = {**dict(model.named_parameters()), **dict(model.named_buffers())}
                for name, t in parameters.items():
                    own[name].copy_(t[i])

    def logits(self, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], arguments: tuple[object, ...],
               keys: Tensor | None) -> Tensor:  # keys [b] -> [b, k, c]  # fmt: skip
        """The forward pass of every member. `keys` name the dropout masks; None is evaluation mode."""
        self.template.train(keys is not None)
        keys = next(iter(parameters.values())).new_zeros(len(self.models), dtype=torch.int64) if keys is None else keys

        def one(parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], key: Tensor) -> Tensor:
            with masks(key):
                out: Tensor = functional_call(self.template, (dict(parameters), dict(buffers)), arguments)
                return out

        if self.is_ours:
            return one(parameters, buffers, keys)
        if self.is_mapped:
            try:
                mapped: Tensor = torch.func.vmap(one, randomness="different")(parameters, buffers, keys)
                return mapped
            except RuntimeError as error:
                if len(self.models) > 1:
                    warnings.warn(
                        f"vmap cannot take {type(self.template).__name__}, so members run one after another: {error}",
                        stacklevel=2,
                    )
                self.is_mapped = False
        members = range(len(self.models))
        return torch.stack([one(_member(parameters, i), _member(buffers, i), keys[i]) for i in members])

    def logits_and_extra(self, parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor],
                         arguments: tuple[object, ...], keys: Tensor) -> tuple[Tensor, Tensor]:  # fmt: skip
        """The same in training mode, with each member's loss of its own [b]; for modules of ours that have one."""
        self.template.train()
        with masks(keys):
            found: tuple[Tensor, Tensor] = functional_call(
                self.template, (dict(parameters), dict(buffers)), arguments, {"with_extra_loss": True}
            )
        return found


def _member(stack: Mapping[str, Tensor], i: int) -> Stack:
    return {name: t[i] for name, t in stack.items()}
