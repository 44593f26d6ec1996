from pathlib import Path

import pytest
import torch
from torch_geometric.data import Batch, Data

from wtawp.base import AnalysisError, rng
from wtawp.core import AwpConfig
from wtawp.experiments.inspection.models import InspectedModels, load_or_train, refuse_collections
from wtawp.experiments.spec import Run, Setting
from wtawp.models import GCN


def test_weights_come_from_files_and_the_rest_is_trained(tmp_path: Path) -> None:
    run = Run(Setting(dataset="wine", options=(("hidden", (8,)),), epochs=2), 0, 0)
    model = GCN(13, 3, hidden=(8,), generator=rng("other"))
    path = tmp_path / "weights.pt"
    torch.save(model.state_dict(), path)
    reports: list[str] = []
    inspected = load_or_train(
        {"GCN": run, "mine": run}, weights={"mine": path}, progress=lambda _, what: reports.append(what)
    )
    assert reports == ["GCN, epoch 1", "GCN, epoch 2"]
    assert torch.equal(inspected.models["mine"].state_dict()["convs.0.weight"], model.convs[0].weight)
    assert not any(m.training for m in inspected.models.values())
    assert inspected.sources["mine"] == "GCN on wine with the weights of weights.pt; split 0"
    assert "hidden=(8,)" in inspected.sources["GCN"]


def test_everything_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    runs = {name: Run(Setting(dataset="wine", epochs=2), 0, 0) for name in ("GCN", "other")}
    reports: list[str] = []

    def progress(_: float, what: str) -> None:
        reports.append(what)

    with pytest.raises(AnalysisError, match="there is no checkpoint"):
        load_or_train(runs, weights={"other": tmp_path / "no.pt"}, progress=progress)

    def refuse(model: torch.nn.Module, data: Data) -> None:
        assert isinstance(model, GCN)
        assert len(data.y) == 178
        raise AnalysisError("not this one")

    with pytest.raises(AnalysisError, match="not this one"):
        load_or_train(runs, check=refuse, progress=progress)
    assert reports == []


def test_graphs_to_classify_have_no_smoothness(inspected: InspectedModels) -> None:
    model, graphs = next(iter(inspected.models.values())), Batch.from_data_list([inspected.data, inspected.data])
    refuse_collections(model, inspected.data)
    with pytest.raises(AnalysisError, match="these are graphs to classify"):
        refuse_collections(model, graphs)


def test_models_know_how_they_were_trained_unless_they_come_from_a_file(tmp_path: Path) -> None:
    awp = AwpConfig(rho=0.5, lam=0.5)
    runs = {name: Run(Setting(dataset="wine", epochs=1, awp=a), 0, 0) for name, a in (("plain", None), ("awp", awp))}
    path = tmp_path / "weights.pt"
    torch.save(GCN(13, 3, generator=rng("init")).state_dict(), path)
    inspected = load_or_train({**runs, "file": runs["plain"]}, weights={"file": path})
    assert inspected.methods == {"plain": None, "awp": awp}
