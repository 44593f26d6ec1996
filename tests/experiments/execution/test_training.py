import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch_geometric.data import Batch

from wtawp.analysis import LossOn, bound_over_rho, sharpness
from wtawp.base import DataError, rng
from wtawp.core import AwpConfig
from wtawp.experiments.execution import training
from wtawp.experiments.execution.checks import _check_level, check_plan
from wtawp.experiments.execution.provenance import device_name
from wtawp.experiments.execution.training import train, train_model, train_one
from wtawp.experiments.plans.robustness import certifying, noise_of
from wtawp.experiments.spec import Cell, MeasureRequest, Plan, PlanError, Run, Setting
from wtawp.experiments.spec.run import chunks
from wtawp.graphs import inductive, load, stratified
from wtawp.models import GCN, PooledGCN
from wtawp.models.registry import model_names, model_spec
from wtawp.training import evaluate, fit, fit_batches

SETTING = Setting(dataset="wine", epochs=5, awp=AwpConfig(rho=0.5, lam=0.5))


def test_a_chunk_gives_what_its_runs_give_alone() -> None:
    runs = tuple(Run(SETTING, 1, i) for i in range(3))
    together = train(runs, device="cpu")
    data = load("wine")
    for run, record in zip(runs, together, strict=True):
        model = GCN(13, 3, generator=rng("init", 1, run.init))
        alone = fit(model, data, stratified(data.y, seed=1), seed=1000 + run.init, awp=SETTING.awp, epochs=5)
        assert record.status == "done"
        assert (record.key, record.split, record.init, record.device) == (
            run.key,
            1,
            run.init,
            device_name("cpu", tf32=False),
        )
        assert record.loss is not None
        assert record.loss["test"] == pytest.approx(alone.loss["test"], rel=1e-4)
        assert record.history is None
    assert train(runs, device="cpu")[0].outcome == together[0].outcome


MODULE = """
import torch
from torch.nn import functional as F
class Dropping(torch.nn.Module):
    def __init__(self, features, classes):
        super().__init__()
        self.lin = torch.nn.Linear(features, classes)
    def forward(self, x, edge_index):
        return self.lin(F.dropout(x, 0.5, self.training))
"""


def test_the_masks_of_torch_s_dropout_do_not_depend_on_the_size_of_a_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "chunk_models.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    setting = Setting(dataset="wine", model="chunk_models:Dropping", epochs=5)
    runs = tuple(Run(setting, 1, i) for i in range(3))
    together = train(runs, device="cpu")
    for run, record in zip(runs, together, strict=True):
        (alone,) = train((run,), device="cpu")
        assert alone.status == "done", alone.error
        assert (alone.key, alone.loss) == (record.key, pytest.approx(record.loss, rel=1e-5))


def test_what_is_to_be_kept_is_kept() -> None:
    (record,) = train((Run(Setting(dataset="toy-linear", epochs=4, keep=("history", "scores")), 0, 0),), device="cpu")
    assert record.history is not None
    assert len(record.history["weight_norm"]) == 4
    assert record.scores is not None
    assert len(record.scores) == 200
    assert all(-1 <= s <= 1 for s in record.scores)


def test_noise_in_training_is_the_same_alone_and_in_a_chunk() -> None:
    noisy = Setting(dataset="citation", epochs=3, noise=noise_of(certifying("edges", 1)))
    together = train((Run(noisy, 0, 0), Run(noisy, 0, 1)), device="cpu")
    (alone,) = train((Run(noisy, 0, 1),), device="cpu")
    (plain,) = train((Run(replace(noisy, noise=None), 0, 1),), device="cpu")
    assert alone.loss is not None
    assert alone.loss == pytest.approx(together[1].loss, rel=1e-4)
    assert alone.loss != plain.loss


def test_a_sweep_does_not_warn_of_gradients_that_vanish() -> None:
    awp = AwpConfig(rho=20.0, lam=1.0, layers="all")
    (record,) = train((Run(Setting(dataset="toy-linear", epochs=40, awp=awp, keep=("history",)), 0, 0),), device="cpu")
    assert (record.status, record.error) == ("done", None)  # warnings are errors here
    assert record.history is not None
    assert record.history["perturbed_norm"][-1] < 0.05 * record.history["perturbed_norm"][0]


