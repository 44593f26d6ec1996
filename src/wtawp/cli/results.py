"""`wtawp results`: list, show, check, export, import and delete the records of runs."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from wtawp.cli.options import Json, StorePath
from wtawp.cli.printing import escape
from wtawp.cli.shared import app, console, errors_without_traceback, escape_controls

results_app = typer.Typer(no_args_is_help=True, help="List, show, check, export, import and delete records of runs.")
app.add_typer(results_app, name="results")
OfDevice = Annotated[
    str | None, typer.Option("--device", help="Only records of this device, as `wtawp results ls` names it.")
]


def _describe(content: Any) -> str:
    """A setting on one line, as JSON if this version cannot read it; no module of the user is imported."""
    from wtawp.experiments.spec import Setting
    from wtawp.experiments.spec.record_checks import wrong_setting_fields

    if wrong_setting_fields(content):
        return f"unreadable: {json.dumps(content)}"
    try:
        return str(Setting.from_content(content))
    except (KeyError, TypeError, ValueError):
        return json.dumps(content)


@results_app.command("ls")
def results_ls(
    failed: Annotated[bool, typer.Option("--failed", help="List one row for each failed run.")] = False,
    as_json: Json = False,
    store: StorePath = None,
) -> None:
    """List settings and devices with the numbers of their runs, or the failed runs."""
    from wtawp.experiments.store import Store

    with errors_without_traceback(), Store(store, create=False) as results:
        records = results.records(status="failed") if failed else []
        rows = [] if failed else results.summary()
    if as_json:
        typer.echo(json.dumps([vars(row) for row in (records if failed else rows)], indent=1))
        return
    headers: tuple[str, ...] = ("setting", "device", "done", "failed", "test accuracy, %", "last", "its key")
    has_unreadable = any(row.unreadable for row in rows)
    headers += ("unreadable",) * has_unreadable
    table = Table(*(("key", "setting", "split", "init", "device", "error") if failed else headers))
    for r in records:
        reason = (r.error or "").strip().rpartition("\n")[2]
        table.add_row(r.key, *map(escape, (_describe(r.setting), str(r.split), str(r.init), r.device, reason)))
    for s in rows:
        mean = "" if s.accuracy is None else f"{100 * s.accuracy:.2f}"
        words = (escape(_describe(s.setting)), escape(s.device))
        table.add_row(*words, f"{s.done:,}", f"{s.failed:,}", mean, escape(s.last[:16]), escape(s.key),
                      *(f"{s.unreadable:,}",) * has_unreadable)  # fmt: skip
    console.print(table if table.row_count else f"No {'failed ' * failed}runs.")


@results_app.command("show")
def results_show(
    key: Annotated[str, typer.Argument(help="The key of a run, or its first characters.")],
    as_json: Json = False,
    store: StorePath = None,
) -> None:
    """Print the setting and the results of a run on every device, and the traceback if it failed."""
    from wtawp.experiments.store import Store

    with errors_without_traceback(), Store(store, create=False) as results:
        records = results.find(key)
    if as_json:
        typer.echo(json.dumps([vars(record) for record in records], indent=1))
        return
    for r in records:
        table = Table(title=escape(f"{r.key} on {r.device}: {r.status}"), show_header=False)
        table.add_row("setting", escape(_describe(r.setting)))
        table.add_row("split, initialisation", f"{r.split}, {r.init}")
        if r.epoch is not None:
            table.add_row("selected epoch", str(r.epoch))
        for name, parts in (("accuracy", r.accuracy), ("loss", r.loss), ("version", r.versions)):
            for part, value in (parts or {}).items():
                table.add_row(escape(f"{name}, {part}"), escape(value if isinstance(value, str) else f"{value:.4f}"))
        table.add_row("stored", ", ".join(name for name in ("history", "scores") if getattr(r, name)) or "nothing more")
        table.add_row("created", f"{escape(r.created)}, in {r.seconds:.2f} s")
        console.print(table)
        if r.error:
            traceback = escape_controls(r.error, keep="\n\t")
            console.print(traceback, style="red", highlight=False, markup=False, soft_wrap=True)


@results_app.command("check")
def results_check(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Stores, files that `wtawp results export` wrote, and folders of such files."),
    ] = None,
    as_json: Json = False,
    store: StorePath = None,
) -> None:
    """Check stores and files of records to the end: structure, checksums, values. Without files, check the store.

    The exit status is 1 if anything is wrong. Records from before there were checksums are counted as unchecked: they
    can be right, and nobody would notice that a number changed.
    """
    from wtawp.experiments.store import check_file, default_path, record_files

    with errors_without_traceback():
        checks = [check_file(path) for path in record_files(files or [store or default_path()])]
    if as_json:
        typer.echo(json.dumps([vars(check) for check in checks], indent=1))
    else:
        table = Table("file", "done", "failed", "unchecked", "problems")
        for c in checks:
            table.add_row(escape(c.path), *(f"{n:,}" for n in (c.done, c.failed, c.unchecked, len(c.problems))))
        console.print(table)
        for c in checks:
            for problem in c.problems:
                text = escape_controls(f"{c.path}: {problem}")
                console.print(text, style="red", highlight=False, markup=False, soft_wrap=True)
    if any(c.problems for c in checks):
        raise typer.Exit(1)


@results_app.command("export")
def results_export(
    file: Annotated[Path, typer.Argument(help="File of JSON lines, compressed if its name ends in .gz.")],
    device: OfDevice = None,
    salvage: Annotated[
        bool, typer.Option("--salvage", help="Write what can still be read of a damaged store, of all devices.")
    ] = False,
    store: StorePath = None,
) -> None:
    """Write records to a file, to be imported on another machine."""
    from wtawp.experiments.store import Store, default_path
    from wtawp.experiments.store import salvage as write_readable

    lost = ""
    with errors_without_traceback():
        if salvage and device is not None:
            raise typer.BadParameter("--salvage writes the records of all devices; leave out --device")
        if salvage:
            count, unreadable = write_readable(store or default_path(), file)
            lost = f"; {unreadable:,} rows hold no readable record, and others may be lost"
        else:
            with Store(store, create=False) as results:
                count = results.export(file, device=device)
    console.print(f"{count:,} records in {file}{lost}", highlight=False, markup=False, soft_wrap=True)


@results_app.command("import")
def results_import(
    files: Annotated[list[Path], typer.Argument(help="Files that `wtawp results export` wrote.")],
    store: StorePath = None,
) -> None:
    """Add the records of files: all records of a file or, after an error, none. Known records are not changed."""
    from wtawp.experiments.store import Store

    with errors_without_traceback(), Store(store) as results:
        for file in files:
            new, known = results.import_(file)
            console.print(f"{file}: {new:,} new, {known:,} known", highlight=False, markup=False, soft_wrap=True)


@results_app.command("prune")
def results_prune(
    failed: Annotated[bool, typer.Option("--failed", help="Delete only failed runs.")] = False,
    unreadable: Annotated[
        bool, typer.Option("--unreadable", help="Delete only records that are damaged or cannot be right.")
    ] = False,
    device: OfDevice = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    store: StorePath = None,
) -> None:
    """Delete the records that meet all conditions: of failed runs, unreadable ones, those of a device."""
    from wtawp.experiments.spec import RecordError
    from wtawp.experiments.store import Store

    if not failed and not unreadable and device is None:
        raise typer.BadParameter("choose what to delete: --failed, --unreadable, --device NAME or several of them")
    with errors_without_traceback(), Store(store, create=False) as results:
        if unreadable:
            damaged = [
                row for row in results.rows(status="failed" if failed else None, device=device)
                if isinstance(row.record, RecordError)
            ]  # fmt: skip
            for row in damaged:
                text = escape_controls(f"{row.key}: {row.record}")
                console.print(text, highlight=False, markup=False, soft_wrap=True)
            count = len(damaged)
        else:
            rows = [row for row in results.summary() if device in (None, row.device)]
            count = sum(row.failed if failed else row.done + row.failed + row.unreadable for row in rows)
        if count and not yes:
            typer.confirm(f"Delete {count:,} records from {results.path}?", abort=True)
        pruned = results.prune(failed=failed, device=device, unreadable=unreadable) if count else 0
    console.print(f"{pruned:,} records deleted", highlight=False)
