"""`wtawp results`: list, show, check, export, import and delete the records of runs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from wtawp.base import shortened
from wtawp.cli.options import Json, StorePath
from wtawp.cli.printing import escape
from wtawp.cli.shared import StrictTyper, announce, app, console, errors_without_traceback, escape_controls, example

if TYPE_CHECKING:
    from wtawp.experiments.spec import Record
    from wtawp.experiments.store.database import Summary

results_app = StrictTyper(no_args_is_help=True, help="List, show, check, export, import and delete records of runs.")
app.add_typer(results_app, name="results")
KEY_LENGTH = 10  # characters of a key that are listed: enough to name it among millions
LONGEST = 200  # characters of a setting that are listed; `results show` prints all

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


@results_app.command("ls", epilog=example("wtawp results ls", "wtawp results ls --failed --json"))
def results_ls(
    failed: Annotated[bool, typer.Option("--failed", help="List one row for each failed run.")] = False,
    as_json: Json = False,
    store: StorePath = None,
) -> None:
    """List settings and devices with the numbers of their runs, or the failed runs."""
    from wtawp.experiments.store import Store, default_path

    path = store or default_path()
    if store is None and not path.exists():
        records, rows = [], []
        announce(f"There is no store of results yet, at {path}; `wtawp compare` or `wtawp results import` makes one.")
    else:
        with errors_without_traceback(), Store(path, create=False) as results:
            records = results.records(status="failed") if failed else []
            rows = [] if failed else results.summary()
    listed: Sequence[Record | Summary] = records if failed else rows
    if as_json:
        typer.echo(json.dumps([vars(row) for row in listed], indent=1))
        return
    if not listed:
        console.print(f"No {'failed ' * failed}runs.")
    for device in dict.fromkeys(row.device for row in listed):
        console.print(f"[bold]{escape(device)}[/bold]", highlight=False)
        if failed:
            console.print(_failed_table([r for r in records if r.device == device]))
        else:
            console.print(_summary_table([r for r in rows if r.device == device]))


def _grid(*headers: str) -> Table:
    """An empty table without frames, so that settings, in the last column, have room on a narrow terminal."""
    grid = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for name in headers:
        is_text = name in ("key", "last", "error", "setting")
        width = KEY_LENGTH if name == "key" else None
        grid.add_column(name, justify="left" if is_text else "right", width=width, overflow="fold",
                        no_wrap=name in ("key", "last"))  # fmt: skip
    return grid


def _summary_table(rows: "Sequence[Summary]") -> Table:
    """The settings of a device; columns about failures are there if there are any."""
    counts = {"failed": [s.failed for s in rows], "unreadable": [s.unreadable for s in rows]}
    shown = [name for name, numbers in counts.items() if any(numbers)]
    grid = _grid("key", "done", *shown, "test %", "last", "setting")
    texts = [_describe(s.setting) for s in rows]
    for i, s in enumerate(rows):
        mean = "" if s.accuracy is None else f"{100 * s.accuracy:.2f}"
        numbers = [f"{s.done:,}", *(f"{counts[name][i]:,}" for name in shown), mean]
        versions = _versions(s.setting) if texts.count(texts[i]) > 1 else ""
        words = (s.last[:10], shortened(texts[i], LONGEST) + versions)
        grid.add_row(escape(s.key[:KEY_LENGTH]), *numbers, *map(escape, words))
    return grid


def _versions(content: Any) -> str:
    """The first digits of the hashes of the user's code and data, which tell settings of the same text apart."""
    hashes = {"code": content.get("code"), "data": content.get("digest")} if isinstance(content, dict) else {}
    named = [f"{name} {digest[:8]}" for name, digest in hashes.items() if isinstance(digest, str)]
    return f" ({', '.join(named)})" if named else ""


def _failed_table(records: "Sequence[Record]") -> Table:
    """The failed runs of a device, each with the last line of its traceback."""
    grid = _grid("key", "split", "init", "error", "setting")
    for r in records:
        reason = (r.error or "").strip().rpartition("\n")[2]
        texts = (r.key[:KEY_LENGTH], str(r.split), str(r.init), shortened(reason, LONGEST))
        grid.add_row(*map(escape, (*texts, shortened(_describe(r.setting), LONGEST))))
    return grid


@results_app.command("show", epilog=example("wtawp results show 3fa4c1"))
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


@results_app.command("check", epilog=example("wtawp results check", "wtawp results check records.jsonl.gz"))
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


@results_app.command("export", epilog=example("wtawp results export records.jsonl.gz"))
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


@results_app.command("import", epilog=example("wtawp results import records.jsonl.gz"))
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


@results_app.command("prune", epilog=example("wtawp results prune --failed --yes"))
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
