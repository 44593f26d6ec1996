"""Commands that train and report: tables of the paper, plans of users, a comparison, a single model."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from wtawp.base import write_atomic
from wtawp.cli.options import (
    Columns,
    Dataset,
    Device,
    EngineName,
    Epochs,
    Html,
    Json,
    Labels,
    Lam,
    Model,
    Rho,
    Rows,
    Size,
    StorePath,
    Tf32,
    Workers,
    as_bad_parameter,
    refuse_unwritable,
)
from wtawp.cli.printing import escape, print_table
from wtawp.cli.shared import app, console, errors_without_traceback, escape_controls, progress_bar, stderr_console

if TYPE_CHECKING:
    from wtawp.experiments.execution.engines import Engine
    from wtawp.experiments.results.summary import PlanReport
    from wtawp.experiments.spec import Plan, Record, Scale
    from wtawp.experiments.store import Store


@app.command()
def reproduce(
    labels: Labels = None,
    scale: Size = "full",
    row: Rows = None,
    column: Columns = None,
    device: Device = "cpu",
    tf32: Tf32 = False,
    engine: EngineName = "local",
    workers: Workers = None,
    store: StorePath = None,
    as_json: Json = False,
) -> None:
    """Train the runs of tables and figures of the paper, and show results beside the printed numbers.

    Without a label, list all labels. Stored runs are not trained again.
    """
    from wtawp.experiments.plans.paper import PAGES, plans

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

        for label in pages:
            print_table(label, node_dataset_table() if label == "tab:dataset" else graph_dataset_table())
        if not (labels := [label for label in labels if label not in PAGES]):
            return
    with errors_without_traceback():
        with as_bad_parameter():
            chosen = [plan.only(row or (), column or ()) for plan in _plans_of_the_paper(labels, scale)]
        sweep(chosen, store, device, tf32, make_engine(engine, workers, device), as_json)


@app.command()
def run(
    plan: Annotated[Path, typer.Argument(help="The plan, a TOML file.")],
    device: Device = "cpu",
    tf32: Tf32 = False,
    engine: EngineName = "local",
    workers: Workers = None,
    store: StorePath = None,
    html: Html = None,
    as_json: Json = False,
) -> None:
    """Run a plan of your own; the documentation lists the keys of its file."""
    with errors_without_traceback():
        from wtawp.experiments.plans.toml_plan import read_plan

        refuse_unwritable(html)
        sweep([read_plan(plan)], store, device, tf32, make_engine(engine, workers, device), as_json, html)


@app.command()
def compare(
    dataset: Dataset,
    model: Model = "GCN",
    rho: Rho = None,
    lam: Lam = None,
    splits: Annotated[int, typer.Option(min=2, help="Number of splits, paired with and without WT-AWP.")] = 5,
    inits: Annotated[int, typer.Option(min=1, help="Number of initialisations of each split.")] = 2,
    epochs: Epochs = 200,
    device: Device = "cpu",
    tf32: Tf32 = False,
    workers: Workers = None,
    store: StorePath = None,
    html: Html = None,
    as_json: Json = False,
) -> None:
    """Compare a model with and without WT-AWP in paired runs: does it help on these data, and by how much?"""
    with errors_without_traceback():
        from wtawp.experiments.plans.defaults import default_awp
        from wtawp.experiments.spec import Cell, Plan, Setting

        refuse_unwritable(html)
        with as_bad_parameter():
            awp = default_awp(model, dataset, rho=rho, lam=lam)
            if awp is None:
                raise ValueError(f"the weights of {model} cannot be perturbed; compare another model")
            rows = {model: None, f"{model}+WT-AWP": awp}
            cells = tuple(
                Cell(row, dataset, Setting(dataset=dataset, model=model, awp=awp, epochs=epochs), splits, inits)
                for row, awp in rows.items()
            )
        plan = Plan("comparison", f"{model} with and without WT-AWP", cells, ((model, f"{model}+WT-AWP"),))
        sweep([plan], store, device, tf32, make_engine("local", workers, device), as_json, html)


@app.command()
def train(
    dataset: Dataset,
    model: Model = "GCN",
    rho: Rho = None,
    lam: Lam = None,
    plain: Annotated[bool, typer.Option("--plain", help="Train without WT-AWP.")] = False,
    split: Annotated[int, typer.Option(help="Seed of the split.")] = 0,
    init: Annotated[int, typer.Option(help="Seed of the initial weights and of dropout.")] = 0,
    epochs: Epochs = 200,
    device: Device = "cpu",
    save: Annotated[
        Path | None, typer.Option(help="Write the weights of the selected epoch to this file (a state dict).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Train one model and print its accuracies and losses."""
    with errors_without_traceback():
        from wtawp.experiments.execution.training import train_one
        from wtawp.experiments.plans.defaults import default_awp
        from wtawp.experiments.spec import Run, Setting

        refuse_unwritable(save)
        with as_bad_parameter():
            awp = None if plain else default_awp(model, dataset, rho=rho, lam=lam)
            if awp is None and not plain:
                raise ValueError(f"the weights of {model} cannot be perturbed; train it with --plain")
            run = Run(Setting(dataset=dataset, model=model, awp=awp, epochs=epochs), split, init)
        with progress_bar("training", quiet=as_json) as progress:
            fit = train_one(run, device=device, save=save, progress=progress)
    if as_json:
        measured = {"epoch": fit.epoch, "accuracy": fit.accuracy, "loss": fit.loss}
        typer.echo(json.dumps({"setting": run.setting.content, **measured}))
        return
    table = Table("part", "accuracy, %", "loss", title=f"{run.setting}, epoch {fit.epoch} of {epochs}")
    for part in ("train", "val", "test"):
        table.add_row(part, f"{100 * fit.accuracy[part]:.2f}", f"{fit.loss[part]:.3f}")
    console.print(table)


