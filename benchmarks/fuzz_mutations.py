"""Mutations of valid files that know the structure of what they change, for `benchmarks/fuzz.py`.

Every function takes a `random.Random` and returns changed content; equal generators give equal content.
"""

import io
import json
import math
import pickletools
import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import Any

import numpy as np

WHOLE = [
    *(-1, 0, 1, 2, 3, 7, 127, 128, 255, 256, 2**15, 2**16, 2**24, 2**26 + 1, 2**31 - 1, 2**31, 2**32, 2**53, 2**62),
    *(2**63 - 1, 2**63, 2**64 - 1, 2**64, -2, -128, -(2**31), -(2**63), -(2**63) - 1, 10**9, 10**12, 10**30, 10**400),
]
REAL = [0.5, -0.5, -0.0, 1e-320, 1e38, 1e39, 1e300, -1e300, math.nan, math.inf, -math.inf]
DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "g", "c8", "c16", "U1", "U3", "S2",
          ">i4", ">f8", ">U2", "M8[s]", "m8[D]", "V4", "O"]  # fmt: skip
SHAPES = [
    "()",
    "(0,)",
    "(1,)",
    "(-1,)",
    "(-4, -1)",
    "(1000000000,)",
    "(4611686018427387904, 4)",
    "(1,) * 70",
    "(2.0,)",
    "(True,)",
    "(4, 0)",
    "(0, 1000000000000)",
    "None",
    "(" * 300,
    "(1e9,)",
    "(10**9,)",
    "[4]",
    "(2, 2)",
]
WORDS = [
    "",
    " ",
    "\x00",
    "\n",
    "é",
    "\ud7ff",
    "\U0001f600",
    "\x1b[31m",
    "x" * 300,
    "1" * 5000,
    "nan",
    "inf",
    "-inf",
    "true",
    "null",
    "{}",
    "[]",
    "'",
    '"',
    '"""',
    "#",
    ",",
    ";",
    "=",
    "..",
    "../../etc",
    "~nobody/x.npz",
    "a" * 5000 + ".npz",
    "1_000",
    "0x10",
    "1e400",
    "-1e400",
    "1979-05-27",
    "package.module:Class",
    "\\",
    "\\u0000",
    "\\ud800",
]
NUMBER, TOKEN = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?"), re.compile(r"\w+|[^\w\s]")
ZEROS_BYTES = 3_000_000_000  # what a bomb inflates to
LAUGHS = b")" + b"2\x86" * 60  # a tuple of the same tuple twice, 60 levels deep
SNIPPETS = [
    *(b"}" + LAUGHS + b"K\x01s0", LAUGHS, LAUGHS + b"0", b"\x8f(" + LAUGHS + b"\x900", b"(" + LAUGHS + b"\x910"),
    *(b"\x96" + struct.pack("<Q", 2**40), b"\x8e" + struct.pack("<Q", 2**40), b"\x8b" + struct.pack("<i", 2**30)),
    *(
        b"cos\nsystem\n",
        b"cbuiltins\neval\n",
        b"ccollections\nOrderedDict\n)R",
        b"cnumpy\nndarray\n)R",
        b"cbuiltins\nlist\n",
    ),
    *(
        b"ctorch\ndevice\n",
        b"\x82\x01",
        b"K\x01Q",
        b"N",
        b"0",
        b"(",
        b"t",
        b"R",
        b"b",
        b"2",
        b"]",
        b"}",
        b".",
        b"u",
        b"e",
        b"\x97",
    ),
]


def any_value(g: Random) -> Any:
    """A value that readers do not expect."""
    return g.choice(
        [g.choice(WHOLE), g.choice(REAL), g.choice(WORDS), None, True, False, [], {}, [[]], [None], {"": 0}]
    )


