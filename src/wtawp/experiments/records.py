"""What a run measured, with where and with what: plain data that goes through JSON unchanged."""

import json
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from wtawp.base import WtawpError


class RecordError(WtawpError):
    """A record that cannot be read, or that contradicts one we have."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """One run on one kind of device. A failed run is a record too, with its traceback in the place of results."""

    key: str  # Run.key
    setting: dict[str, Any]  # Setting.content
    split: int
    init: int
    device: str  # "cpu", or the GPU's name; with ", TF32" where that was allowed
    status: Literal["done", "failed"]
    epoch: int | None = None  # the selected one
    accuracy: dict[str, float] | None = None  # "train", "val", "test", shares of 1
    loss: dict[str, float] | None = None
    history: dict[str, list[float]] | None = None
    scores: list[float] | None = None  # of every node: probability of class 1 less that of class 0
    error: str | None = None
    seconds: float  # of its chunk, divided by its size
    created: str  # UTC, ISO 8601
    versions: dict[str, str]  # wtawp, torch, python, and commit where there is one

    @property
    def outcome(self) -> tuple[Any, ...]:
        """All that a repetition on the same device and versions must give again."""
        varying = {"seconds", "created"}
        return tuple(getattr(self, f.name) for f in fields(self) if f.name not in varying)

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @staticmethod
    def from_json(line: str) -> "Record":
        """Read a line that `to_json` wrote; what is missing or unknown is named."""
        try:
            content = json.loads(line)
        except json.JSONDecodeError as error:
            raise RecordError(f"a record must be one JSON object a line: {error}") from error
        known = {f.name for f in fields(Record)}
        if not isinstance(content, dict) or set(content) != known:
            found = sorted(content) if isinstance(content, dict) else type(content).__name__
            raise RecordError(f"a record has the fields {sorted(known)}, got {found}")
        return Record(**content)
