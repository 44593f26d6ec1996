"""The summary of an audit in plain words: a finding for each question, with a sentence about every other row."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from wtawp.attacks.registry import attack_spec
from wtawp.experiments.audit.comparisons import (
    Compared,
    Lead,
    Values,
    accuracy_lead,
    certified_at,
    geometry_values,
    values_leads,
    worst_accuracies,
)
from wtawp.experiments.audit.sections import ACCURACY, CERTIFICATE, EVASION, FLAT, POISONING, Section
from wtawp.experiments.audit.subject import Subject
from wtawp.experiments.execution.building import describe_split
from wtawp.experiments.results.drops import compare_drops
from wtawp.experiments.results.summary import CellReport, PlanReport

Part = tuple[Section, PlanReport]
SHARPNESS = "sharpness, layer, rho=0.1"  # of the quantities, the one in the summary
UNCLEAR = "no clear difference"
GEOMETRY = {  # the quantities of the summary, with their topics and sentences
    SHARPNESS: ("Flatness", "if the weights of each layer move by a tenth of their length, in the worst direction, "
                "the training loss of {row} rises by {value:.3g}."),
    "gradient by edges": ("Smoothness by edges", "the gradient of the training loss of {row} by the edges has the "
                          "length {value:.3g}."),
    "gradient by features": ("Smoothness by features", "the gradient of the training loss of {row} by the features "
                             "has the length {value:.3g}."),
}  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """The answer of an audit to one question.

    Attributes:
        topic: The question, in a word or two.
        answer: The answer in a sentence.
        details: A sentence about each of the other rows.
    """

    topic: str
    answer: str
    details: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join((f"{self.topic}: {self.answer}", *self.details))


@dataclass(frozen=True)
class _Worst:
    """What the worst of the attacks leaves of each row, where every run of every row has its own worst attack.

    Comparing rows under the attack that is the worst for one of them would favour the others.
    """

    column: str
    accuracies: dict[str, Values]
    drops: dict[str, dict[str, float]]  # the mean drop of each row under each attack
    leads: dict[str, Lead]  # of the other rows over the first one
    is_searched: bool  # whether any of the attacks asks the model, in place of flipping edges without regard to it


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
    worst = _worst(of_kind[EVASION], rows)
    if len(rows) > 1:
        yield _in_short(of_kind[ACCURACY], worst, of_kind[FLAT], rows)
    for _, report in of_kind[ACCURACY]:
        yield _given_weights(subject, _accuracy(report, rows)) if subject.is_checkpoint else _accuracy(report, rows)
    if worst is not None:
        yield _attack_finding(worst, rows)
    for section, report in of_kind[POISONING]:
        yield from _poisoning_finding(section, report, rows)
    for section, report in of_kind[CERTIFICATE]:
        yield from _certificate_finding(section, report, rows)
    for _, report in of_kind[FLAT]:
        yield from _flatness_findings(report, rows)


def _given_weights(subject: Subject, accuracy: Finding) -> Finding:
    """The accuracy of given weights, with the split on which it was measured."""
    described = describe_split(subject.base).removeprefix(f"{subject.base.dataset}: ")
    text = (
        f"The data are {described} This is split 0, and the accuracy is that of unseen nodes only if the given weights"
        " were trained on this split."
    )
    return replace(accuracy, details=(*accuracy.details, text))


def _cells(report: PlanReport, column: str) -> dict[str, CellReport]:
    """The cells of a column with measurements, by row."""
    return {c.cell.row: c for c in report.column(column) if c.mean is not None}


def _describe_sample(report: PlanReport) -> str:
    """The number of splits, or of initialisations, over which means are taken."""
    cell = report.cells[0].cell
    if cell.splits > 1 or cell.inits == 1:
        return f"{cell.splits} split{'s' * (cell.splits > 1)}"
    return f"{cell.inits} initialisations of one split"


def _verdict_of(lead: Lead | None, higher: str, lower: str) -> str:
    """A lead in a word: `higher`, `lower`, or that there is no clear difference."""
    if lead is None or not lead.is_clear:
        return UNCLEAR
    return higher if lead.mean > 0 else lower


def _in_short(clean: Sequence[Part], worst: _Worst | None, flat: Sequence[Part], rows: tuple[str, ...]) -> Finding:
    """Every row against plain training, in words."""
    details = []
    sharpness = [_geometry_leads(report, rows) for _, report in flat]
    for row in rows[1:]:
        judged = [f"clean accuracy: {_verdict_of(accuracy_lead(r, 'clean', row, rows[0]), 'higher', 'lower')}"
                  for _, r in clean]  # fmt: skip
        if worst is not None:
            lead = worst.leads.get(row)
            judged.append(f"accuracy under the worst of the attacks: {_verdict_of(lead, 'higher', 'lower')}")
        judged += [f"training loss: {_verdict_of(leads[SHARPNESS, row], 'sharper', 'flatter')}"
                   for leads in sharpness if (SHARPNESS, row) in leads]  # fmt: skip
        details.append(f"{row} – {'; '.join(judged)}.")  # noqa: RUF001, a dash between a row and what it says
    num = _describe_sample(clean[0][1]) if clean else "the splits"
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
        return Finding("Accuracy", f"{text} (mean over {_describe_sample(report)}).")
    leads = {row: accuracy_lead(report, "clean", best, row) for row in others}
    is_best = all(lead is not None and lead.is_clear for lead in leads.values())
    head = "the most of all rows" if is_best else "the highest mean, but it is not clearly the best row"
    details = tuple(
        f"Against {row} ({cells[row].mean:.1f} %): {'too few splits to compare' if lead is None else lead.describe()}."
        for row, lead in leads.items()
    )
    return Finding("Accuracy", f"{text}, {head} (means over {_describe_sample(report)}).", details)


def _worst(parts: Sequence[Part], rows: tuple[str, ...]) -> _Worst | None:
    """What the attacks leave of the rows, at the largest budget that all of them have; None without attacks."""
    columns = [[c for c in report.columns if any(x.cell.attack for x in report.column(c))] for _, report in parts]
    common = [column for column in (columns[0] if columns else []) if all(column in each for each in columns)]
    if not common:
        return None
    column = common[-1]
    shared = [(s, report) for s, report in parts if _cells(report, column).keys() == set(rows)]  # the same for all rows
    accuracies = {
        row: values for row in rows if (values := worst_accuracies([report for _, report in shared], column, row))
    }
    drops = {
        row: {
            _name(section): drop
            for section, report in shared
            if (drop := _cells(report, column)[row].mean_drop) is not None
        }
        for row in accuracies
    }
    if not drops.get(rows[0]):
        return None
    cells = _cells(shared[0][1], column)
    compared: dict[str, Compared] = {
        row: ((cells[rows[0]], cells[row]), (accuracies[rows[0]], accuracies[row]))
        for row in rows[1:]
        if row in accuracies
    }
    is_searched = any(attack_spec(section.key.removeprefix("attack-")).uses_victim for section, _ in shared)
    return _Worst(column, accuracies, drops, values_leads(compared), is_searched)


def _name(section: Section) -> str:
    """The name of the attack of a section."""
    return section.title.rpartition(": ")[2]


def _attack_finding(worst: _Worst, rows: tuple[str, ...]) -> Finding:
    """What the worst of the attacks leaves of every row, and which attack takes the most on average."""
    means = {row: fmean(values.values()) for row, values in worst.accuracies.items()}
    strongest = {row: max(drops, key=lambda name: drops[name]) for row, drops in worst.drops.items() if drops}
    first = strongest[rows[0]]
    text = (
        f"with {worst.column} of the edges changed after the training, {rows[0]} keeps {means[rows[0]]:.1f} % under "
        f"the worst of the attacks for each model ({', '.join(worst.drops[rows[0]])}); on average {first} takes the "
        f"most, {worst.drops[rows[0]][first]:.1f} points."
    )
    searched = () if worst.is_searched else ("No searching attack was run, and one may take far more.",)
    compared = [
        f"{row}: {means[row]:.1f} % under the worst of the attacks, against {rows[0]} {lead.describe()}."
        for row, lead in worst.leads.items()
    ]
    others = [
        f"On average {name} takes the most from {row}, {worst.drops[row][name]:.1f} points."
        for row, name in strongest.items()
        if name != first
    ]
    return Finding("Attacks", text, (*searched, *compared, *others))


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


def _poisoning_finding(section: Section, report: PlanReport, rows: tuple[str, ...]) -> Iterator[Finding]:
    """What a training on a poisoned graph costs."""
    column = report.columns[-1]
    cell = _cells(report, column).get(rows[0])
    if cell is None or cell.mean_drop is None:
        return
    text = (
        f"trained on a graph of which {_name(section)} changed {column} of the edges, {rows[0]} reaches "
        f"{cell.mean:.1f} %, {cell.mean_drop:.1f} points less than on the clean graph (means over "
        f"{_describe_sample(report)})."
    )
    yield Finding("Poisoning", text, tuple(_against_plain(report, column, rows)))


def _certificate_finding(section: Section, report: PlanReport, rows: tuple[str, ...]) -> Iterator[Finding]:
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
        f"% of the test nodes; whichever {one} is added, of {added:.1f} % (means over "
        f"{_describe_sample(report)}; {votes:,} votes, and more votes can guarantee more)."
    )
    certified = {row: certified_at(cells[row], 0, 1) for row in rows if row in cells}
    compared: dict[str, Compared] = {
        row: ((cells[rows[0]], cells[row]), (certified[rows[0]], values))
        for row, values in certified.items()
        if row != rows[0]
    }
    leads = values_leads(compared)
    details = []
    for row in compared:
        difference = f", against {rows[0]} {leads[row].describe()}" if row in leads else ""
        details.append(f"{row}, if one is removed: {fmean(certified[row].values()):.1f} %{difference}.")
    yield Finding(f"Guaranteed ({what})", text, tuple(details))


def _geometry_leads(report: PlanReport, rows: tuple[str, ...]) -> dict[tuple[str, str], Lead]:
    """How much larger the quantities of the summary are in the other rows than in plain training, by name and row."""
    cells = _cells(report, "clean")
    values = {row: geometry_values(cell) for row, cell in cells.items()}
    compared: dict[tuple[str, str], Compared] = {
        (name, row): ((cells[rows[0]], cells[row]), (values[rows[0]][name], values[row][name]))
        for name in GEOMETRY
        for row in rows[1:]
        if all(values.get(each, {}).get(name) for each in (rows[0], row))
    }
    return values_leads(compared)


def _flatness_findings(report: PlanReport, rows: tuple[str, ...]) -> Iterator[Finding]:
    """How flat the loss is around the weights, or how smooth in the inputs."""
    values = {row: geometry_values(cell) for row, cell in _cells(report, "clean").items()}
    leads = _geometry_leads(report, rows)
    for name, (topic, text) in GEOMETRY.items():
        if not values.get(rows[0], {}).get(name):
            continue
        first = fmean(values[rows[0]][name].values())
        details = []
        for row in rows[1:]:
            if values.get(row, {}).get(name):
                lead = leads.get((name, row))
                difference = "" if lead is None else f", a difference of {lead.describe('', '+.3g')}"
                details.append(f"{row}: {fmean(values[row][name].values()):.3g}{difference}.")
        yield Finding(topic, text.format(row=rows[0], value=first), tuple(details))
