"""`wtawp data`: list, download, verify and describe data sets."""

import json
from typing import Annotated

import typer
from rich.table import Table

from wtawp.cli.completion import complete_dataset
from wtawp.cli.options import Dataset, Json
from wtawp.cli.printing import escape
from wtawp.cli.shared import StrictTyper, app, console, errors_without_traceback, example

data_app = StrictTyper(no_args_is_help=True, help="List, download, verify and describe data sets.")
app.add_typer(data_app, name="data")
NAMES = typer.Argument(
    autocompletion=complete_dataset, help="Names as `wtawp data list` shows them.", show_default=False
)


@data_app.command("list", epilog=example("wtawp data list"))
def data_list(as_json: Json = False) -> None:
    """List every data set, its size, and where its files are."""
    from wtawp.graphs import dataset_names, dataset_spec, locate_dataset  # none of them imports torch

    if as_json:
        names = ("name", "level", "source", "nodes", "edges", "features", "classes")
        specs = [dataset_spec(name) for name in dataset_names()]
        with errors_without_traceback():
            rows = [{n: getattr(spec, n) for n in names} | {"where": locate_dataset(spec.name)} for spec in specs]
        typer.echo(json.dumps(rows, indent=1))
        return
    table = Table("name", "classifies", "nodes", "edges", "classes", "where")
    with errors_without_traceback():
        for name in dataset_names():
            spec = dataset_spec(name)
            sizes = ("?" if size is None else f"{size:,}" for size in (spec.nodes, spec.edges, spec.classes))
            table.add_row(name, f"{spec.level}s", *sizes, locate_dataset(name))
    console.print(table)


@data_app.command("get", epilog=example("wtawp data get cora citeseer"))
def data_get(names: Annotated[list[str], NAMES]) -> None:
    """Download data sets that are not on this machine, and verify those that are."""
    from wtawp.graphs import dataset_spec, fetch_dataset

    with errors_without_traceback():
        for name in [dataset_spec(name).name for name in names]:  # refuses unknown names before it downloads anything
            paths = fetch_dataset(name)
            folder = f"in {paths[0].parent}" if paths else "comes with the package"
            console.print(f"{name}: {folder}", highlight=False, soft_wrap=True)


@data_app.command("check", epilog=example("wtawp data check", "wtawp data check cora"))
def data_check(names: Annotated[list[str] | None, NAMES] = None, as_json: Json = False) -> None:
    """Verify the sha256 of the files on this machine; all files of named data sets must be there."""
    from wtawp.graphs import dataset_names, dataset_spec, is_intact, locate

    failed, rows = False, []
    with errors_without_traceback():
        for file in (file for name in names or dataset_names() for file in dataset_spec(name).files):
            location, path = locate(file)
            state = "missing" if location == "not here" else "ok" if is_intact(file, path) else "DAMAGED"
            failed |= state == "DAMAGED" or (state == "missing" and bool(names))
            if names or state != "missing":
                rows.append((file.path, location, state))
    if as_json:
        typer.echo(json.dumps([dict(zip(("file", "where", "state"), row, strict=True)) for row in rows], indent=1))
    else:
        table = Table("file", "where", "state")
        for row in rows:
            table.add_row(*row)
        console.print(table if rows else "No published file is on this machine.")
    if failed:
        raise typer.Exit(1)


@data_app.command("info", epilog=example("wtawp data info cora", "wtawp data info mine.npz --json"))
def data_info(dataset: Dataset, as_json: Json = False) -> None:
    """Print the sizes and statistics of a data set, which is downloaded if necessary."""
    from wtawp.graphs import describe, load

    with errors_without_traceback():
        description = describe(load(dataset))
    if as_json:
        typer.echo(json.dumps(vars(description), indent=1))
        return
    table = Table(title=escape(dataset), show_header=False)
    if description.homophily is None:
        table.add_row("graphs", f"{description.graphs:,}")
    table.add_row("nodes", f"{description.nodes:,}")
    table.add_row("undirected edges", f"{description.edges:,}")
    table.add_row("features", f"{description.features:,}")
    table.add_row("classes", f"{description.classes:,}")
    table.add_row("labelled", f"{description.labelled:,}")
    table.add_row("majority share", f"{description.majority:.4f}")
    table.add_row("mean degree", f"{description.mean_degree:.2f}")
    if description.homophily is not None:
        table.add_row("edge homophily", f"{description.homophily:.3f}")
    console.print(table)