def test_toys_are_drawn_anew_for_each_split() -> None:
    setting = Setting(dataset="toy-linear", epochs=1)
    first, second = (train((Run(setting, split, 0),), device="cpu")[0] for split in (0, 1))
    assert first.loss != second.loss


def test_a_failure_is_a_record_with_its_traceback() -> None:
    wrong = Setting(dataset="wine", epochs=2, options=(("hidden", 8),))  # not a tuple
    records = train((Run(wrong, 0, 0), Run(wrong, 0, 1)), device="cpu")
    assert [r.status for r in records] == ["failed", "failed"]
    assert "Traceback" in (records[0].error or "")
    assert records[0].accuracy is None


def test_a_call_of_exit_is_a_failure_and_does_not_end_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "_train", lambda *_: sys.exit("the licence has expired"))
    (record,) = train((Run(SETTING, 0, 0),), device="cpu")
    assert record.status == "failed"
    assert "SystemExit: the licence has expired" in (record.error or "")


def test_the_time_of_a_training_is_shared_by_all_runs_of_a_chunk_and_that_of_measures_by_the_new_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured = replace(SETTING, measures=(MeasureRequest("sharpness", (("rho", 0.1), ("steps", 1))),))
    runs = tuple(Run(measured, 0, i) for i in range(4))
    clock = iter([0.0, 8.0, 11.0, 12.0])  # start, a measure of 3 seconds, end: 9 seconds of training

    monkeypatch.setattr(training, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    monkeypatch.setattr(training, "run_measure", lambda _, trained: [object()] * len(trained.models))
    monkeypatch.setattr(training, "_fits", lambda runs, *_: [None] * len(runs))
    records = train(runs, device="cpu", stored=frozenset(run.key for run in runs[:3]))
    assert [record.error for record in records] == [None]
    assert [record.seconds for record in records] == [9 / 4 + 3]


def test_threads_are_left_as_they_were() -> None:
    before = torch.get_num_threads()
    train((Run(SETTING, 0, 0),), device="cpu")
    assert torch.get_num_threads() == before


def test_graphs_are_split_80_10_10_and_a_chunk_gives_what_its_runs_give_alone(archive: str) -> None:
    setting = Setting(dataset=archive, model="PooledGCN", epochs=5, select_on="accuracy", keep=("scores",),
                      awp=AwpConfig(rho=0.5, lam=0.5, layers="first"))  # fmt: skip
    check_plan(Plan("mine", "Mine", (Cell("GCN", "rings", setting),)))
    runs = tuple(Run(setting, 1, i) for i in range(2))
    graphs = load(archive)
    split = stratified(torch.cat([graph.y for graph in graphs]), seed=1, train=0.8, val=0.1)
    assert [len(part) for part in (split.train, split.val, split.test)] == [48, 6, 6]
    for run, record in zip(runs, train(runs, device="cpu"), strict=True):
        model = PooledGCN(3, 2, generator=rng("init", 1, run.init))
        how = {"awp": setting.awp, "epochs": 5, "select_on": "accuracy"}
        alone = fit(model, graphs, split, seed=1000 + run.init, **how)
        assert record.status == "done", record.error
        assert (record.epoch, record.accuracy) == (alone.epoch, alone.accuracy)
        assert record.loss == pytest.approx(alone.loss, rel=1e-4)
        assert len(record.scores or []) == 60


def test_batches_of_graphs_are_trained_with_other_features(archive: str) -> None:
    setting = Setting(dataset=archive, model="PooledGCN", epochs=2, batch_size=16, features="constant")
    (record,) = train((Run(setting, 0, 0),), device="cpu")
    assert record.status == "done", record.error
    model, graphs = PooledGCN(1, 2, generator=rng("init", 0, 0)), load(archive, features="constant")
    split = stratified(torch.cat([graph.y for graph in graphs]), seed=0, train=0.8, val=0.1)
    assert record.loss == pytest.approx(fit_batches(model, graphs, split, seed=0, batch_size=16, epochs=2).loss)


def test_the_geometry_of_graph_classifiers_is_measured_too(archive: str) -> None:
    wanted = (
        MeasureRequest("bound", (("points", 2),)),
        MeasureRequest("sharpness"),
        MeasureRequest("spectrum", (("top", 1),)),
    )
    setting = Setting(dataset=archive, model="PooledGCN", epochs=2, measures=wanted)
    check_plan(Plan("mine", "Mine", (Cell("GCN", "rings", setting),)))
    (record,) = train((Run(setting, 0, 0),), device="cpu")
    assert record.status == "done", record.error
    bound, sharp, _ = record.measured or []
    model, data, split = train_model(Run(setting, 0, 0), device="cpu")
    at = bound_over_rho(model.eval(), data, split.train, bound["rhos"])
    assert bound["rhos"] == [0.01, 10.0]
    assert bound["total"] == pytest.approx([a.bound.total for a in at], rel=1e-4)
    assert bound["all_loss"] == pytest.approx(at[0].all_loss, rel=1e-4)
    assert sharp["rises"][-1] == pytest.approx(sharpness(model, LossOn(model, data, split.train), rho=0.1), rel=1e-3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": "GCN"}, "GCN classifies nodes and these are graphs"),
        ({"dataset": "wine"}, "Pooled classifies whole graphs and this is one graph"),
        ({"dataset": "wine", "model": "GCN", "batch_size": 8}, "batch_size counts graphs, and wine is one graph"),
        ({"dataset": "wine", "model": "GCN", "features": "degree"}, "wine brings its own features"),
        ({"features": "attribute"}, "neither node labels nor attributes"),
        ({"features": "colour"}, "features must be one of attribute, label, degree, constant, got 'colour'"),
        ({"noise": noise_of(certifying("edges", 1))}, "a list of graphs, and noise is for the nodes of one graph"),
        (
            {"measures": (MeasureRequest("smoothness", (("wrt", "features"),)),)},
            "smoothness is for the nodes of one graph",
        ),
    ],
)
def test_nodes_and_graphs_are_not_mistaken_for_each_other(archive: str, change: dict[str, object], words: str) -> None:
    setting = replace(Setting(dataset=archive, model="PooledGCN", epochs=1), **{"digest": None, **change})
    with pytest.raises(PlanError, match=words):
        check_plan(Plan("mine", "Mine", (Cell("GCN", "rings", setting),)))


