from dataclasses import replace

import pytest
import torch

from wtawp.analysis import LossOn, input_gradient_norms, sharpness, top_eigenvalues
from wtawp.base import rng
from wtawp.experiments.execution.training import PlanError, check, train
from wtawp.experiments.measures.geometry import MEASURES, check_options
from wtawp.experiments.measures.registry import Trained, measure
from wtawp.experiments.spec.plan import Cell, Measure, Plan, Run, Setting
from wtawp.graphs import load, stratified
from wtawp.models import GCN


@pytest.fixture(scope="module")
def trained() -> Trained:
    data = load("wine")
    splits = [stratified(data.y, seed=split) for split in (0, 1)]
    return Trained([GCN(13, 3, hidden=(8,), generator=rng("init", i)) for i in range(2)], data, "wine", splits,
                   [(0, 0), (1, 0)])  # fmt: skip


def test_each_measure_is_that_of_analysis_on_the_training_nodes(trained: Trained) -> None:
    smooth = measure(Measure("smoothness", (("wrt", "features"), ("samples", 3))), trained)
    sharp = measure(Measure("sharpness", (("radius", "global"), ("rho", 0.4))), trained)
    curved = measure(Measure("spectrum", (("top", 2), ("probes", 4))), trained)
    lines = measure(Measure("landscape", (("scale", "unit"), ("points", 5), ("directions", 2))), trained)
    for i, (model, split) in enumerate(zip(trained.models, trained.splits, strict=True)):
        loss = LossOn(model.eval(), trained.data, split.train)
        norms = input_gradient_norms([model], trained.data, split.train, wrt="features", seed=0, samples=3)
        assert smooth[i]["norm"] == pytest.approx(float(norms.mean()), rel=1e-4)
        assert sharp[i]["rhos"] == [0.1, 0.2, pytest.approx(0.3), 0.4]
        assert sharp[i]["rises"][0] == pytest.approx(sharpness(model, loss, rho=0.1, radius="global"), rel=1e-4)
        assert curved[i]["top"] == pytest.approx(top_eigenvalues(model, loss, k=2), rel=1e-3)
        assert lines[i]["mean"][2] == pytest.approx(lines[i]["loss"], rel=1e-4)
        assert lines[i]["distances"] == [-1.0, -0.5, 0.0, 0.5, 1.0]
        assert lines[i]["gaps"] == 0


def test_a_run_keeps_what_was_measured_and_how_its_logits_grew() -> None:
    wanted = Measure("sharpness", (("radius", "layer"), ("rho", 0.1)))
    setting = Setting(dataset="wine", epochs=4, measures=(wanted,), keep=("saturation",))
    (record,) = train((Run(setting, 0, 0),), device="cpu")
    assert record.error is None
    assert record.measured is not None
    assert len(record.measured[0]["rises"]) == 4
    assert record.history is not None
    assert len(record.history["perturbed_saturation"]) == 4


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("sharpness", {"radius": "layers"}, "radius must be one of layer, global, adaptive"),
        ("smoothness", {}, "smoothness needs the option 'wrt'"),
        ("smoothness", {"wrt": "features", "sigma": 1.0}, "smoothness has no option 'sigma'"),
        ("bound", {"delta": 1.0}, r"delta must lie in \(0, 1\)"),
        ("landscape", {"points": 1}, "points must be a whole number >= 2"),
        ("spectrum", {"top": 1.5}, "top must be a whole number >= 1, got 1.5"),
        ("sharpness", {"steps": True}, "steps must be a whole number >= 1, got True"),
        ("bound", {"rho": 0.001}, "least must be at most rho, got 0.01 and 0.001"),
        ("bound", {"delta": "x"}, r"delta must lie in \(0, 1\), got 'x'"),
    ],
)
def test_bad_options_are_refused_before_anything_is_trained(
    name: str, options: dict[str, object], message: str
) -> None:
    assert name in MEASURES
    with pytest.raises(ValueError, match=message):
        check_options(name, options)
    wanted = Measure(name, tuple(options.items()))  # type: ignore[arg-type]
    setting = replace(Setting(dataset="wine"), measures=(wanted,))
    with pytest.raises(PlanError, match=message):
        check(Plan("p", "", (Cell("", "", setting),)))


def test_dropout_does_not_reach_the_measures(trained: Trained) -> None:
    trained.models[0].train()
    wanted = Measure("spectrum", (("top", 1), ("probes", 2)))
    assert measure(wanted, trained) == measure(wanted, trained)
    assert isinstance(trained.data.x, torch.Tensor)


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (Measure("smoothness", (("wrt", "features"), ("samples", 2))), ("norm", "spread")),
        (Measure("sharpness", (("steps", 2),)), ("rises",)),
        (Measure("spectrum", (("top", 1), ("probes", 2))), ("top", "trace")),
        (Measure("landscape", (("points", 3), ("directions", 1))), ("loss", "mean")),
    ],
)
def test_a_model_that_diverged_measures_nothing_and_leaves_the_others_theirs(
    trained: Trained, wanted: Measure, names: tuple[str, ...]
) -> None:
    broken = GCN(13, 3, hidden=(8,), generator=rng("init"))
    torch.nn.init.constant_(broken.convs[0].weight, float("nan"))
    both = replace(trained, models=[broken, trained.models[1]])
    lost, kept = measure(wanted, both)
    assert all(torch.tensor(lost[name]).isnan().all() for name in names)
    assert kept == measure(wanted, trained)[1]


def test_both_watches_look_at_every_model_and_a_diverged_one_fails_none() -> None:
    setting = Setting(dataset="wine", epochs=3, keep=("saturation", "sharpness"), lr=1e25)
    records = train((Run(setting, 0, 0), Run(setting, 0, 1)), device="cpu")
    for record in records:
        assert record.status == "done", record.error
        assert record.history is not None
        assert len(record.history["saturation"]) == 3
        assert len(record.history["sharpness_layer"]) == 1
