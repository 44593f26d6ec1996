"""What the passes of a step change in a model besides gradients, and how it comes back.

Weights are moved in place between the passes and restored from a copy. Of what the forward pass itself changes, buffers
above all, only the first pass counts, as in plain training: further passes work on copies, or their changes are undone.
"""

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from wtawp.base import find_stack_level

ByParameter = dict[Tensor, Tensor]  # parameter -> its gradient, or a step of it
Slots = dict[str, Tensor | None]  # the buffers of a module by their names; it may hold more than tensors
PLAIN = (nn.Parameter, Tensor)  # types of parameters that lie in this process as a whole; others may be distributed
# Where the memory of a tensor begins, how often torch has changed it, and that memory: while it is held, no other one
# begins at the same place.
_Mark = tuple[int, int, torch.UntypedStorage]
LARGE = 1 << 20  # elements; of a parameter with more, two sums are compared in place of all values


class ModelState:
    """The parameters and buffers of a model during one step. Whoever builds it calls `restore` or `undo` at the end.

    Args:
        model: The module that is trained.
        changing: The names of what a forward pass is known to change: parameters, such as teachers that follow the
            model; buffers that it also reaches in another way, as in a list; and, with a dot at the end, modules
            that keep tensors as attributes. Names are added to it.
        is_first_step: Whether to look closer for what belongs there, also for changes through `.data`, such as
            `teacher.data.mul_(0.9)`, which torch does not count. It waits for a GPU.

    Attributes:
        named: The parameters that are trained, a shared one under each of its names.
        parameters: Each of them once.
        original: The values of parameters that were moved, or that a forward pass changes, after the first pass.
    """

    def __init__(self, model: nn.Module, changing: set[str], *, is_first_step: bool = False) -> None:
        self.named: dict[str, Tensor] = {}
        self._frozen: dict[str, Tensor] = {}
        self._buffers: list[Slots] = []
        self._prefixes: list[str] = []  # of the names of their buffers
        # Attributes of modules of which a pass may compute some: of those with pre-hooks, and in the first step of all.
        self._computed: dict[str, dict[str, Any]] = {}
        self._changing, self._is_first_step = changing, is_first_step
        self._read(model)
        self.parameters = list(dict.fromkeys(self.named.values()))
        self.original: ByParameter = {}
        self._watched = [
            (name, p)
            for of_kind in (self.named, self._frozen)
            for name, p in of_kind.items()
            if type(p) in PLAIN and p.layout is torch.strided and not (p.is_meta or p.is_inference())
        ]
        self._marks: list[_Mark] = []
        self._contents: list[Tensor] = []  # of the watched parameters, if they are compared
        self._buffers_before = [dict(slots) for slots in self._buffers]
        self._values_before: ByParameter = {}
        self._computed_before = {prefix: _tensors_in(attributes) for prefix, attributes in self._computed.items()}
        self._versions_before: dict[Tensor, int] = {}  # of these attributes
        self._buffers_after: list[Slots] = []
        self._computed_after: dict[str, dict[str, Tensor]] = {}
        self._kept: list[tuple[str, Tensor, int, Tensor | None]] = []  # buffers: name, version, and their values

    def save(self) -> None:
        """Copy, before the first pass, what it may change."""
        self._marks = [_mark(p) for _, p in self._watched]
        if self._is_first_step and not is_capturing():
            self._contents = [_content_of(p) for _, p in self._watched]
        for prefix, tensors in self._computed_before.items():
            for tensor in tensors.values():
                self._versions_before[tensor] = _version_of(tensor)
                if prefix in self._changing and not tensor.requires_grad:
                    self._values_before[tensor] = tensor.clone()
        for slots in self._buffers_before:
            for buffer in slots.values():
                if buffer is not None and buffer not in self._values_before:
                    self._values_before[buffer] = buffer.detach().clone()
        if self._changing:
            for name, p in self._watched:
                if name in self._changing:
                    self._values_before[p] = p.detach().clone()

    def isolate(self) -> None:
        """Keep, after the first pass, what it has changed; let all further passes work on copies of the buffers."""
        for i, (name, p) in enumerate(self._watched):
            mark = _mark(p)
            is_same = mark == self._marks[i] and (not self._contents or torch.equal(_content_of(p), self._contents[i]))
            if not is_same or name in self._changing:
                self._changing.add(name)
                self._marks[i] = mark
                self.original.setdefault(p, p.detach().clone())
        self._contents = []
        self._isolate_attributes()
        self._buffers_after = [dict(slots) for slots in self._buffers]
        copies: ByParameter = {}  # a shared buffer has one copy
        # Where those of parameters begin: a view of one moves with it.
        memories = {storage.data_ptr() for *_, storage in self._marks} - {0} if any(self._buffers_after) else set()
        for prefix, slots, buffers in zip(self._prefixes, self._buffers, self._buffers_after, strict=True):
            for name, buffer in buffers.items():
                if buffer is not None and not buffer.requires_grad:
                    if buffer not in copies:
                        copies[buffer] = self._kept_buffer(prefix + name, buffer, memories)
                    slots[name] = copies[buffer]

    def _kept_buffer(self, name: str, buffer: Tensor, memories: set[int]) -> Tensor:
        """Return what further passes find as a buffer: a copy, or itself if they also reach it in another way."""
        is_used = name in self._changing or (_is_plain(buffer) and buffer.untyped_storage().data_ptr() in memories)
        values = buffer.detach().clone() if is_used or self._is_first_step else None
        self._kept.append((name, buffer, _version_of(buffer), values))
        return buffer if is_used else buffer.detach().clone()

    def _isolate_attributes(self) -> None:
        """The same for tensors that modules keep as attributes; one that is changed in place has a copy, too."""
        for prefix, attributes in self._computed.items():
            before, after = self._computed_before[prefix], _tensors_in(attributes)
            self._computed_after[prefix] = after
            if before.keys() != after.keys() or any(before[name] is not tensor for name, tensor in after.items()):
                self._changing.add(prefix)
            for name, tensor in after.items():
                if self._versions_before.get(tensor, _version_of(tensor)) != _version_of(tensor):
                    self._changing.add(prefix)
                    if not tensor.requires_grad:
                        attributes[name] = tensor.clone()

    def note_changes(self) -> None:
        """Notice, after a forward pass at other weights, what it has changed although the first pass did not."""
        for i, (name, p) in enumerate(self._watched):
            if p not in self.original and (mark := _mark(p)) != self._marks[i]:
                self._marks[i] = mark
                self._changing.add(name)
                warnings.warn(
                    f"the forward pass at perturbed weights changed {name}, as it did not at the weights themselves, so"
                    " that this change stays; from the next step on it is undone",
                    stacklevel=find_stack_level(),
                )

    def move(self, step: Mapping[Tensor, Tensor]) -> None:
        """Move the weights to theta + step, in place.

        Args:
            step: The displacement of some parameters; the others are at theta.
        """
        self.restore_weights()
        for p in step:
            if p not in self.original:
                self.original[p] = p.detach().clone()
        for p, s in step.items():
            p.detach().add_(s)
        self._marks = [_mark(p) for _, p in self._watched]  # a frozen parameter may lie in the same memory

    def weights(self, *, of: Iterable[Tensor], copied: bool) -> ByParameter:
        """Return the original weights of parameters.

        Args:
            of: The parameters.
            copied: Whether they are still needed after the parameters have moved, as in an ascent of several steps.

        Returns:
            Tensors without gradient.
        """
        if not copied:
            return {p: p.detach() for p in of}
        self.original |= {p: p.detach().clone() for p in of if p not in self.original}
        return {p: self.original[p] for p in of}

    def name_of(self, parameter: Tensor) -> str:
        """Find the name of a parameter that changes by itself, and remember that it does.

        Args:
            parameter: A parameter of the model.

        Returns:
            Its name.
        """
        name = next((name for name, p in self._watched if p is parameter), "a parameter")
        self._changing.add(name)
        return name

    def release(self, parameter: Tensor) -> None:
        """Give a parameter its original weights if it was moved, and let what happens to it from now on stay.

        Args:
            parameter: A parameter of the model, or another tensor, with which nothing happens.
        """
        if parameter in self.original:
            parameter.detach().copy_(self.original[parameter])
            del self.original[parameter]  # only now: an interrupt must not lose the weights

    def restore_weights(self) -> None:
        """Give all moved parameters their original weights, bit for bit."""
        for p, weights in self.original.items():
            p.detach().copy_(weights)

    def restore(self) -> None:
        """Give the model its weights, and what the first pass has made of the rest."""
        self.restore_weights()
        torch.clear_autocast_cache()  # it holds low-precision copies of the moved weights
        self._restore_kept_buffers()
        _refill(self._buffers, self._buffers_after or self._buffers_before)
        self._refill_attributes(self._computed_after or self._computed_before)

    def undo(self) -> None:
        """Give the model what it had before the first pass."""
        self.restore_weights()
        torch.clear_autocast_cache()
        _refill(self._buffers, self._buffers_before)
        self._refill_attributes(self._computed_before)
        for tensor, values in self._values_before.items():
            _overwrite(tensor, values)

    def _restore_kept_buffers(self) -> None:
        """Undo what further passes did to buffers themselves, which they also reach in another way, as in a list."""
        compares = self._is_first_step and not is_capturing()
        for name, buffer, version, values in self._kept:
            if name not in self._changing:
                is_same = _version_of(buffer) == version
                if is_same and compares and values is not None and _is_plain(buffer):
                    is_same = torch.equal(buffer.detach(), values)
                if is_same:
                    continue
                self._changing.add(name)
            if values is not None:
                _overwrite(buffer, values)
            else:
                warnings.warn(
                    f"the forward pass at perturbed weights changed the buffer {name}, as it did not in the first step,"
                    " so that this change stays; from the next step on it is undone",
                    stacklevel=find_stack_level(),
                )

    def _refill_attributes(self, contents: dict[str, dict[str, Tensor]]) -> None:
        """Give modules the tensors that they had as attributes, and no others."""
        _refill(list(self._computed.values()), list(contents.values()), only_tensors=True)

    def _read(self, model: nn.Module) -> None:
        """Collect parameters, by all their names, and buffers: `named_modules` without its generators."""
        seen: set[nn.Module] = set()
        waiting = [("", model)]
        while waiting:
            prefix, module = waiting.pop()
            if module in seen:
                continue
            seen.add(module)
            has_pre_hooks = bool(module._forward_pre_hooks)
            for name, p in module._parameters.items():
                if p is None:
                    continue
                if not p.requires_grad:
                    self._frozen[prefix + name] = p
                elif p.is_leaf:
                    self.named[prefix + name] = p
                # An embedding shortens the rows that it looks up, and a pre-hook may do anything.
                if has_pre_hooks or module.__dict__.get("max_norm") is not None:
                    self._changing.add(prefix + name)
            self._buffers.append(module._buffers)
            self._prefixes.append(prefix)
            if has_pre_hooks or self._is_first_step or prefix in self._changing:
                self._computed[prefix] = module.__dict__
            if module._modules:  # the last one is taken first
                children = reversed(module._modules.items())
                waiting += [(f"{prefix}{name}.", child) for name, child in children if child is not None]


