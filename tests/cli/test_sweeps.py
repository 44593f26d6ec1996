import errno
import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from commands import invoke
from typer.testing import CliRunner

from wtawp.base import rng
from wtawp.cli import app, sweeps
from wtawp.core import AwpConfig
from wtawp.experiments import Store
from wtawp.experiments.execution import runner, training
from wtawp.experiments.inspection import models
from wtawp.experiments.plans.graph_level import GRAPHS
from wtawp.experiments.spec import Plan, Record, Run, Setting
from wtawp.models import GCN

RUN = CliRunner()
PLAN = """
splits = 2
inits = 1
[base]
dataset = "wine"
epochs = 4
[[cell]]
row = "GCN"
[[cell]]
row = "GCN+WT-AWP"
compare_with = "GCN"
awp = { rho = 0.5, lam = 0.5 }
"""


@pytest.mark.usefixtures("store", "offline")
def test_the_tables_of_data_sets_are_counted_not_trained() -> None:
    assert "3,327 / 2,110" in invoke("reproduce", "tab:dataset")
    assert "620 / 620" in invoke("reproduce", "tab:cladataset")


@pytest.mark.usefixtures("store")
def test_without_a_label_everything_is_listed_with_what_is_missing() -> None:
    listed = invoke("reproduce")
    assert "tab:natacc" in listed
    assert "tab:graphclass" in listed


def test_a_plan_of_ones_own_is_carried_out_shown_and_not_trained_twice(tmp_path: Path, store: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN, encoding="utf-8")
    first = invoke("run", plan, "--store", store, "--workers", 1)
    assert "4 runs trained, 0 known before, 0 failed" in first
    assert "GCN+WT-AWP" in first
    assert "0 runs trained, 4 known before" in invoke("run", plan, "--store", store, "--workers", 1)
    (report,) = json.loads(invoke("run", plan, "--store", store, "--workers", 1, "--json"))
    assert [cell["verdict"] for cell in report["cells"]] == ["reported", "reported"]
    assert report["pairs"][0]["gain"]["num_pairs"] == 2


def test_part_of_the_paper_at_smoke_scale_and_its_report(tmp_path: Path, store: Path) -> None:
    shown = invoke("reproduce", "claim:second-layer", "--scale", "smoke", "--workers", 1, "--store", store)
    assert "Perturbing only the second layer" in shown
    folder, page, exported = tmp_path / "out", tmp_path / "page.html", tmp_path / "records.jsonl.gz"
    invoke("results", "export", exported, "--store", store)
    same = ["report", "claim:second-layer", "--scale", "smoke"]
    invoke(*same, "--records", exported, "--folder", folder, "--html", page)
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert "claim:second-layer" in text
    assert (folder / "datasets.md").is_file()
    assert "<!doctype html>" in page.read_text(encoding="utf-8").lower()
    (report,) = json.loads(invoke(*same, "--store", store, "--json"))
    assert [cell["runs"] for cell in report["cells"]] == [2, 2]
    assert report["claims"] == []  # two short runs prove nothing
    page = tmp_path / "page.md"
    page.write_text("2<!-- = claim:second-layer; first layer; accuracy; runs --> runs", encoding="utf-8")
    assert "Marked numbers that are those of the records: 1, which is all." in invoke(
        *same, "--store", store, "--verify", page
    )
    page.write_text("3<!-- = claim:second-layer; first layer; accuracy; runs --> runs", encoding="utf-8")
    wrong = invoke(*same, "--store", store, "--verify", page, code=1)
    assert "'claim:second-layer; first layer; accuracy; runs' is 2, and the text says 3" in " ".join(wrong.split())
    assert "corrected: " in invoke(*same, "--store", store, "--verify", page, "--correct")
    assert page.read_text(encoding="utf-8") == "2<!-- = claim:second-layer; first layer; accuracy; runs --> runs"
    assert "add --verify FILE" in " ".join(invoke(*same, "--store", store, "--correct", code=2).split())
    missing = invoke(*same, "--store", store, "--verify", tmp_path / "none.md", code=2)
    assert "does not exist" in " ".join(missing.replace("│", " ").split())  # a long path breaks the line
    page.write_text("3 runs", encoding="utf-8")
    assert "no number is marked there" in " ".join(invoke(*same, "--store", store, "--verify", page, code=2).split())


