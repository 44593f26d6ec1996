"""The numbers of a report as plain data, for `--json`."""

from dataclasses import asdict

from wtawp.experiments.report.reporters import reporters_of
from wtawp.experiments.results.claims import check
from wtawp.experiments.results.drops import compare_drops
from wtawp.experiments.results.summary import PlanReport


def export_data(report: PlanReport) -> dict[str, object]:
    """The numbers of a plan as data that JSON can hold.

    Args:
        report: A plan with its measurements.

    Returns:
        Name, device, cells, pairs, drops under attack and claims, and what the reporters of the plan's measures export.
    """
    cells = [
        {"row": c.cell.row, "column": c.cell.column, "mean": c.mean, "std": c.std, "drop": c.mean_drop,
         "runs": c.num_finished, "wanted": c.num_runs, "failed": len(c.failed), "printed": c.cell.printed,
         "verdict": c.verdict}
        for c in report.cells
    ]  # fmt: skip
    pairs = [
        {"before": p.before, "after": p.after, "column": p.column, "p_over_runs": p.runs_p_value,
         "gain": None if p.gain is None else asdict(p.gain), "p_holm": p.holm_p_value} for p in report.pairs
    ]  # fmt: skip
    data: dict[str, object] = {
        "plan": report.plan.name,
        "device": report.device,
        "cells": cells,
        "pairs": pairs,
        "drops": [asdict(comparison) for comparison in compare_drops(report)],
        "claims": [{"text": claim.text, **asdict(check(claim, report))} for claim in report.plan.claims],
    }
    for reporter in reporters_of(report.plan):
        if reporter.export is not None:
            data.update(reporter.export(report))
    return data
