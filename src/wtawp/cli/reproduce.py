"""`wtawp reproduce` and `wtawp run`: train what a plan of the paper or of the user asks for, and show the results."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

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
from wtawp.cli.printing import print_table
from wtawp.cli.shared import app, console, errors_without_traceback, example, import_torch_geometric
from wtawp.cli.sweeps import make_engine, plans_of, sweep


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
            chosen = [plan.only(row or (), column or ()) for plan in plans_of(labels, scale)]
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
