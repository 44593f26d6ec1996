import json
from pathlib import Path

import pytest
from commands import invoke

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