def test_numbers_are_not_checked_without_records_and_a_plan_without_some_is_named(tmp_path: Path, store: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("3<!-- = tab:graphclass; GCN; proteins; mean -->, 9<!-- = fact; main claims -->", encoding="utf-8")
    with Store(store) as opened:
        opened.add([])
    for labels in ((), ("tab:natacc",)):
        refused = invoke("report", *labels, "--store", store, "--verify", page, code=2)
        refused = " ".join(refused.replace("│", " ").split())
        assert "is stored, so no number can be checked; import the records first: wtawp results import" in refused
    plan = tmp_path / "plan.toml"
    plan.write_text(PLAN.replace("epochs = 4", "epochs = 1"), encoding="utf-8")
    invoke("run", plan, "--store", store, "--workers", 1)
    wrong = " ".join(invoke("report", "--store", store, "--verify", page, code=1).split())
    assert "page.md:1: this needs the plan tab:graphclass, of which nothing is stored; import the records" in wrong
    assert "page.md:1: this needs the plan extra:flatness, of which nothing is stored; import the records" in wrong
    assert "there is no plan" not in wrong


def test_a_comparison_and_a_plan_of_ones_own_have_a_page_and_are_in_the_report(tmp_path: Path, store: Path) -> None:
    compared, ran, reported = (tmp_path / f"{name}.html" for name in ("compare", "run", "report"))
    short = ("--epochs", 2, "--splits", 2, "--inits", 1, "--workers", 1, "--store", store)
    shown = invoke("compare", "wine", *short, "--html", compared)
    assert "6 runs to train in 6 chunks" in shown
    assert "points of test accuracy" in shown
    plan = tmp_path / "plan.toml"
    plan.write_text('splits = 2\ninits = 1\n[base]\ndataset = "wine"\nepochs = 2\n[[cell]]\nrow = "GCN"\n')
    invoke("run", plan, "--store", store, "--workers", 1, "--html", ran)
    invoke("report", "--store", store, "--html", reported)
    for page in (compared, ran, reported):
        text = page.read_text(encoding="utf-8")
        assert "<h1>Results</h1>" in text
        assert "paper" not in re.sub("<style>.*?</style>", "", text, flags=re.DOTALL)
    assert re.search("<h1>Results</h1>\\s*<div class=.summary.>\\s*<p>GCN\\+WT-AWP .wine.", compared.read_text())
    assert "GCN on wine" in reported.read_text()
    assert "your own runs, epochs=2" in reported.read_text()
    refusal = invoke("compare", "wine", *short, "--html", tmp_path, code=2).replace("│ │", "")
    assert "cannot be a file" in " ".join(refusal.split())


def test_one_model_is_trained_and_its_weights_are_written(tmp_path: Path) -> None:
    saved = tmp_path / "weights.pt"
    measured = json.loads(invoke("train", "wine", "--epochs", 3, "--save", saved, "--json"))
    assert set(measured["accuracy"]) == {"train", "val", "test"}
    model = GCN(13, 3, generator=rng("other"))
    model.load_state_dict(torch.load(saved, weights_only=True))
    assert "wine" in invoke("train", "wine", "--epochs", 2, "--plain")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("reproduce", "tab:none"), 1, "there is no plan 'tab:none'; there are"),
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


