"""What a plan asks to be measured on trained models: the name of a measure, and its options."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Option = bool | int | float | str | None | tuple[int, ...]


@dataclass(frozen=True)
class Measure:
    """Something done with trained models: the name of a function of `measures`, and its options.

    Two of them are attacks: "evasion" of the models themselves, and "poison", which finds flips for others to train on.
    """

    name: str
    options: tuple[tuple[str, Option], ...] = ()  # in the order of their names

    def __post_init__(self) -> None:
        for name, value in self.options:
            if not is_option(value):
                raise ValueError(f"option {name} must be a finite number, text or whole numbers, got {value!r}")
        object.__setattr__(self, "options", tuple(sorted(dict(self.options).items())))

    def with_options(self, **changed: Option) -> "Measure":
        """The same with other options."""
        return Measure(self.name, tuple({**dict(self.options), **changed}.items()))

    @staticmethod
    def from_content(content: dict[str, Any]) -> "Measure":
        """The measure that `asdict` made `content` of, also after a way through JSON."""
        return Measure(content["name"], options_from_json(content["options"]))

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(f'{k}={v!r}' for k, v in self.options)})"


def options_from_json(content: Sequence[Sequence[Any]]) -> tuple[tuple[str, Option], ...]:
    """Options after a way through JSON, which knows no tuples."""
    return tuple((k, tuple(v) if isinstance(v, list) else v) for k, v in content)


def is_option(value: object) -> bool:
    if isinstance(value, tuple):
        return all(isinstance(item, int) for item in value)
    return value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value))
