"""The report's tables, once, for Markdown and HTML alike: each entry is its text and what it is sorted by."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wtawp.experiments.plans.paper import DATASET_TABLE, GRAPH_DATASET_TABLE
from wtawp.experiments.results.claims import check
from wtawp.experiments.results.summary import CellReport, PairReport, PlanReport

NOTHING = "–"  # noqa: RUF001, a dash where there is no number


@dataclass(frozen=True)
class Entry:
    """What one place of a table shows."""

    text: str
    order: float | None = None  # for numbers; words are sorted by their text


@dataclass(frozen=True)
class Table:
    """Rows under headers; the caption says what the numbers are."""

    caption: str
    headers: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]


def number(value: float | None, form: str = ".2f") -> Entry:
    """A number, or a dash for none."""
    return Entry(NOTHING) if value is None else Entry(format(value, form), value)


def p_value(value: float | None) -> Entry:
    """To two digits, as far down as anybody cares."""
    return Entry("< 0.0001", value) if value is not None and value < 1e-4 else number(value, ".2g")


def mean_and_std(mean: float | None, std: float | None) -> Entry:
    """In the way of the paper's tables, sorted by the mean."""
    return number(mean) if mean is None or std is None else Entry(f"{mean:.2f} ± {std:.2f}", mean)


def cell_table(report: PlanReport) -> Table:
    """Every cell, ours beside the paper's."""
    return Table(
        "Test accuracy in per cent, mean ± standard deviation over runs. Agrees: within 0.5 points of the paper; "
        "reported: not judged, or the paper prints nothing; incomplete: runs are missing.",
        ("row", "column", "ours", "paper", "difference", "runs", "verdict"),
        tuple(_cell_row(c) for c in report.cells),
    )


def _cell_row(c: CellReport) -> tuple[Entry, ...]:
    runs = str(c.found) if c.found == c.wanted else f"{c.found} of {c.wanted}"
    runs += f", {len(c.failed)} failed" if c.failed else ""
    return (
        Entry(c.cell.row), Entry(c.cell.column), mean_and_std(c.mean, c.std),
        mean_and_std(*(c.cell.printed or (None, None))), number(c.difference, "+.2f"), Entry(runs, c.found),
        Entry(c.verdict),
    )  # fmt: skip


def pair_table(report: PlanReport) -> Table:
    """Every pair in every column: the honest comparison, then the paper's."""
    return Table(
        "Gain in points, paired over splits (the initialisations of a split share it, so they are averaged first), "
        "with its 95 % interval; Holm corrects for the number of pairs; the effect size is the mean gain in standard "
        "deviations of it over splits. The last column is the paper's t-test, which takes all runs for independent.",
        ("without", "with", "column", "gain", "95 % interval", "p", "p (Holm)", "effect size", "splits won",
         "p over runs"),
        tuple(_pair_row(p) for p in report.pairs),
    )  # fmt: skip


def _pair_row(p: PairReport) -> tuple[Entry, ...]:
    g = p.gain
    column = Entry(p.column if p.is_complete else f"{p.column} (incomplete)")
    if g is None:
        return Entry(p.before), Entry(p.after), column, *[Entry(NOTHING)] * 6, p_value(p.runs_p_value)
    return (
        Entry(p.before), Entry(p.after), column, number(g.mean, "+.2f"), Entry(f"{g.low:+.2f} to {g.high:+.2f}", g.low),
        p_value(g.p_value), p_value(p.holm_p_value), number(g.effect_size, "+.2f"),
        Entry(f"{g.won} of {g.num_pairs}", g.won / g.num_pairs), p_value(p.runs_p_value),
    )  # fmt: skip


def claim_table(report: PlanReport) -> Table:
    """The paper's sentences, what became of them, and the numbers."""
    outcomes = [(claim, check(claim, report)) for claim in report.plan.claims]
    rows = tuple((Entry(claim.text), Entry(o.verdict), Entry(o.sentence)) for claim, o in outcomes)
    return Table("Sentences of the paper, held against the measurements.", ("claim", "verdict", "measured"), rows)


def setting_table(report: PlanReport) -> Table:
    """What each cell trains, and how often."""
    rows = tuple(
        (Entry(c.cell.row), Entry(c.cell.column), Entry(str(c.cell.setting)), number(c.cell.setting.epochs, "d"),
         number(c.cell.splits, "d"), number(c.cell.inits, "d"))
        for c in report.cells
    )  # fmt: skip
    return Table("Settings.", ("row", "column", "setting", "epochs", "splits", "initialisations"), rows)


def record_table(report: PlanReport) -> Table:
    """Where the numbers of each cell come from: a run of each, and how to see it."""
    rows = []
    for c in report.cells:
        key = c.records[0].key if c.records else None
        spent = sum(r.seconds for r in c.records)
        rows.append((Entry(c.cell.row), Entry(c.cell.column), Entry(key or NOTHING), number(c.found, "d"),
                     number(len(c.failed), "d"), number(spent, ".1f"),
                     Entry(f"wtawp results show {key}" if key else NOTHING)))  # fmt: skip
    return Table(
        "The first finished run of each cell; its record has the setting, the measurements, and where they were made.",
        ("row", "column", "first run", "finished", "failed", "seconds", "to see it"),
        tuple(rows),
    )


def failure_table(report: PlanReport) -> Table:
    """Runs that failed, with the last line of what went wrong."""
    rows = tuple(
        (Entry(r.key), number(r.split, "d"), number(r.init, "d"),
         Entry(((r.error or "").strip().splitlines() or ["no reason kept"])[-1]))
        for r in report.failed
    )  # fmt: skip
    return Table("Failed runs.", ("run", "split", "initialisation", "error"), rows)


def node_dataset_table() -> Table:
    """tab:dataset: sizes printed, and those of the graphs we load; features are counted where the files are here."""
    from wtawp.graphs import dataset_spec, describe, load, locate_dataset  # here: `load` takes seconds to import

    rows = []
    for name, printed in DATASET_TABLE.items():
        ours = dataset_spec(name)
        here = locate_dataset(name) != "not here"
        features = describe(load(name)).features if here else None
        rows.append((Entry(name), *_beside(printed, (ours.nodes, ours.edges, features, ours.classes))))
    return Table(
        "tab:dataset, printed / ours. Ours are the largest components, on which the released code trains; the paper "
        "prints the sizes of the whole Cora and Citeseer. PolBlogs has no features: each blog is its own.",
        ("data set", "nodes", "edges", "features", "classes"),
        tuple(rows),
    )


def graph_dataset_table() -> Table:
    """tab:cladataset: sizes printed, and ours; what the package does not know is counted where the files are here."""
    from wtawp.graphs import dataset_spec, load, locate_dataset

    rows = []
    for name, printed in GRAPH_DATASET_TABLE.items():
        largest = mean = graphs = None
        if locate_dataset(name) != "not here":
            sizes = [graph.num_nodes for graph in load(name)]
            largest, mean, graphs = max(sizes), sum(sizes) / len(sizes), len(sizes)
        rows.append((Entry(name), *_beside(printed, (largest, mean, graphs, dataset_spec(name).classes))))
    return Table(
        "tab:cladataset, printed / ours.", ("data set", "largest graph", "mean size", "graphs", "classes"), tuple(rows)
    )


def _beside(printed: Sequence[float | None], ours: Sequence[float | None]) -> Iterable[Entry]:
    for told, counted in zip(printed, ours, strict=True):
        yield Entry(f"{_size(told)} / {_size(counted)}", counted)


def _size(value: float | None) -> str:
    return NOTHING if value is None else f"{value:,.2f}" if isinstance(value, float) else f"{value:,}"