class StoppedError(Exception):
    """Raised in place of a training."""


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    ("dataset", "model", "awp"),
    [
        ("cora", "GCN", "rho=1.0, lam=0.7"),
        ("proteins", "PooledGCN", "rho={1}, lam={0}, layers='first'".format(*GRAPHS["proteins"])),
        ("imdb-multi", "PooledGIN", "rho={1}, lam={0}, layers='first'".format(*GRAPHS["imdb-multi"])),
    ],
)
def test_commands_train_the_same_setting_without_options(
    dataset: str, model: str, awp: str, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: list[Setting] = []

    def train_one(run: Run, **_: object) -> None:
        settings.append(run.setting)
        raise StoppedError

    def run_plans(plans: list[Plan], *_: object, **__: object) -> None:
        settings.extend(cell.setting for plan in plans for cell in plan.cells)
        raise StoppedError

    def load_or_train(runs: dict[str, Run], **_: object) -> None:
        settings.extend(run.setting for run in runs.values())
        raise StoppedError

    monkeypatch.setattr(training, "train_one", train_one)
    monkeypatch.setattr(runner, "run_plans", run_plans)
    monkeypatch.setattr(models, "load_or_train", load_or_train)
    for command, *options in (("train", "--plain"), ("train",), ("compare", "--store", str(store)), ("sharpness",)):
        result = RUN.invoke(app, [command, dataset, "--model", model, *options])
        assert isinstance(result.exception, StoppedError), result.output
    plain, perturbed = settings[:2]
    auto = settings.pop(4)  # the third row of the comparison
    assert settings == [plain, perturbed] * 3
    assert (plain.awp, str(perturbed.awp)) == (None, awp)
    assert perturbed.awp is not None
    assert auto == replace(plain, awp=AwpConfig(rho=1.0, lam="auto", layers=perturbed.awp.layers))


def test_what_commands_train_on_graphs_of_ones_own_is_the_same_setting(archive: str, store: Path) -> None:
    how = (archive, "--model", "PooledGCN", "--epochs", 2)
    trained = json.loads(invoke("train", *how, "--json"))["setting"]
    assert (trained["awp"]["layers"], trained["select_on"]) == ("first", "accuracy")
    invoke("compare", *how, "--splits", 2, "--inits", 1, "--workers", 1, "--store", store, "--json")
    with Store(store) as opened:
        compared = [Setting.from_content(record.setting) for record in opened.records()]
    few = ("--points", 1, "--steps", 1, "--top", 1)
    inspected = json.loads(invoke("sharpness", *how, *few, "--json"))["sources"]
    perturbed = Setting.from_content(trained)
    auto = AwpConfig(rho=1.0, lam="auto", layers="first")
    plain = Setting(dataset=archive, model="PooledGCN", epochs=2)
    assert set(compared) == {plain, perturbed, replace(plain, awp=auto)}
    assert inspected["PooledGCN+WT-AWP"] == f"{perturbed}; split 0, initialisation 0"


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="FULL DISK NOT CHECKED: there is no /dev/full")
@pytest.mark.parametrize(
    "command", [("train", "wine", "--plain", "--epochs", 1, "--save"), ("report", "tab:natacc", "--html"),
                ("report", "tab:natacc", "--markdown")]
)  # fmt: skip
def test_a_full_disk_is_named_without_a_traceback(empty_home: Path, command: tuple[object, ...]) -> None:
    with Store() as store:
        assert store.path.parent == empty_home
    assert "cannot write /dev/full: No space left on device" in invoke(*command, "/dev/full", code=1)


def test_a_full_disk_leaves_neither_an_empty_page_nor_empty_weights(
    empty_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    Store().close()
    assert empty_home.is_dir()
    monkeypatch.setattr(os, "fsync", full)
    for command in (("train", "wine", "--plain", "--epochs", 1, "--save"), ("report", "tab:natacc", "--html")):
        file = tmp_path / "output"
        assert "No space left on device" in invoke(*command, file, code=1)
        assert not file.exists()
        file.write_text("old")
        assert "No space left on device" in invoke(*command, file, code=1)
        assert file.read_text() == "old"
        file.unlink()
