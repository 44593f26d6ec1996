"""What all figures share: how they look, and their way into SVG text. The same drawing gives the same bytes."""

import io
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

COLOURS = (  # of Okabe and Ito: told apart by colour-blind readers too
    "#0072b2", "#d55e00", "#e69f00", "#cc79a7", "#009e73", "#56b4e9", "#000000",
)  # fmt: skip
GREY = "#767676"  # of lines that only help to read
DASHES = ("-", "--", ":", "-.")  # once the colours are used up
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: small, selectable, set in the page's own font
    "svg.hashsalt": "wtawp",
    "text.parse_math": False,  # names come from users, and a $ is a $
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "legend.frameon": False,
    "figure.constrained_layout.h_pad": 0.08,  # inches: the page's font may be taller than the one measured with
    "figure.constrained_layout.w_pad": 0.08,
}


@contextmanager
def drawing(
    rows: int, columns: int, width: float, height: float, *, png: Path | None = None
) -> Iterator[tuple[list[Axes], list[str]]]:
    """Axes to draw on; the SVG is appended to the list when the block ends, and its pixels go into `png` if given."""
    out: list[str] = []
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield list(figure.subplots(rows, columns, squeeze=False).flat), out
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
        if png is not None:
            figure.savefig(png, format="png", dpi=150, metadata={"Software": None})
        out.append(text.getvalue()[text.getvalue().index("<svg") :])


def line_look(i: int) -> dict[str, Any]:
    """Colour and dashes of the i-th line of a figure."""
    return {"color": COLOURS[i % len(COLOURS)], "linestyle": DASHES[i // len(COLOURS) % len(DASHES)]}


METHODS = {"WT-AWP": 1, "W-AWP": 2, "T-AWP": 3, "AWP": 4}  # in this order: the first name that a row contains


def method_style(row: str) -> dict[str, Any]:
    """Colour and dashes of a method, the same in every figure that tells methods apart; plain training is blue.

    >>> method_style("GCN+WT-AWP")["color"] == method_style("WT-AWP rho=0.5")["color"]
    True
    """
    place = next((place for name, place in METHODS.items() if name in row), 0)
    return {"color": COLOURS[place], "linestyle": "--" if "balance" in row else "-"}


def looks(rows: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Colour and dashes of each row of a figure: methods have their own colours, and dashes tell rows of one apart.

    Rows that are values of a parameter ("lambda=0.3") share what colours are left. Where a method has more rows than
    there are dashes, colours go by order.

    >>> [look["linestyle"] for look in looks(["AWP rho=0.5", "AWP rho=2.5", "WT-AWP"]).values()]
    ['-', '--', '-']
    """
    rows = list(rows)
    methods = {row: method_style(row)["color"] for row in rows if "AWP" in row or "=" not in row}
    others = cycle([colour for colour in COLOURS if colour not in methods.values()] or COLOURS)
    found: dict[str, dict[str, Any]] = {}
    used: Counter[str] = Counter()
    for row in rows:
        colour = methods.get(row) or next(others)
        found[row] = {"color": colour, "linestyle": DASHES[used[colour] % len(DASHES)]}
        used[colour] += 1
    if max(used.values(), default=0) > len(DASHES):
        return {row: line_look(i) for i, row in enumerate(rows)}
    return found


def use_log_scale(ax: Axes, axis: str) -> None:
    """A logarithmic "x" or "y" axis whose labels are plain numbers, as mathematical text is switched off."""
    (ax.set_xscale if axis == "x" else ax.set_yscale)("log")
    chosen = ax.xaxis if axis == "x" else ax.yaxis
    chosen.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    chosen.set_minor_formatter(NullFormatter())


def nice_ticks(low: float, high: float, *, few: bool = False) -> list[float]:
    """1, 2 and 5 times powers of ten; of `few`, at most five of them."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [m * 10.0**p for p in powers for m in (1, 2, 5) if low <= m * 10.0**p <= high]
    if len(found) < 2:  # less than a factor of two or so
        found = [t for t in MaxNLocator(4).tick_values(low, high) if low <= t <= high]
    return found[:: math.ceil(len(found) / 5)] if few and found else found


def with_ids(svg: str, prefix: str) -> str:
    """The same SVG with every id, and every reference to one, prefixed: many can then stand in one page.

    >>> with_ids('<a id="b"/><use href="#b" fill="url(#b)" stroke="#bbb"/>', "c")
    '<a id="c-b"/><use href="#c-b" fill="url(#c-b)" stroke="#bbb"/>'
    """
    return re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", svg)
