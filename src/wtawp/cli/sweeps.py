"""What the commands that run plans share: their plans, the engine, the sweep over all jobs, and what it shows."""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from wtawp.base import write_atomic
from wtawp.cli.options import as_bad_parameter
from wtawp.cli.printing import escape, print_table
from wtawp.cli.shared import (
    StopSignal,
    announce,
    console,
    end_by_signal,
    escape_controls,
    import_torch_geometric,
    progress_bar,
    stderr_console,
    stop_signals_as_interrupts,
)

if TYPE_CHECKING:
    from wtawp.experiments.execution.engines import Engine
    from wtawp.experiments.results.summary import PlanReport
    from wtawp.experiments.spec import Plan, Scale
    from wtawp.experiments.store import Store


def plans_of(labels: Sequence[str], scale: "Scale") -> "list[Plan]":
    """Find the plans of labels, at a scale.

    Args:
        labels: Labels of plans; "all" stands for all labels.
        scale: How much of each plan is run.

    Returns:
        The plans, each once.

    Raises:
        WtawpError: If there is no plan of a label.
    """
    from wtawp.experiments.plans.catalogue import plan, plans
    from wtawp.experiments.plans.scale import at_scale

    chosen = dict.fromkeys(each for label in labels for each in (plans() if label == "all" else [label]))
    return [at_scale(plan(label), scale) for label in chosen]


def make_engine(name: str, workers: int | None, device: str, time_limit: float | None) -> "Engine":
    """Make the engine of the option --engine.

    Args:
        name: "local" or "ray".
        workers: The number of worker processes; None uses one for each core if that saves time, or one on a GPU.
        device: "cpu" or "cuda".
        time_limit: Seconds that a chunk may take; None for any time.

    Returns:
        The engine.

    Raises:
        typer.BadParameter: If the time limit is not positive.
    """
    import_torch_geometric()
    from wtawp.experiments.execution.engines import local

    with as_bad_parameter():
        if name == "ray":
            from wtawp.experiments.execution.engine_ray import ray_cluster

            return ray_cluster(workers=workers, gpus=0 if device == "cpu" else 1, time_limit=time_limit)
        if workers is not None or time_limit is not None or device != "cpu":
            most = (os.cpu_count() or 1) if device == "cpu" else 1
            return local(workers or most, time_limit=time_limit)
        from wtawp.experiments.execution.costs import local_if_worthwhile

        return local_if_worthwhile(os.cpu_count() or 1)


def sweep(
    plans: "Sequence[Plan]",
    store: Path | None,
    device: str,
    tf32: bool,
    engine: "Engine",
    as_json: bool,
    *,
    fresh: bool = False,
    html: Path | None = None,
) -> None:
    """Train the runs of plans that the store does not have, and show the results of all.

    Args:
        plans: The plans.
        store: The file of the store; None uses the default one.
        device: "cpu" or "cuda".
        tf32: Whether TF32 matrix products are allowed on a GPU.
        engine: Where chunks are trained.
        as_json: Whether results are printed as JSON.
        fresh: Whether all runs are trained, also those that the store has.
        html: A file for the page with the results; by default none is written.

    Raises:
        typer.BadParameter: If TF32 is asked for on a CPU.
        typer.Exit: With status 1 if a run failed, 130 after Ctrl-C; SIGTERM and SIGHUP end the process.
    """
    from wtawp.experiments.execution.runner import run_plans
    from wtawp.experiments.store import Store

    if tf32 and device == "cpu":
        raise typer.BadParameter(
            "TF32 matrix products are those of a GPU; add --device cuda, or leave it out", param_hint="'--tf32'"
        )
    replaced: set[str] = set()  # keys of runs that were trained anew
    with Store(store) as opened:
        try:
            with stop_signals_as_interrupts(), progress_bar("checking", quiet=as_json) as progress:
                counts = run_plans(
                    plans, opened, engine=engine, device=device, tf32=tf32, fresh=fresh, progress=progress,
                    announce=announce,
                    on_stored=lambda records: replaced.update(r.key for r in records if r.status == "done"),
                )  # fmt: skip
        except KeyboardInterrupt as stop:
            opened.close()
            advice = _after_stop_of_fresh(plans, replaced) if fresh else "the same command continues from here."
            with suppress(OSError):  # the terminal may be gone
                stderr_console.print(f"Stopped. Finished runs are stored: {advice}", highlight=False, soft_wrap=True)
            if isinstance(stop, StopSignal):
                end_by_signal(stop.number)
            raise typer.Exit(130) from None
        reports = reports_of(plans, opened)
        show_reports(
            [r for r in reports if as_json or r.records or not r.failed], as_json
        )  # no tables without a number
        if html is not None:
            from wtawp.experiments.report.html import render_html

            write_atomic(html, render_html(reports).encode())
            stderr_console.print(f"Written: {html.resolve()}", highlight=False, soft_wrap=True)
        surrogates = f" ({counts.surrogates} of them surrogates)" if counts.surrogates else ""
        sentence = (
            f"{counts.trained} runs trained{surrogates}, {counts.known} known before, {counts.failed} failed; in"
            f" {opened.path}"
        )
    stderr_console.print(sentence, highlight=False, soft_wrap=True)
    if counts.failed:
        reason = escape_controls((counts.first_error or "no reason known").strip().rpartition("\n")[2])
        sentences = [f"The first failed with: {reason}"]
        if counts.kept:
            sentences.append(
                f"{counts.kept} of the failed runs keep their records from before, since a failure replaces no result:"
                " numbers that are shown of them are not from this training. The same command tries them again."
            )
        if counts.failed > counts.kept:
            sentences.append("Failed runs: `wtawp results ls --failed`; the same command tries them again.")
        for sentence in sentences:
            stderr_console.print(sentence, style="red", highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(1)


def _after_stop_of_fresh(plans: "Sequence[Plan]", replaced: set[str]) -> str:
    """What a user must know who stopped a sweep with --fresh: how many records are new."""
    keys = {run.key for plan in plans for run in plan.runs()}
    return (
        f"{len(keys & replaced):,} of {len(keys):,} records are new, and those of the other runs are the ones from"
        " before, if there are any. The same command with --fresh begins anew, also with those that are new."
    )


def reports_of(plans: "Sequence[Plan]", store: "Store") -> "list[PlanReport]":
    """Summarise the stored records of plans.

    Args:
        plans: The plans.
        store: The store.

    Returns:
        A report for each plan.
    """
    from wtawp.experiments.results.summary import summarise

    return [summarise(plan, store.records(run.key for run in (*plan.runs(), *plan.clean_runs()))) for plan in plans]


def show_reports(reports: "Sequence[PlanReport]", as_json: bool) -> None:
    """Print the answers of all reports and then their tables, which may be long, or their numbers as JSON.

    Args:
        reports: The reports.
        as_json: Whether their numbers are printed as JSON.
    """
    from wtawp.experiments.report.answers import answers, is_own
    from wtawp.experiments.report.contents import tables_of
    from wtawp.experiments.report.export import export_data

    if as_json:
        typer.echo(json.dumps([export_data(r) for r in reports]))
        return
    for each in reports:
        found = answers(each) if is_own(each) else []
        if found and len(reports) > 1:
            console.print(f"[bold]{escape(each.plan.title)}[/bold]\n", highlight=False)
        for answer in found:
            console.print(escape(answer) + "\n", highlight=False)
    for each in reports:
        for table in tables_of(each):
            print_table(f"{each.plan.name}: {each.plan.title}", table)
