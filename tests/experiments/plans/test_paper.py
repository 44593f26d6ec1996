import json
from pathlib import Path

import pytest

from wtawp.experiments.plans.catalogue import plan
from wtawp.experiments.plans.paper import paper_plans, printed

LABELS = """tab:natacc tab:ablation tab:ablation2 tab:ablationlast tab:poison tab:dicepoison tab:evasion tab:graphclass
fig:1 fig:2 fig:awpknnloss fig:lipcora fig:lossland fig:certcora fig:certcite fig:aa fig:aaa fig:gdnorm_all
fig:lcagg fig:ngrad"""
SHARED = Path(__file__).parents[4] / "shared" / "paper"


def test_every_table_and_figure_is_listed() -> None:
    assert set(LABELS.split()) == set(paper_plans())


def test_the_tables_have_the_paper_s_scale_and_settings() -> None:
    table = plan("tab:natacc")
    assert len(table.runs()) == 3600
    cell = next(c for c in table.cells if (c.row, c.column) == ("GAT+WT-AWP", "polblogs"))
    assert str(cell.setting) == "GAT on polblogs, rho=2.0, lam=0.3"
    assert cell.printed == (95.12, 0.48)
    ablation = {(c.row, c.column): c for c in plan("tab:ablation").cells}
    assert len(ablation) == 42
    assert ablation["lambda=1.0", "rho=1"].printed == (60.29, 1.94)
    assert not ablation["lambda=1.0", "rho=1"].judged
    assert ablation["lambda=0.7", "rho=1"].judged
    assert {c.setting.awp.steps for c in plan("tab:ablation2").cells if c.setting.awp} == {5}
    assert {c.setting.awp.layers for c in plan("tab:ablationlast").cells if c.setting.awp} == {"last"}


def test_the_robustness_tables_have_every_row_with_its_own_radius_and_share_the_flips() -> None:
    poison = plan("tab:poison")
    places = {(c.row, c.column): c for c in poison.cells}
    assert len(places) == 3 * (9 + 9 + 7)
    simple = places["SimPGCN+WT-AWP", "Metattack, polblogs"]
    assert simple.printed == (77.68, 2.41)
    assert str(simple.setting.awp) == "rho=2.0, lam=0.3"
    assert str(places["SimPGCN+WT-AWP", "clean, cora"].setting.awp) == "rho=0.5, lam=0.3"
    assert places["GCNSVD+WT-AWP", "PGD, cora"].setting.awp == places["GCN+WT-AWP", "PGD, cora"].setting.awp
    assert len({c.setting.surrogate for c in poison.cells if c.setting.poison}) == 6
    assert len({c.setting.surrogate for c in plan("tab:dicepoison").cells if c.setting.poison}) == 3
    evasion = plan("tab:evasion")
    assert len(evasion.cells) == 24
    assert len(evasion.runs()) == 2400
    (cell,) = (c for c in evasion.cells if (c.row, c.column) == ("GCN+WT-AWP", "PGD 10 %, polblogs"))
    assert cell.printed == (75.11, 1.03)
    assert dict(cell.setting.measures[cell.measure or 0].options)["budget"] == 0.1


@pytest.mark.skipif(not SHARED.is_dir(), reason="the paper's source is not here")
def test_the_printed_numbers_are_the_paper_s() -> None:
    assert printed() == json.loads((SHARED / "tables.json").read_text(encoding="utf-8"))
