import json
import sys
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from wtawp.attacks import AttackOutcome
from wtawp.cli import app
from wtawp.experiments import Store
from wtawp.experiments.measures.shared.flips import flips_from_result
from wtawp.graphs import EdgeFlips, GraphFlips, load_flips

RUN = CliRunner()
SOURCE = """
from torch import nn
from torch_geometric.nn import GCNConv

class MyGNN(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.one, self.two = GCNConv(d_in, 8), GCNConv(8, d_out)

    def forward(self, x, edge_index, edge_weight=None):
        return self.two(self.one(x, edge_index, edge_weight).relu(), edge_index, edge_weight)

def number(d_in, d_out):
    return 7
"""


def invoke(*arguments: object, code: int = 0) -> str:
    result: Result = RUN.invoke(app, ["attack", *map(str, arguments)])
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return " ".join((result.stdout if "--json" in arguments else result.output).split())


SMALL = ("wine", "--epochs", 10, "--splits", 2, "--workers", 1)


def test_an_attack_is_shown_drawn_kept_and_its_flips_saved(tmp_path: Path, store: Path) -> None:
    page, flips = tmp_path / "page.html", tmp_path / "flips"
    how = (*SMALL, "--attack", "dice", "--budget", 0.1, "--budget", 0.2, "--store", store)
    shown = invoke(*how, "--html", page, "--flips", flips)
    assert "no attack" in shown
    assert "10 %" in shown
    assert "20 %" in shown
    assert "4 runs trained" in shown
    assert "<svg" in page.read_text(encoding="utf-8")
    assert len(list(flips.iterdir())) == 8
    assert max(len(EdgeFlips.load(file)) for file in flips.iterdir()) > 20
    assert "0 runs trained, 4 known before" in invoke(*how)


def test_the_counts_of_a_poisoning_name_its_surrogates(store: Path) -> None:
    how = (*SMALL, "--attack", "dice", "--poison", "--plain", "--store", store)
    first = " ".join(invoke(*how).split())
    assert "6 runs to train in 6 chunks, 2 of them surrogates (models on which an attack finds its flips). No" in first
    assert "6 runs trained (2 of them surrogates), 0 known before, 0 failed" in first
    assert "0 runs trained, 4 known before, 0 failed" in invoke(*how)


def test_poisoning_trains_a_surrogate_for_each_split_first(store: Path) -> None:
    output = invoke(*SMALL, "--attack", "dice", "--poison", "--plain", "--store", store, "--json")
    (report,) = json.loads(output)
    assert [(c["column"], c["runs"]) for c in report["cells"]] == [("no attack", 2), ("5 %", 2)]
    with Store(store) as kept:
        surrogates = [r for r in kept.records() if r.setting.get("measures")]
        poisoned = [r for r in kept.records() if r.setting.get("poison")]
    assert [(r.setting["model"], r.split, r.init) for r in surrogates] == [("GCN", 0, 0), ("GCN", 1, 0)]
    assert len({r.versions["flips"] for r in poisoned}) == 2


def test_by_default_several_attacks_are_run_and_the_winners_are_shown(tmp_path: Path, store: Path) -> None:
    page = tmp_path / "page.html"
    few = ("--attack-option", "steps=2", "--attack-option", "restarts=1", "--attack-option", "block_size=2000")
    shown = invoke(
        "wine", "--epochs", 5, "--splits", 1, "--workers", 1, *few, "--plain", "--store", store, "--html", page
    )
    assert "under evasion with the strongest of several attacks" in shown
    assert "PGD, tanh_margin" in shown
    assert "1 of 1" in shown
    assert "GRBCD on a surrogate" in page.read_text(encoding="utf-8")
    with Store(store) as kept:
        (record,) = kept.records()
    assert record.measured is not None
    outcome = AttackOutcome.of((name, value) for name, value in record.measured[0]["provenance"])
    assert outcome is not None
    assert record.measured[0]["accuracy"] == pytest.approx(min(outcome.accuracies.values()), abs=1e-5)


def test_poisoning_has_a_default_attack_of_its_own_and_the_papers_evasion_is_called_weak(store: Path) -> None:
    few = ("--attack-option", "steps=2", "--budget", 2, "--splits", 1, "--epochs", 5, "--workers", 1, "--plain")
    poisoned = invoke("wine", "--poison", *few, "--store", store)
    assert "under poisoning with metattack" in poisoned
    evaded = invoke("wine", "--attack", "pgd", *few, "--store", store)
    assert "the paper's attack and a weak one" in evaded
    assert "weak" not in invoke(
        "wine", "--attack", "pgd", "--attack-option", "loss=tanh_margin", *few, "--store", store
    )


