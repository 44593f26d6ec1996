"""Tables, once, for Markdown, HTML and the terminal alike: each entry is its text and what it is sorted by."""

from dataclasses import dataclass

NOTHING = "–"  # noqa: RUF001, a dash where there is no number


@dataclass(frozen=True)
class Entry:
    """One cell of a table.

    Attributes:
        text: What is shown.
        order: The number that rows are sorted by; None for words, which are sorted by their text.
    """

    text: str
    order: float | None = None


@dataclass(frozen=True)
class Table:
    """Rows under headers.

    Attributes:
        caption: What the numbers are.
        headers: The names of the columns.
        rows: Entries, as many in each row as there are headers.
    """

    caption: str
    headers: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]


def number(value: float | None, form: str = ".2f") -> Entry:
    """An entry for a number.

    Args:
        value: The number; None is shown as a dash.
        form: How to format it; two decimals, as in the paper's tables, by default.

    Returns:
        The entry, sorted by the number.

    Example:
        >>> number(0.5)
        Entry(text='0.50', order=0.5)
    """
    return Entry(NOTHING) if value is None else Entry(format(value, form), value)


def p_value(value: float | None) -> Entry:
    """An entry for a p-value: two digits, or "< 0.0001".

    Args:
        value: The p-value; None is shown as a dash.

    Returns:
        The entry, sorted by the p-value.
    """
    return Entry("< 0.0001", value) if value is not None and value < 1e-4 else number(value, ".2g")


def mean_and_std(mean: float | None, std: float | None) -> Entry:
    """An entry in the form of the paper's tables, "84.00 ± 0.50".

    Args:
        mean: The mean; None is shown as a dash.
        std: The standard deviation; None where there is none.

    Returns:
        The entry, sorted by the mean.
    """
    return number(mean) if mean is None or std is None else Entry(f"{mean:.2f} ± {std:.2f}", mean)
