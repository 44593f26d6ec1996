import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from wtawp import __version__
from wtawp.cli import app, shared
from wtawp.cli.shared import StopSignal, import_torch_geometric, progress_bar, stop_signals_as_interrupts
from wtawp.experiments.store import Store

RUN = CliRunner()


def test_version_is_printed() -> None:
    result = RUN.invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output.strip() == f"wtawp {__version__}"


def test_without_a_command_help_is_shown() -> None:
    assert "demo" in RUN.invoke(app, []).output


@pytest.mark.parametrize(
    ("before", "arguments", "expected"),
    [(None, [], "1"), ("3", [], "3"), ("3", ["--threads", "2"], "2"), (None, ["--threads", "2"], "2")],
)
def test_a_process_uses_one_thread_unless_told(
    before: str | None, arguments: list[str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", before or "")
    if before is None:
        monkeypatch.delenv("OMP_NUM_THREADS")
    assert RUN.invoke(app, [*arguments, "data", "list"]).exit_code == 0
    assert os.environ["OMP_NUM_THREADS"] == expected


def test_torch_obeys_the_number_of_threads_of_the_command_line() -> None:
    code = (
        "from wtawp.cli.shared import choose_threads; choose_threads(2); import torch; print(torch.get_num_threads())"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2"


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_asks_to_end_interrupts_once(sent: signal.Signals) -> None:
    before = signal.signal(sent, signal.SIG_DFL)  # below nohup it is ignored
    try:
        with pytest.raises(StopSignal, match=sent.name) as caught, stop_signals_as_interrupts():
            assert callable(signal.getsignal(sent))
            try:
                os.kill(os.getpid(), sent)
            finally:
                assert signal.getsignal(sent) == signal.SIG_DFL, "the second one ends the process"
        assert caught.value.number == sent
        assert signal.getsignal(sent) == signal.SIG_DFL
    finally:
        signal.signal(sent, before)


def test_a_process_ends_by_its_signal_at_once() -> None:
    code = "import signal; from wtawp.cli.shared import end_by_signal; print('said'); end_by_signal(signal.SIGTERM)"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (process.stdout, process.returncode) == ("said\n", -signal.SIGTERM)


def test_ctrl_c_during_the_imports_ends_the_process_at_once() -> None:
    """An exception inside of them would leave libraries imported by halves, and hundreds of lines of consequences."""
    code = """
import signal, sys
from importlib.abc import MetaPathFinder
from wtawp.cli.shared import import_torch_geometric

class Interrupting(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "torch_geometric":
            signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may start jobs in the background without it
sys.meta_path.insert(0, Interrupting())
import_torch_geometric()
print("still there")
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")


def test_ctrl_c_after_the_imports_is_an_exception_as_before() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            import_torch_geometric()
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_signal_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_signals_as_interrupts():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_log_gets_a_line_of_progress_a_minute_with_the_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with progress_bar("training") as progress:
        for now, share in ((0.0, 0.0), (30.0, 0.1), (90.0, 0.25), (100.0, 0.3), (150.0, 0.5)):  # noqa: B007
            progress(share, "GCN on cora")
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "25% done in 0:01:30, left: 0:04:30 (GCN on cora)",
        "50% done in 0:02:30, left: 0:02:30 (GCN on cora)",
    ]


def test_the_time_left_of_work_that_continues_follows_from_what_was_done_since(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with progress_bar("votes") as progress:
        for now, share in ((10.0, 0.8), (70.0, 0.8), (130.0, 0.84)):  # noqa: B007
            progress(share, "GCN on cora")
    assert capsys.readouterr().err.splitlines() == [
        "80% done in 0:01:10, left: unknown (GCN on cora)",
        "84% done in 0:02:10, left: 0:08:00 (GCN on cora)",  # 0.04 in two minutes, and 0.16 left
    ]


def test_a_log_gets_no_progress_if_it_is_to_be_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("wtawp.cli.shared.SECONDS_BETWEEN_LINES", 0)
    with progress_bar("training", quiet=True) as progress:
        progress(0.5, "GCN on cora")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["attack", "wine", "--attack", "pgd", "--attack=dice"], "'--attack': it takes one value, got pgd and dice"),
        (["compare", "wine", "--epochs", "3", "--epochs", "3"], "'--epochs': it takes one value, got 3 twice"),
        (["attack", "wine", "--adaptive", "--no-adaptive"], "'--adaptive': it takes one value, got True and False"),
    ],
)
def test_an_option_with_one_value_that_is_given_twice_is_refused(arguments: list[str], expected: str) -> None:
    result = RUN.invoke(app, arguments)
    assert result.exit_code == 2
    assert expected in " ".join(result.output.replace("│", " ").split())


def test_options_with_several_values_and_repeated_flags_are_accepted() -> None:
    command = get_command(app).commands["attack"]  # type: ignore[attr-defined]
    context = command.make_context("attack", ["wine", "--budget", "0.1", "--budget", "0.2", "--plain", "--plain"])
    assert context.params["budget"] == ["0.1", "0.2"]
    assert context.params["plain"] is True


def test_a_closed_pipe_ends_the_command_and_is_not_counted_against_the_run(store: Path) -> None:
    """As in `wtawp compare wine 2>&1 | head -3`; the next line of progress comes in the middle of a training."""
    options = {"--epochs": "100000", "--splits": "2", "--inits": "1", "--workers": "1", "--store": str(store)}
    arguments = ["compare", "wine", *(word for option in options.items() for word in option)]
    code = f"from wtawp.cli import app, shared; shared.SECONDS_BETWEEN_LINES = 0.2; app({arguments})"
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        while "% done in" not in process.stderr.readline():
            assert process.poll() is None
        process.stderr.close()
        assert process.wait(60) == -signal.SIGPIPE
    finally:
        process.kill()
        process.wait()
    with Store(store, create=False) as opened:
        assert opened.records() == []


def test_a_stop_that_a_command_does_not_handle_ends_it_by_the_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    monkeypatch.setattr(shared, "end_by_signal", sent.append)
    monkeypatch.setattr(shared.stderr_console, "print", Mock(side_effect=BrokenPipeError))
    with shared.errors_without_traceback():
        shared.announce("50% done")
    assert sent == [signal.SIGPIPE]
