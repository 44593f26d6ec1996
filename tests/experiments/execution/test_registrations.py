import json
import subprocess
import sys
from pathlib import Path

import pytest

from wtawp.experiments.execution.registrations import Registrations
from wtawp.graphs import registry as graphs
from wtawp.models import GCN, ModelSpec, register_model
from wtawp.models import registry as models

PROGRAM = """
import sys
from torch import nn
from wtawp.cli import app
from wtawp.models import ModelSpec, register_model

class Mine(nn.Module):
    def __init__(self, d_in, d_out, width={width}):
        super().__init__()
        self.first, self.last = nn.Linear(d_in, width), nn.Linear(width, d_out)

    def forward(self, x, edge_index):
        return self.last(self.first(x).relu())

register_model(ModelSpec(name="Mine", constructor=Mine))
if __name__ == "__main__":
    app(["compare", "wine", "--model", "Mine", "--splits", "2", "--inits", "1", "--epochs", "2", "--workers", "2",
         "--store", sys.argv[1], "--json"])
"""


def test_what_is_registered_is_collected_and_applied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry, name in ((models, "_SPECS"), (graphs, "_DATASETS")):
        monkeypatch.setattr(registry, name, dict(getattr(registry, name)))
    assert Registrations.collect() == Registrations()
    register_model(ModelSpec(name="Another", constructor=GCN))
    collected = Registrations.collect()
    assert [spec.name for spec in collected.models] == ["Another"]
    collected.apply()
    del models._SPECS["Another"]
    collected.apply()
    assert models.model_spec("Another").constructor is GCN


def test_workers_know_what_a_program_registered_and_its_source_is_part_of_the_key(tmp_path: Path) -> None:
    program, store = tmp_path / "mine.py", tmp_path / "s.sqlite"
    said = []
    for width in (4, 4, 8):
        program.write_text(PROGRAM.replace("{width}", str(width)), encoding="utf-8")
        done = subprocess.run([sys.executable, program, store], check=True, capture_output=True, text=True)
        assert [cell["failed"] for cell in json.loads(done.stdout)[0]["cells"]] == [0, 0, 0]
        said.append(done.stderr.strip().splitlines()[-1].split(";")[0])
    assert said == [
        "6 runs trained, 0 known before, 0 failed",
        "0 runs trained, 6 known before, 0 failed",
        "6 runs trained, 0 known before, 0 failed",
    ]
