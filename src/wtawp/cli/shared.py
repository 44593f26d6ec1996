"""What all commands share: the app, the consoles, the display of errors and progress."""

import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Annotated, Any
from unicodedata import category

import typer
from rich import markup
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from typer.core import TyperCommand, TyperOption

from wtawp import __version__
from wtawp.base import WtawpError, fast_imports


class StrictCommand(TyperCommand):
    """A command that refuses an option with one value if it is given twice; typer would drop all values but the last.

    It is the class of every command: pass it as `cls=` of `app.command`, or use `StrictTyper`.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; typer calls it.

        Args:
            ctx: The context of the call.
            args: The arguments after the name of the command.

        Returns:
            The arguments that are left.

        Raises:
            typer.BadParameter: If an option that takes one value is given more than once.
        """
        given = list(args)  # the parser empties the list
        left = super().parse_args(ctx, args)
        if not ctx.resilient_parsing:  # which is so while a shell completes a line
            self._refuse_repeated(ctx, given)
        return left

    def _refuse_repeated(self, ctx: Any, args: list[str]) -> None:
        """Refuse options given more than once, but for those that take several values, and flags that say the same."""
        options = [each for each in self.params if isinstance(each, TyperOption) and not each.multiple]
        for option in options:
            option.multiple = True  # then the parser keeps all values
        try:
            values, _, _ = self.make_parser(ctx).parse_args(args=args)
        finally:
            for option in options:
                option.multiple = False
        for option in options:
            written = list(dict.fromkeys(map(str, values.get(option.name, []))))
            is_repeated = len(written) > 1 or (not option.is_flag and len(values.get(option.name, [])) > 1)
            if is_repeated:
                name = max(option.opts, key=len)
                listed = " and ".join(written) if len(written) > 1 else f"{written[0]} twice"
                raise typer.BadParameter(f"it takes one value, got {listed}", ctx=ctx, param_hint=f"'{name}'")


class StrictTyper(typer.Typer):
    """An app whose commands are of the class `StrictCommand`."""

    def command(self, *args: Any, **options: Any) -> Callable[[Any], Any]:
        """Make the decorator that adds a command, as `typer.Typer.command` does.

        Args:
            *args: The name of the command, if it is not that of the function.
            **options: As for `typer.Typer.command`.

        Returns:
            The decorator.
        """
        return super().command(*args, **{"cls": StrictCommand, **options})


app = StrictTyper(no_args_is_help=True, help="Adversarial weight perturbation for graph networks.")
console = Console(emoji=False)  # ":x:" in a reference is no picture
stderr_console = Console(stderr=True, emoji=False)  # errors and progress, so that standard output can be parsed
SECONDS_BETWEEN_LINES = 60  # of progress in a log


def escape_controls(text: str, *, keep: str = "") -> str:
    r"""Show characters that would act on a terminal as escapes, since texts of imported files may hold any.

    Args:
        text: Any text.
        keep: Characters that stay as they are, such as ends of lines.

    Returns:
        The text with control and formatting characters, separators of lines and halves of surrogate pairs escaped.

    Example:
        >>> print(escape_controls("a\x1b[31mb"))
        a\x1b[31mb
    """
    acting = ("Cc", "Cf", "Cs", "Zl", "Zp")  # categories of Unicode
    return "".join(ascii(c)[1:-1] if c not in keep and category(c) in acting else c for c in text)


def announce(sentence: str) -> None:
    """Print a sentence about what a command is going to do on standard error.

    Args:
        sentence: Any text, such as one with the name of a file.

    Raises:
        StopSignal: If nobody reads standard error any more, as after `2>&1 | head -3`. An OSError or SystemExit would
            be counted against the run that is being trained.
    """
    try:
        stderr_console.print(escape_controls(sentence), style="yellow", highlight=False, markup=False, soft_wrap=True)
    except (BrokenPipeError, SystemExit) as error:  # rich makes the second of the first
        raise StopSignal(getattr(signal, "SIGPIPE", signal.SIGTERM)) from error


def example(*commands: str) -> str:
    """Make the end of a command's help, which shows how it is called.

    Args:
        *commands: Whole command lines, of at most 78 characters each.

    Returns:
        The text for `epilog=` of a command; empty lines keep typer from joining the lines.

    Example:
        >>> example("wtawp data list").split()
        ['Example:', '$', 'wtawp', 'data', 'list']
    """
    heading = "Example:" if len(commands) == 1 else "Examples:"
    return "\n\n".join((heading, *(f"$ {markup.escape(command)}" for command in commands)))


def _print_version(is_wanted: bool) -> None:
    """Print the version and exit, for the option --version."""
    if is_wanted:
        console.print(f"wtawp {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[  # noqa: ARG001, its callback acts on it
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Threads of a process in commands that train or inspect single models; sweeps always use one a "
            "process, so that their results do not depend on it.",
            show_default="OMP_NUM_THREADS, or 1",
        ),
    ] = None,
) -> None:
    """The options before a command. Typer shows the help of the app in place of this docstring."""
    choose_threads(threads)


