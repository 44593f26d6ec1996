"""A whole audit, disturbed and undisturbed."""

import json
import os
import shutil
import signal
import time
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import wtawp
from wtawp.base import AnalysisError, DataError
from wtawp.experiments.audit import runner
from wtawp.experiments.audit.findings import Audit
from wtawp.experiments.audit.runner import AuditError, audit
from wtawp.experiments.audit.sections import make_sections
from wtawp.experiments.audit.sizes import Sizes
from wtawp.experiments.audit.subject import model_name
from wtawp.experiments.spec import Setting, SplitRule
from wtawp.experiments.store import Store
from wtawp.graphs import load
from wtawp.models import GCN, ElasticGNN
from wtawp.training import evaluate, fit

PROCESSES = get_context("forkserver")  # children of a process that has loaded everything once
PROCESSES.set_forkserver_preload(["wtawp.experiments.execution.runner"])
TINY = Sizes(splits=2, poisoned_splits=0, budgets=(0.1,), searched_budgets=(), certified=(), votes=5)


def numbers(result: Audit) -> list[Any]:
    return [section["numbers"] for section in result.to_json()["sections"]]


def small(graph: Path, store: Path, **options: Any) -> Audit:
    return audit("GCN", graph, minutes=0.01, epochs=3, store=store, workers=1, **options)


def start(graph: str, store: str) -> None:
    """What a child process does until it is killed."""
    small(Path(graph), Path(store))


def test_an_audit_that_was_killed_continues_and_ends_with_the_same_numbers(graph_file: Path, tmp_path: Path) -> None:
    killed, whole = tmp_path / "killed" / "results.sqlite", tmp_path / "whole" / "results.sqlite"
    child = PROCESSES.Process(target=start, args=(str(graph_file), str(killed)))
    child.start()
    assert child.pid is not None
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and child.is_alive() and _num_records(killed) < 3:
        time.sleep(0.005)
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    before = _num_records(killed)
    assert before >= 3
    announced: list[str] = []
    continued = small(graph_file, killed, announce=announced.append)
    assert any("started before" in sentence for sentence in announced)
    assert any(" runs are in " in sentence for sentence in announced)
    shutil.copytree(killed.parent / "audits", whole.parent / "audits")  # the sizes, which depend on the speed
    assert numbers(small(graph_file, whole)) == numbers(continued)
    with Store(killed) as one, Store(whole) as other:
        assert [r.outcome for r in one.records()] == [r.outcome for r in other.records()]


def _num_records(path: Path) -> int:
    if not path.is_file():
        return 0
    with Store(path) as store:
        return len(store.records())


def test_the_second_audit_trains_nothing_and_says_the_same(
    small_audit: tuple[Audit, Path], graph_file: Path, user_module: str
) -> None:
    shares: list[float] = []
    again = audit(
        f"{user_module}:Weighted", graph_file, minutes=1.0, epochs=5, workers=1,
        progress=lambda share, _: shares.append(share),
    )  # fmt: skip
    assert shares == []
    assert again.summary == small_audit[0].summary
    assert numbers(again) == numbers(small_audit[0])
    (weights,) = (small_audit[1] / "audits").glob("*/sizes.json")
    assert not (weights.parent / "weights").exists()  # of no use once all is measured


