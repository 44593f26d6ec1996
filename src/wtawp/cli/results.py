"""`wtawp results`: records of runs."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from wtawp.cli.shared import app, console, errors_in_plain_words

results_app = typer.Typer(no_args_is_help=True, help="Records of runs: what there is, and moving it between machines.")
app.add_typer(results_app, name="results")
StorePath = Annotated[
    Path | None, typer.Option("--store", help="The store; results.sqlite in $WTAWP_HOME or the user data folder.")
]
AsJson = Annotated[bool, typer.Option("--json", help="For machines.")]
OfDevice = Annotated[str | None, typer.Option("--device", help="Only this, as `wtawp results ls` names it.")]


def _in_words(content: dict[str, Any]) -> str:
    """A setting on one line; one from another version, which may have other fields, as it is."""
    from wtawp.experiments.spec import Setting

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
    from wtawp.experiments.store.database import Store

    with errors_in_plain_words(), Store(store, create=False) as results:
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
    from wtawp.experiments.store.database import Store

    with errors_in_plain_words(), Store(store, create=False) as results:
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
    from wtawp.experiments.store.database import Store

    with errors_in_plain_words(), Store(store, create=False) as results:
        count = results.export(file, device=device)
    console.print(f"{count:,} records in {file}", highlight=False, markup=False, soft_wrap=True)


@results_app.command("import")
def results_import(
    files: Annotated[list[Path], typer.Argument(help="What `wtawp results export` wrote.")], store: StorePath = None
) -> None:
    """Add the records of files, of each file all or none; what is known already is left as it is."""
    from wtawp.experiments.store.database import Store

    with errors_in_plain_words(), Store(store) as results:
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
    from wtawp.experiments.store.database import Store

    if not failed and device is None:
        raise typer.BadParameter("say what to delete: --failed, --device NAME or both")
    with errors_in_plain_words(), Store(store, create=False) as results:
        rows = [row for row in results.summary() if device in (None, row.device)]
        count = sum(row.failed if failed else row.done + row.failed for row in rows)
        if count and not yes:
            typer.confirm(f"Delete {count:,} records from {results.path}?", abort=True)
        pruned = results.prune(failed=failed, device=device) if count else 0
    console.print(f"{pruned:,} records deleted", highlight=False)
