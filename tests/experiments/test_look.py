import json
from pathlib import Path

import pytest
import torch

from wtawp.base import AnalysisError, rng
from wtawp.experiments import look
from wtawp.experiments.look import Looked, load_weights, look_at
from wtawp.experiments.plan import Run, Setting
from wtawp.graphs import load, stratified
from wtawp.models import GAT, GCN


@pytest.fixture(scope="module")
def looked() -> Looked:
    data = load("wine")
    models = {name: GCN(13, 3, hidden=(8,), generator=rng(name)).eval() for name in ("GCN", "GCN+WT-AWP")}
    return Looked(dict(models), data, stratified(data.y, seed=0))


def lines(*, plane: bool = False, adversarial: bool = False) -> dict[str, object]:
    return {"scale": "layer", "reach": 0.5, "points": 5, "directions": 2, "plane": plane, "adversarial": adversarial}


def test_every_look_has_a_table_a_figure_and_numbers(looked: Looked, tmp_path: Path) -> None:
    found = {
        "lines": look.landscape(looked, **lines()),
        "plane": look.landscape(looked, **lines(plane=True)),
        "adversarial": look.landscape(looked, **lines(adversarial=True)),
        "smoothness": look.smoothness(looked, noise=0.001, samples=2),
        "sharpness": look.sharpness(looked, rho=0.2, points=2, steps=2, top=2),
        "bound": look.bound(looked, rhos=[0.1, 1.0], delta=0.05, epsilon=1.0, constant=1.0),
    }
    for name, one in found.items():
        svg, png, numbers = one.write(tmp_path, name)
        assert svg.read_text(encoding="utf-8").startswith("<svg")
        assert png.stat().st_size > 1000
        assert json.loads(numbers.read_text(encoding="utf-8")) == json.loads(one.to_json())
        assert one.table.rows
    assert "GCN+WT-AWP" in found["sharpness"].table.headers
    assert {row[-1].text for row in found["bound"].table.rows} == {"vacuous"}


def test_losses_that_are_not_finite_are_gaps_and_null(looked: Looked, tmp_path: Path) -> None:
    model = GCN(13, 3, hidden=(8,), generator=rng("init")).eval()
    with torch.no_grad():
        for conv in model.convs:  # their product overflows once both are 20 times as long
            conv.weight.mul_(1e18)
    broken = Looked({"GCN": model}, looked.data, looked.split)
    for how in (lines(), lines(plane=True)):
        found = look.landscape(broken, **{**how, "reach": 20.0})
        assert int(found.table.rows[0][-1].text) > 0
        assert "null" in found.to_json()
        found.write(tmp_path, "gaps")
    with torch.no_grad():
        model.convs[1].weight.fill_(float("inf"))
    with pytest.raises(AnalysisError, match="there is no landscape around it"):
        look.landscape(broken, **lines())


def test_what_a_model_does_not_allow_is_told_in_its_place(looked: Looked) -> None:
    gat = GAT(13, 3, generator=rng("init")).eval()
    found = look.smoothness(Looked({"GAT": gat}, looked.data, looked.split), noise=0.001, samples=1)
    rows = {row[0].text: row[1].text for row in found.table.rows}
    assert rows["A, released"] == "not measured"
    assert "does not show where it uses A_hat" in found.table.caption


def test_a_checkpoint_is_read_without_pickles_and_must_be_of_the_model(tmp_path: Path) -> None:
    run = Run(Setting(dataset="wine", options=(("hidden", (8,)),)), 0, 0)
    model = GCN(13, 3, hidden=(8,), generator=rng("other"))
    path = tmp_path / "weights.pt"
    torch.save(model.state_dict(), path)
    found = look_at({"GCN": run}, checkpoint=path)
    assert torch.equal(found.models["GCN"].state_dict()["convs.0.weight"], model.convs[0].weight)
    assert not found.models["GCN"].training
    wide = GCN(13, 3, generator=rng("init"))
    with pytest.raises(
        AnalysisError, match=r"another architecture than GCN .*convs.0.weight is \[13, 8\], not \[13, 64\]"
    ):
        load_weights(wide, path)
    with pytest.raises(AnalysisError, match="is missing"):
        load_weights(GAT(13, 3, generator=rng("init")), path)
    torch.save([1, 2], path)
    with pytest.raises(AnalysisError, match="must hold a state dict"):
        load_weights(wide, path)
    path.write_bytes(b"no checkpoint")
    with pytest.raises(AnalysisError, match="no state dict that can be read safely"):
        load_weights(wide, path)
    with pytest.raises(AnalysisError, match="there is no checkpoint"):
        load_weights(wide, tmp_path / "nowhere.pt")


def test_models_are_trained_where_there_is_no_checkpoint() -> None:
    told: list[str] = []
    runs = {"GCN": Run(Setting(dataset="wine", epochs=2), 0, 0)}
    found = look_at(runs, progress=lambda _, what: told.append(what))
    assert told == ["GCN, epoch 1", "GCN, epoch 2"]
    assert float(found.losses()["GCN"]().detach()) > 0


@pytest.mark.parametrize(("reach", "points"), [(0.0, 5), (1.0, 2)])
def test_bad_options_are_refused(looked: Looked, reach: float, points: int) -> None:
    with pytest.raises(ValueError, match="points must be >= 3 and reach"):
        look.landscape(looked, **{**lines(), "reach": reach, "points": points})
    with pytest.raises(ValueError, match="rho finite and > 0"):
        look.sharpness(looked, rho=reach - 1, points=2, steps=2, top=1)
