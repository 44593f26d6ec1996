import collections
import io
import pickle
import struct
import time

import pytest

from wtawp.base import DataError
from wtawp.graphs.plain_pickles import PickledDict, PickledObject, PlainUnpickler

DOUBLED = b")" + b"2\x86" * 60  # a tuple of one tuple twice, 60 levels deep: its hash takes 2**60 steps


class Reader(PlainUnpickler):
    def find_class(self, module: str, name: str) -> object:  # noqa: ARG002
        return {"OrderedDict": PickledDict, "defaultdict": PickledDict, "list": list}.get(name, PickledObject)


def unpickled(content: bytes) -> object:
    return Reader(io.BytesIO(content)).load()


@pytest.mark.parametrize("protocol", range(6))
def test_plain_values_come_back(protocol: int) -> None:
    value = {"a": [1, 2.5, None, True], (1, "b"): (b"bytes", "text"), 3: {4, 5}, "f": frozenset([6]), "big": 10**30}
    if protocol < 4:  # sets are made by a call
        value = {key: part for key, part in value.items() if key not in (3, "f")}
    if protocol < 3:  # bytes are made by a call
        del value[1, "b"]
    assert unpickled(pickle.dumps(value, protocol)) == value


def test_dicts_of_other_kinds_become_pickled_dicts() -> None:
    ordered = collections.OrderedDict(a=1)
    ordered.note = "x"  # type: ignore[attr-defined]
    read = unpickled(pickle.dumps(ordered))
    assert read == {"a": 1}
    assert isinstance(read, PickledDict)
    assert read.state == {"note": "x"}
    assert unpickled(pickle.dumps(collections.defaultdict(list, {1: [2]}))) == {1: [2]}


@pytest.mark.parametrize(
    "content",
    [b"}" + DOUBLED + b"K\x01s.", b"}(" + DOUBLED + b"K\x01u.", b"(" + DOUBLED + b"K\x01d.",
     b"\x8f(" + DOUBLED + b"\x90.", b"(" + DOUBLED + b"\x91."],
    ids=["setitem", "setitems", "dict", "additems", "frozenset"],
)  # fmt: skip
def test_a_key_that_takes_for_ever_to_hash_is_refused(content: bytes) -> None:
    start = time.monotonic()
    with pytest.raises(DataError, match="has a key of type tuple"):
        unpickled(content)
    assert time.monotonic() - start < 5


def test_a_bytearray_is_not_allocated() -> None:
    with pytest.raises(KeyError):  # an opcode that is not known
        unpickled(b"\x96" + struct.pack("<Q", 2**40) + b".")


def test_a_state_never_replaces_methods() -> None:
    with pytest.raises(DataError, match="gives a state to a dict"):
        unpickled(b"}}X\x03\x00\x00\x00getK\x01sb.")
    read = unpickled(b"ccollections\nOrderedDict\n)R}X\x03\x00\x00\x00getK\x01sb.")
    assert isinstance(read, PickledDict)
    assert read.get("a") is None