def is_capturing() -> bool:
    """Whether a CUDA graph is being recorded, so that no value can be read."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()  # type: ignore[no-untyped-call]


def _mark(p: Tensor) -> _Mark:
    """What differs after a parameter was changed, in place or by another tensor as its data."""
    return p.data_ptr(), p._version, p.untyped_storage()


def _version_of(tensor: Tensor) -> int:
    """How often torch has changed a tensor in place; it does not count for those of `torch.inference_mode`."""
    return -1 if tensor.is_inference() else tensor._version


def _content_of(p: Tensor) -> Tensor:
    """The values of a parameter, or two sums over them if there are many."""
    values = p.detach()
    has_sums = values.is_floating_point() and values.dtype.itemsize > 1  # there are none of 8-bit floats
    if values.numel() <= LARGE or not has_sums:
        return values.clone()
    wide = torch.promote_types(values.dtype, torch.float32)
    return torch.stack([torch.linalg.vector_norm(values, dtype=wide), values.sum(dtype=wide)])


def _is_plain(buffer: Tensor) -> bool:
    """Whether a buffer is an ordinary tensor with values."""
    return type(buffer) in PLAIN and buffer.layout is torch.strided and not (buffer.is_nested or buffer.is_meta)


def _tensors_in(attributes: Mapping[str, Any]) -> dict[str, Tensor]:
    """The attributes that are tensors, such as a weight that a pre-hook computes from its parts."""
    return {name: value for name, value in attributes.items() if isinstance(value, Tensor)}


def _refill(slots: list[dict[str, Any]], contents: list[dict[str, Any]], *, only_tensors: bool = False) -> None:
    """Give dicts their former items, and no others; with `only_tensors` other items than tensors stay."""
    for slot, content in zip(slots, contents, strict=True):
        for name, value in list(slot.items()):
            if name not in content and (isinstance(value, Tensor) or not only_tensors):
                del slot[name]
        for name, value in content.items():  # a scripted module has something that knows no update()
            slot[name] = value


def _overwrite(tensor: Tensor, values: Tensor) -> None:
    """Give a tensor its former values, also if it was resized."""
    if tensor.layout is torch.strided and not tensor.is_nested:
        if any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)):
            return  # an expanded tensor, into which nothing can write
        if tensor.shape != values.shape:
            tensor.data = values
            return
    tensor.detach().copy_(values)
