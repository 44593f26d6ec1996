import os
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from wtawp import __version__
from wtawp.cli import app
from wtawp.cli.shared import StopSignal, stop_signals_as_interrupts

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


def test_a_signal_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_signals_as_interrupts():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
