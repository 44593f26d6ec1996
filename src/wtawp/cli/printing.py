"""Tables on a terminal: a table that is too wide is split into parts that repeat the first columns."""

from typing import TYPE_CHECKING

from rich import markup
from rich.box import SIMPLE_HEAD
from rich.table import Table

from wtawp.cli.shared import console, escape_controls

if TYPE_CHECKING:
    from wtawp.experiments.report import tables

LONG = 40  # characters above which a text may be wrapped
GAP = 2  # characters between columns


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
    for columns in columns_that_fit(table, console.width):
        grid = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0))
        for j in columns:
            is_long = any(len(row[j].text) > LONG for row in table.rows)
            grid.add_column(
                escape(table.headers[j]),
                justify="right" if _is_numeric(table, j) else "left",
                width=None if is_long else _width(table, j),  # headers may be wrapped between words, cells may not
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
    widths = [_width(table, j) + GAP for j in range(len(table.headers))]
    indices = list(range(len(widths)))
    numeric = [j for j in indices if _is_numeric(table, j)]
    keys = indices[: numeric[0]] if numeric else []
    room = width + GAP - sum(widths[j] for j in keys)
    parts: list[list[int]] = [[]]
    for j in indices[len(keys) :]:
        if parts[-1] and sum(widths[k] for k in [*parts[-1], j]) > room:
            parts.append([])
        parts[-1].append(j)
    return [keys + part for part in parts]


def _is_numeric(table: "tables.Table", j: int) -> bool:
    """Whether a column holds numbers."""
    return any(row[j].order is not None for row in table.rows)


def _width(table: "tables.Table", j: int) -> int:
    """The width of a column: that of its longest cell or, for long texts, of their longest word."""
    texts = [row[j].text for row in table.rows]
    words = [word for text in texts if len(text) > LONG for word in text.split()]
    whole = [text for text in texts if len(text) <= LONG]
    return max(map(len, (*table.headers[j].split(), *words, *whole)), default=1)
