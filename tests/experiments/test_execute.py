from dataclasses import replace

import pytest
import torch

from wtawp.base import rng
from wtawp.core import AwpConfig
from wtawp.experiments import execute, runner
from wtawp.experiments.execute import PlanError, check, train
from wtawp.experiments.plan import MODELS, Cell, Measure, Plan, Run, Setting
from wtawp.experiments.robustness import certifying, noise_of
from wtawp.graphs import load, stratified
from wtawp.models import GCN
from wtawp.training import fit

SETTING = Setting(dataset="wine", epochs=5, awp=AwpConfig(rho=0.5, lam=0.5))


def test_the_names_of_plans_are_models() -> None:
    assert tuple(execute.MODELS) == MODELS


def test_a_chunk_gives_what_its_runs_give_alone() -> None:
    runs = tuple(Run(SETTING, 1, i) for i in range(3))
    together = train(runs, device="cpu")
    data = load("wine")
    for run, record in zip(runs, together, strict=True):
        model = GCN(13, 3, generator=rng("init", 1, run.init))
        alone = fit(model, data, stratified(data.y, seed=1), seed=1000 + run.init, awp=SETTING.awp, epochs=5)
        assert record.status == "done"
        assert (record.key, record.split, record.init, record.device) == (run.key, 1, run.init, "cpu")
        assert record.loss is not None
        assert record.loss["test"] == pytest.approx(alone.loss["test"], rel=1e-4)
        assert record.history is None
    assert train(runs, device="cpu")[0].outcome == together[0].outcome


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


def test_threads_are_left_as_they_were() -> None:
    before = torch.get_num_threads()
    train((Run(SETTING, 0, 0),), device="cpu")
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dataset": "coral"}, "there is no graph called 'coral'"),
        ({"dataset": "karate"}, "leave none of some classes"),
        ({"dataset": "missing.npz"}, "missing.npz"),
        ({"options": (("widht", 3),)}, "unexpected keyword argument 'widht'"),
        ({"awp": AwpConfig(rho=1.0, lam=0.5, layers="conv9.*")}, "match none of"),
        ({"model": "RGCN"}, "are distributions and cannot be perturbed"),
        ({"noise": Measure("nose")}, "must be a measure called noise, got 'nose'"),
        ({"noise": noise_of(certifying("features", 1))}, "for binary ones"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused_first(change: dict[str, object], words: str) -> None:
    plan = Plan("mine", "Mine", (Cell("GCN", "wine", replace(SETTING, **change)),))
    with pytest.raises(PlanError, match=f"mine: .* cannot be trained: .*{words}"):
        check(plan)


def test_versions_name_what_numbers_depend_on() -> None:
    found = execute.versions()
    assert found["torch"] == torch.__version__
    assert set(found) - {"commit"} == {"wtawp", "torch", "python", "source"}


@pytest.mark.parametrize("model", MODELS)
def test_every_model_of_a_plan_is_trained(model: str) -> None:
    setting = Setting(dataset="citation", model=model, epochs=2)
    (record,) = train((Run(setting, 0, 0),), device="cpu")
    assert record.status == "done", record.error
    assert model in runner.COST