def mutated_bytes(g: Random, content: bytes) -> bytes:
    """Bytes with one change: bits, numbers, or slices that are cut, repeated, moved or inserted."""
    if not content:
        return g.randbytes(g.randint(0, 8))
    at = g.randrange(len(content))
    end = min(len(content), at + g.choice([1, 2, 4, 8, 16, 64, 256]))
    kind = g.randrange(7)
    if kind == 0:
        return content[:at] + bytes([content[at] ^ (1 << g.randrange(8))]) + content[at + 1 :]
    if kind == 1:
        number = (g.choice(WHOLE[:-3]) % 2**64).to_bytes(8, g.choice(["little", "big"]))
        width = g.choice([1, 2, 4, 8])
        return content[:at] + number[:width] + content[at + width :]
    if kind == 2:
        return content[:at]
    if kind == 3:
        return content[:at] + content[end:]
    if kind == 4:
        return content[:at] + content[at:end] * g.randint(2, 4) + content[end:]
    if kind == 5:
        return content[:at] + g.randbytes(g.randint(1, 8)) + content[at:]
    to = g.randrange(len(content))
    cut = content[:at] + content[end:]
    return cut[:to] + content[at:end] + cut[to:]


def mutated_text(g: Random, text: str) -> str:
    """Text with one change: a number, a word, a line, nesting, or the characters themselves."""
    kind = g.randrange(8)
    if kind <= 3 and len(text) < 20_000:
        places = [match.span() for match in (NUMBER if kind <= 2 else TOKEN).finditer(text)]
        if places:
            start, end = g.choice(places)
            return text[:start] + (_digits(g.choice([*WHOLE, *REAL])) if kind <= 2 else g.choice(WORDS)) + text[end:]
    if kind == 4:
        at, depth, opening = g.randrange(len(text) + 1), g.choice([1, 20, 2000, 100_000]), g.choice("[{(\"'")
        return text[:at] + opening * depth + text[at:]
    lines = text.splitlines(keepends=True) or [""]
    i, j = g.randrange(len(lines)), g.randrange(len(lines))
    if kind == 5:
        lines[i], lines[j] = lines[j], lines[i]
    elif kind == 6:
        lines[i : i + 1] = [lines[i]] * g.choice([0, 2, 3, 500])
    else:
        return mutated_bytes(g, text.encode()).decode(errors="replace" if g.random() < 0.5 else "ignore")
    return "".join(lines)


def _digits(number: float) -> str:
    """A number as text, also one of more than 4,300 digits."""
    return "1" + "0" * 5000 if isinstance(number, int) and number > 2**900 else repr(number)


def mutated_tree(g: Random, tree: Any) -> Any:
    """JSON-like data with one change somewhere: another value, or a key that is missing, new, or has another type."""
    if isinstance(tree, dict) and tree and g.random() < 0.85:
        key = g.choice(sorted(tree, key=str))
        kind = g.randrange(12)
        if kind == 0:
            return {k: v for k, v in tree.items() if k != key}
        if kind == 1:
            return {**tree, g.choice(WORDS): any_value(g)}
        return {**tree, key: mutated_tree(g, tree[key])}
    if isinstance(tree, list) and tree and g.random() < 0.85:
        i = g.randrange(len(tree))
        kind = g.randrange(8)
        if kind == 0:
            return tree[:i] + tree[i + 1 :]
        if kind == 1:
            return tree[:i] + [tree[i]] * g.choice([2, 1000]) + tree[i:]
        return [*tree[:i], mutated_tree(g, tree[i]), *tree[i + 1 :]]
    if isinstance(tree, str) and g.random() < 0.5:
        return mutated_text(g, tree)
    return any_value(g)


def npy(array: np.ndarray) -> bytes:
    """The array as a .npy file."""
    out = io.BytesIO()
    np.lib.format.write_array(out, array, allow_pickle=True)
    return out.getvalue()


def mutated_npy(g: Random, content: bytes) -> bytes:
    """A .npy file with another type, shape, order or values, a header that does not fit, or damaged bytes."""
    kind = g.randrange(10)
    if kind == 0:
        return mutated_bytes(g, content)
    if kind <= 2:
        return _with_header(g, content)
    try:
        array = np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
        with np.errstate(all="ignore"):
            return npy(_mutated_array(g, array))
    except Exception:  # no plain array, or no such conversion
        return mutated_bytes(g, content)