@pytest.fixture
def probed(small_audit: tuple[Audit, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """What can be measured is known, and need not be tried again."""
    (file,) = (small_audit[1] / "audits").glob("*/sizes.json")
    abilities = runner._read(file).abilities
    monkeypatch.setattr(runner, "probe", lambda *_, **__: abilities)


@pytest.mark.usefixtures("probed")
def test_progress_rises_and_the_page_is_written(
    graph_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "fit_sizes", lambda *_, **__: TINY)
    shares: list[float] = []
    result = small(
        graph_file, tmp_path / "r.sqlite", html=tmp_path / "a.html", progress=lambda share, _: shares.append(share)
    )
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert result.findings[0].answer in page
    told = [what for what, _ in result.left_out]
    assert told == ["searching attacks", "poisoning", "certificates"]


def test_a_trained_instance_is_audited_as_it_is(
    graph_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "fit_sizes", lambda *_, **__: Sizes(**{**vars(TINY), "splits": 1}))
    data = load(str(graph_file))
    n = len(data.y)
    masks = {name: torch.arange(n) // 3 % 3 == i for i, name in enumerate(("train_mask", "val_mask", "test_mask"))}
    for name, mask in masks.items():
        data[name] = mask
    model = GCN(data.num_features, 3, generator=wtawp.rng("test"))
    fit(model, data, seed=0, epochs=5)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    result = audit(model, data, minutes=0.01, store=tmp_path / "r.sqlite", workers=1)
    assert result.rows == ("GCN, given weights",)
    _, accuracy = evaluate(model, data, masks["test_mask"].nonzero()[:, 0])
    assert result.sections[0].report.cells[0].mean == pytest.approx(100 * accuracy)
    assert "nothing is trained" in dict(result.left_out)["poisoning"]
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert "The data are split by the masks of the graph: 18 nodes to train" in str(result.findings[0])
    made = dict(result.made)
    assert made["rows"] == "GCN, given weights: weights that were given, not trained here"
    assert "split by the masks" in made["split"]
    assert ", given weights, " in made["setting"]
    assert "plain" not in made["setting"]


def test_weights_of_another_architecture_are_refused(graph_file: Path, tmp_path: Path) -> None:
    torch.save(nn.Linear(3, 2).state_dict(), tmp_path / "other.pt")
    with pytest.raises(AnalysisError, match="another architecture"):
        small(graph_file, tmp_path / "r.sqlite", checkpoint=tmp_path / "other.pt", split=SplitRule())
    wide = GCN(9, 3, hidden=(5,), generator=wtawp.rng("test"))
    with pytest.raises(AnalysisError, match="options with which it was built"):
        audit(wide, graph_file, minutes=0.01, store=tmp_path / "r.sqlite", split=SplitRule())


def test_given_weights_are_not_tested_on_a_split_that_nobody_named(graph_file: Path, tmp_path: Path) -> None:
    model = GCN(9, 3, generator=wtawp.rng("test"))
    with pytest.raises(ValueError, match=r"--split-file FILE.json.*split=SplitRule\(\)"):
        audit(model, graph_file, store=tmp_path / "r.sqlite")
    torch.save(model.state_dict(), tmp_path / "w.pt")
    with pytest.raises(ValueError, match=r"on which nodes of .* they were trained"):
        small(graph_file, tmp_path / "r.sqlite", checkpoint=tmp_path / "w.pt")


def test_an_instance_with_options_that_its_weights_do_not_show_is_refused_without_them(
    graph_file: Path, tmp_path: Path
) -> None:
    model = ElasticGNN(9, 3, lambda1=0.0, lambda2=0.0, generator=wtawp.rng("test")).train()
    name = model_name(model)
    base = Setting(dataset=str(graph_file), model=name, split=SplitRule())
    with pytest.raises(AnalysisError, match=r"other outputs on .*options=\{"):
        runner._keep_weights(base, None, model, tmp_path, "cpu")
    assert model.training
    same = replace(base, options=(("lambda1", 0.0), ("lambda2", 0.0)))
    kept = torch.load(tmp_path / f"{runner._keep_weights(same, None, model, tmp_path, 'cpu')}.pt", weights_only=True)
    assert all(torch.equal(kept[key], tensor) for key, tensor in model.state_dict().items())


@pytest.mark.usefixtures("probed")
def test_the_numbers_are_those_of_the_device_of_the_audit(
    graph_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "fit_sizes", lambda *_, **__: TINY)
    monkeypatch.setattr(runner, "make_sections", lambda *arguments: make_sections(*arguments)[:1])
    path = tmp_path / "r.sqlite"
    first = small(graph_file, path)
    with Store(path) as store:
        for record in store.records():  # the same runs on a device whose name comes first, all of them wrong
            wrong = {"train": 0.0, "val": 0.0, "test": 0.0}
            store.add([replace(record, device="another device", accuracy=wrong)])
    again = small(graph_file, path)
    assert numbers(again)[0]["cells"] == numbers(first)[0]["cells"]


def test_the_sizes_of_other_versions_are_not_taken_over(
    graph_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders: list[Path] = []

    def stop(_: object, folder: Path, *__: object) -> None:
        folders.append(folder)
        raise AuditError("far enough")

    monkeypatch.setattr(runner, "_prepare", stop)
    for software in ({"wtawp": "1", "torch": "2"}, {"wtawp": "1", "torch": "2"}, {"wtawp": "1", "torch": "3"}):
        monkeypatch.setattr(runner, "versions", lambda software=software: software)
        with pytest.raises(AuditError, match="far enough"):
            small(graph_file, tmp_path / "r.sqlite")
    assert folders[0] == folders[1] != folders[2]


def test_several_graphs_are_refused(archive: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="wtawp compare"):
        audit("PooledGCN", archive, minutes=0.01, store=tmp_path / "r.sqlite")


def test_wrong_options_and_damaged_sizes_are_refused(graph_file: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="minutes must be"):
        audit("GCN", graph_file, minutes=0.0, store=tmp_path / "r.sqlite")
    with pytest.raises(ValueError, match="2 of them or more"):
        audit("GCN", graph_file, splits=1, store=tmp_path / "r.sqlite")
    for content in ("{", json.dumps({"format": 99})):
        folder = tmp_path / "sizes.json"
        folder.write_text(content, encoding="utf-8")
        with pytest.raises(AuditError, match="start anew with --fresh"):
            runner._read(folder)


@pytest.mark.parametrize(
    ("spent", "seconds", "limit", "minutes", "expected"),
    [
        (22.0, 98.0, 98.0, 2.0, "about 2.0 minutes in all, 0.4 of them for this trial and the page."),
        (24.0, 6.0, 3.0, 0.5, "about 0.5 minutes in all, 0.4 of them for this trial and the page."),
        (24.0, 36.0, 6.0, 0.5, "minutes in all, 0.4 of them for this trial and the page. That is more than the 0.5 "
         "that were asked for, and nothing is left to reduce."),
        (60.0, 6.0, 6.0, 1.0, "That is more than the 1 that were asked for, and the trial took most of the time."),
    ],
)  # fmt: skip
def test_the_time_that_is_announced_is_the_one_that_is_compared(
    spent: float, seconds: float, limit: float, minutes: float, expected: str
) -> None:
    assert runner._describe_time(spent, seconds, limit, minutes).endswith(expected)


def test_it_is_a_public_name() -> None:
    assert wtawp.audit is audit
