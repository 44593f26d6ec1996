"""What all figures share: colours and dashes, axes, and the way into SVG text. The same drawing gives the same bytes.

matplotlib is imported when something is drawn, so that reports without figures do not load it.
"""

import html
import io
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from wtawp.experiments.results.methods import MethodKind, method_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from wtawp.core import AwpConfig
    from wtawp.core.config import Lam

COLOURS = (  # of Okabe and Ito, which colour-blind readers can distinguish
    "#0072b2", "#d55e00", "#e69f00", "#cc79a7", "#009e73", "#56b4e9", "#000000",
)  # fmt: skip
METHOD_COLOURS = {
    MethodKind.PLAIN: COLOURS[0],
    MethodKind.WT_AWP: COLOURS[1],
    MethodKind.W_AWP: COLOURS[2],
    MethodKind.T_AWP: COLOURS[3],
    MethodKind.AWP: COLOURS[4],
    MethodKind.SAM: COLOURS[5],
    MethodKind.ASAM: COLOURS[6],
}
GREY = "#767676"  # for auxiliary lines
DASHES = ("-", "--", ":", "-.")  # once the colours are used up
MIN_SWEEP = 3  # values of lam from which on rows that differ in it alone are a sweep
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
LineStyle = dict[str, Any]  # "color" and "linestyle", as arguments of `Axes.plot`
_observers: list[Callable[["Figure"], None]] = []


