"""What a report says, whatever it is written as: headlines, provenance, tables and anchors."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean

from wtawp.experiments.report.league_tables import league_tables
from wtawp.experiments.report.plan_tables import cell_table, claim_table, drop_table, pair_table
from wtawp.experiments.report.reporters import reporters_of
from wtawp.experiments.report.tables import NOTHING, Entry, Table
from wtawp.experiments.results.claims import check
from wtawp.experiments.results.drops import compare_drops
from wtawp.experiments.results.main_claims import check_claims
from wtawp.experiments.results.outcomes import Verdict
from wtawp.experiments.results.summary import PlanReport

CLAIMS = "Claims of the paper"  # the heading of their table


def headlines(reports: Sequence[PlanReport]) -> list[str]:
    """Count the verdicts on cells and on claims, and what attacks take from the methods that are compared.

    Args:
        reports: Plans with their measurements.

    Returns:
        A sentence each on the cells that the paper prints, those that are measured once more by another protocol, the
        paper's claims, and robustness; those that say nothing are left out.
    """
    sentences, claimed = [], claim_headlines(reports)
    repeated = Counter(c.verdict for r in reports if r.plan.repeats for c in r.cells)
    reports = [r for r in reports if not r.plan.repeats]
    verdicts = Counter(c.verdict for r in reports for c in r.cells)
    if any(r.is_printed for r in reports):
        sentences.append(
            f"Of {verdicts['agrees'] + verdicts['differs']} judged cells, {verdicts['agrees']} agree with the paper "
            f"within 0.5 points and {verdicts['differs']} differ; {verdicts['reported']} are reported without a "
            f"verdict, {verdicts['incomplete']} are incomplete."
        )
    if repeated:
        sentences.append(
            f"Of {repeated['agrees'] + repeated['differs']} judged cells that are measured once more, by the protocol "
            f"of the released code, {repeated['agrees']} agree and {repeated['differs']} differ; "
            f"{repeated['incomplete']} are incomplete."
        )
    return [*sentences, *claimed, *robustness_headline(reports)]


def claim_headlines(reports: Sequence[PlanReport]) -> list[str]:
    """Count the claims of the paper that hold, and name the main ones.

    Args:
        reports: Plans with their measurements.

    Returns:
        A sentence on all claims, and one on the main claims; those that would say nothing are left out.
    """
    claims = check_claims({r.plan.name: r for r in reports})
    if not claims:
        return []
    outcomes = Counter(claim.outcome.verdict for claim in claims)
    sentences = [
        f"Of {len(claims)} claims of the text, {outcomes['holds']} {'holds' if outcomes['holds'] == 1 else 'hold'}, "
        f"{outcomes['does not hold']} {'does' if outcomes['does not hold'] == 1 else 'do'} not, "
        f"{outcomes['incomplete']} wait for runs."
    ]
    mains = [claim for claim in claims if claim.is_main]
    if mains:
        named: dict[Verdict, list[str]] = {"holds": [], "does not hold": [], "incomplete": []}
        for claim in mains:
            named[claim.outcome.verdict].append(claim.subject)
        words = {"holds": "hold", "does not hold": "do not hold", "incomplete": "wait for runs"}
        parts = [
            f"Main claims that {words[verdict]} ({len(each)} of {len(mains)}): {'; '.join(each)}."
            for verdict, each in named.items()
            if each
        ]
        sentences.append(" ".join(parts))
    return sentences


def claim_overview(reports: Sequence[PlanReport]) -> Table | None:
    """All claims of the paper in one table, the main ones first.

    Args:
        reports: Plans with their measurements.

    Returns:
        The table; None where none of the main claims can be checked.
    """
    claims = check_claims({r.plan.name: r for r in reports})
    if not any(claim.is_main for claim in claims):
        return None
    rows = tuple(
        (Entry(claim.subject or NOTHING), Entry(claim.text), Entry(claim.place), Entry(claim.outcome.verdict),
         Entry(claim.outcome.sentence))
        for claim in claims
    )  # fmt: skip
    return Table(
        "The paper's claims, the main ones (with a subject) first: where each stands, and what was measured. A claim "
        "about several cells holds if it is true of all of them, unless another number is stated.",
        ("main claim on", "claim", "place", "verdict", "measured"),
        rows,
    )


def robustness_headline(reports: Sequence[PlanReport]) -> list[str]:
    """Say how often a perturbation of the weights makes the drop under attack smaller, and how large gains are.

    Args:
        reports: Plans with their measurements.

    Returns:
        A sentence; none where no pair differs in its perturbation and has drops in two splits.
    """
    compared = [
        d
        for r in reports
        for d in compare_drops(r)
        if len({c.cell.setting.awp for c in r.column(d.column) if c.cell.row in (d.before, d.after)}) > 1
    ]
    if not compared:
        return []
    smaller, larger = sum(d.is_smaller for d in compared), sum(d.is_larger for d in compared)
    clean, attacked = fmean(d.clean_gain for d in compared), fmean(d.gain for d in compared)
    return [
        f"Of {len(compared)} pairs without and with perturbed weights under attack, the perturbation makes the drop "
        f"(clean accuracy less that under attack) significantly smaller in {smaller} and significantly larger in "
        f"{larger}; {len(compared) - smaller - larger} are undecided. The mean gain is {attacked:+.2f} points under "
        f"attack and {clean:+.2f} on the clean graphs."
    ]


def claim_verdicts(report: PlanReport) -> list[Verdict]:
    """Check the claims of a plan.

    Args:
        report: A plan with its measurements.

    Returns:
        A verdict for each claim.
    """
    return [check(claim, report).verdict for claim in report.plan.claims]


def provenance(report: PlanReport) -> str:
    """Say where the numbers come from: number of runs, device, versions of software and flips.

    Args:
        report: A plan with its measurements.

    Returns:
        One or more sentences.
    """
    if report.device is None:
        return f"Nothing was trained yet: {report.num_runs} runs are missing."
    parts = [f"{len(report.records)} of {report.num_runs} runs on {report.device}"]
    if report.failed:
        parts.append(f"{len(report.failed)} failed")
    known = {pair for record in report.records for pair in record.versions.items()}
    versions = [" ".join(pair) for pair in sorted(known) if pair[0] != "flips"]
    num_flips = len(known) - len(versions)
    versions += [f"{num_flips} sets of flips"] if num_flips else []
    if versions:
        parts.append("with " + ", ".join(versions))
    others = "".join(f" Not looked at: {count} runs on {device}." for device, count in report.other_devices)
    return "; ".join(parts) + "." + others


def tables_of(report: PlanReport) -> list[Table]:
    """The tables of a plan: claims, cells, those of its measures, pairs and drops, as far as the plan has them.

    A league has tables of its own, once it is complete; its cells, a row for every trial, would hide them. Pairs of a
    single split, which is not enough for a comparison, have no table unless the paper prints numbers for them.

    Args:
        report: A plan with its measurements.

    Returns:
        The tables in the order in which they are shown.
    """
    if report.plan.league and (tables := league_tables(report)):
        return tables
    tables = [claim_table(report)] if report.plan.claims else []
    tables.append(cell_table(report))
    for reporter in reporters_of(report.plan):
        for make_tables in reporter.tables:
            tables += make_tables(report)
    if any(pair.can_be_compared or report.is_printed for pair in report.pairs):
        tables.append(pair_table(report))
    return [*tables, drops] if (drops := drop_table(report)).rows else tables


def anchors(names: Iterable[str]) -> list[str]:
    """Make an id for each heading out of letters, digits and dashes; a name that comes again gets a number.

    Args:
        names: The headings.

    Returns:
        An id for each, all different.

    Example:
        >>> anchors(["tab:natacc", "tab:natacc"])
        ['tab-natacc', 'tab-natacc-2']
    """
    used: Counter[str] = Counter()
    ids = []
    for name in names:
        anchor = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-") or "plan"
        used[anchor] += 1
        ids.append(anchor if used[anchor] == 1 else f"{anchor}-{used[anchor]}")
    return ids
