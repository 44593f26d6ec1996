import json
from dataclasses import replace
from pathlib import Path

import pytest

from wtawp.core import AwpConfig
from wtawp.experiments.plans.scale import at_scale
from wtawp.experiments.spec import Cell, MeasureRequest, Plan, Run, Setting, chunks

PLAIN = Setting(dataset="karate", epochs=5)
PERTURBED = replace(PLAIN, awp=AwpConfig(rho=1.0, lam=0.7))


def test_a_run_is_named_by_its_content() -> None:
    run = Run(PLAIN, 0, 0)
    others = [Run(PLAIN, 0, 1), Run(PLAIN, 1, 0), Run(PERTURBED, 0, 0), Run(replace(PLAIN, lr=0.02), 0, 0)]
    assert run.key == Run(Setting(dataset="karate", epochs=5), 0, 0).key
    assert len({run.key, *(o.key for o in others)}) == 5
    assert len(run.key) == 16


def test_the_order_in_which_options_are_given_does_not_matter() -> None:
    one = Setting(dataset="karate", options=(("hidden", (8,)), ("dropout", 0.2)), keep=("scores", "history"))
    two = Setting(dataset="karate", options=(("dropout", 0.2), ("hidden", (8,))), keep=("history", "scores"))
    assert Run(one, 0, 0).key == Run(two, 0, 0).key


def test_a_setting_survives_json() -> None:
    for setting in (PLAIN, PERTURBED, replace(PERTURBED, options=(("hidden", (8, 8)), ("dropout", 0.1)))):
        back = Setting.from_content(json.loads(json.dumps(setting.content)))
        assert back == setting
        assert Run(back, 3, 4).key == Run(setting, 3, 4).key
    globs = replace(PLAIN, awp=AwpConfig(rho=1.0, lam=1.0, layers=("convs.0.*", "convs.1.*")))
    assert Setting.from_content(json.loads(json.dumps(globs.content))) == globs


def test_attacks_and_measures_are_part_of_the_key_and_their_absence_is_not() -> None:
    attack = MeasureRequest("evasion", (("budget", 0.05), ("attack", "pgd")))
    changed = [replace(PLAIN, poison=attack), replace(PLAIN, measures=(attack,)), replace(PLAIN, model="my.module:Net")]
    changed.append(replace(PLAIN, noise=MeasureRequest("noise", (("on", "edges"), ("p_add", 0.1), ("p_del", 0.2)))))
    assert len({Run(setting, 0, 0).key for setting in (PLAIN, *changed)}) == 5
    for setting in changed:
        assert Setting.from_content(json.loads(json.dumps(setting.content))) == setting
    assert not {"poison", "measures", "code", "digest", "noise", "features", "batch_size"} & set(PLAIN.content)
    assert attack == MeasureRequest("evasion", (("attack", "pgd"), ("budget", 0.05)))
    assert str(changed[0]) == "GCN on karate after evasion (attack='pgd', budget=0.05), plain, epochs=5"
    with pytest.raises(ValueError, match="option budget must be a finite number"):
        MeasureRequest("evasion", (("budget", float("nan")),))


def test_a_model_of_ones_own_has_the_digest_of_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    source = tmp_path / "models_of_mine.py"
    source.write_text("class Net: ...", encoding="utf-8")
    first = replace(PLAIN, model="models_of_mine:Net")
    source.write_text("class Net: ...  # another", encoding="utf-8")
    assert first.code != replace(PLAIN, model="models_of_mine:Net").code
    assert replace(PLAIN, model="nowhere_at_all:Net").code is None


