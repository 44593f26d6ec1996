"""`wtawp data`: data sets."""

from typing import Annotated

import typer
from rich.table import Table

from wtawp.cli.shared import app, console, errors_in_plain_words

data_app = typer.Typer(no_args_is_help=True, help="Data sets: what there is, where it is, what it is like.")
app.add_typer(data_app, name="data")
Names = Annotated[list[str] | None, typer.Argument(help="Names as `wtawp data list` shows them.", show_default=False)]


@data_app.command("list")
def data_list() -> None:
    """List every data set, its size, and where its files are."""
    from wtawp.graphs import dataset_names, dataset_spec, locate_dataset  # none of them loads torch

    table = Table("name", "classifies", "nodes", "edges", "classes", "where")
    with errors_in_plain_words():
        for name in dataset_names():
            spec = dataset_spec(name)
            sizes = ("?" if size is None else f"{size:,}" for size in (spec.nodes, spec.edges, spec.classes))
            table.add_row(name, f"{spec.level}s", *sizes, locate_dataset(name))
    console.print(table)


@data_app.command("get")
def data_get(names: Annotated[list[str], typer.Argument(help="Names as `wtawp data list` shows them.")]) -> None:
    """Fetch data sets that are not here yet, and verify those that are."""
    from wtawp.graphs import dataset_spec, fetch_dataset

    with errors_in_plain_words():
        for name in names:
            dataset_spec(name)  # an unknown name is noticed before anything is fetched
        for name in names:
            paths = fetch_dataset(name)
            folder = f"in {paths[0].parent}" if paths else "comes with the package"
            console.print(f"{name}: {folder}", highlight=False, soft_wrap=True)


@data_app.command("check")
def data_check(names: Names = None) -> None:
    """Verify the sha256 of files that are here; of named data sets, every file must be."""
    from wtawp.graphs import dataset_names, dataset_spec, is_intact, locate

    failed, table = False, Table("file", "where", "state")
    with errors_in_plain_words():
        for file in (file for name in names or dataset_names() for file in dataset_spec(name).files):
            place, path = locate(file)
            state = "missing" if place == "not here" else "ok" if is_intact(file, path) else "DAMAGED"
            failed |= state == "DAMAGED" or (state == "missing" and bool(names))
            if names or state != "missing":
                table.add_row(file.path, place, state)
    console.print(table if table.row_count else "No published file is here.")
    if failed:
        raise typer.Exit(1)


@data_app.command("info")
def data_info(name: Annotated[str, typer.Argument(help="A name, or the path of a graph of your own.")]) -> None:
    """Print what a data set is like; it is fetched if it is not here."""
    from wtawp.graphs import describe, load

    with errors_in_plain_words():
        about = describe(load(name))
    table = Table(title=name, show_header=False)
    if about.homophily is None:
        table.add_row("graphs", f"{about.graphs:,}")
    table.add_row("nodes", f"{about.nodes:,}")
    table.add_row("undirected edges", f"{about.edges:,}")
    table.add_row("features", f"{about.features:,}")
    table.add_row("classes", f"{about.classes:,}")
    table.add_row("labelled", f"{about.labelled:,}")
    table.add_row("majority share", f"{about.majority:.4f}")
    table.add_row("mean degree", f"{about.mean_degree:.2f}")
    if about.homophily is not None:
        table.add_row("edge homophily", f"{about.homophily:.3f}")
    console.print(table)
