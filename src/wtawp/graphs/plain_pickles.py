"""An unpickler that builds plain values and records, runs nothing, and takes no more time and memory than its input.

`pickle` itself calls whatever a file names. This one calls only what a subclass returns from `find_class`: records. Three
more doors are closed. A key that is a nested tuple takes exponential time to hash; a bytearray is allocated before its
bytes are read; and a state can replace the methods of a dict.
"""

import pickle

from wtawp.base import DataError

_SCALARS = (str, bytes, int, float, bool, type(None))
_REFUSED = (pickle.BYTEARRAY8, pickle.NEXT_BUFFER, pickle.READONLY_BUFFER)  # no file of torch, PyG or NumPy has them


class Record:
    """An object that a pickle describes: the arguments of its constructor, and its state.

    Attributes:
        arguments: The arguments of the constructor; empty if the pickle makes the object without calling it.
        state: What the pickle says about its content.
    """

    arguments: tuple[object, ...] = ()
    state: object = None

    def __init__(self, *arguments: object) -> None:
        self.arguments = arguments


class RecordedDict(dict[object, object]):
    """A dict in place of an OrderedDict or defaultdict. Arguments of their constructors are not taken.

    Attributes:
        state: The attributes that the pickle gives to the dict, such as `_metadata` of a state dict.
    """

    state: object = None

    def __init__(self, *factory: object) -> None:
        if not all(isinstance(each, type) for each in factory):
            raise DataError("a dict must be pickled item by item")
        super().__init__()


class PlainUnpickler(pickle._Unpickler):  # in Python, so that hostile input meets no C code
    """The unpickler. A subclass says in `find_class` which record a name stands for, and raises for all others."""

    dispatch = {code: load for code, load in pickle._Unpickler.dispatch.items() if bytes([code]) not in _REFUSED}

    def load_setitem(self) -> None:
        _check_key(self.stack[-2])
        super().load_setitem()

    def load_setitems(self) -> None:
        for key in self.stack[::2]:
            _check_key(key)
        super().load_setitems()

    def load_dict(self) -> None:
        for key in self.stack[::2]:
            _check_key(key)
        super().load_dict()

    def load_additems(self) -> None:
        for key in self.stack:
            _check_key(key)
        super().load_additems()

    def load_frozenset(self) -> None:
        for key in self.stack:
            _check_key(key)
        super().load_frozenset()

    def load_build(self) -> None:
        state = self.stack.pop()
        if not isinstance(self.stack[-1], Record | RecordedDict):
            raise DataError(f"gives a state to a {type(self.stack[-1]).__name__}, which has none")
        self.stack[-1].state = state

    dispatch |= {
        pickle.SETITEM[0]: load_setitem, pickle.SETITEMS[0]: load_setitems, pickle.DICT[0]: load_dict,
        pickle.ADDITEMS[0]: load_additems, pickle.FROZENSET[0]: load_frozenset, pickle.BUILD[0]: load_build,
    }  # fmt: skip


def _check_key(key: object) -> None:
    """Refuse a key of a dict or set that is neither a plain value nor a tuple of plain values."""
    parts = key if type(key) is tuple else (key,)
    if not all(isinstance(part, _SCALARS) for part in parts):
        raise DataError(f"has a key of type {type(key).__name__}; keys must be texts or numbers")