def test_a_model_of_ones_own_is_found_by_its_place(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "my_package_of_models.py"
    source.write_text(SOURCE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])  # as the command `wtawp` has it
    how = (*SMALL, "--attack", "pgd", "--budget", 5, "--plain", "--store", store, "--model")
    assert "2 runs trained" in invoke(*how, "my_package_of_models:MyGNN")
    assert "0 runs trained, 2 known" in invoke(*how, "my_package_of_models:MyGNN")
    with Store(store) as kept:
        attacked = [record.measured[0]["accuracy"] for record in kept.records() if record.measured]
    assert len(attacked) == 2
    source.write_text(SOURCE.replace("8", "4"), encoding="utf-8")
    assert "2 runs trained, 0 known" in invoke(*how, "my_package_of_models:MyGNN")  # another source, another model
    assert "there is no model my_package_of_models:Mine" in invoke(*how, "my_package_of_models:Mine", code=1)
    assert "must make a torch.nn.Module, got int" in invoke(*how, "my_package_of_models:number", code=1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--budget", 0), "a budget given as a count must lie between 1 and"),
        (("--budget", 1.5), "a budget given as a share must lie in (0, 1], got 1.5"),
        (("--model", "MLP"), "ignores the graph"),
        (("--model", "GCNSVD", "--attack", "prbcd"), "no gradient with respect to edge weights"),
        (("--attack", "pgd-features"), "only binary features can be flipped"),
        (("--attack", "nettack", "--attack-option", "steps=3"), "nettack has no option 'steps'"),
        (("--attack", "fga", "--targets", 2, "--attack-option", "steps=3"), "fga has no option 'steps'"),
        (("--attack", "pgd", "--attack-option", "steps=2.5"), "steps of pgd must be a whole number, got 2.5"),
        (("--attack", "pgd", "--attack-option", "loss=foo"), "loss of pgd must be one of ce, masked_ce"),
        (("--attack", "pgd", "--attack-option", "step_size=true"), "must be a number or none, got True"),
    ],
)
def test_what_cannot_be_attacked_is_refused_before_anything_is_trained(
    store: Path, arguments: tuple[object, ...], words: str
) -> None:
    shown = invoke(*SMALL, *arguments, "--plain", "--store", store, code=1)
    assert words in shown
    with Store(store) as kept:
        assert kept.records() == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--budget", 0.1, "--budget", 20), "budgets must be all shares (0.05) or all numbers of edges (253)"),
        (("--attack", "fgsm"), "attack must be one of random, dice"),
        (("--budget", "five"), "budget must be a share as in 0.05 or a number of edges as in 253, got 'five'"),
        (("--model", "GCNN"), "model must be one of GCN, GAT"),
        (("--attack", "metattack"), "ask for poisoning (--poison)"),
        (("--attack-option", "steps"), "an option is name=value"),
        (("--attack", "nettack", "--poison"), "poisoning single nodes would need a training for each of them"),
        (("--attack", "nettack", "--budget", 0.05), "is a number of flips for each (5), got [0.05]"),
        (("--attack", "nettack", "--no-adaptive"), "always attack the model itself; leave out --no-adaptive"),
        (("--attack", "dice", "--targets", 3), "dice attacks a whole graph, not single nodes"),
        (("--attack", "pgd-features", "--poison"), "attacks trained models"),
        (("--attack", "pgd", "--attack-option", "surrogate=MLP"), "pgd has no option 'surrogate'"),
        (
            ("--attack", "pgd", "--poison", "--attack-option", "stepz=1"),
            "pgd has no option 'stepz'; did you mean steps?",
        ),
        (("--attack", "pgd", "--attack-option", "adaptive=1"), "adaptive must be true or false, got 1"),
        (("--attack", "pgd", "--attack-option", "code=1"), "code is no option of an attack"),
        (("--tf32",), "TF32 matrix products are those of a GPU"),
    ],
)
def test_a_wrong_argument_is_named(store: Path, arguments: tuple[str, ...], words: str) -> None:
    shown = invoke(*SMALL, *arguments, "--store", store, code=2)
    assert words in " ".join(shown.replace("│", " ").split())


def test_an_attack_of_ones_own_is_known_by_its_source_and_a_wrong_name_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = """
from wtawp.graphs import EdgeFlips, undirected_pairs

def first(data, *, budget, seed, train):
    return EdgeFlips.of(undirected_pairs(data)[:, {start}:{start} + budget], int(data.num_nodes))
"""
    arguments = ["attack", "wine", "--attack", "attack_of_a_user:first", "--budget", "3", "--splits", "1", "--epochs",
                 "2", "--plain", "--workers", "1", "--store", "s.sqlite", "--json"]  # fmt: skip
    said = []
    for start in (0, 0, 1):
        (tmp_path / "attack_of_a_user.py").write_text(source.replace("{start}", str(start)), encoding="utf-8")
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
        said.append(result.stderr.strip().splitlines()[-1].split(",")[0])
    assert said == ["1 runs trained", "0 runs trained", "1 runs trained"]
    arguments[3] = "attack_of_a_user:second"
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert "module attack_of_a_user has no attribute 'second'" in result.stderr


def test_single_nodes_are_attacked_one_by_one_and_their_flips_saved(tmp_path: Path, store: Path) -> None:
    shown = invoke(
        *SMALL, "--plain", "--attack", "nettack", "--targets", 4, "--flips", tmp_path / "f", "--store", store
    )
    assert "targets, degree + 2 flips each" in shown
    assert " of 8 " in shown  # two splits of four targets
    files = sorted((tmp_path / "f").iterdir())
    assert len(files) == 8
    assert all(isinstance(load_flips(file), GraphFlips) for file in files)


def test_options_of_attacks_on_single_nodes_are_used_and_stored(store: Path) -> None:
    how = ("wine", "--epochs", 5, "--splits", 1, "--workers", 1, "--plain", "--attack", "nettack", "--targets", 4)
    for option in ("direct=true", "direct=false"):
        assert "1 runs trained" in invoke(*how, "--attack-option", option, "--store", store)
    with Store(store) as kept:
        records = {dict(r.setting["measures"][0]["options"])["direct"]: r for r in kept.records()}
    assert records.keys() == {True, False}
    for direct, record in records.items():
        assert record.measured is not None
        for each in record.measured[0]["targets"]:
            if "flips" in each:
                flips = flips_from_result(each)
                assert isinstance(flips, GraphFlips)
                assert bool((flips.edges.pairs == each["node"]).any(0).all()) is direct
