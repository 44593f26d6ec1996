"""`wtawp data`: list, download, verify and describe data sets."""

from typing import Annotated

import typer
from rich.table import Table

from wtawp.cli.shared import app, console, errors_without_traceback

data_app = typer.Typer(no_args_is_help=True, help="List, download, verify and describe data sets.")
app.add_typer(data_app, name="data")
Names = Annotated[list[str] | None, typer.Argument(help="Names as `wtawp data list` shows them.", show_default=False)]


@data_app.command("list")
def data_list() -> None:
    """List every data set, its size, and where its files are."""
    from wtawp.graphs import dataset_names, dataset_spec, locate_dataset  # none of them imports torch

    table = Table("name", "classifies", "nodes", "edges", "classes", "where")
    with errors_without_traceback():
        for name in dataset_names():
            spec = dataset_spec(name)
            sizes = ("?" if size is None else f"{size:,}" for size in (spec.nodes, spec.edges, spec.classes))
            table.add_row(name, f"{spec.level}s", *sizes, locate_dataset(name))
    console.print(table)


@data_app.command("get")
def data_get(names: Annotated[list[str], typer.Argument(help="Names as `wtawp data list` shows them.")]) -> None:
    """Download data sets that are not on this machine, and verify those that are."""
    from wtawp.graphs import dataset_spec, fetch_dataset

    with errors_without_traceback():
        for name in names:
            dataset_spec(name)  # refuse an unknown name before anything is downloaded
        for name in names:
            paths = fetch_dataset(name)
            folder = f"in {paths[0].parent}" if paths else "comes with the package"
            console.print(f"{name}: {folder}", highlight=False, soft_wrap=True)


@data_app.command("check")
def data_check(names: Names = None) -> None:
    """Verify the sha256 of the files on this machine; all files of named data sets must be there."""
    from wtawp.graphs import dataset_names, dataset_spec, is_intact, locate

    failed, table = False, Table("file", "where", "state")
    with errors_without_traceback():
        for file in (file for name in names or dataset_names() for file in dataset_spec(name).files):
            location, path = locate(file)
            state = "missing" if location == "not here" else "ok" if is_intact(file, path) else "DAMAGED"
            failed |= state == "DAMAGED" or (state == "missing" and bool(names))
            if names or state != "missing":
                table.add_row(file.path, location, state)
    console.print(table if table.row_count else "No published file is on this machine.")
    if failed:
        raise typer.Exit(1)


@data_app.command("info")
def data_info(
    name: Annotated[str, typer.Argument(help="A name as `wtawp data list` shows it, or the path of your own graph.")],
) -> None:
    """Print the sizes and statistics of a data set, which is downloaded if necessary."""
    from wtawp.graphs import describe, load

    with errors_without_traceback():
        description = describe(load(name))
    table = Table(title=name, show_header=False)
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
