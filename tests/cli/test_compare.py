import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import invoke

from wtawp.experiments.store import Store
from wtawp.experiments.tuning import search
from wtawp.experiments.tuning.study import Trial
from wtawp.graphs import load, save_split, stratified


def test_a_comparison_says_by_how_much(store: Path) -> None:
    (report,) = json.loads(
        invoke("compare", "wine", "--rho", 0.1, "--lam", 0.5, "--splits", 2, "--inits", 1, "--epochs", 3,
               "--workers", 1, "--store", store, "--json")
    )  # fmt: skip
    assert report["plan"] == "comparison"
    assert report["pairs"][0]["gain"]["mean"] == pytest.approx(report["cells"][1]["mean"] - report["cells"][0]["mean"])


def test_a_weight_that_follows_the_training_is_one_word(store: Path) -> None:
    (report,) = json.loads(
        invoke("compare", "wine", "--lam", "auto", "--rho", 0.5, "--epochs", 2, "--splits", 2, "--inits", 1,
               "--workers", 1, "--store", store, "--json")
    )  # fmt: skip
    assert [cell["row"] for cell in report["cells"]] == ["GCN", "GCN+WT-AWP auto"]
    measured = json.loads(invoke("train", "wine", "--lam", "auto", "--epochs", 2, "--json"))
    assert (measured["setting"]["awp"]["lam"], measured["setting"]["awp"]["balance"]) == ("auto", "auto")
    with Store(store) as opened:
        rules = {record.setting["awp"]["lam"] for record in opened.records() if record.setting["awp"]}
    assert rules == {"auto"}


def tuned(folder: Path, *more: object, trials: int = 2) -> tuple[object, ...]:
    """The arguments of a small comparison of tuned rows."""
    files = ("--study", folder / "s.sqlite", "--store", folder / "r.sqlite")
    small = ("--trials", trials, "--splits", 2, "--epochs", 3, "--workers", 1)
    return ("compare", "wine", "--tuned", *small, *files, *more)


def test_every_row_is_tuned_with_as_many_trials_and_a_second_call_makes_no_more(tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="SEARCHES NOT CHECKED: pip install 'wtawp[tune]'")
    report = json.loads(invoke(*tuned(tmp_path, "--json")))
    arms = report["arms"]
    assert {arm: len(result["trials"]) for arm, result in arms.items()} == {"plain": 2, "WT-AWP": 2, "WT-AWP auto": 2}
    assert arms["WT-AWP auto"]["setting"]["awp"]["lam"] == "auto"
    rows = ["GCN, tuned", "GCN+WT-AWP, tuned", "GCN+WT-AWP auto, tuned"]
    cells = report["comparison"]["cells"]
    assert [(cell["row"], cell["runs"]) for cell in cells] == [(row, 2) for row in rows]
    pairs = [(pair["before"], pair["after"]) for pair in report["comparison"]["pairs"]]
    assert pairs == [(rows[0], rows[1]), (rows[0], rows[2]), (rows[2], rows[1])]
    assert all(place[0] >= 1_000_000 for place in report["places"]), "the comparison uses splits 0 and 1"
    assert len(report["answers"]) == 3

    again = json.loads(invoke(*tuned(tmp_path, "--json")))
    assert again == report, "neither new trials nor new runs"
    page = tmp_path / "page.html"
    shown = invoke(*tuned(tmp_path, "--html", page))
    assert "continues after 6 trials" in shown
    assert all(f"{row} (wine)" in shown for row in rows[1:])
    assert "<svg" in page.read_text(encoding="utf-8")
    files = ("--study", tmp_path / "s.sqlite", "--store", tmp_path / "r.sqlite", "--epochs", 3)
    of_tune = invoke("tune", "wine", "--method", "WT-AWP auto", "--trials", 2, "--splits", 2, *files)
    assert "continues after 6 trials" in of_tune, "both commands make the same search"


