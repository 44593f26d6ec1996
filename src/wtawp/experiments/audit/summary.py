"""The summary of an audit in plain words: a finding for each question, with what every row says to it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from wtawp.experiments.audit.comparisons import Lead, accuracy_lead, certified_at, geometry_values, values_lead
from wtawp.experiments.audit.sections import ACCURACY, CERTIFICATE, EVASION, FLAT, POISONING, Section
from wtawp.experiments.audit.subject import Subject
from wtawp.experiments.results.drops import compare_drops
from wtawp.experiments.results.summary import CellReport, PlanReport

Part = tuple[Section, PlanReport]
SHARPNESS = "sharpness, layer, rho=0.1"  # of the quantities, the one in the summary
UNCLEAR = "no clear difference"


@dataclass(frozen=True)
class Finding:
    """What an audit says to one question.

    Attributes:
        topic: The question, in a word or two.
        says: The answer in a sentence.
        details: What each of the other rows says to it.
    """

    topic: str
    says: str
    details: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join((f"{self.topic}: {self.says}", *self.details))


@dataclass(frozen=True)
class _Worst:
    """The attack under which plain training falls most."""

    name: str
    column: str
    report: PlanReport
    drop: float


def findings_of(subject: Subject, parts: Sequence[Part]) -> Iterator[Finding]:
    """Say what an audit found, with its uncertainty.

    Args:
        subject: What is audited.
        parts: The sections with their measurements.

    Yields:
        The findings, the shortest one first.
    """
    rows = tuple(row for row, _ in subject.methods)
    of_kind = {
        kind: [part for part in parts if part[0].kind == kind]
        for kind in (ACCURACY, EVASION, POISONING, CERTIFICATE, FLAT)
    }
    worst = _worst(of_kind[EVASION], rows[0])
    if len(rows) > 1:
        yield _in_short(of_kind[ACCURACY], worst, of_kind[FLAT], rows)
    for _, report in of_kind[ACCURACY]:
        yield _accuracy(report, rows)
    if worst is not None:
        yield _attacked(worst, of_kind[EVASION], rows)
    for section, report in of_kind[POISONING]:
        yield from _poisoned(section, report, rows)
    for section, report in of_kind[CERTIFICATE]:
        yield from _guaranteed(section, report, rows)
    for _, report in of_kind[FLAT]:
        yield from _flat(report, rows)


def _cells(report: PlanReport, column: str) -> dict[str, CellReport]:
    """The cells of a column with measurements, by row."""
    return {c.cell.row: c for c in report.column(column) if c.mean is not None}


def _over(report: PlanReport) -> str:
    """Over how many splits, or initialisations, means are taken."""
    cell = report.cells[0].cell
    if cell.splits > 1 or cell.inits == 1:
        return f"{cell.splits} split{'s' * (cell.splits > 1)}"
    return f"{cell.inits} initialisations of one split"


def _judged(lead: Lead | None, higher: str, lower: str) -> str:
    """What a lead says, in a word."""
    if lead is None or not lead.is_clear:
        return UNCLEAR
    return higher if lead.mean > 0 else lower


def _in_short(clean: Sequence[Part], worst: _Worst | None, flat: Sequence[Part], rows: tuple[str, ...]) -> Finding:
    """Every row against plain training, in words."""
    details = []
    for row in rows[1:]:
        judged = [f"clean accuracy: {_judged(accuracy_lead(r, 'clean', row, rows[0]), 'higher', 'lower')}"
                  for _, r in clean]  # fmt: skip
        if worst is not None:
            lead = accuracy_lead(worst.report, worst.column, row, rows[0])
            judged.append(f"accuracy under {worst.name}: {_judged(lead, 'higher', 'lower')}")
        for _, report in flat:
            lead = _geometry_lead(report, SHARPNESS, rows[0], row)
            if lead is not None:
                judged.append(f"training loss: {_judged(lead, 'sharper', 'flatter')}")
        details.append(f"{row} – {'; '.join(judged)}.")  # noqa: RUF001, a dash between a row and what it says
    num = _over(clean[0][1]) if clean else "the splits"
    return Finding("In short", f"against {rows[0]}, plain training, paired over {num}:", tuple(details))


def _accuracy(report: PlanReport, rows: tuple[str, ...]) -> Finding:
    """Which row is the most accurate without an attack, and by how much."""
    cells = _cells(report, "clean")
    if not cells:
        return Finding("Accuracy", "no training has finished.")
    best = max(cells, key=lambda row: cells[row].mean or 0.0)
    others = [row for row in rows if row in cells and row != best]
    text = f"on clean data {best} classifies {cells[best].mean:.1f} % of the test nodes correctly"
    if not others:
        return Finding("Accuracy", f"{text} (mean over {_over(report)}).")
    leads = {row: accuracy_lead(report, "clean", best, row) for row in others}
    is_best = all(lead is not None and lead.is_clear for lead in leads.values())
    head = "the most of all rows" if is_best else "the highest mean, but it is not clearly the best row"
    details = tuple(
        f"Against {row} ({cells[row].mean:.1f} %): {'too few splits to compare' if lead is None else lead.describe()}."
        for row, lead in leads.items()
    )
    return Finding("Accuracy", f"{text}, {head} (means over {_over(report)}).", details)


def _worst(parts: Sequence[Part], plain: str) -> _Worst | None:
    """The attack under which a row falls most, at the largest budget that all attacks have; None without attacks."""
    columns = [[c for c in report.columns if any(x.cell.attack for x in report.column(c))] for _, report in parts]
    common = [column for column in (columns[0] if columns else []) if all(column in each for each in columns)]
    if not common:
        return None
    found = [
        _Worst(_name(section), common[-1], report, drop)
        for section, report in parts
        if (cell := _cells(report, common[-1]).get(plain)) is not None and (drop := cell.mean_drop) is not None
    ]
    return max(found, key=lambda attack: attack.drop, default=None)


def _name(section: Section) -> str:
    """The name of the attack of a section."""
    return section.title.rpartition(": ")[2]


def _attacked(worst: _Worst, parts: Sequence[Part], rows: tuple[str, ...]) -> Finding:
    """What the worst attack takes from every row, and which attack is worse for the other rows."""
    mean = _cells(worst.report, worst.column)[rows[0]].mean or 0.0
    text = (
        f"with {worst.column} of the edges changed after the training, {rows[0]} falls most under {worst.name}: from "
        f"{mean + worst.drop:.1f} % to {mean:.1f} %."
    )
    details = [*_against_plain(worst.report, worst.column, rows)]
    for row in rows[1:]:
        own = _worst(parts, row)
        if own is not None and own.name != worst.name:
            details.append(f"{row} falls most under {own.name}, by {own.drop:.1f} points.")
    return Finding("Attacks", text, tuple(details))


def _against_plain(report: PlanReport, column: str, rows: tuple[str, ...]) -> Iterator[str]:
    """What the other rows change against the first one, under an attack."""
    drops = {(d.before, d.after): d for d in compare_drops(report) if d.column == column}
    cells = _cells(report, column)
    for row in rows[1:]:
        lead = accuracy_lead(report, column, row, rows[0])
        if lead is None or row not in cells:
            continue
        text = f"{row}: {cells[row].mean:.1f} %, against {rows[0]} {lead.describe()}"
        if (drop := drops.get((rows[0], row))) is not None:
            is_clear = drop.is_smaller or drop.is_larger
            text += f"; it loses {drop.drop_after:.1f} instead of {drop.drop_before:.1f} points" + (
                "" if is_clear else ", which is no clear difference"
            )
        yield f"{text}."


def _poisoned(section: Section, report: PlanReport, rows: tuple[str, ...]) -> Iterator[Finding]:
    """What a training on a poisoned graph costs."""
    column = report.columns[-1]
    cell = _cells(report, column).get(rows[0])
    if cell is None or cell.mean_drop is None:
        return
    text = (
        f"trained on a graph of which {_name(section)} changed {column} of the edges, {rows[0]} reaches "
        f"{cell.mean:.1f} %, {cell.mean_drop:.1f} points less than on the clean graph (means over {_over(report)})."
    )
    yield Finding("Poisoning", text, tuple(_against_plain(report, column, rows)))


def _guaranteed(section: Section, report: PlanReport, rows: tuple[str, ...]) -> Iterator[Finding]:
    """What no attacker can change."""
    cells = _cells(report, "smoothed")
    if rows[0] not in cells:
        return
    what = section.title.rpartition(" ")[2]
    one = what.removesuffix("s")
    removed, added = (fmean(certified_at(cells[rows[0]], *radius).values()) for radius in ((0, 1), (1, 0)))
    votes = dict(cells[rows[0]].cell.setting.measures[0].options)["samples"]
    text = (
        f"whichever {one} an attacker removes, the smoothed {rows[0]} keeps the right class of at least {removed:.1f} "
        f"% of the test nodes; whichever {one} is added, of {added:.1f} % (means over {_over(report)}; {votes:,} votes,"
        " and more votes can guarantee more)."
    )
    details = []
    for row in rows[1:]:
        if row in cells:
            plain, other = (certified_at(cells[each], 0, 1) for each in (rows[0], row))
            lead = values_lead((cells[rows[0]], cells[row]), (plain, other))
            difference = "" if lead is None else f", against {rows[0]} {lead.describe()}"
            details.append(f"{row}, if one is removed: {fmean(other.values()):.1f} %{difference}.")
    yield Finding(f"Guaranteed ({what})", text, tuple(details))


def _geometry_lead(report: PlanReport, name: str, plain: str, row: str) -> Lead | None:
    """How much larger a quantity of a row is than that of plain training; None where it was not measured."""
    cells = _cells(report, "clean")
    if plain not in cells or row not in cells:
        return None
    values = [geometry_values(cells[each]).get(name, {}) for each in (plain, row)]
    return values_lead((cells[plain], cells[row]), (values[0], values[1]))


def _flat(report: PlanReport, rows: tuple[str, ...]) -> Iterator[Finding]:
    """How flat the loss is around the weights, or how smooth in the inputs."""
    values = {row: geometry_values(cell) for row, cell in _cells(report, "clean").items()}
    texts = {
        SHARPNESS: ("Flatness", "if the weights of each layer move by a tenth of their length, in the worst direction, "
                    "the training loss of {row} rises by {value:.3g}."),
        "gradient by edges": ("Smoothness by edges", "the gradient of the training loss of {row} by the edges has the "
                              "length {value:.3g}."),
        "gradient by features": ("Smoothness by features", "the gradient of the training loss of {row} by the features "
                                 "has the length {value:.3g}."),
    }  # fmt: skip
    for name, (topic, text) in texts.items():
        if not values.get(rows[0], {}).get(name):
            continue
        first = fmean(values[rows[0]][name].values())
        details = []
        for row in rows[1:]:
            if values.get(row, {}).get(name):
                lead = _geometry_lead(report, name, rows[0], row)
                difference = "" if lead is None else f", a difference of {lead.describe('', '+.3g')}"
                details.append(f"{row}: {fmean(values[row][name].values()):.3g}{difference}.")
        yield Finding(topic, text.format(row=rows[0], value=first), tuple(details))
