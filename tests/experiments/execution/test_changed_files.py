import os
from pathlib import Path

import pytest
import torch

from wtawp.experiments.execution.changed_files import ChangedFileError, hash_files, refuse_changed
from wtawp.experiments.execution.engines import local
from wtawp.experiments.execution.runner import run_plans
from wtawp.experiments.plans.robustness import evading
from wtawp.experiments.spec import Cell, Plan, Setting
from wtawp.experiments.store import Store
from wtawp.graphs import load

MODEL = """
from pathlib import Path
import torch
import {helper}
class Net(torch.nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.last = torch.nn.Linear(d_in, d_out)
    def forward(self, x, edge_index, edge_weight=None):
        return {helper}.SCALE * self.last(x)
"""
ATTACK = """
from wtawp.graphs import EdgeFlips
def nothing(data, *, budget, seed):
    return EdgeFlips.of([], data.num_nodes)
"""


@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def _setting(own: dict[str, str]) -> Setting:
    return Setting(dataset=own.get("dataset", "wine"), model=own.get("model", "GCN"), epochs=2)


def plan_of(*settings: Setting) -> Plan:
    return Plan("p", "", tuple(Cell(str(i), "", setting, 1, 1) for i, setting in enumerate(settings)))


def test_built_in_data_and_models_have_no_files() -> None:
    settings = [Setting(dataset="wine"), Setting(dataset="wine", measures=(evading("dice", 0.1),))]
    assert hash_files(settings) == dict.fromkeys(settings, ())


def test_the_files_are_those_of_data_model_and_attack_and_a_change_of_any_is_noticed(in_folder: Path) -> None:
    files = {"cfscale.py": "SCALE = 1.0\n", "cfnet.py": MODEL.format(helper="cfscale"), "cfattack.py": ATTACK}
    for name, text in files.items():
        (in_folder / name).write_text(text, encoding="utf-8")
    torch.save(load("wine"), "mine.pt")
    measures = (evading("cfattack:nothing", 1),)
    setting = Setting(dataset="mine.pt", model="cfnet:Net", measures=measures)
    hashes = hash_files([setting])[setting]
    assert {path for path, _ in hashes} == {in_folder / name for name in (*files, "mine.pt")}
    refuse_changed(hashes)
    for path, _ in hashes:
        before = path.read_bytes()
        path.write_bytes(before + b"\n")
        with pytest.raises(ChangedFileError, match=rf"^{path} changed while the sweep ran.*repeat the command$"):
            refuse_changed(hashes)
        with pytest.raises(ChangedFileError, match=r"changed after the plan was made; repeat the command$"):
            hash_files([setting])
        path.write_bytes(before)
    (in_folder / "cfscale.py").unlink()
    refuse_changed(hashes)  # as on another machine, where the code is elsewhere


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("kind", ["model", "data"])
def test_nothing_is_stored_of_a_chunk_whose_files_changed_meanwhile(in_folder: Path, workers: int, kind: str) -> None:
    helper, name = f"cfhelper{workers}{kind}", f"cfnet{workers}{kind}"
    changed = in_folder / (f"{helper}.py" if kind == "model" else "mine.pt")
    (in_folder / f"{helper}.py").write_text("SCALE = 1.0\n", encoding="utf-8")
    (in_folder / f"{name}.py").write_text(MODEL.format(helper=helper), encoding="utf-8")
    data = load("wine")
    torch.save(data, "mine.pt")
    own = {"model": f"{name}:Net"} if kind == "model" else {"dataset": "mine.pt"}
    settings = [Setting(dataset="wine", epochs=2), _setting(own)]

    def change(*_: object) -> None:
        if kind == "model":
            changed.write_text("SCALE = 0.0\n", encoding="utf-8")
        else:
            torch.save(data.clone().update({"y": (data.y + 1) % 3}), changed)
        os.utime(changed, ns=(1, 1))

    with Store(in_folder / "s.sqlite") as store:
        with pytest.raises(ChangedFileError, match=changed.name):
            run_plans([plan_of(*settings)], store, engine=local(workers), announce=change)
        assert not [record for record in store.records() if {"code", "digest"} & set(record.setting)]
        assert _setting(own) != settings[1]