def test_splits_with_a_graph_of_their_own_are_not_trained_together() -> None:
    attack = MeasureRequest("poison", (("attack", "dice"), ("budget", 0.05)))
    runs = Plan("mine", "", (Cell("", "", replace(PLAIN, poison=attack), 3, 2),)).runs()
    assert [len(chunk) for chunk in chunks(runs, together=True)] == [2, 2, 2]
    smaller = at_scale(
        Plan("mine", "", (Cell("", "", replace(PLAIN, poison=attack, measures=(attack,))),)), "smoke"
    ).cells[0]
    assert [dict(m.options)["budget"] for m in (smaller.setting.poison, *smaller.setting.measures) if m] == [4, 4]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": "GCNN"}, "model must be one of GCN, GAT"),
        ({"epochs": 0}, "epochs must be a whole number >= 1, got 0"),
        ({"epochs": 1.5}, "epochs must be a whole number"),
        ({"batch_size": 0}, "batch_size must be a whole number >= 1 or None, got 0"),
        ({"lr": float("nan")}, "lr must be a finite number >= 0, got nan"),
        ({"weight_decay": -1}, "weight_decay must be a finite number >= 0, got -1"),
        ({"select_on": "test"}, "select_on must be one of"),
        ({"keep": ("weights",)}, r"keep must be among .* got \['weights'\]"),
    ],
)
def test_a_wrong_setting_is_refused(change: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        replace(PLAIN, **change)


def plan() -> Plan:
    cells = (
        Cell("GCN", "karate", PLAIN, 3, 2),
        Cell("GCN+WT-AWP", "karate", PERTURBED, 3, 2),
        Cell("again", "x", PLAIN, 2, 2),
    )
    return Plan("mine", "Mine", cells, (("GCN", "GCN+WT-AWP"),))


def test_a_plan_unrolls_into_every_run_once() -> None:
    runs = plan().runs()
    assert len(runs) == len({r.key for r in runs}) == 12
    assert {(r.split, r.init) for r in runs if r.setting == PLAIN} == {(s, i) for s in range(3) for i in range(2)}


def test_chunks_hold_one_setting_and_on_a_cpu_one_split() -> None:
    runs = plan().runs()
    alone, together = chunks(runs, together=False), chunks(runs, together=True)
    assert [len(c) for c in alone] == [2] * 6
    assert [len(c) for c in together] == [6, 6]
    assert all(len({(r.setting, r.split) for r in c}) == 1 for c in alone)
    assert sorted(r.key for c in alone for r in c) == sorted(r.key for r in runs)
    toys = tuple(Run(Setting(dataset="toy-linear"), s, 0) for s in range(3))
    assert len(chunks(toys, together=True)) == 3  # each split has points of its own


def test_a_part_of_a_plan_keeps_the_pairs_that_are_whole() -> None:
    part = plan().only(columns=["karate"])
    assert [c.row for c in part.cells] == ["GCN", "GCN+WT-AWP"]
    assert part.pairs == plan().pairs
    assert plan().only(rows=["GCN"]).pairs == ()
    assert plan().only() == plan()
    assert plan().only(rows=["gcn+wt-awp"], columns=["Karate"]) == plan().only(rows=["GCN+WT-AWP"], columns=["karate"])
    with pytest.raises(ValueError, match=r"no column 'karat'; did you mean karate\? It has \['karate', 'x'\]"):
        plan().only(columns=["karat"])
    with pytest.raises(ValueError, match=r"mine has no row 'GAT'; it has \['GCN', 'GCN\+WT-AWP', 'again'\]"):
        plan().only(rows=["GAT"])


def test_whole_and_real_numbers_that_are_equal_give_one_key() -> None:
    one, other = (replace(PLAIN, awp=AwpConfig(rho=rho, lam=1), lr=lr) for rho, lr in ((1, 1), (1.0, 1.0)))
    assert Run(one, 0, 0).key == Run(other, 0, 0).key


def test_a_graph_of_ones_own_is_known_by_its_content_not_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = []
    for edges in ("a,b\n", "a,c\n", "a,b\n"):
        folder = tmp_path / str(len(keys))
        folder.mkdir()
        (folder / "graph.csv").write_text(edges, encoding="utf-8")
        (folder / "graph.labels.csv").write_text("a,0\nb,1\nc,1\n", encoding="utf-8")
        monkeypatch.chdir(folder)
        setting = Setting(dataset="graph.csv")
        assert Setting.from_content(json.loads(json.dumps(setting.content))) == setting
        keys.append(Run(setting, 0, 0).key)
    assert keys[0] == keys[2] != keys[1]


@pytest.mark.parametrize("value", [float("nan"), (0.5,), ((1,),), [64], object()])
def test_options_are_plain(value: object) -> None:
    with pytest.raises(ValueError, match="option hidden must be a finite number, text or whole numbers"):
        replace(PLAIN, options=(("hidden", value),))


def test_seeds_of_splits_stay_apart() -> None:
    with pytest.raises(ValueError, match="1 to 1000 inits, got 1 and 1001"):
        Cell("GCN", "x", PLAIN, 1, 1001)
