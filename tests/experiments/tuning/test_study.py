import os
import random
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from wtawp.experiments.tuning.dimensions import Choice, Range
from wtawp.experiments.tuning.space import Space
from wtawp.experiments.tuning.study import Study, StudyError, open_study

pytest.importorskip("optuna", reason="SEARCHES NOT CHECKED: pip install 'wtawp[tune]'")
PLAIN = Space("plain", {"lr": Range(0.001, 0.1, is_log=True)}, {"weight_decay": 0.0}, {"lr": 0.01})
PERTURBED = Space(
    "WT-AWP", {"lam": Range(0.0, 1.0), "layers": Choice(("all", "first")), "balance": Choice((None, 4.0))},
    {"rho": 1.0}, {"lam": 0.5, "layers": "all", "balance": None},
)  # fmt: skip
SPACES = {"plain": PLAIN, "WT-AWP": PERTURBED}
IDENTITY = {"dataset": "wine", "epochs": 3, "places": ((1, 0),)}


@contextmanager
def opened(path: Path, seed: int = 0, **changed: object) -> Iterator[Study]:
    with open_study(path, {**IDENTITY, **changed}, SPACES, seed=seed) as study:
        yield study


def accuracy_at(lam: float) -> float:
    return 1 - (lam - 0.3) ** 2


def make_trials(study: Study, count: int) -> None:
    for _ in range(count):
        active = study.begin("WT-AWP")
        value = accuracy_at(active.parameters["lam"])
        active.finish(None if active.is_hopeless(value, 1) else value, 1.5)


def test_the_first_trial_is_the_one_without_tuning_and_the_best_is_found(tmp_path: Path) -> None:
    with opened(tmp_path / "s.sqlite") as study:
        make_trials(study, 16)
        trials = study.trials("WT-AWP")
        assert trials[0].parameters == PERTURBED.start
        best = study.best("WT-AWP")
        assert best is not None
        assert best.accuracy == max(t.accuracy for t in trials if t.accuracy is not None)
        assert best.accuracy > trials[0].accuracy
        assert any(t.accuracy is None for t in trials), "bad trials are pruned"
        assert all(t.accuracy is not None for t in trials[:4])
        assert study.trials("plain") == []
        assert study.best("plain") is None


def test_a_search_that_is_stopped_and_continued_makes_the_trials_of_one_that_is_not(tmp_path: Path) -> None:
    with opened(tmp_path / "whole.sqlite") as study:
        make_trials(study, 13)
        whole = study.trials("WT-AWP")
    for count in (1, 8, 4):
        with opened(tmp_path / "parts.sqlite") as study:
            make_trials(study, count)
            study.begin("WT-AWP")  # in flight when the process dies
    with opened(tmp_path / "parts.sqlite") as study:
        assert study.trials("WT-AWP") == whole
    assert len({tuple(t.parameters.items()) for t in whole}) == 13
    with opened(tmp_path / "other.sqlite", seed=1) as study:
        make_trials(study, 3)
        assert study.trials("WT-AWP")[0] == whole[0]
        assert study.trials("WT-AWP")[1:3] != whole[1:3]


def test_a_file_of_another_search_is_refused_with_the_difference(tmp_path: Path) -> None:
    with opened(tmp_path / "s.sqlite") as study:
        make_trials(study, 1)
    message = r"belongs to another search: its epochs is 3, here it is 4\. Choose"
    with pytest.raises(StudyError, match=message), opened(tmp_path / "s.sqlite", epochs=4):
        pass
    with pytest.raises(StudyError, match="its dataset is"), opened(tmp_path / "s.sqlite", dataset="iris"):
        pass
    with opened(tmp_path / "s.sqlite") as study:
        assert len(study.trials("WT-AWP")) == 1


def test_a_study_is_used_by_one_process_at_a_time(tmp_path: Path) -> None:
    message = "another process searches"
    with opened(tmp_path / "s.sqlite"), pytest.raises(StudyError, match=message), opened(tmp_path / "s.sqlite"):
        pass


def test_files_that_are_no_studies_are_refused_and_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "text.sqlite"
    text.write_text("no database at all, and not short either" * 30, encoding="utf-8")
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE mine (x)")
    db.close()
    empty = tmp_path / "empty.sqlite"
    empty.touch()
    for path in (text, other, empty):
        before = path.read_bytes()
        with pytest.raises(StudyError, match="--study"), opened(path):
            pass
        assert path.read_bytes() == before
    with pytest.raises(StudyError, match="not a file"), opened(tmp_path):
        pass
    with pytest.raises(StudyError, match="cannot"), opened(tmp_path / "no" / "s.sqlite"):
        pass


def test_a_damaged_file_is_refused_or_read_and_never_a_traceback(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with opened(path) as study:
        make_trials(study, 3)
    whole = path.read_bytes()
    draw = random.Random(0)
    refused = 0
    for _ in range(25):
        damaged = bytearray(whole)
        for _ in range(draw.choice([1, 30, 3000])):
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        path.write_bytes(bytes(damaged[: draw.choice([len(damaged), draw.randrange(len(damaged))])]))
        try:
            with opened(path) as study:
                assert all(PERTURBED.setting for _ in study.trials("WT-AWP"))
        except StudyError:
            refused += 1
    assert refused > 10


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE trial_params SET param_value = 7.5 WHERE param_name = 'lam'",
        "DELETE FROM trial_params WHERE param_name = 'lam'",
        "UPDATE trial_values SET value = 2.0",
        "UPDATE trial_values SET value = NULL",
        "DELETE FROM trial_intermediate_values",
        "UPDATE trial_user_attributes SET value_json = '{'",
        "UPDATE trials SET state = 'NONE'",
        "DELETE FROM studies",
        "CREATE TRIGGER t AFTER INSERT ON trials BEGIN DELETE FROM studies; END",
        "UPDATE study_user_attributes SET value_json = '[]'",
    ],
)
def test_impossible_values_in_an_intact_file_are_refused(tmp_path: Path, change: str) -> None:
    with opened(tmp_path / "s.sqlite") as study:
        make_trials(study, 2)
    with sqlite3.connect(tmp_path / "s.sqlite") as db:
        db.execute(change)
    db.close()
    with pytest.raises(StudyError), opened(tmp_path / "s.sqlite"):
        pass


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(StudyError, match="cannot write"), opened(tmp_path / "s.sqlite"):
            pass
    finally:
        tmp_path.chmod(0o700)


def test_names_of_files_may_be_unusual(tmp_path: Path) -> None:
    path = tmp_path / "a b%20?mode=ro#ü.sqlite"
    with opened(path) as study:
        make_trials(study, 1)
    assert path.is_file()
    with opened(path) as study:
        assert len(study.trials("WT-AWP")) == 1


def test_without_optuna_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(StudyError, match=r"pip install 'wtawp\[tune\]'"), opened(tmp_path / "s.sqlite"):
        pass
