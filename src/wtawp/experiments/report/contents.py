"""What a report says, whatever it is written as: headlines, provenance, tables and anchors."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from wtawp.experiments.report.plan_tables import cell_table, claim_table, pair_table
from wtawp.experiments.report.reporters import reporters_of
from wtawp.experiments.report.tables import Table
from wtawp.experiments.results.claims import Verdict, check
from wtawp.experiments.results.summary import PlanReport


def headlines(reports: Sequence[PlanReport]) -> list[str]:
    """Count the verdicts on cells and on claims.

    Args:
        reports: Plans with their measurements.

    Returns:
        Two sentences.
    """
    verdicts = Counter(c.verdict for r in reports for c in r.cells)
    judged = verdicts["agrees"] + verdicts["differs"]
    outcomes = Counter(verdict for r in reports for verdict in claim_verdicts(r))
    return [
        f"Of {judged} judged cells, {verdicts['agrees']} agree with the paper within 0.5 points and "
        f"{verdicts['differs']} differ; {verdicts['reported']} are reported without a verdict, "
        f"{verdicts['incomplete']} are incomplete.",
        f"Of {sum(outcomes.values())} claims of the text, {outcomes['holds']} "
        f"{'holds' if outcomes['holds'] == 1 else 'hold'}, {outcomes['does not hold']} "
        f"{'does' if outcomes['does not hold'] == 1 else 'do'} not, {outcomes['incomplete']} wait for runs.",
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
    """The tables of a plan: claims, cells, those of its measures, and pairs, as far as the plan has them.

    Args:
        report: A plan with its measurements.

    Returns:
        The tables in the order in which they are shown.
    """
    tables = [claim_table(report)] if report.plan.claims else []
    tables.append(cell_table(report))
    for reporter in reporters_of(report.plan):
        for make_tables in reporter.tables:
            tables += make_tables(report)
    return [*tables, pair_table(report)] if report.pairs else tables


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