@pytest.mark.parametrize("model", model_names())
def test_every_model_of_a_plan_is_trained(model: str, archive: str) -> None:
    setting = Setting(dataset=archive if model_spec(model).level == "graph" else "citation", model=model, epochs=2)
    (record,) = train((Run(setting, 0, 0),), device="cpu")
    assert record.status == "done", record.error


def test_inductive_runs_are_trained_without_their_test_nodes_and_tested_on_the_full_graph() -> None:
    held_out = replace(SETTING, inductive=True)
    records = train((Run(held_out, 1, 0), Run(held_out, 1, 1)), device="cpu")
    data = load("wine")
    split = stratified(data.y, seed=1)
    model = GCN(13, 3, generator=rng("init", 1, 1))
    fitted = fit(model, *inductive(data, split), seed=1001, awp=SETTING.awp, epochs=5)
    loss, accuracy = evaluate(model, data, split.test)
    assert records[1].loss == pytest.approx({**fitted.loss, "test": loss}, rel=1e-4)
    assert records[1].accuracy == pytest.approx({**fitted.accuracy, "test": accuracy})
    assert train_one(Run(held_out, 1, 1), device="cpu").loss == pytest.approx(records[1].loss, rel=1e-4)
    assert len(chunks((Run(held_out, 0, 0), Run(held_out, 1, 0)), together=True)) == 2


def test_lists_of_graphs_are_not_trained_inductively() -> None:
    setting = Setting(dataset="proteins", model="PooledGCN", inductive=True)
    with pytest.raises(DataError, match="never trained on anyway"):
        _check_level(setting, PooledGCN(3, 2, generator=rng("init")), Batch.from_data_list([load("wine")]))
