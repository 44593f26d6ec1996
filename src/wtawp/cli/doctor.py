"""`wtawp doctor`: what is installed, which devices, folders and data there are, what is missing and how to get it."""

import json
import os
import platform
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Literal

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from wtawp import __version__
from wtawp.base import DataError, home
from wtawp.cli.options import Json
from wtawp.cli.printing import escape
from wtawp.cli.shared import app, console, errors_without_traceback, example, import_torch_geometric

State = Literal["ok", "absent", "problem"]
PURPOSES = {  # of the extras for users; the others are for developers
    "fast": "compiled kernels",
    "cluster": "--engine ray",
    "tune": "`wtawp tune`",
    "log": "TensorBoard",
    "lightning": "Lightning",
    "accelerate": "Accelerate",
}


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that the command checks.

    Attributes:
        topic: What it belongs to: "version", "device", "folder" or "data".
        name: What is checked.
        state: "ok"; "absent" for what is not there and not necessary; or "problem".
        detail: What is there.
        remedy: What to do, for whoever needs it; empty if there is nothing to do.
    """

    topic: str
    name: str
    state: State
    detail: str
    remedy: str = ""


@app.command(epilog=example("wtawp doctor", "wtawp doctor --json"))
def doctor(as_json: Json = False) -> None:
    """Show versions, devices, threads, folders and data on this machine, what is missing, and how to get it.

    The exit status is 1 if something that every command needs is missing or broken.
    """
    with errors_without_traceback():
        checks = [*_versions(), *_devices(), *_folders(), *_data()]
    is_healthy = not any(each.state == "problem" for each in checks)
    if as_json:
        typer.echo(json.dumps({"ok": is_healthy, "findings": [asdict(each) for each in checks]}, indent=1))
    else:
        _print(checks)
        sentence = "Everything that the commands need is there." if is_healthy else "Something is wrong; see above."
        console.print(sentence, highlight=False)
    if not is_healthy:
        raise typer.Exit(1)


def _print(checks: list[Check]) -> None:
    """Print the checks as a table, and below it what to do about those that are not there."""
    colours = {"ok": "green", "absent": "yellow", "problem": "red"}
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for header in ("what", "state", "detail"):
        table.add_column(header, overflow="fold")
    for each in checks:
        table.add_row(escape(each.name), f"[{colours[each.state]}]{each.state}[/]", escape(each.detail))
    console.print(table)
    for remedy in dict.fromkeys(each.remedy for each in checks if each.remedy):
        console.print(f"- {escape(remedy)}", highlight=False, soft_wrap=True)


def _versions() -> Iterator[Check]:
    """Python, this package, and the packages that it declares, with those of its extras."""
    yield Check(topic="version", name="python", state="ok", detail=f"{platform.python_version()}, {sys.executable}")
    yield Check(topic="version", name="wtawp", state="ok", detail=__version__)
    try:
        declared = requires("wtawp") or []
    except PackageNotFoundError:  # imported from a folder of sources
        remedy = "install the package: pip install . in the folder of its pyproject.toml"
        detail = "it is imported, but not installed, so that its dependencies are not known"
        yield Check(topic="version", name="packages", state="absent", detail=detail, remedy=remedy)
        return
    for requirement in declared:
        name, least, extra = parse_requirement(requirement)
        if extra is None or extra in PURPOSES:
            yield _package(name, least, extra)


def parse_requirement(text: str) -> tuple[str, str, str | None]:
    """Read a requirement as the metadata of a package states it.

    Args:
        text: A name with a least version and, for an optional one, the extra that it belongs to.

    Returns:
        The name, the least version ("" if there is none), and the extra; None for what is always required.

    Example:
        >>> parse_requirement("numba>=0.60; extra == 'fast'")
        ('numba', '0.60', 'fast')
    """
    name = re.match(r"[A-Za-z0-9._-]+", text)
    least, extra = re.search(r">=\s*([0-9.]+)", text), re.search(r"extra == ['\"]([^'\"]+)['\"]", text)
    return name[0] if name else text, least[1] if least else "", extra[1] if extra else None


def _package(name: str, least: str, extra: str | None) -> Check:
    """Whether a package is installed, and new enough."""
    purpose = "" if extra is None else f", for {PURPOSES[extra]}"
    wanted = f"'{name}>={least}'" if least else name
    remedy = f"pip install {wanted}" if extra is None else f"for {PURPOSES[extra]}: pip install 'wtawp[{extra}]'"
    try:
        installed = version(name)
    except PackageNotFoundError:
        state: State = "problem" if extra is None else "absent"
        return Check(topic="version", name=name, state=state, detail=f"not installed{purpose}", remedy=remedy)
    if least and _release(installed) < _release(least):
        detail = f"{installed}, which is older than {least}{purpose}"
        return Check(topic="version", name=name, state="problem", detail=detail, remedy=f"pip install {wanted}")
    return Check(topic="version", name=name, state="ok", detail=f"{installed}{purpose}")


def _release(text: str) -> tuple[int, ...]:
    """The numbers of a version, as in (2, 6, 0) for "2.6.0+cpu"; what follows them does not count."""
    found = re.match(r"\d+(\.\d+)*", text)
    return tuple(map(int, found[0].split("."))) if found else ()


def _devices() -> Iterator[Check]:
    """The processors and threads of this process, and GPUs."""
    try:
        import_torch_geometric()
        import torch
    except Exception as error:  # a library of torch can be missing or broken in any way
        detail = f"torch or PyTorch Geometric cannot be imported: {type(error).__name__}: {error}"
        remedy = "reinstall both: pip install --force-reinstall torch torch_geometric"
        yield Check(topic="device", name="torch", state="problem", detail=detail, remedy=remedy)
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS")
    detail = f"{cores} cores for this process, {torch.get_num_threads()} threads of torch"
    detail += f", OMP_NUM_THREADS={limit}" if limit else ""
    yield Check(topic="device", name="cpu", state="ok", detail=detail)
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    if names:
        yield Check(topic="device", name="cuda", state="ok", detail=", ".join(names))
    else:
        yield Check(topic="device", name="cuda", state="absent", detail="no GPU that torch can use; --device cpu")


def _folders() -> Iterator[Check]:
    """The folder of results and downloads, the offline root, and the store."""
    folder = home()
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    is_new = "" if existing == folder else ", which is made when it is needed"
    source = "$WTAWP_HOME" if os.environ.get("WTAWP_HOME") else "the default; $WTAWP_HOME changes it"
    if existing.is_dir() and os.access(existing, os.W_OK):
        yield Check(topic="folder", name="home", state="ok", detail=f"{folder}{is_new} ({source})")
    else:
        remedy = "set WTAWP_HOME to a folder in which you may write"
        detail = f"{folder} cannot be written ({source})"
        yield Check(topic="folder", name="home", state="problem", detail=detail, remedy=remedy)
    offline = os.environ.get("WTAWP_DATA")
    if offline and not Path(offline).expanduser().is_dir():
        remedy = "make the folder that WTAWP_DATA names, or unset the variable"
        yield Check(topic="folder", name="data root", state="problem", detail=f"no folder {offline}", remedy=remedy)
    else:
        detail = f"{offline} ($WTAWP_DATA)" if offline else "$WTAWP_DATA is not set; it can name a folder of files"
        yield Check(topic="folder", name="data root", state="ok" if offline else "absent", detail=detail)
    yield _store()


def _store() -> Check:
    """The store: whether a record can be read from it. That all of them can is for `wtawp results check` to say."""
    from wtawp.experiments.store import default_path, first_problem

    store = default_path()
    if not store.exists():
        return Check(topic="folder", name="store", state="absent", detail=f"{store}, made by the first results")
    if problem := first_problem(store):
        remedy = (
            "to save the records of the store that can still be read: wtawp results export saved.jsonl --salvage; then"
            f" move {store} away and call wtawp results import saved.jsonl. If none can be read, put a copy in its"
            " place, or move it away: the next results make a new one"
        )
        return Check(topic="folder", name="store", state="problem", detail=problem, remedy=remedy)
    detail = f"{store}, {store.stat().st_size / 2**20:.1f} MiB; `wtawp results check` verifies it"
    return Check(topic="folder", name="store", state="ok", detail=detail)


def _data() -> Iterator[Check]:
    """Which data sets are on this machine; their bytes are not read."""
    from wtawp.graphs import dataset_names, locate_dataset

    try:
        places = {name: locate_dataset(name) for name in dataset_names()}
    except DataError:  # $WTAWP_DATA names no folder, which was said before
        return
    here = [name for name, place in places.items() if place != "not here"]
    missing = [name for name, place in places.items() if place == "not here"]
    yield Check(topic="data", name="data sets", state="ok", detail=", ".join(here))
    if missing:
        remedy = f"for the data sets that are not here: wtawp data get {' '.join(missing)}"
        yield Check(topic="data", name="not here", state="absent", detail=", ".join(missing), remedy=remedy)