def _mutated_array(g: Random, array: np.ndarray) -> np.ndarray:
    """The array with one change to its type, shape or values."""
    kind = g.randrange(7)
    if kind == 0:
        return array.astype(g.choice(DTYPES[:-1]))
    if kind == 1:
        return g.choice([array.ravel(), array[None], array[..., None], array[:-1], array[:0], np.array(array.flat[0])])
    if kind == 2:
        return np.concatenate([array.ravel()] * 2)
    if kind == 3:
        return np.resize(array, g.choice([1, 5, 50, array.size + 1]))
    if kind == 4:
        return np.asfortranarray(array).astype(array.dtype.newbyteorder())
    changed = array.copy()
    for _ in range(g.randint(1, 3)):
        value: Any = g.choice(WORDS)[:8] if array.dtype.kind == "U" else g.choice([*WHOLE[:-2], *REAL])
        if array.dtype.kind in "iu" and not isinstance(value, int):
            value = g.randint(-3, 9)
        if array.dtype.kind in "iu":
            limits = np.iinfo(array.dtype)
            value = (value - int(limits.min)) % 2 ** (8 * array.dtype.itemsize) + int(limits.min)
        changed[tuple(g.randrange(size) for size in array.shape)] = value
    return changed


def _with_header(g: Random, content: bytes) -> bytes:
    """The file with another type or shape in its header."""
    length = struct.unpack("<H", content[8:10])[0] if len(content) > 10 else 0
    header, rest = content[10 : 10 + length].decode("latin1"), content[10 + length :]
    if g.random() < 0.5:
        header = re.sub(r"'shape': \(.*?\)", lambda _: f"'shape': {g.choice(SHAPES)}", header)
    elif g.random() < 0.7:
        header = re.sub(
            r"'descr': '.*?'", lambda _: f"'descr': '{g.choice([*DTYPES, '<U536870911', 'V2147483647'])}'", header
        )
    else:
        header = mutated_text(g, header)[:60_000]
    encoded = header.encode("latin1", errors="replace")
    version = bytes([g.choice([1, 1, 1, 2, 3, 9]), 0])
    return content[:6] + version + struct.pack("<H", len(encoded) % 2**16) + encoded + rest


