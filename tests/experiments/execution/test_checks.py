import sys
from dataclasses import replace
from pathlib import Path

import pytest

from wtawp.core import AwpConfig
from wtawp.experiments.execution.building import with_default_splits
from wtawp.experiments.execution.checks import check_plan
from wtawp.experiments.plans.robustness import certifying, noise_of
from wtawp.experiments.spec import Cell, MeasureRequest, Plan, PlanError, Setting

SETTING = Setting(dataset="wine", epochs=5, awp=AwpConfig(rho=0.5, lam=0.5))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dataset": "coral"}, "there is no graph called 'coral'"),
        ({"dataset": "karate"}, "leave none of some classes"),
        ({"dataset": "missing.npz"}, "missing.npz"),
        ({"options": (("widht", 3),)}, "unexpected keyword argument 'widht'"),
        ({"awp": AwpConfig(rho=1.0, lam=0.5, layers="conv9.*")}, "match none of"),
        ({"model": "RGCN"}, "are distributions and cannot be perturbed"),
        ({"noise": MeasureRequest("nose")}, r"Setting\.noise takes what noise_of\(certificate\) returns, got 'nose'"),
        ({"noise": noise_of(certifying("features", 1))}, "for binary ones"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused_first(change: dict[str, object], words: str) -> None:
    plan = Plan("mine", "Mine", (Cell("GCN", "wine", replace(SETTING, **change)),))
    with pytest.raises(PlanError, match=rf"^[^\[]*{words}.* \[mine: .* on "):
        check_plan(plan)


MODELS = """
from torch import nn
from torch_geometric.nn import GCNConv

class Wide(nn.Module):
    def __init__(self, d_in, d_out, width=7):
        super().__init__()
        self.conv = GCNConv(d_in, width)

    def forward(self, x, edge_index):
        return self.conv(x, edge_index)

class Flat(Wide):
    def forward(self, x, edge_index):
        return super().forward(x, edge_index)[:, 0]

class Failing(Wide):
    def forward(self, x, edge_index):
        raise KeyError("hidden")

class Unbuilt(Wide):
    def __init__(self, d_in, d_out):
        raise RuntimeError("no kernel")

class Theirs(nn.Module):
    def __init__(self, in_channels, hidden_channels=64, out_channels=7):
        super().__init__()
        self.first, self.last = GCNConv(in_channels, hidden_channels), GCNConv(hidden_channels, out_channels)

    def forward(self, x, edge_index):
        return self.last(self.first(x, edge_index).relu(), edge_index)
"""


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder of its own, whose modules can be imported, and are not those of another test."""
    for name in ("models_for_checks", "graphs_for_checks"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_an_output_without_one_column_for_each_class_is_refused(in_folder: Path) -> None:
    (in_folder / "models_for_checks.py").write_text(MODELS, encoding="utf-8")

    def check(name: str, **options: int) -> None:
        setting = Setting(dataset="wine", model=f"models_for_checks:{name}", options=tuple(options.items()), epochs=5)
        check_plan(Plan("mine", "Mine", (Cell("row", "wine", setting),)))

    check("Theirs")
    check("Theirs", hidden_channels=8)
    check("Wide", width=3)
    words = r"models_for_checks:Wide must return a number for each of the 3 classes of wine, \[178, 3\], got shape"
    with pytest.raises(PlanError, match=rf"{words} \[178, 7\]"):
        check("Wide")
    with pytest.raises(PlanError, match=r"\[178, 3\], got shape \[178\]"):
        check("Flat")


GRAPHS = """
import torch
from wtawp import load, stratified

def with_x(change):
    data = load("wine")
    data.x = change(data.x.clone())
    return data

def double(): return with_x(lambda x: x.double())
def whole(): return with_x(lambda x: (x > 0).long())
def missing(): return with_x(lambda x: x.index_fill(0, torch.tensor([3]), float("nan")))

def float_labels():
    data = load("wine")
    data.y = data.y.float()
    return data

def float_labels_and_masks():
    data = float_labels()
    split = stratified(data.y, seed=0)
    for name in ("train", "val", "test"):
        data[f"{name}_mask"] = torch.zeros(178, dtype=torch.bool).index_fill(0, getattr(split, name), True)
    return data

def long_labels():
    data = load("wine")
    data.y = torch.cat([data.y, data.y])
    return data
"""


@pytest.mark.parametrize(
    ("graph", "model", "words"),
    [
        (
            "double",
            "GCN",
            r"x are torch.float64 and the weights of GCN are .*; write data\.x = data\.x\.to\(torch.float32",
        ),
        ("whole", "GCN", "the features x are torch.int64"),
        (
            "double",
            "models_for_checks:Theirs",
            "Theirs, whose weights are torch.float32, fails .*torch.float64 of shape",
        ),
        ("missing", "GCN", "13 numbers of x are NaN or infinite, the first in row 3"),
        ("float_labels", "GCN", r"must be class numbers .* got torch.float32; write data\.y = data\.y\.long\(\)"),
        ("float_labels_and_masks", "GCN", "must be class numbers"),
        ("long_labels", "GCN", r"178 nodes and targets y of shape \[356\]"),
        ("", "models_for_checks:Failing", "Failing, whose weights .* fails when it is called with .*hidden"),
        ("", "models_for_checks:Unbuilt", "cannot be built for 13 features and 3 classes: RuntimeError: no kernel"),
    ],
)
def test_data_and_models_that_fail_are_refused_before_anything_is_trained(
    in_folder: Path, graph: str, model: str, words: str
) -> None:
    (in_folder / "models_for_checks.py").write_text(MODELS, encoding="utf-8")
    (in_folder / "graphs_for_checks.py").write_text(GRAPHS, encoding="utf-8")
    dataset = f"graphs_for_checks:{graph}" if graph else "wine"
    setting = Setting(dataset=dataset, model=model, epochs=5)
    plan = with_default_splits(Plan("mine", "Mine", (Cell("row", "data", setting),)))
    with pytest.raises(PlanError, match=words):
        check_plan(plan)
