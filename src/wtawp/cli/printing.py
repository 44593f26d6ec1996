"""Tables on a terminal: what is too wide for it is cut into parts that repeat the first columns, never into words."""

from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from wtawp.cli.shared import console

if TYPE_CHECKING:
    from wtawp.experiments.report import tables

LONG = 40  # characters from which on a text may be broken into lines
GAP = 2


def print_table(title: str, found: "tables.Table") -> None:
    """The title, the rows under their headers, and the caption."""
    console.print(f"[bold]{escape(title)}[/bold]\n", highlight=False)
    for columns in columns_that_fit(found, console.width):
        table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0))
        for j in columns:
            is_long = any(len(row[j].text) > LONG for row in found.rows)
            table.add_column(
                escape(found.headers[j]),
                justify="right" if _is_numeric(found, j) else "left",
                width=None if is_long else _width(found, j),  # headers are broken between words, cells are not
            )
        for row in found.rows:
            table.add_row(*(escape(row[j].text) for j in columns))
        console.print(table)
        console.print()
    console.print(f"[italic]{escape(found.caption)}[/italic]\n", highlight=False)


def columns_that_fit(found: "tables.Table", width: int) -> list[list[int]]:
    """The numbers of the columns of each part; the words in front, which say what a row is, begin every part."""
    needs = [_width(found, j) + GAP for j in range(len(found.headers))]
    everything = list(range(len(needs)))
    numeric = [j for j in everything if _is_numeric(found, j)]
    keys = everything[: numeric[0]] if numeric else []
    room = width + GAP - sum(needs[j] for j in keys)
    parts: list[list[int]] = [[]]
    for j in everything[len(keys) :]:
        if parts[-1] and sum(needs[k] for k in [*parts[-1], j]) > room:
            parts.append([])
        parts[-1].append(j)
    return [keys + part for part in parts]


def _is_numeric(found: "tables.Table", j: int) -> bool:
    return any(row[j].order is not None for row in found.rows)


def _width(found: "tables.Table", j: int) -> int:
    """What the column needs: its longest cell or, of long texts, their longest word."""
    texts = [row[j].text for row in found.rows]
    words = [word for text in texts if len(text) > LONG for word in text.split()]
    whole = [text for text in texts if len(text) <= LONG]
    return max(map(len, (*found.headers[j].split(), *words, *whole)), default=1)
