"""The command line: every command is a few lines over `experiments` or `graphs`."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from wtawp import __version__

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Adversarial weight perturbation for graph networks."
)
console = Console()


def _print_version(wanted: bool) -> None:
    if wanted:
        console.print(f"wtawp {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Hold the options that come before a command."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where to write the page.")] = Path("wtawp-demo.html"),
    splits: Annotated[int, typer.Option(min=2, help="Paired splits.")] = 5,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs; WT-AWP needs more than plain training.")] = 600,
    dataset: Annotated[str | None, typer.Option(help="Any node-level graph; Cora where it can be had.")] = None,
) -> None:
    """See it work: the paper's toy story, and a GCN with and without WT-AWP, as a table and a page."""
    from wtawp.experiments import demo_page, run_demo
    from wtawp.experiments.demo import SHARPNESS_RHO, TOY_RHO, demo_dataset
    from wtawp.experiments.page import demo_gain, demo_rows

    if not out.parent.is_dir():
        raise typer.BadParameter(f"{out.parent} is not a folder; make it first or choose another --out")
    columns = (
        TextColumn("{task.description:<28}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    chosen, why = (dataset, "as asked") if dataset is not None else demo_dataset()
    console.print(f"Comparing on {chosen}: {why}.", highlight=False)
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("training", total=1.0)
        result = run_demo(
            dataset=chosen,
            num_splits=splits,
            epochs=epochs,
            progress=lambda share, what: bar.update(task, completed=share, description=what),
        )
    toys = Table("variant", "test accuracy", "last training loss", title=f"Toy: 200 points, rho = {TOY_RHO}")
    for panel in result.toys:
        toys.add_row(panel.name, f"{panel.fit.accuracy['test']:.2f}", f"{panel.fit.history['train_loss'][-1]:.3f}")
    table = Table(
        "method",
        "test accuracy, %",
        f"sharpness at rho {SHARPNESS_RHO}",
        "selected epochs",
        title=f"{result.dataset}, {splits} paired splits",
    )
    for row in demo_rows(result):
        table.add_row(*row)
    console.print(toys, table)
    console.print(f"Difference: {demo_gain(result)}.", highlight=False)
    console.print(result.verdict, highlight=False)
    out.write_text(demo_page(result), encoding="utf-8")
    console.print(f"The page with curves and landscapes: {out.resolve()}", highlight=False, soft_wrap=True)


data_app = typer.Typer(no_args_is_help=True, help="Data sets: what there is, where it is, what it is like.")
app.add_typer(data_app, name="data")
Names = Annotated[list[str] | None, typer.Argument(help="Names as `wtawp data list` shows them.", show_default=False)]


@contextmanager
def _errors_in_plain_words() -> Iterator[None]:
    """Our own errors say what to do; a traceback would bury that."""
    from wtawp.base import WtawpError  # here, because it loads torch

    try:
        yield
    except WtawpError as error:
        console.print(f"Error: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(1) from error


@data_app.command("list")
def data_list() -> None:
    """List every data set, its size, and where its files are."""
    from wtawp.graphs import EMBEDDED, NAMES, PUBLISHED, describe, load, place_of

    table = Table("name", "classifies", "nodes", "edges", "classes", "where")
    with _errors_in_plain_words():
        for name in NAMES:
            about = describe(load(name)) if name in EMBEDDED else PUBLISHED[name]
            kind = PUBLISHED[name].kind if name in PUBLISHED else "node"
            sizes = (f"{size:,}" for size in (about.nodes, about.edges, about.classes))
            table.add_row(name, f"{kind}s", *sizes, place_of(name))
    console.print(table)


@data_app.command("get")
def data_get(names: Annotated[list[str], typer.Argument(help="Names as `wtawp data list` shows them.")]) -> None:
    """Fetch data sets that are not here yet, and verify those that are."""
    from wtawp.graphs import files_of, get

    with _errors_in_plain_words():
        for name in names:
            files_of(name)  # an unknown name is noticed before anything is fetched
        for name in names:
            paths = get(name)
            folder = f"in {paths[0].parent}" if paths else "comes with the package"
            console.print(f"{name}: {folder}", highlight=False, soft_wrap=True)


@data_app.command("check")
def data_check(names: Names = None) -> None:
    """Verify the sha256 of files that are here; of named data sets, every file must be."""
    from wtawp.graphs import PUBLISHED, files_of, is_intact, locate

    failed, table = False, Table("file", "where", "state")
    with _errors_in_plain_words():
        for file in (file for name in names or PUBLISHED for file in files_of(name)):
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

    with _errors_in_plain_words():
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


results_app = typer.Typer(no_args_is_help=True, help="Records of runs: what there is, and moving it between machines.")
app.add_typer(results_app, name="results")
StorePath = Annotated[
    Path | None, typer.Option("--store", help="The store; results.sqlite in $WTAWP_HOME or the user data folder.")
]
AsJson = Annotated[bool, typer.Option("--json", help="For machines.")]
OfDevice = Annotated[str | None, typer.Option("--device", help="Only this, as `wtawp results ls` names it.")]


def _in_words(content: dict[str, Any]) -> str:
    """A setting on one line; one from another version, which may have other fields, as it is."""
    from wtawp.experiments.plan import Setting

    try:
        return str(Setting.from_content(content))
    except (KeyError, TypeError, ValueError):
        return json.dumps(content)


@results_app.command("ls")
def results_ls(
    failed: Annotated[bool, typer.Option("--failed", help="One row for each failed run.")] = False,
    as_json: AsJson = False,
    store: StorePath = None,
) -> None:
    """List settings and devices with the number of their runs, or the runs that failed."""
    from wtawp.experiments.store import Store

    with _errors_in_plain_words(), Store(store, create=False) as results:
        records = results.records(status="failed") if failed else []
        rows = [] if failed else results.summary()
    if as_json:
        typer.echo(json.dumps([vars(row) for row in (records if failed else rows)], indent=1))
        return
    heads = ("setting", "device", "done", "failed", "test accuracy, %", "last", "its key")
    table = Table(*(("key", "setting", "split", "init", "device", "error") if failed else heads))
    for r in records:
        reason = (r.error or "").strip().rpartition("\n")[2]
        table.add_row(r.key, *map(escape, (_in_words(r.setting), str(r.split), str(r.init), r.device, reason)))
    for s in rows:
        mean = "" if s.accuracy is None else f"{100 * s.accuracy:.2f}"
        words = (escape(_in_words(s.setting)), escape(s.device))
        table.add_row(*words, f"{s.done:,}", f"{s.failed:,}", mean, escape(s.last[:16]), s.key)
    console.print(table if table.row_count else f"No {'failed ' * failed}runs.")


@results_app.command("show")
def results_show(
    key: Annotated[str, typer.Argument(help="A run's key, or how it begins.")],
    as_json: AsJson = False,
    store: StorePath = None,
) -> None:
    """Print what a run was and gave, on every device it ran on, and the traceback if it failed."""
    from wtawp.experiments.store import Store

    with _errors_in_plain_words(), Store(store, create=False) as results:
        records = results.find(key)
    if as_json:
        typer.echo(json.dumps([vars(record) for record in records], indent=1))
        return
    for r in records:
        table = Table(title=escape(f"{r.key} on {r.device}: {r.status}"), show_header=False)
        table.add_row("setting", escape(_in_words(r.setting)))
        table.add_row("split, initialisation", f"{r.split}, {r.init}")
        if r.epoch is not None:
            table.add_row("selected epoch", str(r.epoch))
        for name, parts in (("accuracy", r.accuracy), ("loss", r.loss), ("version", r.versions)):
            for part, value in (parts or {}).items():
                table.add_row(escape(f"{name}, {part}"), escape(value if isinstance(value, str) else f"{value:.4f}"))
        table.add_row("kept", ", ".join(name for name in ("history", "scores") if getattr(r, name)) or "nothing more")
        table.add_row("created", f"{escape(r.created)}, in {r.seconds:.2f} s")
        console.print(table)
        if r.error:
            console.print(r.error, style="red", highlight=False, markup=False, soft_wrap=True)


@results_app.command("export")
def results_export(
    file: Annotated[Path, typer.Argument(help="JSON lines; compressed if it ends in .gz.")],
    device: OfDevice = None,
    store: StorePath = None,
) -> None:
    """Write records to a file for another machine."""
    from wtawp.experiments.store import Store

    with _errors_in_plain_words(), Store(store, create=False) as results:
        count = results.export(file, device=device)
    console.print(f"{count:,} records in {file}", highlight=False, markup=False, soft_wrap=True)


@results_app.command("import")
def results_import(
    files: Annotated[list[Path], typer.Argument(help="What `wtawp results export` wrote.")], store: StorePath = None
) -> None:
    """Add the records of files, of each file all or none; what is known already is left as it is."""
    from wtawp.experiments.store import Store

    with _errors_in_plain_words(), Store(store) as results:
        for file in files:
            new, known = results.import_(file)
            console.print(f"{file}: {new:,} new, {known:,} known", highlight=False, markup=False, soft_wrap=True)


@results_app.command("prune")
def results_prune(
    failed: Annotated[bool, typer.Option("--failed", help="Only runs that failed.")] = False,
    device: OfDevice = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    store: StorePath = None,
) -> None:
    """Delete records: the failed ones, those of a device, or with both options the failed ones of that device."""
    from wtawp.experiments.store import Store

    if not failed and device is None:
        raise typer.BadParameter("say what to delete: --failed, --device NAME or both")
    with _errors_in_plain_words(), Store(store, create=False) as results:
        rows = [row for row in results.summary() if device in (None, row.device)]
        count = sum(row.failed if failed else row.done + row.failed for row in rows)
        if count and not yes:
            typer.confirm(f"Delete {count:,} records from {results.path}?", abort=True)
        pruned = results.prune(failed=failed, device=device) if count else 0
    console.print(f"{pruned:,} records deleted", highlight=False)
