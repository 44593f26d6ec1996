import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from commands import invoke
from typer.testing import CliRunner

from wtawp.base import rng
from wtawp.cli import app
from wtawp.core import AwpConfig
from wtawp.experiments import Store
from wtawp.experiments.execution import runner, training
from wtawp.experiments.inspection import models
from wtawp.experiments.plans.graph_level import GRAPHS
from wtawp.experiments.spec import Plan, Run, Setting
from wtawp.models import GCN

RUN = CliRunner()


def test_one_model_is_trained_and_its_weights_are_written(tmp_path: Path) -> None:
    saved = tmp_path / "weights.pt"
    measured = json.loads(invoke("train", "wine", "--epochs", 3, "--save", saved, "--json"))
    assert set(measured["accuracy"]) == {"train", "val", "test"}
    model = GCN(13, 3, generator=rng("other"))
    model.load_state_dict(torch.load(saved, weights_only=True))
    assert "wine" in invoke("train", "wine", "--epochs", 2, "--plain")


class StoppedError(Exception):
    """Raised in place of a training."""


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    ("dataset", "model", "awp"),
    [
        ("cora", "GCN", "rho=1.0, lam=0.7"),
        ("proteins", "PooledGCN", "rho={1}, lam={0}, layers='first'".format(*GRAPHS["proteins"])),
        ("imdb-multi", "PooledGIN", "rho={1}, lam={0}, layers='first'".format(*GRAPHS["imdb-multi"])),
    ],
)
def test_commands_train_the_same_setting_without_options(
    dataset: str, model: str, awp: str, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: list[Setting] = []

    def train_one(run: Run, **_: object) -> None:
        settings.append(run.setting)
        raise StoppedError

    def run_plans(plans: list[Plan], *_: object, **__: object) -> None:
        settings.extend(cell.setting for plan in plans for cell in plan.cells)
        raise StoppedError

    def load_or_train(runs: dict[str, Run], **_: object) -> None:
        settings.extend(run.setting for run in runs.values())
        raise StoppedError

    monkeypatch.setattr(training, "train_one", train_one)
    monkeypatch.setattr(runner, "run_plans", run_plans)
    monkeypatch.setattr(models, "load_or_train", load_or_train)
    for command, *options in (("train", "--plain"), ("train",), ("compare", "--store", str(store)), ("sharpness",)):
        result = RUN.invoke(app, [command, dataset, "--model", model, *options])
        assert isinstance(result.exception, StoppedError), result.output
    plain, perturbed = settings[:2]
    auto = settings.pop(4)  # the third row of the comparison
    assert settings == [plain, perturbed] * 3
    assert (plain.awp, str(perturbed.awp)) == (None, awp)
    assert perturbed.awp is not None
    assert auto == replace(plain, awp=AwpConfig(rho=1.0, lam="auto", layers=perturbed.awp.layers))


def test_what_commands_train_on_graphs_of_ones_own_is_the_same_setting(archive: str, store: Path) -> None:
    how = (archive, "--model", "PooledGCN", "--epochs", 2)
    trained = json.loads(invoke("train", *how, "--json"))["setting"]
    assert (trained["awp"]["layers"], trained["select_on"]) == ("first", "accuracy")
    invoke("compare", *how, "--splits", 2, "--inits", 1, "--workers", 1, "--store", store, "--json")
    with Store(store) as opened:
        compared = [Setting.from_content(record.setting) for record in opened.records()]
    few = ("--points", 1, "--steps", 1, "--top", 1)
    inspected = json.loads(invoke("sharpness", *how, *few, "--json"))["sources"]
    perturbed = Setting.from_content(trained)
    auto = AwpConfig(rho=1.0, lam="auto", layers="first")
    plain = Setting(dataset=archive, model="PooledGCN", epochs=2)
    assert set(compared) == {plain, perturbed, replace(plain, awp=auto)}
    assert inspected["PooledGCN+WT-AWP"] == f"{perturbed}; split 0, initialisation 0"
