"""Commands that train and report: tables of the paper, plans of users, a single model."""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from wtawp.base import write_atomic
from wtawp.cli.options import (
    Columns,
    Device,
    EngineName,
    Fresh,
    Html,
    Json,
    Labels,
    Rows,
    Size,
    StorePath,
    Tf32,
    TimeLimit,
    Workers,
    as_bad_parameter,
    check_outputs,
)
from wtawp.cli.printing import escape, print_table
from wtawp.cli.shared import (
    StopSignal,
    announce,
    app,
    console,
    end_by_signal,
    errors_without_traceback,
    escape_controls,
    example,
    import_torch_geometric,
    progress_bar,
    stderr_console,
    stop_signals_as_interrupts,
)
from wtawp.cli.training_options import Init, SplitSeed, Training, takes

if TYPE_CHECKING:
    from wtawp.experiments.execution.engines import Engine
    from wtawp.experiments.results.summary import PlanReport
    from wtawp.experiments.spec import Plan, Record, Scale
    from wtawp.experiments.store import Store


@app.command(epilog=example("wtawp reproduce", "wtawp reproduce tab:natacc --scale quick --column cora"))
def reproduce(
    labels: Labels = None,
    scale: Size = "full",
    row: Rows = None,
    column: Columns = None,
    device: Device = "cpu",
    tf32: Tf32 = False,
    engine: EngineName = "local",
    workers: Workers = None,
    time_limit: TimeLimit = None,
    fresh: Fresh = False,
    store: StorePath = None,
    as_json: Json = False,
) -> None:
    """Train the runs of tables and figures of the paper, and show results beside the printed numbers.

    Without a label, list all labels. Stored runs are not trained again.
    """
    from wtawp.experiments.plans.catalogue import PAGES, plans

    if not labels and as_json:
        typer.echo(json.dumps({label: plan.num_runs for label, plan in plans().items()}))
        return
    if not labels:
        table = Table("label", "title", "runs")
        for label, plan in plans().items():
            table.add_row(label, plan.title, f"{plan.num_runs:,}")
        for label, title in PAGES.items():
            table.add_row(label, title, "no training")
        console.print(table)
        return
    if pages := [label for label in labels if label in PAGES]:
        from wtawp.experiments.report.dataset_tables import graph_dataset_table, node_dataset_table

        tables = {label: node_dataset_table() if label == "tab:dataset" else graph_dataset_table() for label in pages}
        if as_json:
            if len(pages) < len(labels):
                raise typer.BadParameter(f"with --json, ask for {pages[0]} alone: nothing is trained for it")
            rows = {label: [[cell.text for cell in row] for row in table.rows] for label, table in tables.items()}
            typer.echo(json.dumps({label: {"headers": tables[label].headers, "rows": rows[label]} for label in pages}))
            return
        for label in pages:
            print_table(label, tables[label])
        if not (labels := [label for label in labels if label not in PAGES]):
            return
    with errors_without_traceback():
        with as_bad_parameter():
            chosen = [plan.only(row or (), column or ()) for plan in _plans_of_the_paper(labels, scale)]
        sweep(chosen, store, device, tf32, make_engine(engine, workers, device, time_limit), as_json, fresh=fresh)


@app.command(epilog=example("wtawp run plan.toml --html results.html"))
def run(
    plan: Annotated[Path, typer.Argument(help="The plan, a TOML file.")],
    device: Device = "cpu",
    tf32: Tf32 = False,
    engine: EngineName = "local",
    workers: Workers = None,
    time_limit: TimeLimit = None,
    fresh: Fresh = False,
    store: StorePath = None,
    html: Html = None,
    as_json: Json = False,
) -> None:
    """Run a plan of your own; the documentation lists the keys of its file."""
    with errors_without_traceback():
        from wtawp.experiments.plans.toml_plan import read_plan
        from wtawp.experiments.store import default_path

        check_outputs({"--html": html}, [plan, store or default_path()])
        read = read_plan(plan)
        import_torch_geometric()
        from wtawp.experiments.execution.building import with_default_splits

        chosen = [with_default_splits(read)]
        sweep(
            chosen,
            store,
            device,
            tf32,
            make_engine(engine, workers, device, time_limit),
            as_json,
            fresh=fresh,
            html=html,
        )