def choose_threads(threads: int | None) -> None:
    """Choose the number of threads that torch and numpy will use once they are imported.

    Their own default, a thread for each core, makes small operations wait for each other: on a busy machine ten times
    the CPU time for the same result.

    Args:
        threads: The number; None: what the environment variable OMP_NUM_THREADS says, or 1.
    """
    if threads is not None:
        os.environ["OMP_NUM_THREADS"] = str(threads)
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def import_torch_geometric() -> None:
    """Import PyTorch Geometric, and torch with it, faster than by the first of our modules that needs it.

    Commands call this after they have checked their arguments.
    """
    if "torch_geometric" not in sys.modules:
        with fast_imports(), _interrupts_end_at_once():
            import torch_geometric.data  # noqa: F401


@contextmanager
def _interrupts_end_at_once() -> Iterator[None]:
    """Let Ctrl-C end the process at once, in place of an exception that leaves libraries imported by halves.

    It is for the time before a command begins to work, when there is nothing to clean up.
    """
    is_main = threading.current_thread() is threading.main_thread()  # no other thread may set handlers
    before = signal.getsignal(signal.SIGINT)
    if not is_main or before is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def errors_without_traceback() -> Iterator[None]:
    """Print the message of an error of this package without a traceback, and exit with status 1.

    The message says what to do, which a traceback would hide. Warnings are printed without the place in the code. A
    StopSignal that the command does not handle ends the process by its signal.

    Returns:
        A context manager.

    Raises:
        typer.Exit: In place of a WtawpError.
    """
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: announce(f"Warning: {message}")
            yield
    except WtawpError as error:
        message = escape_controls(f"Error: {error}", keep="\n")
        stderr_console.print(message, style="red", highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(1) from error
    except StopSignal as stop:
        end_by_signal(stop.number)


class StopSignal(KeyboardInterrupt):
    """Raised when the process is asked to end, or its output is closed, so that it cleans up as after Ctrl-C.

    Attributes:
        number: The number of the signal.
    """

    def __init__(self, number: int) -> None:
        """Remember the signal."""
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextmanager
def stop_signals_as_interrupts() -> Iterator[None]:
    """Raise StopSignal if SIGTERM or SIGHUP arrives inside the context; the same signal again ends the process.

    A signal that is ignored or handled already, such as SIGHUP below `nohup`, stays so.

    Returns:
        A context manager.

    Raises:
        StopSignal: When a signal arrives.
    """

    def stop(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise StopSignal(number)

    is_main = threading.current_thread() is threading.main_thread()  # no other thread may set handlers
    known = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if is_main and hasattr(signal, name)]
    numbers = [number for number in known if signal.getsignal(number) == signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def end_by_signal(number: int) -> None:
    """End this process by a signal, as if it had not been handled: the shell sees the status 128 plus its number.

    It ends at once. Python's own way out may take many seconds after torch was used, on a machine that is busy.

    Args:
        number: The number of the signal.
    """
    with suppress(OSError):  # the reader may be gone
        sys.stdout.flush()
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)


@contextmanager
def progress_bar(label: str, *, quiet: bool = False) -> Iterator[Callable[[float, str], None]]:
    """Show progress with the remaining time on standard error: a bar, or lines where that is a file or a pipe.

    Args:
        label: The label until the first report.
        quiet: Whether nothing is shown.

    Yields:
        A function that takes the share that is done, and a description of what was done last.
    """
    columns = (
        TextColumn("{task.description:<28}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    print_line = _progress_lines()
    is_live = stderr_console.is_terminal
    with Progress(*columns, console=stderr_console, disable=quiet or not is_live) as bar:
        task = bar.add_task(label, total=1.0)

        def report(share: float, last: str) -> None:
            bar.update(task, completed=share, description=last[:44])
            if not (quiet or is_live):
                print_line(share, last)

        yield report


def _progress_lines() -> Callable[[float, str], None]:
    """A function that prints one line of progress a minute, for logs of batch systems.

    The time left follows from the progress since the first report: work that continues does not begin at 0.
    """
    start = printed = time.monotonic()
    first: tuple[float, float] | None = None  # the time and the share of the first report

    def print_line(share: float, last: str) -> None:
        nonlocal printed, first
        now = time.monotonic()
        first = first or (now, share)
        if now - printed < SECONDS_BETWEEN_LINES:
            return
        printed, gained = now, share - first[1]
        left = timedelta(seconds=round((now - first[0]) * (1 - share) / gained)) if gained > 0 else "unknown"
        announce(f"{share:.0%} done in {timedelta(seconds=round(now - start))}, left: {left} ({last})")

    return print_line
