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