@lru_cache(maxsize=8)
def repeated_zeros(count: int, window: int) -> bytes:
    """So many zeros, compressed; `window` is that of zlib, and negative for a stream without a header."""
    squeeze = zlib.compressobj(9, zlib.DEFLATED, window)
    start = squeeze.compress(b"") + squeeze.flush(zlib.Z_FULL_FLUSH)
    block = squeeze.compress(bytes(10**6)) + squeeze.flush(zlib.Z_FULL_FLUSH)  # may be repeated after a full flush
    return start + block * (count // 10**6) + squeeze.flush()


def packed(members: list[tuple[str, bytes]], *, deflate: bool) -> bytes:
    """A zip archive with these members, in their order."""
    out = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if deflate else zipfile.ZIP_STORED
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in members:
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.compress_type = method
            archive.writestr(info, content, compresslevel=1 if deflate else None)
    return out.getvalue()


def members_of(archive: bytes) -> list[tuple[str, bytes]]:
    """The members of a valid archive."""
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        return [(info.filename, opened.read(info)) for info in opened.infolist()]


def mutated_zip(
    g: Random, members: list[tuple[str, bytes]], change: Callable[[Random, str, bytes], bytes], *, deflate: bool
) -> bytes:
    """An archive of which members, their list, or the archive itself is changed; `change` knows what members hold."""
    members = list(members)
    for _ in range(g.choice([1, 1, 1, 2, 3])):
        if not members:
            break
        i, j, kind = g.randrange(len(members)), g.randrange(len(members)), g.randrange(20)
        name, content = members[i]
        if kind <= 12:
            members[i] = (name, change(g, name, content))
        elif kind == 13:
            del members[i]
        elif kind == 14:  # the contents of two members, swapped
            members[i], members[j] = (name, members[j][1]), (members[j][0], content)
        elif kind == 15:
            members.append((g.choice([name.upper(), name[:-1], "../" + name, "/" + name, "x/" + name, "é"]), content))
        elif kind == 16 and g.random() < 0.1:
            return _with_zeros(g, members, i)
    content = packed(members, deflate=deflate if g.random() < 0.9 else not deflate)
    if g.random() < 0.25:
        content = _with_zip_fields(g, content)
    return mutated_bytes(g, content) if g.random() < 0.08 else content


def _with_zeros(g: Random, members: list[tuple[str, bytes]], i: int) -> bytes:
    """The archive with a member, needed or not, that inflates to much."""
    stream = repeated_zeros(ZEROS_BYTES, -15)
    name = members[i][0] if g.random() < 0.5 else "unneeded.npy"
    rest = [member for member in members if member[0] != name]
    out = io.BytesIO(packed([*rest, (name, b"\0" * len(stream))], deflate=False))
    content = bytearray(out.getvalue())
    for start in (
        content.rindex(b"PK\x03\x04") + 4,
        content.rindex(b"PK\x01\x02") + 6,
    ):
        struct.pack_into("<H", content, start + 4, zipfile.ZIP_DEFLATED)
        struct.pack_into("<III", content, start + 10, 0, len(stream), g.choice([ZEROS_BYTES, 10, 2**20]))
    at = content.rindex(b"PK\x03\x04") + 30 + len(name.encode())
    content[at : at + len(stream)] = stream
    return bytes(content)


def _with_zip_fields(g: Random, content: bytes) -> bytes:
    """The archive with another number in a header: method, flags, sizes, checksum, offset, or number of members."""
    signature, fields = g.choice(
        [
            (b"PK\x03\x04", [(6, "<H"), (8, "<H"), (14, "<I"), (18, "<I"), (22, "<I"), (26, "<H"), (28, "<H")]),
            (b"PK\x01\x02", [(8, "<H"), (10, "<H"), (16, "<I"), (20, "<I"), (24, "<I"), (28, "<H"), (42, "<I")]),
            (b"PK\x05\x06", [(4, "<H"), (8, "<H"), (10, "<H"), (12, "<I"), (16, "<I"), (20, "<H")]),
        ]
    )  # fmt: skip
    starts = [match.start() for match in re.finditer(re.escape(signature), content)]
    if not starts:
        return mutated_bytes(g, content)
    offset, form = g.choice(fields)
    changed = bytearray(content)
    start = g.choice(starts) + offset
    number = g.choice([*range(16), 99, len(content), *WHOLE[:-3]]) % 2 ** (8 * struct.calcsize(form))
    if start + struct.calcsize(form) <= len(changed):
        struct.pack_into(form, changed, start, number)
    return bytes(changed)


@lru_cache(maxsize=256)
def _opcodes(content: bytes) -> list[tuple[int, str, Any]]:
    """Where each opcode of a valid pickle starts, its name and its argument."""
    return [(at or 0, opcode.name, argument) for opcode, argument, at in pickletools.genops(content)]


def mutated_pickle(g: Random, content: bytes) -> bytes:
    """A pickle with another opcode, number or text, or with opcodes that are missing, repeated, swapped or inserted."""
    if g.random() < 0.1:
        return mutated_bytes(g, content)
    try:
        opcodes = _opcodes(content)
    except Exception:  # it was changed before
        return mutated_bytes(g, content)
    ends = [at for at, _, _ in opcodes[1:]] + [len(content)]
    parts = [content[at:end] for (at, _, _), end in zip(opcodes, ends, strict=True)]
    i, j, kind = g.randrange(len(parts)), g.randrange(len(parts)), g.randrange(10)
    numbers = [k for k, (_, name, _) in enumerate(opcodes) if "INT" in name or "LONG" in name]
    texts = [k for k, (_, name, _) in enumerate(opcodes) if "UNICODE" in name or name in ("GLOBAL", "BINSTRING")]
    if kind <= 2 and numbers:
        number = g.choice(WHOLE)
        width = number.bit_length() // 8 + 1
        parts[g.choice(numbers)] = b"\x8b" + struct.pack("<i", width) + number.to_bytes(width, "little", signed=True)
    elif kind == 3 and texts:
        parts[g.choice(texts)] = parts[g.choice(texts)]
    elif kind == 4:
        parts[i] = g.choice(SNIPPETS)
    elif kind == 5:
        parts.insert(i, g.choice(SNIPPETS))
    elif kind == 6:
        del parts[i]
    elif kind == 7:
        parts[i : i + 1] = [parts[i]] * 2
    elif kind == 8:
        parts[i], parts[j] = parts[j], parts[i]
    else:
        parts[i] = mutated_bytes(g, parts[i])
    return b"".join(parts)


def json_line(g: Random, tree: Any) -> str:
    """The tree as a line of JSON, sometimes with a key that occurs twice, or numbers that JSON does not have."""
    line = json.dumps(tree)
    if g.random() < 0.1 and line.startswith("{") and isinstance(tree, dict) and tree:
        key = g.choice(sorted(tree, key=str))
        line = f"{line[:-1]}, {json.dumps(str(key))}: {json.dumps(any_value(g))}" + "}"
    return line
