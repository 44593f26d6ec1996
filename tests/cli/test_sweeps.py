import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from commands import invoke

from wtawp.cli import sweeps
from wtawp.core import AwpConfig
from wtawp.experiments import Store
from wtawp.experiments.execution import training
from wtawp.experiments.results.summary import summarise
from wtawp.experiments.spec import Cell, Plan, Record, Setting


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("reproduce", "tab:none"), 1, "there is no plan 'tab:none'; did you mean tab:poison? There are"),
        (("reproduce", "tab:natacc", "--scale", "big"), 2, "Invalid value for '--scale'"),
        (("reproduce", "fig:1", "--engine", "slurm"), 2, "Invalid value for '--engine'"),
        (("compare", "wine", "--time-limit", "0"), 2, "time_limit must be a number of seconds > 0"),
        (("run", "none.toml"), 1, "none.toml cannot be read"),
        (("compare", "coral"), 1, "there is no graph called 'coral'"),
        (("compare", "wine", "--rho", "-1"), 2, "rho must be a finite number >= 0, got -1.0"),
        (("compare", "wine", "--model", "GCNN"), 2, "model must be one of GCN, GAT"),
        (("train", "wine", "--save", "missing/weights.pt"), 2, "cannot be a file"),
        (("train", "wine", "--lam", "2"), 2, 'lam must lie in [0, 1] or be "auto", got 2;'),
        (("report", "--store", "missing.sqlite"), 1, "there is no store of results at"),
    ],
)
@pytest.mark.usefixtures("store")
def test_what_is_wrong_is_said_before_anything_is_trained(
    arguments: tuple[str, ...], code: int, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WTAWP_HOME", str(tmp_path / "home"))
    assert words in invoke(*arguments, code=code).replace("│ │", "").replace("│", "")


def test_cuda_is_refused_where_there_is_none(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "there is no CUDA device here" in invoke("compare", "wine", "--device", "cuda", "--store", store, code=1)


def test_a_failed_run_shows_in_the_exit_status(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> object:
        raise RuntimeError("no luck")

    monkeypatch.setattr(training, "_train", fails)
    arguments = ("compare", "wine", "--splits", 2, "--epochs", 1, "--workers", 1, "--store", store)
    output = invoke(*arguments, code=1)
    assert "12 failed" in output
    assert "comparison: GCN with and without" not in output, "a table without any number"
    assert "The first failed with: RuntimeError: no luck" in output
    assert "wtawp results ls --failed" in output
    assert "no luck" in (Store(store).records(status="failed")[0].error or "")


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_says_how_to_go_on(
    sent: signal.Signals, code: int, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Callable[..., list[Record]] = training.train
    calls: Iterator[int] = iter(range(9))
    if signal.getsignal(sent) == signal.SIG_IGN:
        pytest.skip(f"NOT CHECKED: whoever started the tests lets processes ignore {sent.name}")

    def interrupted(*arguments: object, **how: object) -> list[Record]:
        if next(calls) == 1:
            signal.raise_signal(sent)
        return real(*arguments, **how)

    def exit_as_shell_sees_it(number: int) -> None:
        raise SystemExit(128 + number)

    monkeypatch.setattr(sweeps, "end_by_signal", exit_as_shell_sees_it)
    monkeypatch.setattr(training, "train", interrupted)
    arguments = ("compare", "wine", "--splits", 2, "--inits", 1, "--epochs", 1, "--workers", 1, "--store", store)
    assert "Finished runs are stored: the same command continues from here." in invoke(*arguments, code=code)
    with Store(store) as opened:
        assert len(opened.records()) == 1
    assert "5 runs trained, 1 known before, 0 failed" in invoke(*arguments)


def test_a_fresh_sweep_that_stops_or_fails_says_which_numbers_are_old(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("compare", "wine", "--splits", 2, "--inits", 1, "--epochs", 1, "--workers", 1, "--store", store)
    invoke(*arguments)
    real: Callable[..., list[Record]] = training.train
    calls: Iterator[int] = iter(range(9))

    def interrupted(*arguments: object, **how: object) -> list[Record]:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments, **how)

    with monkeypatch.context() as patched:
        patched.setattr(training, "train", interrupted)
        output = invoke(*arguments, "--fresh", code=130)
    assert "2 of 6 records are new, and those of the other runs are the ones from before" in output
    assert "The same command with --fresh begins anew" in output
    assert "continues from here" not in output

    def fails(*_: object) -> object:
        raise RuntimeError("no luck")

    monkeypatch.setattr(training, "_train", fails)
    output = invoke(*arguments, "--fresh", code=1)
    assert "The first failed with: RuntimeError: no luck" in output
    assert "6 of the failed runs keep their records from before" in output
    assert "results ls --failed" not in output, "it lists none of them"


def test_the_answers_of_all_plans_come_before_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"GCN": Setting(dataset="wine"), "WT-AWP": Setting(dataset="wine", awp=AwpConfig(rho=1.0, lam=0.7))}
    cells = tuple(Cell(row, "wine", setting, splits=2) for row, setting in settings.items())
    plans = [Plan(name, f"Plan {name}", cells, (("GCN", "WT-AWP"),)) for name in ("one", "two")]
    sweeps.show_reports([summarise(plan, []) for plan in plans], as_json=False)
    printed = capsys.readouterr().out
    places = [printed.index(text) for text in ("Plan one\n", "Plan two\n", "one: Plan one", "two: Plan two")]
    assert places == sorted(places)
    assert printed.count("WT-AWP (wine): no answer yet") == 2