@contextmanager
def drawing(
    rows: int, columns: int, width: float, height: float, *, png: Path | None = None
) -> Iterator[tuple[list["Axes"], list[str]]]:
    """Create axes to draw on, and save the figure when the block ends.

    Args:
        rows: Rows of axes.
        columns: Columns of axes.
        width: Width of the figure in inches.
        height: Height of the figure in inches.
        png: A file for the figure in pixels; by default none is written.

    Yields:
        The axes, row by row, and a list to which the SVG text is appended when the block ends.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    out: list[str] = []
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield list(figure.subplots(rows, columns, squeeze=False).flat), out
        for observer in _observers:
            observer(figure)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
        if png is not None:
            figure.savefig(png, format="png", dpi=150, metadata={"Software": None})
        out.append(text.getvalue()[text.getvalue().index("<svg") :])


@contextmanager
def observe_figures(observer: Callable[["Figure"], None]) -> Iterator[None]:
    """Pass every figure to an observer just before it is saved; tests read the plotted numbers this way.

    Args:
        observer: Called with each figure that is drawn inside the block.

    Yields:
        Nothing.
    """
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


def style_by_index(i: int) -> LineStyle:
    """Colour and dashes of the i-th line of a figure, where lines are not methods.

    Args:
        i: The number of the line, from 0.

    Returns:
        Arguments for `Axes.plot`; 28 lines differ.
    """
    return {"color": COLOURS[i % len(COLOURS)], "linestyle": DASHES[i // len(COLOURS) % len(DASHES)]}


def method_style(awp: "AwpConfig | None") -> LineStyle:
    """Colour and dashes of a method, the same in every figure; plain training is blue, `balance` is dashed.

    Args:
        awp: Options of the perturbation; None for plain training.

    Returns:
        Arguments for `Axes.plot`.

    Example:
        >>> method_style(None)
        {'color': '#0072b2', 'linestyle': '-'}
    """
    is_balanced = awp is not None and awp.balance is not None
    return {"color": METHOD_COLOURS[method_of(awp)], "linestyle": "--" if is_balanced else "-"}


def row_styles(rows: Mapping[str, "AwpConfig | None"]) -> dict[str, LineStyle]:
    """Colours and dashes of the rows of a figure: each method has its colour, dashes distinguish rows of one method.

    Rows that differ in nothing but `lam` and `rho`, with three or more values of `lam`, are a sweep: they share the
    colours that no other method of the figure has. Where a method has more rows than there are dashes, colours go by
    position.

    Args:
        rows: The label of each row, and how its weights are perturbed; None for plain training.

    Returns:
        Arguments for `Axes.plot` for each label.

    Example:
        >>> from wtawp.core import AwpConfig
        >>> rows = {f"AWP rho={rho}": AwpConfig(rho=rho, lam=1.0, layers="all") for rho in (0.5, 2.5)}
        >>> [style["linestyle"] for style in row_styles(rows).values()]
        ['-', '--']
    """
    swept = _swept_rows(rows)
    methods = {row: METHOD_COLOURS[method_of(awp)] for row, awp in rows.items() if row not in swept}
    unused = cycle([colour for colour in COLOURS if colour not in methods.values()] or COLOURS)
    styles: dict[str, LineStyle] = {}
    used: Counter[str] = Counter()
    for row in rows:
        colour = methods.get(row) or next(unused)
        styles[row] = {"color": colour, "linestyle": DASHES[used[colour] % len(DASHES)]}
        used[colour] += 1
    if max(used.values(), default=0) > len(DASHES):
        return {row: style_by_index(i) for i, row in enumerate(rows)}
    return styles


def _swept_rows(rows: Mapping[str, "AwpConfig | None"]) -> set[str]:
    """The rows that belong to a sweep over `lam`."""
    families: dict[AwpConfig, dict[str, Lam]] = {}
    for row, awp in rows.items():
        if awp is not None:
            families.setdefault(replace(awp, lam=1.0, rho=1.0), {})[row] = awp.lam
    return {row for family in families.values() if len(set(family.values())) >= MIN_SWEEP for row in family}


def use_log_scale(ax: "Axes", axis: Literal["x", "y"]) -> None:
    """Make an axis logarithmic, with plain numbers as labels, because mathematical text is switched off.

    Args:
        ax: The axes to change.
        axis: Which axis.
    """
    from matplotlib.ticker import FuncFormatter, NullFormatter

    (ax.set_xscale if axis == "x" else ax.set_yscale)("log")
    chosen = ax.xaxis if axis == "x" else ax.yaxis
    chosen.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    chosen.set_minor_formatter(NullFormatter())


def log_ticks(low: float, high: float, *, few: bool = False) -> list[float]:
    """Ticks of a logarithmic axis: 1, 2 and 5 times powers of ten.

    Args:
        low: The lower end of the axis.
        high: The upper end.
        few: Whether to return at most five.

    Returns:
        The ticks, rising; evenly spaced ones where the axis spans too little for two of that kind.

    Example:
        >>> log_ticks(0.5, 12)
        [0.5, 1.0, 2.0, 5.0, 10.0]
    """
    from matplotlib.ticker import MaxNLocator

    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [m * 10.0**p for p in powers for m in (1, 2, 5) if low <= m * 10.0**p <= high]
    if len(ticks) < 2:  # less than a factor of two or so
        ticks = [t for t in MaxNLocator(4).tick_values(low, high) if low <= t <= high]
    return ticks[:: math.ceil(len(ticks) / 5)] if few and ticks else ticks


def legend_beside(ax: "Axes", **options: Any) -> None:
    """Put the legend to the right of the axes.

    Args:
        ax: The axes.
        options: Further arguments of `Axes.legend`.
    """
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), **options)


def embed(svg: str, *, prefix: str, label: str) -> str:
    """Prepare an SVG for a page: with alternative text, with ids that no other figure of the page has, and shorter.

    Ids that nothing refers to are left out, coordinates have two decimals, and the page chooses the font.

    Args:
        svg: The text of a figure that `drawing` made.
        prefix: What ids begin with; a dash and a number follow.
        label: What the figure shows, for those who do not see it.

    Returns:
        The changed text, an image for assistive technology.

    Example:
        >>> embed('<svg><a id="b"/> <use href="#b" fill="url(#b)" stroke="#bbb"/></svg>', prefix="c", label="a < b")
        '<svg role="img" aria-label="a &lt; b"><a id="c-0"/><use href="#c-0" fill="url(#c-0)" stroke="#bbb"/></svg>'
    """
    used = dict.fromkeys(re.findall(r'(?:href="#|url\(#)([^")]+)', svg))
    names = {name: f"{prefix}-{i}" for i, name in enumerate(used)}
    svg = re.sub(r' id="([^"]*)"', lambda found: f' id="{names[found[1]]}"' if found[1] in names else "", svg)
    svg = re.sub(r'(href="#|url\(#)([^")]+)', lambda found: found[1] + names[found[2]], svg)
    svg = re.sub(r'( (?:d|x|y)=")([^"]*)', lambda found: found[1] + _shorter(found[2]), svg)
    svg = re.sub(r"font-family: [^;\"]*;? ?", "", svg)
    svg = re.sub(r">\s+<", "><", svg.strip())
    return svg.replace("<svg", f'<svg role="img" aria-label="{html.escape(label)}"', 1)


def _shorter(coordinates: str) -> str:
    """Coordinates with two decimals, on one line."""
    rounded = re.sub(r"-?\d+\.\d{3,}", lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), coordinates)
    return " ".join(rounded.split())
