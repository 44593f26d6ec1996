"""The dimensions of a search: ranges of numbers, and choices."""

from collections.abc import Mapping
from dataclasses import dataclass

Value = float | int | str | None  # of a hyper-parameter
Parameters = Mapping[str, Value]


@dataclass(frozen=True)
class Range:
    """An interval of numbers.

    Attributes:
        low: The smallest value.
        high: The largest value.
        is_log: Whether ratios matter and not differences.
    """

    low: float
    high: float
    is_log: bool = False

    @property
    def first(self) -> Value:
        """The smallest value."""
        return self.low

    def contains(self, value: Value) -> bool:
        """Whether a value can be chosen.

        Args:
            value: Any value of a hyper-parameter.

        Returns:
            True for a number inside of the interval.
        """
        return isinstance(value, float) and self.low <= value <= self.high


@dataclass(frozen=True)
class Choice:
    """A few values without an order.

    Attributes:
        values: The values, two or more.
    """

    values: tuple[Value, ...]

    @property
    def first(self) -> Value:
        """The first of the values."""
        return self.values[0]

    def contains(self, value: Value) -> bool:
        """Whether a value can be chosen.

        Args:
            value: Any value of a hyper-parameter.

        Returns:
            True for one of the values.
        """
        return value in self.values


RANGES: dict[str, Range] = {
    "lr": Range(0.002, 0.05, is_log=True),
    "weight_decay": Range(1e-5, 1e-2, is_log=True),
    "dropout": Range(0.0, 0.9),
    "rho": Range(0.05, 4.0, is_log=True),
    "lam": Range(0.05, 0.95),
}
