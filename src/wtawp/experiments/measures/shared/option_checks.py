"""Checks of option values, with messages that say what was expected and what came."""

import math
from collections.abc import Sequence


def check_choice(name: str, value: object, allowed: Sequence[object]) -> None:
    """Raise ValueError unless `value` is one of `allowed`."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(str, allowed))}, got {value!r}")


def check_count(name: str, value: object, least: int) -> None:
    """Raise ValueError unless `value` is a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number >= {least}, got {value!r}")


def check_number(name: str, value: object, least: float) -> None:
    """Raise ValueError unless `value` is a finite number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value < math.inf:
        raise ValueError(f"{name} must be a finite number >= {least:g}, got {value!r}")
