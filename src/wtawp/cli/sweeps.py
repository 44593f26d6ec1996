"""Commands that train and report: the paper's tables, plans of one's own, a comparison, one model."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from wtawp.cli.options import (
    Columns,
    Dataset,
    Device,
    EngineName,
    Epochs,
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
    can_be_written,
    values_are_parameters,
)
from wtawp.cli.printing import print_table
from wtawp.cli.shared import app, console, errors_in_plain_words, progress_bar, stderr_console

if TYPE_CHECKING:
    from wtawp.experiments.execution.engines import Engine
    from wtawp.experiments.results.summary import PlanReport
    from wtawp.experiments.spec import Plan, Scale


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
    """Train what a table or figure of the paper needs and show it beside the printed numbers.

    Without a label, list what there is. What was trained before is not trained again.
    """
    from wtawp.experiments.plans.paper import PAGES, plans

    if not labels and as_json:
        listed = {label: found.num_runs for label, found in plans().items()}
        typer.echo(json.dumps(listed))
        return
    if not labels:
        table = Table("label", "what", "runs")
        for label, found in plans().items():
            table.add_row(label, found.title, f"{found.num_runs:,}")
        for label, title in PAGES.items():
            table.add_row(label, title, "none: counted")
        console.print(table)
        return
    if pages := [label for label in labels if label in PAGES]:
        from wtawp.experiments.report.dataset_tables import graph_dataset_table, node_dataset_table

        for label in pages:
            print_table(label, node_dataset_table() if label == "tab:dataset" else graph_dataset_table())
        if not (labels := [label for label in labels if label not in PAGES]):
            return
    with errors_in_plain_words():
        with values_are_parameters():
            chosen = [plan.only(row or (), column or ()) for plan in _of_the_paper(labels, scale)]
        sweep(chosen, store, device, tf32, engine_named(engine, workers, device), as_json)


@app.command()
def run(
    plan: Annotated[Path, typer.Argument(help="A plan in TOML.")],
    device: Device = "cpu",
    tf32: Tf32 = False,
    engine: EngineName = "local",
    workers: Workers = None,
    store: StorePath = None,
    as_json: Json = False,
) -> None:
    """Carry out a plan of your own; see the documentation for its keys."""
    with errors_in_plain_words():
        from wtawp.experiments.plans.toml_plan import read_plan

        sweep([read_plan(plan)], store, device, tf32, engine_named(engine, workers, device), as_json)


@app.command()
def compare(
    dataset: Dataset,
    model: Model = "GCN",
    rho: Rho = None,
    lam: Lam = None,
    splits: Annotated[int, typer.Option(min=2, help="Paired splits.")] = 5,
    inits: Annotated[int, typer.Option(min=1, help="Initialisations of each split.")] = 2,
    epochs: Epochs = 200,
    device: Device = "cpu",
    tf32: Tf32 = False,
    workers: Workers = None,
    store: StorePath = None,
    as_json: Json = False,
) -> None:
    """Does WT-AWP help on these data, and by how much? Paired runs with and without it."""
    with errors_in_plain_words():
        from wtawp.experiments.plans.defaults import default_awp
        from wtawp.experiments.spec import Cell, Plan, Setting

        with values_are_parameters():
            awp = default_awp(model, dataset, rho=rho, lam=lam)
            if awp is None:
                raise ValueError(f"the weights of {model} cannot be perturbed; compare another model")
            rows = {model: None, f"{model}+WT-AWP": awp}
            cells = tuple(
                Cell(row, dataset, Setting(dataset=dataset, model=model, awp=awp, epochs=epochs), splits, inits)
                for row, awp in rows.items()
            )
        plan = Plan("comparison", f"{model} with and without WT-AWP", cells, ((model, f"{model}+WT-AWP"),))
        sweep([plan], store, device, tf32, engine_named("local", workers, device), as_json)


@app.command()
def train(
    dataset: Dataset,
    model: Model = "GCN",
    rho: Rho = None,
    lam: Lam = None,
    plain: Annotated[bool, typer.Option("--plain", help="Train without perturbation.")] = False,
    split: Annotated[int, typer.Option(help="Seed of the split.")] = 0,
    init: Annotated[int, typer.Option(help="Seed of the initial weights and of dropout.")] = 0,
    epochs: Epochs = 200,
    device: Device = "cpu",
    save: Annotated[Path | None, typer.Option(help="Write the weights of the selected epoch (a state dict).")] = None,
    as_json: Json = False,
) -> None:
    """Train one model and print what it measures."""
    with errors_in_plain_words():
        from wtawp.experiments.execution.training import train_one
        from wtawp.experiments.plans.defaults import default_awp
        from wtawp.experiments.spec import Run, Setting

        can_be_written(save)
        with values_are_parameters():
            awp = None if plain else default_awp(model, dataset, rho=rho, lam=lam)
            if awp is None and not plain:
                raise ValueError(f"the weights of {model} cannot be perturbed; train it with --plain")
            wanted = Run(Setting(dataset=dataset, model=model, awp=awp, epochs=epochs), split, init)
        with progress_bar("training", quiet=as_json) as progress:
            measured = train_one(wanted, device=device, save=save, progress=progress)
    if as_json:
        measures = {"epoch": measured.epoch, "accuracy": measured.accuracy, "loss": measured.loss}
        typer.echo(json.dumps({"setting": wanted.setting.content, **measures}))
        return
    table = Table("part", "accuracy, %", "loss", title=f"{wanted.setting}, epoch {measured.epoch} of {epochs}")
    for part in ("train", "val", "test"):
        table.add_row(part, f"{100 * measured.accuracy[part]:.2f}", f"{measured.loss[part]:.3f}")
    console.print(table)


@app.command()
def report(
    labels: Labels = None,
    scale: Size = "full",
    html: Annotated[Path | None, typer.Option(help="Write a page with tables and figures.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write Markdown.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Write Markdown and figures into a folder.")] = None,
    looks: Annotated[
        Path | None, typer.Option(help="Show on the page what landscape, smoothness, sharpness and bound wrote here.")
    ] = None,
    records: Annotated[
        list[Path] | None, typer.Option(help="Read exported records, a file or a folder of them, instead of the store.")
    ] = None,
    store: StorePath = None,
    as_json: Json = False,
) -> None:
    """Show what was measured beside the paper; it trains nothing."""
    with errors_in_plain_words():
        from wtawp.experiments.report.artifacts import read_artifacts
        from wtawp.experiments.results.summary import summarise
        from wtawp.experiments.store.database import Store, default_path, load_all

        for path in (html, markdown):
            can_be_written(path)
        if looks is not None and html is None:
            raise typer.BadParameter("--looks are shown on a page; give --html FILE")
        kept = [] if looks is None else read_artifacts(looks)
        plans = _of_the_paper(labels or ["all"], scale)
        if records:
            given = load_all(records)
            found = [summarise(plan, given) for plan in plans]
        elif kept and not labels and store is None and not default_path().exists():
            found = []  # a page of looks alone: there is nothing else
        else:
            with Store(store, create=False) as opened:
                found = reports_of(plans, opened)
        if folder is not None:
            from wtawp.experiments.report.markdown import write_folder

            write_folder(found, folder)
        if html is not None:
            from wtawp.experiments.report.html import render_html

            html.write_text(render_html(found, kept), encoding="utf-8")
        if markdown is not None:
            from wtawp.experiments.report.markdown import render_markdown

            markdown.write_text(render_markdown(found), encoding="utf-8")
    for path in (html, markdown, folder):
        if path is not None:
            stderr_console.print(f"Written: {path.resolve()}", highlight=False, soft_wrap=True)
    if as_json or html is markdown is folder is None:
        _show(found, as_json)


def _of_the_paper(labels: list[str], scale: "Scale") -> "list[Plan]":
    from wtawp.experiments.plans.paper import plan, plans
    from wtawp.experiments.plans.scale import at_scale

    chosen = dict.fromkeys(each for label in labels for each in (plans() if label == "all" else [label]))
    return [at_scale(plan(label), scale) for label in chosen]


def engine_named(name: str, workers: int | None, device: str) -> "Engine":
    from wtawp.experiments.execution.engines import local

    if name == "ray":
        from wtawp.experiments.execution.engine_ray import ray_cluster

        return ray_cluster(workers=workers, gpus=0 if device == "cpu" else 1)
    return local(workers or ((os.cpu_count() or 1) if device == "cpu" else 1))


def sweep(
    plans: "Sequence[Plan]", store: Path | None, device: str, tf32: bool, engine: "Engine", as_json: bool
) -> None:
    """Train what is missing, show all; the exit status is 1 if a run failed, 130 if it was interrupted."""
    from wtawp.experiments.execution.runner import run_plans
    from wtawp.experiments.store.database import Store

    with Store(store) as opened:
        try:
            with progress_bar("checking", quiet=as_json) as progress:
                outcome = run_plans(plans, opened, engine=engine, device=device, tf32=tf32, progress=progress)
        except KeyboardInterrupt:
            stderr_console.print("Stopped. What is done is kept: the same command goes on from here.", highlight=False)
            raise typer.Exit(130) from None
        _show(reports_of(plans, opened), as_json)
        failures = [r for plan in plans for r in opened.records((run.key for run in plan.runs()), status="failed")]
        where = (
            f"{outcome.trained} runs trained, {outcome.known} known before, {outcome.failed} failed; in {opened.path}"
        )
    stderr_console.print(where, highlight=False, soft_wrap=True)
    if outcome.failed:
        if failures:
            reason = (failures[0].error or "no reason kept").strip().splitlines()[-1]
            stderr_console.print(
                f"The first failed with: {reason}", style="red", highlight=False, markup=False, soft_wrap=True
            )
        stderr_console.print(
            "Failed runs: `wtawp results ls --failed`; the same command tries them again.", style="red"
        )
        raise typer.Exit(1)


def reports_of(plans: "Sequence[Plan]", store: Any) -> "list[PlanReport]":
    from wtawp.experiments.results.summary import summarise

    return [summarise(plan, store.records(run.key for run in plan.runs())) for plan in plans]


def _show(reports: "Sequence[PlanReport]", as_json: bool) -> None:
    from wtawp.experiments.report.contents import tables_of
    from wtawp.experiments.report.export import export_data

    if as_json:
        typer.echo(json.dumps([export_data(r) for r in reports]))
        return
    for one in reports:
        for found in tables_of(one):
            print_table(f"{one.plan.name}: {one.plan.title}", found)
