"""Hooks of parameters that must not run in every pass of a step: they are kept aside, and run once.

Hooks of `register_post_accumulate_grad_hook`, such as an optimizer inside the backward pass, expect the complete
gradient, which only the last pass has. Hooks of `register_hook` on a parameter run as the gradient flows, in each pass,
but where the caller's own backward runs them after the step.
"""

from collections.abc import Callable, Container, Iterable
from functools import partial
from typing import Any

from torch import Tensor

_Hook = Callable[[Tensor], Any]
_Slot = dict[int, _Hook]  # where torch looks for the hooks of a parameter


class ParameterHooks:
    """The hooks of a step's parameters. Whoever builds it calls `restore` at the end, whatever happens.

    Args:
        parameters: The parameters of the model.
        run_in_last_pass: Whether the last pass runs them. Otherwise the caller's backward does, after the step.
    """

    def __init__(self, parameters: Iterable[Tensor], *, run_in_last_pass: bool) -> None:
        self._run_in_last_pass = run_in_last_pass
        self._found: list[tuple[Tensor, _Slot, list[tuple[int, _Hook]]]] = []
        self._waiting: dict[Tensor, _Hook] = {}  # what runs the hooks of parameters that have no gradient yet
        self._find(parameters)

    @property
    def are_for_last_pass(self) -> bool:
        """Whether there are hooks that the last pass runs."""
        return bool(self._found) and self._run_in_last_pass

    def silence(self) -> None:
        """Keep all of them from running."""
        for _, slot, _ in self._found:
            slot.clear()

    def silence_leaf(self, leaf: Tensor) -> None:
        """Keep the hooks of a parameter outside of the model from running, if that is not done already.

        Args:
            leaf: The parameter.
        """
        if all(p is not leaf for p, _, _ in self._found):
            num_found = len(self._found)
            self._find([leaf])
            for _, slot, _ in self._found[num_found:]:
                slot.clear()

    def arm(self, release: Callable[[Tensor], None]) -> None:
        """Let the coming pass, the last one, run the hooks of each parameter once it has its gradient.

        Args:
            release: Is called with the parameter before its hooks, to give it its original weights.
        """
        for p, slot, entries in self._found:
            self._waiting[p] = slot[0] = partial(self._run, slot, entries, release)

    def run_rest(self, parameters: Container[Tensor]) -> None:
        """Run the hooks of parameters to which the last pass brought no gradient.

        Args:
            parameters: Those that have one all the same, from the first pass.
        """
        for p, run_hooks in list(self._waiting.items()):
            if p in parameters:
                run_hooks(p)

    def restore(self) -> None:
        """Give the parameters their hooks, without those that have removed themselves."""
        for _, slot, entries in self._found:
            slot.clear()
            slot.update(entries)

    def _find(self, parameters: Iterable[Tensor]) -> None:
        """Find the hooks of parameters."""
        for p in parameters:
            slots = [p._post_accumulate_grad_hooks, None if self._run_in_last_pass else p._backward_hooks]
            self._found += [(p, slot, list(slot.items())) for slot in slots if slot]

    def _run(self, slot: _Slot, entries: list[tuple[int, _Hook]], release: Callable[[Tensor], None], p: Tensor) -> None:
        """Run the hooks of a parameter that has its gradient now, at its original weights, which they may change."""
        if p not in self._waiting:  # what is computed after this would meet its original weights
            raise ValueError(
                "a parameter with a post-accumulate-grad hook received its gradient twice in one backward pass, as with"
                " reentrant checkpointing: use checkpoint(..., use_reentrant=False), or remove the hook"
            )
        release(p)
        this = self._waiting.pop(p)
        slot.clear()
        slot.update(entries)  # where a hook that removes itself is looked for
        for _, hook in list(entries):
            hook(p)
        entries[:] = slot.items()
        slot.clear()
        slot[0] = this