@app.command(epilog=example("wtawp train cora --model GAT", "wtawp train wine --plain --epochs 50 --save weights.pt"))
@takes(Training)
def train(
    training: Training,
    *,
    plain: Annotated[bool, typer.Option("--plain", help="Train without WT-AWP.")] = False,
    split_seed: SplitSeed = 0,
    init: Init = 0,
    save: Annotated[
        Path | None, typer.Option(help="Write the weights of the selected epoch to this file (a state dict).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Train one model and print its accuracies and losses."""
    check_outputs({"--save": save}, [training.dataset])
    awp = None if plain else training.awp()
    if awp is None and not plain:
        raise typer.BadParameter(f"the weights of {training.model} cannot be perturbed; train it with --plain")
    import_torch_geometric()
    from wtawp.experiments.execution.building import describe_split
    from wtawp.experiments.execution.training import train_one
    from wtawp.experiments.spec import Run

    run = Run(training.setting(training.split_rule(), awp=awp), split_seed, init)
    announce(describe_split(run.setting, split_seed))
    with progress_bar("training", quiet=as_json) as progress:
        fit = train_one(run, device=training.device, save=save, progress=progress)
    if as_json:
        measured = {"epoch": fit.epoch, "accuracy": fit.accuracy, "loss": fit.loss}
        typer.echo(json.dumps({"setting": run.setting.content, **measured}))
        return
    table = Table("part", "accuracy, %", "loss", title=f"{run.setting}, epoch {fit.epoch} of {training.epochs}")
    for part in ("train", "val", "test"):
        table.add_row(part, f"{100 * fit.accuracy[part]:.2f}", f"{fit.loss[part]:.3f}")
    console.print(table)


@app.command(epilog=example("wtawp report", "wtawp report tab:natacc --html report.html"))
def report(
    labels: Labels = None,
    scale: Size = "full",
    html: Html = None,
    markdown: Annotated[Path | None, typer.Option(help="Write Markdown to this file.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Write Markdown and figures to this folder.")] = None,
    artifacts: Annotated[
        Path | None,
        typer.Option(help="Show on the page what landscape, smoothness, sharpness and bound wrote to this folder."),
    ] = None,
    looks: Annotated[Path | None, typer.Option(hidden=True, help="The former name of --artifacts.")] = None,
    records: Annotated[
        list[Path] | None, typer.Option(help="Read exported records, files or folders of files, instead of the store.")
    ] = None,
    verify: Annotated[
        list[Path] | None,
        typer.Option(
            exists=True,
            help="Recompute the marked numbers of this Markdown file or folder of files, and fail where one is wrong.",
        ),
    ] = None,
    correct: Annotated[
        bool, typer.Option("--correct", help="Write the right numbers into the files of --verify, and list them.")
    ] = False,
    store: StorePath = None,
    as_json: Json = False,
) -> None:
    """Show stored results without training anything: those of the paper beside its numbers, and your own.

    Without a label, everything that is stored is shown.
    """
    with errors_without_traceback():
        from wtawp.experiments.report.artifacts import read_artifacts
        from wtawp.experiments.results.facts import IMPORT_ADVICE
        from wtawp.experiments.results.summary import summarise
        from wtawp.experiments.store import Store, default_path, load_all

        check_outputs({"--html": html, "--markdown": markdown}, [*(records or ()), store or default_path()])
        artifacts = artifacts or looks
        if artifacts is not None and html is None:
            raise typer.BadParameter("--artifacts are shown on a page; add --html FILE")
        shown = [] if artifacts is None else read_artifacts(artifacts)
        plans = _plans_of_the_paper(labels or ["all"], scale)
        if records:
            stored = load_all(records)
            of_paper = [summarise(plan, stored) for plan in plans]
            reports = of_paper if labels else _with_own_runs(of_paper, stored)
        elif shown and not labels and store is None and not default_path().exists():
            of_paper, reports = [], []  # a page of artifacts alone
        else:
            with Store(store, create=False) as opened:
                if labels:
                    of_paper = reports = reports_of(plans, opened)
                else:
                    stored = opened.records()
                    of_paper = [summarise(plan, stored) for plan in plans]
                    reports = _with_own_runs(of_paper, stored)
        if correct and not verify:
            raise typer.BadParameter("--correct changes the files of --verify; add --verify FILE")
        if verify and not any(each.records for each in (*of_paper, *reports)):
            what = f"nothing of {', '.join(labels)}" if labels else "nothing"
            raise typer.BadParameter(
                f"{what} is stored, so no number can be checked; {IMPORT_ADVICE}", param_hint="'--verify'"
            )
        if folder is not None:
            from wtawp.experiments.report.markdown import write_folder

            write_folder(reports, folder)
        if html is not None:
            from wtawp.experiments.report.html import render_html

            write_atomic(html, render_html(reports, shown).encode())
        if markdown is not None:
            from wtawp.experiments.report.markdown import render_markdown

            write_atomic(markdown, render_markdown(reports).encode())
    for path in (html, markdown, folder):
        if path is not None:
            stderr_console.print(f"Written: {path.resolve()}", highlight=False, soft_wrap=True)
    if as_json or (html is markdown is folder is None and not verify):
        _show(reports, as_json)
    if verify:
        # Also plans that are not shown because nothing of them is stored.
        _verify(verify, [*of_paper, *reports], is_corrected=correct)


def _verify(paths: list[Path], reports: "list[PlanReport]", *, is_corrected: bool) -> None:
    """Hold the marked numbers of texts against reports; ends the program with status 1 where one stays wrong."""
    from wtawp.experiments.report.verification import correct, verify

    with errors_without_traceback():
        count, wrong = verify(paths, reports)
        if is_corrected and wrong:
            left = correct(wrong)
            for mismatch in wrong:
                if mismatch.correction is not None:
                    typer.echo(f"corrected: {mismatch}")
            wrong = left
    for mismatch in wrong:
        stderr_console.print(str(mismatch), style="red", highlight=False, markup=False, soft_wrap=True)
    if not count and not wrong:
        raise typer.BadParameter("no number is marked there: NUMBER<!-- = ... -->", param_hint="'--verify'")
    if wrong:
        raise typer.Exit(1)
    stderr_console.print(f"Marked numbers that are those of the records: {count:,}, which is all.", highlight=False)


def _with_own_runs(of_paper: "list[PlanReport]", records: "list[Record]") -> "list[PlanReport]":
    """Summarise the user's own runs, and add the plans of the paper of which a run is stored; all if there are none."""
    from wtawp.experiments.plans.own_runs import is_fragment, own_plans
    from wtawp.experiments.results.summary import summarise

    own, num_unreadable = own_plans(records)
    if num_unreadable:
        stderr_console.print(
            f"{num_unreadable} records are left out: their settings name a model, an attack or a data set that is not "
            "registered here, or are of another version; `wtawp results ls` shows them.",
            style="yellow", highlight=False, soft_wrap=True,
        )  # fmt: skip
    measured = [r for r in of_paper if (r.records or r.failed) and not is_fragment(r.plan, records)]
    return [summarise(plan, records) for plan in own] + measured or of_paper


def _plans_of_the_paper(labels: list[str], scale: "Scale") -> "list[Plan]":
    """The plans of labels at a scale; "all" stands for all labels."""
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
        typer.Exit: With status 1 if a run failed, 130 after Ctrl-C; SIGTERM and SIGHUP end the process.
    """
    from wtawp.experiments.execution.runner import run_plans
    from wtawp.experiments.store import Store

    with Store(store) as opened:
        try:
            with stop_signals_as_interrupts(), progress_bar("checking", quiet=as_json) as progress:
                counts = run_plans(
                    plans, opened, engine=engine, device=device, tf32=tf32, fresh=fresh, progress=progress,
                    announce=announce,
                )  # fmt: skip
        except KeyboardInterrupt as stop:
            opened.close()
            with suppress(OSError):  # the terminal may be gone
                stderr_console.print(
                    "Stopped. Finished runs are stored: the same command continues from here.", highlight=False
                )
            if isinstance(stop, StopSignal):
                end_by_signal(stop.number)
            raise typer.Exit(130) from None
        reports = reports_of(plans, opened)
        _show(reports, as_json)
        if html is not None:
            from wtawp.experiments.report.html import render_html

            write_atomic(html, render_html(reports).encode())
            stderr_console.print(f"Written: {html.resolve()}", highlight=False, soft_wrap=True)
        failures = [r for plan in plans for r in opened.records((run.key for run in plan.runs()), status="failed")]
        surrogates = f" ({counts.surrogates} of them surrogates)" if counts.surrogates else ""
        sentence = (
            f"{counts.trained} runs trained{surrogates}, {counts.known} known before, {counts.failed} failed; in"
            f" {opened.path}"
        )
    stderr_console.print(sentence, highlight=False, soft_wrap=True)
    if counts.failed:
        if failures:
            reason = escape_controls((failures[0].error or "no reason stored").strip().rpartition("\n")[2])
            stderr_console.print(
                f"The first failed with: {reason}", style="red", highlight=False, markup=False, soft_wrap=True
            )
        stderr_console.print(
            "Failed runs: `wtawp results ls --failed`; the same command tries them again.", style="red"
        )
        raise typer.Exit(1)


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


def _show(reports: "Sequence[PlanReport]", as_json: bool) -> None:
    """Print the tables of reports, or their numbers as JSON."""
    from wtawp.experiments.report.answers import answers, is_own
    from wtawp.experiments.report.contents import tables_of
    from wtawp.experiments.report.export import export_data

    if as_json:
        typer.echo(json.dumps([export_data(r) for r in reports]))
        return
    for each in reports:
        for answer in answers(each) if is_own(each) else []:
            console.print(escape(answer) + "\n", highlight=False)
        for table in tables_of(each):
            print_table(f"{each.plan.name}: {each.plan.title}", table)