def test_an_interrupted_search_is_continued_by_the_same_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optuna", reason="SEARCHES NOT CHECKED: pip install 'wtawp[tune]'")
    real = search.run_trial
    calls = iter(range(9))

    def interrupted(*arguments: Any) -> Trial:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(search, "run_trial", interrupted)
    stopped = invoke(*tuned(tmp_path, trials=1), code=130)
    assert "Stopped. Finished trials are in" in stopped
    report = invoke(*tuned(tmp_path, trials=1))
    assert "continues after 2 trials" in report
    assert "3 trials are made" in report


def test_a_search_without_enough_time_says_how_many_trials_it_made(tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="SEARCHES NOT CHECKED: pip install 'wtawp[tune]'")
    shown = invoke(*tuned(tmp_path, "--minutes", 0.01, trials=50))
    assert "of 50 trials of each arm; the same command makes more" in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--trials", 2), "'--trials': it is for the search of --tuned; add --tuned"),
        (("--minutes", 5), "'--minutes': it is for the search of --tuned"),
        (("--study", "s.sqlite"), "'--study': it is for the search of --tuned"),
        (("--tuned", "--rho", 1), "'--rho': --tuned varies it"),
        (("--tuned", "--lam", "auto"), "'--lam': --tuned varies it"),
        (("--tuned", "--layers", "all"), "'--layers': --tuned varies it"),
        (("--tuned", "--balance", 1), "'--balance': --tuned varies it"),
        (("--tuned", "--inits", 2), "'--inits': with --tuned, --splits alone"),
        (("--tuned", "--tf32"), "'--tf32': a search does not use TF32"),
        (("--tuned", "--time-limit", 9), "'--time-limit': it limits chunks of runs; with --tuned, --minutes"),
        (("--tuned", "--fresh"), "'--fresh': --tuned continues the trials"),
        (("--tuned", "--splits", 1), "a comparison needs 2 splits or more"),
        (("--tuned", "--split", "k-fold"), "a search has no folds; use --split random"),
        (("--tuned", "--model", "RGCN"), "the weights of RGCN cannot be perturbed"),
    ],
)
def test_options_that_contradict_each_other_are_refused(arguments: tuple[object, ...], words: str) -> None:
    output = invoke("compare", "wine", *arguments, code=2)
    assert words in " ".join(output.replace("│", " ").split())


def test_the_option_that_leaves_a_single_pair_is_named(tmp_path: Path) -> None:
    save_split(stratified(load("wine").y, seed=0), tmp_path / "split.json")
    data = ("compare", "wine", "--split-file", tmp_path / "split.json")
    output = " ".join(invoke(*data, "--inits", 1, code=2).replace("│", " ").split())
    assert "'--inits': one split of the masks is compared, so initialisations are paired" in output
    output = " ".join(invoke("compare", "wine", "--splits", 1, "--inits", 1, code=2).replace("│", " ").split())
    assert "'--splits': a comparison needs 2 splits or more" in output


def test_a_comparison_of_a_small_graph_imports_what_it_needs_alone(tmp_path: Path) -> None:
    nodes = [f"n{i},{'abc'[i % 3]},{i % 3}" for i in range(120)]
    (tmp_path / "g.labels.csv").write_text("\n".join(["node,label,x", *nodes]))
    (tmp_path / "g.csv").write_text("\n".join(["source,target", *(f"n{i},n{(i * 7 + 1) % 120}" for i in range(120))]))
    program = """
import gc, sys
from wtawp.cli import app
app(["compare", *sys.argv[1:], "--splits", "2", "--epochs", "2"], standalone_mode=False)
unneeded = ("sklearn", "scipy.stats", "matplotlib", "wtawp.experiments.report.html", "ray", "pooch")
print("imported:", *(name for name in unneeded if name in sys.modules))
print("permanent:", gc.get_freeze_count() > 100_000, "collected:", gc.isenabled())
"""
    command = [sys.executable, "-c", program, str(tmp_path / "g.csv"), "--store", str(tmp_path / "s.sqlite")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "runs trained, 0 known before, 0 failed" in done.stderr
    assert done.stdout.splitlines()[-2:] == ["imported:", "permanent: True collected: True"]
