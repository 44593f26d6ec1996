"""Tables on a terminal: one that is too wide is split into parts that repeat the first columns, whose names wrap."""

from typing import TYPE_CHECKING

from rich import markup
from rich.box import SIMPLE_HEAD
from rich.table import Table

from wtawp.cli.shared import console, escape_controls

if TYPE_CHECKING:
    from wtawp.experiments.report import tables

LONG = 40  # characters above which a text may be wrapped
GAP = 2  # characters between columns
NARROWEST = 6  # characters of a column of names, whose words are broken then


def escape(text: str) -> str:
    """Escape markup and control characters, so that a text is printed as it is and acts on nothing.

    Args:
        text: Any text, such as one of an imported record.

    Returns:
        The text for a console that interprets markup; ends of lines stay.
    """
    return markup.escape(escape_controls(text, keep="\n"))


def print_table(title: str, table: "tables.Table") -> None:
    """Print a table: its title, the rows below their headers, and the caption.

    Args:
        title: The title.
        table: The table.
    """
    console.print(f"[bold]{escape(title)}[/bold]\n", highlight=False)
    widths = _fitted_widths(table, console.width)
    for columns in columns_that_fit(table, console.width):
        grid = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0))
        for j in columns:
            is_long = j not in _keys(table) and any(len(row[j].text) > LONG for row in table.rows)
            grid.add_column(
                escape(table.headers[j]),
                justify="right" if _is_numeric(table, j) else "left",
                width=None if is_long else widths[j],  # headers may be wrapped between words, and names of rows
                overflow="fold",
            )
        for row in table.rows:
            grid.add_row(*(escape(row[j].text) for j in columns))
        console.print(grid)
        console.print()
    console.print(f"[italic]{escape(table.caption)}[/italic]\n", highlight=False)


def columns_that_fit(table: "tables.Table", width: int) -> list[list[int]]:
    """Split the columns of a table into parts that fit the terminal.

    Args:
        table: The table.
        width: Characters in a line of the terminal.

    Returns:
        The indices of the columns of each part. Every part begins with the columns before the first numeric one, which
        identify a row.
    """
    widths = [each + GAP for each in _fitted_widths(table, width)]
    keys = _keys(table)
    room = width + GAP - sum(widths[j] for j in keys)
    parts: list[list[int]] = [[]]
    for j in range(len(keys), len(widths)):
        if parts[-1] and sum(widths[k] for k in [*parts[-1], j]) > room:
            parts.append([])
        parts[-1].append(j)
    return [keys + part for part in parts]


def _keys(table: "tables.Table") -> list[int]:
    """The columns before the first numeric one, which identify a row; none if no column is numeric."""
    numeric = [j for j in range(len(table.headers)) if _is_numeric(table, j)]
    return list(range(numeric[0])) if numeric else []


def _fitted_widths(table: "tables.Table", width: int) -> list[int]:
    """The widths of columns: names of rows are wrapped where they would leave too little room for the numbers."""
    keys = _keys(table)
    widths = [_width(table, j, longest=None if j in keys else LONG) for j in range(len(table.headers))]
    widest = max((each for j, each in enumerate(widths) if j not in keys), default=0)
    texts = [[table.headers[j], *(row[j].text for row in table.rows)] for j in keys]
    words = [max(len(word) for text in each for word in text.split()) for each in texts]
    for room, least in (
        (width // 2, words),  # between words, for as many numbers as possible beside each other
        (width - widest, [NARROWEST] * len(keys)),  # inside of words, for a single number
    ):
        excess = sum(widths[j] + GAP for j in keys) - room
        while excess > 0 and (wide := [j for j in keys if widths[j] > least[j]]):
            widths[max(wide, key=lambda j: widths[j])] -= 1
            excess -= 1
    return widths


def _is_numeric(table: "tables.Table", j: int) -> bool:
    """Whether a column holds numbers."""
    return any(row[j].order is not None for row in table.rows)


def _width(table: "tables.Table", j: int, longest: int | None) -> int:
    """The width of a column: that of its longest cell or, for texts above a length, of their longest word."""
    texts = [row[j].text for row in table.rows]
    is_whole = [longest is None or len(text) <= longest for text in texts]
    parts = [[text] if whole else text.split() for text, whole in zip(texts, is_whole, strict=True)]
    return max(map(len, (*table.headers[j].split(), *(part for each in parts for part in each))), default=1)
