import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from wtawp.core import AwpConfig
from wtawp.experiments.results.summary import summarise
from wtawp.experiments.spec import Setting
from wtawp.experiments.tuning.comparison import comparison_plan
from wtawp.experiments.tuning.dimensions import Choice, Range
from wtawp.experiments.tuning.report import TuningReport, best_settings, command_line
from wtawp.experiments.tuning.space import Space
from wtawp.experiments.tuning.study import open_study

pytest.importorskip("optuna", reason="SEARCHES NOT CHECKED: pip install 'wtawp[tune]'")
BASE = Setting(dataset="wine", epochs=3)
PLACES = ((1_000_000, 0), (1_000_001, 0))
SHARED = {"lr": Range(0.001, 0.1, is_log=True), "dropout": Range(0.0, 0.9)}
START = {"lr": 0.01, "dropout": 0.5}
SPACES = {
    "plain": Space("plain", SHARED, {"weight_decay": 0.0}, START),
    "WT-AWP": Space(
        "WT-AWP",
        {**SHARED, "lam": Range(0.0, 1.0), "rho": Range(0.1, 2.0), "balance": Choice((None, 4.0))},
        {"weight_decay": 0.0, "layers": "all"},
        {**START, "lam": 0.5, "rho": 1.0, "balance": None},
    ),
}


@pytest.fixture
def report(tmp_path: Path, make_records: object) -> Iterator[TuningReport]:
    with open_study(tmp_path / "s.sqlite", {}, SPACES, seed=0) as study:
        for arm, values in (("plain", (0.8, 0.7)), ("WT-AWP", (0.75, 0.85))):
            for value in values:
                active = study.begin(arm)
                active.is_hopeless(value, 1)
                active.finish(value, 1.0)
        plan = comparison_plan(BASE, best_settings(study, BASE), 4)
        gains = {cell.row: i for i, cell in enumerate(plan.cells)}
        records = make_records(plan, lambda cell, split, _: 80 + split + gains[cell.row] * (1 + 0.1 * split))
        yield TuningReport(study, BASE, PLACES, summarise(plan, records))


def test_the_best_trial_of_each_arm_is_shown(report: TuningReport) -> None:
    assert report.tuned["plain"] == Setting(
        dataset="wine", epochs=3, weight_decay=0.0, options=(("dropout", 0.5),)
    )  # the first trial, which is the one without tuning
    table = report.best_table()
    rows = {row[0].text: dict(zip(table.headers, (entry.text for entry in row), strict=True)) for row in table.rows}
    assert rows["plain"]["validation accuracy"] == "80.00"
    assert rows["WT-AWP"]["validation accuracy"] == "85.00"
    assert (rows["plain"]["lr"], rows["plain"]["rho"], rows["plain"]["trials"]) == ("0.01", "–", "2")  # noqa: RUF001
    assert rows["WT-AWP"]["layers"] == "all"


def test_the_sentences_are_those_of_a_comparison_and_name_the_splits(report: TuningReport) -> None:
    sentences = report.sentences()
    assert sentences[0].startswith("GCN+WT-AWP, tuned (wine) helps: +1.15 points of test accuracy (95 % interval")
    assert sentences[-1] == (
        "Compared on splits 0 to 3, initialisations 0: splits that the search (splits 1000000, 1000001, initialisations"
        " 0) did not use."
    )


def test_where_there_is_one_split_the_initialisations_are_fresh(report: TuningReport) -> None:
    same = TuningReport(report.study, BASE, ((0, 500), (0, 501)), report.comparison)
    assert "initialisations that the search (splits 0, initialisations 500, 501) did not use" in same.compared


def test_the_data_are_json_and_complete(report: TuningReport) -> None:
    data = json.loads(json.dumps(report.to_data()))
    assert {arm: result["command"] for arm, result in data["arms"].items()} == report.commands
    assert [len(arm["trials"]) for arm in data["arms"].values()] == [2, 2]
    assert len(data["comparison"]["pairs"]) == 5
    assert data["comparison"]["pairs"][0]["gain"]["num_pairs"] == 4


def test_the_page_has_the_heat_map_and_requests_nothing(report: TuningReport) -> None:
    page = report.to_html()
    assert 'figure response"><svg' in page
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert "Mean validation accuracy over lam and rho" in page
    assert all(command in page for command in report.commands.values())
    assert "http://" not in page.replace("http://www.w3.org/", "")


def test_a_command_line_names_all_that_was_tuned() -> None:
    awp = AwpConfig(rho=0.5, lam=0.25, layers="all", balance=4.0)
    setting = Setting(dataset="my graph.npz", awp=awp, options=(("hidden", (8,)), ("bias", False)), lr=0.0123,
                      average="swa")  # fmt: skip
    assert command_line(setting) == (
        "wtawp train 'my graph.npz' --model GCN --option bias=False --option hidden=8, --lr 0.0123 --weight-decay "
        "0.0005 --rho 0.5 --lam 0.25 --layers all --balance 4.0 --epochs 200 --select-on either --split random "
        "--average swa"
    )


def test_an_arm_without_a_finished_trial_is_refused(tmp_path: Path) -> None:
    with open_study(tmp_path / "s.sqlite", {}, SPACES, seed=0) as study, pytest.raises(ValueError, match="plain"):
        best_settings(study, BASE)


def test_rows_of_a_single_trial_are_not_called_tuned_without_a_word(report: TuningReport, tmp_path: Path) -> None:
    assert report.untuned == []
    with open_study(tmp_path / "short.sqlite", {}, SPACES, seed=0) as study:
        for arm in SPACES:
            active = study.begin(arm)
            active.is_hopeless(0.8, 1)
            active.finish(0.8, 1.0)
        short = TuningReport(study, BASE, PLACES, report.comparison)
        assert short.sentences()[0].startswith("Nothing was tuned for plain, WT-AWP: the time was enough for one trial")
        assert "Nothing was tuned for plain, WT-AWP" in short.to_html()
