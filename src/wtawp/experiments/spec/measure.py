"""What a plan asks for: the name of a measure, of the attack that poisons a graph, or of noise, and its options."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

Option = bool | int | float | str | None | tuple[int, ...]


@dataclass(frozen=True, eq=False)
class MeasureRequest:
    """A request in a plan: a name with options.

    It asks for a measure, for the attack of `Setting.poison`, or for the noise of `Setting.noise`. Requests are equal
    if they are as JSON: to Python, 1, 1.0 and true are equal, and a budget of 1 edge is none of 100 %.

    Attributes:
        name: The name of a measure in `wtawp.experiments.measures`, or "noise". Two measures are attacks: "evasion" of
            the trained models themselves, and "poison", which finds flips for others to train on.
        options: Names and values of options, in the order of their names.

    Raises:
        ValueError: If the value of an option is neither a finite number, nor text, nor whole numbers.
    """

    name: str
    options: tuple[tuple[str, Option], ...] = ()

    def __post_init__(self) -> None:
        for name, value in self.options:
            if not is_option(value):
                raise ValueError(f"option {name} must be a finite number, text or whole numbers, got {value!r}")
        object.__setattr__(self, "options", tuple(sorted(dict(self.options).items())))

    @cached_property
    def _content_json(self) -> str:
        """The request as the text that is compared."""
        return json.dumps([self.name, self.options])

    def __eq__(self, other: object) -> bool:
        return self._content_json == other._content_json if isinstance(other, MeasureRequest) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._content_json)

    def with_options(self, **changed: Option) -> "MeasureRequest":
        """Change options.

        Args:
            changed: Options with their new values.

        Returns:
            The request with these options and all others as they were.
        """
        return MeasureRequest(self.name, tuple({**dict(self.options), **changed}.items()))

    @staticmethod
    def from_content(content: dict[str, Any]) -> "MeasureRequest":
        """Build a request from plain data.

        Args:
            content: What `dataclasses.asdict` makes of a request, also after a round trip through JSON.

        Returns:
            The request.
        """
        return MeasureRequest(content["name"], options_from_json(content["options"]))

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(f'{k}={v!r}' for k, v in self.options)})"


def options_from_json(content: Sequence[Sequence[Any]]) -> tuple[tuple[str, Option], ...]:
    """Restore options after a round trip through JSON, which knows no tuples.

    Args:
        content: Pairs of names and values.

    Returns:
        The options as a request or a setting holds them.
    """
    return tuple((k, tuple(v) if isinstance(v, list) else v) for k, v in content)


def is_option(value: object) -> bool:
    """Whether a value can be an option.

    Args:
        value: Any value.

    Returns:
        True for None, booleans, whole and finite numbers, text and tuples of whole numbers.
    """
    if isinstance(value, tuple):
        return all(isinstance(item, int) for item in value)
    return value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value))
