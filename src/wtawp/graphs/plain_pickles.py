"""An unpickler that builds plain values and objects, runs nothing, and takes no more time and memory than its input.

`pickle` itself calls whatever a file names; this one calls only what a subclass returns from `find_class`. It also
refuses three things that need no name: a key made of nested tuples, whose hash takes exponential time; a bytearray,
which is allocated before its bytes are read; and a state of a dict, which can replace its methods.
"""

import pickle
from collections.abc import Callable
from typing import Any, ClassVar

from wtawp.base import DataError

_SCALARS = (str, bytes, int, float, bool, type(None))
_REFUSED = (pickle.BYTEARRAY8, pickle.NEXT_BUFFER, pickle.READONLY_BUFFER)  # no file of torch, PyG or NumPy has them


class PickledObject:
    """An object that a pickle describes: the arguments of its constructor, and its state.

    Attributes:
        arguments: The arguments of the constructor; empty if the pickle makes the object without calling it.
        state: What the pickle says about its content.
    """

    arguments: tuple[object, ...] = ()
    state: object = None

    def __init__(self, *arguments: object) -> None:
        self.arguments = arguments


class PickledDict(dict[object, object]):
    """A dict in place of an OrderedDict or defaultdict. Arguments of their constructors are not taken.

    Attributes:
        state: The attributes that the pickle gives to the dict, such as `_metadata` of a state dict.
    """

    state: object = None

    def __init__(self, *factory: object) -> None:
        if not all(isinstance(each, type) for each in factory):
            raise DataError("a dict must be pickled item by item")
        super().__init__()


def _check_key(key: object) -> None:
    """Refuse a key of a dict or set that is neither a plain value nor a tuple of plain values."""
    parts = key if type(key) is tuple else (key,)
    if not all(isinstance(part, _SCALARS) for part in parts):
        raise DataError(f"has a key of type {type(key).__name__}; keys must be texts or numbers")


def _checking_keys(opcode: bytes, keys: Callable[[list[Any]], list[Any]]) -> tuple[int, Callable[[Any], None]]:
    """An opcode that makes keys of what `keys` takes from the stack, and a function that checks and then loads them."""
    load: Callable[[Any], None] = pickle._Unpickler.dispatch[opcode[0]]

    def check_and_load(unpickler: Any) -> None:
        for key in keys(unpickler.stack):
            _check_key(key)
        load(unpickler)

    return opcode[0], check_and_load


def _load_build(unpickler: Any) -> None:
    """Keep the state of a pickled object; nothing else has one."""
    state = unpickler.stack.pop()
    if not isinstance(unpickler.stack[-1], PickledObject | PickledDict):
        raise DataError(f"gives a state to a {type(unpickler.stack[-1]).__name__}, which has none")
    unpickler.stack[-1].state = state


class PlainUnpickler(pickle._Unpickler):  # in Python, so that hostile input meets no C code
    """The unpickler. A subclass says in `find_class` which class a name stands for, and raises for all others."""

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        **{code: load for code, load in pickle._Unpickler.dispatch.items() if bytes([code]) not in _REFUSED},
        **dict([
            _checking_keys(pickle.SETITEM, lambda stack: stack[-2:-1]),
            _checking_keys(pickle.SETITEMS, lambda stack: stack[::2]),
            _checking_keys(pickle.DICT, lambda stack: stack[::2]),
            _checking_keys(pickle.ADDITEMS, list),
            _checking_keys(pickle.FROZENSET, list),
            (pickle.BUILD[0], _load_build),
        ]),
    }  # fmt: skip
