"""What a run measured, with where and with what: plain data that goes through JSON unchanged.

A record as JSON ends with a checksum of its text, so that damage is noticed even where the damaged value could be
right. Records from before there were checksums have none and are read unchecked.
"""

import hashlib
import json
import re
from dataclasses import dataclass, fields
from typing import Any, Literal

from wtawp.base import WtawpError
from wtawp.experiments.spec.record_checks import wrong_fields
from wtawp.experiments.spec.run import FORMAT, key_of

BOUND_TERMS = ("loss", "tail", "complexity", "remainder", "total")  # in the results of the measure "bound"
CHECKSUM = re.compile(r',"checksum":"([0-9a-f]{16})"\}\s*\Z')  # the end of a record as JSON
VARYING = frozenset({"seconds", "created"})  # fields in which repetitions on the same device and versions differ


class RecordError(WtawpError):
    """A record that cannot be read, or that contradicts one we have."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """What one run measured on one kind of device. A failed run has a record too, with its traceback.

    Attributes:
        key: `Run.key`.
        setting: `Setting.content`.
        split: The number of the split.
        init: The number of the initialisation.
        device: The kind of CPU, as in "cpu (x86_64 AVX2, numba)", or the GPU's name, with ", TF32" where that was
            allowed. Plain "cpu" in older records is a CPU of unknown kind.
        status: "done" or "failed".
        epoch: The selected epoch.
        accuracy: Shares of 1 on "train", "val" and "test".
        loss: Losses on the same parts.
        history: Curves over the epochs, by name.
        scores: For every node, the probability of class 1 less that of class 0.
        measured: The result of each of the setting's measures.
        error: The traceback of a failed run.
        seconds: The time of the run's chunk, divided by its size.
        created: The time of creation, UTC in ISO 8601.
        versions: The versions of wtawp, torch and python, and the commit where there is one.
    """

    key: str
    setting: dict[str, Any]
    split: int
    init: int
    device: str
    status: Literal["done", "failed"]
    epoch: int | None = None
    accuracy: dict[str, float] | None = None
    loss: dict[str, float] | None = None
    history: dict[str, list[float]] | None = None
    scores: list[float] | None = None
    measured: list[dict[str, Any]] | None = None
    error: str | None = None
    seconds: float
    created: str
    versions: dict[str, str]

    @property
    def outcome(self) -> tuple[Any, ...]:
        """All that a repetition on the same device and versions must give again."""
        return tuple(getattr(self, f.name) for f in fields(self) if f.name not in VARYING)

    def to_json(self) -> str:
        """Write the record as JSON.

        Returns:
            One line that ends with its checksum; without `measured` where there is none, as in records from before
            there were measures.
        """
        content = {k: v for k, v in vars(self).items() if k != "measured" or v is not None}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return f'{text[:-1]},"checksum":"{_checksum_of(text)}"}}'

    @staticmethod
    def from_json(line: str) -> "Record":
        """Read a record.

        Args:
            line: What `to_json` wrote, with its checksum; or a record from before there were checksums.

        Returns:
            The record.

        Raises:
            RecordError: If it is no JSON object, does not match its checksum, or fields are missing or unknown.
        """
        matches = matches_checksum(line)
        if matches is False:
            raise RecordError("the record does not match its checksum: it was damaged, or changed by hand")
        try:
            content = json.loads(line)
        except json.JSONDecodeError as error:
            raise RecordError(f"a record must be one JSON object a line: {error}") from error
        if matches:
            del content["checksum"]
        elif isinstance(content, dict) and "checksum" in content:
            raise RecordError("the checksum must be the last field, as wtawp writes it; was the line formatted anew?")
        known = {f.name for f in fields(Record)}
        if not isinstance(content, dict) or {*content, "measured"} != known:
            found = sorted(content) if isinstance(content, dict) else type(content).__name__
            raise RecordError(f"a record has the fields {sorted(known)}, got {found}")
        return Record(**content)


def matches_checksum(line: str) -> bool | None:
    """Whether a record as JSON has the content with which it was written.

    Args:
        line: The record as JSON.

    Returns:
        None where the line does not end with a checksum, as those from before there were checksums.

    Example:
        >>> print(matches_checksum('{"key":"5f0c"}'), matches_checksum('{"key":"5f0c","checksum":"0123456789abcdef"}'))
        None False
    """
    ending = CHECKSUM.search(line, max(0, len(line) - 40))  # of 31 characters, before the end of the line
    return None if ending is None else ending[1] == _checksum_of(line[: ending.start()] + "}")


def _checksum_of(text: str) -> str:
    """Sixteen hexadecimal digits for a record as JSON without checksum."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def first_difference(kept: Record, new: Record) -> str | None:
    """What `new` measured otherwise than `kept`; None if there is nothing. Versions may differ: torch's is compared
    where records are looked up, and the others are no part of what was measured.
    """
    contents = [json.loads(record.to_json()) for record in (kept, new)]  # tuples are lists, as in what was read
    names = [f.name for f in fields(Record) if f.name not in VARYING | {"versions"}]
    ours, theirs = ({name: content.get(name) for name in names} for content in contents)
    return _difference(ours, theirs, "")


def _difference(ours: Any, theirs: Any, name: str) -> str | None:
    if json.dumps(ours) == json.dumps(theirs):  # as text, because NaN is not equal to NaN
        return None
    if isinstance(ours, dict) and isinstance(theirs, dict):
        inside = (_difference(ours.get(key), theirs.get(key), f"{name}.{key}".strip(".")) for key in {**ours, **theirs})
        return next(filter(None, inside), f"{name} differs")
    if isinstance(ours, list | dict) or isinstance(theirs, list | dict):
        return f"{name} differs"
    return f"{name} was {str(ours)[:40]} and is {str(theirs)[:40]}"


def checked(record: Record) -> Record:
    """Check a record from outside: kinds and ranges of values, the outcome against the status, and the key.

    Args:
        record: The record.

    Returns:
        The same record.

    Raises:
        RecordError: If a value cannot be right; the message says what was expected and what came.
    """
    wrong = wrong_fields(vars(record))
    if not wrong and not _names_its_content(record):
        wrong = {"key": "the hash of setting, split and init"}
    if wrong:
        details = "; ".join(f"{name} must be {what}, got {_shortened(record, name)}" for name, what in wrong.items())
        raise RecordError(f"{' and '.join(wrong)} cannot be right; was the line changed by hand? {details}")
    return record


def _names_its_content(record: Record) -> bool:
    """Whether the key is that of the setting, the split and the initialisation, in any format of content so far."""
    keys = (key_of(record.setting, record.split, record.init, form=form + 1) for form in range(FORMAT))
    return record.key in keys


def _shortened(record: Record, name: str) -> str:
    """The value of a field for a message: on one line, without control characters, and not long."""
    try:
        text = ascii(getattr(record, name))
    except ValueError:  # a whole number of more digits than Python prints
        return "a number of thousands of digits"
    return text if len(text) <= 120 else f"{text[:117]}..."
