from dataclasses import replace
from pathlib import Path

import pytest

from wtawp.core import AwpConfig
from wtawp.experiments.execution.checks import check_plan
from wtawp.experiments.plans.robustness import certifying, noise_of
from wtawp.experiments.spec import Cell, Measure, Plan, PlanError, Setting

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
        ({"noise": Measure("nose")}, "must be a measure named noise, got 'nose'"),
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

class Theirs(nn.Module):
    def __init__(self, in_channels, hidden_channels=64, out_channels=7):
        super().__init__()
        self.first, self.last = GCNConv(in_channels, hidden_channels), GCNConv(hidden_channels, out_channels)

    def forward(self, x, edge_index):
        return self.last(self.first(x, edge_index).relu(), edge_index)
"""


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder of its own, whose modules can be imported."""
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
