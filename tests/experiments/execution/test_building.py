from pathlib import Path

import pytest
import torch

from wtawp.base import rng
from wtawp.experiments.execution.building import build_model, data_of, split_of
from wtawp.experiments.spec import PlanError, Run, Setting
from wtawp.models import GCN

SOURCE = """
from torch import nn

class Net(nn.Module):
    def __init__(self, d_in, d_out, width=4):
        super().__init__()
        self.lin = nn.Linear(d_in, d_out)
        self.width = width

    def forward(self, x, edge_index):
        return self.lin(x)
"""


def test_a_run_s_weights_follow_from_its_numbers() -> None:
    setting = Setting(dataset="wine", options=(("hidden", (8,)),))
    data = data_of(setting, 0)
    model = build_model(Run(setting, 2, 1), data)
    again = GCN(13, 3, hidden=(8,), generator=rng("init", 2, 1))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


def test_a_user_s_class_is_built_from_the_working_folder_without_touching_the_random_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "net_of_a_user.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    setting = Setting(dataset="wine", model="net_of_a_user:Net", options=(("width", 7),))
    data = data_of(setting, 0)
    before = torch.random.get_rng_state()
    first, second = (build_model(Run(setting, 0, 3), data) for _ in range(2))
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(first.lin.weight, second.lin.weight)
    assert first.width == 7
    with pytest.raises(PlanError, match="there is no model net_of_a_user:Other"):
        build_model(Run(Setting(dataset="wine", model="net_of_a_user:Other"), 0, 0), data)


def test_nodes_are_split_10_10_80() -> None:
    data = data_of(Setting(dataset="digits"), 0)
    split = split_of(data, 0)
    shares = [len(part) / len(data.y) for part in (split.train, split.val, split.test)]
    assert shares == pytest.approx([0.1, 0.1, 0.8], abs=0.01)