@app.command()
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
    store: StorePath = None,
    as_json: Json = False,
) -> None:
    """Show stored results without training anything: those of the paper beside its numbers, and your own.

    Without a label, everything that is stored is shown.
    """
    with errors_without_traceback():
        from wtawp.experiments.report.artifacts import read_artifacts
        from wtawp.experiments.store import Store, default_path, load_all

        for path in (html, markdown):
            refuse_unwritable(path)
        artifacts = artifacts or looks
        if artifacts is not None and html is None:
            raise typer.BadParameter("--artifacts are shown on a page; add --html FILE")
        shown = [] if artifacts is None else read_artifacts(artifacts)
        plans = _plans_of_the_paper(labels or ["all"], scale)
        if records:
            reports = _reports_of_records(plans, load_all(records), everything=not labels)
        elif shown and not labels and store is None and not default_path().exists():
            reports = []  # a page of artifacts alone
        else:
            with Store(store, create=False) as opened:
                if labels:
                    reports = reports_of(plans, opened)
                else:
                    reports = _reports_of_records(plans, opened.records(), everything=True)
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
    if as_json or html is markdown is folder is None:
        _show(reports, as_json)


def _reports_of_records(plans: "list[Plan]", records: "list[Record]", *, everything: bool) -> "list[PlanReport]":
    """Summarise plans of the paper; with `everything`, those of which a run is stored, after the user's own runs."""
    from wtawp.experiments.plans.own_runs import own_plans
    from wtawp.experiments.results.summary import summarise

    reports = [summarise(plan, records) for plan in plans]
    if not everything:
        return reports
    own, num_unreadable = own_plans(records)
    if num_unreadable:
        stderr_console.print(
            f"{num_unreadable} records are left out: their settings name a model, an attack or a data set that is not "
            "registered here, or are of another version; `wtawp results ls` shows them.",
            style="yellow", highlight=False, soft_wrap=True,
        )  # fmt: skip
    stored = [summarise(plan, records) for plan in own] + [r for r in reports if r.records or r.failed]
    return stored or reports


def _plans_of_the_paper(labels: list[str], scale: "Scale") -> "list[Plan]":
    """The plans of labels at a scale; "all" stands for all labels."""
    from wtawp.experiments.plans.paper import plan, plans
    from wtawp.experiments.plans.scale import at_scale

    chosen = dict.fromkeys(each for label in labels for each in (plans() if label == "all" else [label]))
    return [at_scale(plan(label), scale) for label in chosen]


def make_engine(name: str, workers: int | None, device: str) -> "Engine":
    """Make the engine of the option --engine.

    Args:
        name: "local" or "ray".
        workers: The number of worker processes; None uses one for each core, or one on a GPU.
        device: "cpu" or "cuda".

    Returns:
        The engine.
    """
    from wtawp.experiments.execution.engines import local

    if name == "ray":
        from wtawp.experiments.execution.engine_ray import ray_cluster

        return ray_cluster(workers=workers, gpus=0 if device == "cpu" else 1)
    return local(workers or ((os.cpu_count() or 1) if device == "cpu" else 1))


def sweep(
    plans: "Sequence[Plan]",
    store: Path | None,
    device: str,
    tf32: bool,
    engine: "Engine",
    as_json: bool,
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
        html: A file for the page with the results; by default none is written.

    Raises:
        typer.Exit: With status 1 if a run failed, and 130 if the sweep was interrupted.
    """
    from wtawp.experiments.execution.runner import run_plans
    from wtawp.experiments.store import Store

    def announce(sentence: str) -> None:
        text = escape_controls(sentence)
        stderr_console.print(text, style="yellow", highlight=False, markup=False, soft_wrap=True)

    with Store(store) as opened:
        try:
            with progress_bar("checking", quiet=as_json) as progress:
                outcome = run_plans(
                    plans, opened, engine=engine, device=device, tf32=tf32, progress=progress, announce=announce
                )
        except KeyboardInterrupt:
            stderr_console.print(
                "Stopped. Finished runs are stored: the same command continues from here.", highlight=False
            )
            raise typer.Exit(130) from None
        reports = reports_of(plans, opened)
        _show(reports, as_json)
        if html is not None:
            from wtawp.experiments.report.html import render_html

            write_atomic(html, render_html(reports).encode())
            stderr_console.print(f"Written: {html.resolve()}", highlight=False, soft_wrap=True)
        failures = [r for plan in plans for r in opened.records((run.key for run in plan.runs()), status="failed")]
        counts = (
            f"{outcome.trained} runs trained, {outcome.known} known before, {outcome.failed} failed; in {opened.path}"
        )
    stderr_console.print(counts, highlight=False, soft_wrap=True)
    if outcome.failed:
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
