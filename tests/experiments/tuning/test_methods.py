from dataclasses import replace

import pytest
from torch import nn

from wtawp.base import rng
from wtawp.core import ASAM, SAM, AwpConfig
from wtawp.core.config import MIN_AUTO_LR
from wtawp.experiments.spec import Setting
from wtawp.experiments.tuning import methods
from wtawp.experiments.tuning.dimensions import Choice, Range
from wtawp.experiments.tuning.methods import Method, method_names, register_method
from wtawp.experiments.tuning.space import search_spaces
from wtawp.models import GCN

BASE = Setting(dataset="wine")
AWP = AwpConfig(rho=2.0, lam=0.5)  # what WT-AWP is used with here without tuning


@pytest.fixture(scope="module")
def gcn() -> nn.Module:
    return GCN(13, 3, generator=rng("init"))


def untuned(name: str, model: nn.Module) -> Setting:
    """The setting of the first trial of a method."""
    space = search_spaces(BASE, AWP, model, (), [name])[name]
    assert space.start is not None
    return space.setting(BASE, space.start)


@pytest.mark.parametrize("name", method_names())
def test_the_first_trial_of_every_method_is_what_is_used_without_tuning(name: str, gcn: nn.Module) -> None:
    setting = untuned(name, gcn)
    assert (setting.lr, setting.weight_decay, dict(setting.options)) == (0.01, 5e-4, {"dropout": 0.5})
    assert setting.awp is not None or setting.average is not None
    space = search_spaces(BASE, AWP, gcn, (), [name])[name]
    assert {"lr", "weight_decay", "dropout"} <= space.dimensions.keys()


def test_a_weight_that_follows_the_training_is_tuned_with_learning_rates_that_its_rule_is_made_for(
    gcn: nn.Module,
) -> None:
    spaces = search_spaces(BASE, AWP, gcn, (), ["WT-AWP auto"])
    assert spaces["WT-AWP auto"].dimensions["lr"] == Range(MIN_AUTO_LR, 0.05, is_log=True)
    assert spaces["WT-AWP"].dimensions["lr"] == Range(0.002, 0.05, is_log=True)
    chosen = search_spaces(replace(BASE, lr=0.02), AWP, gcn, ("lr",), ["WT-AWP auto"])["WT-AWP auto"]
    assert "lr" not in chosen.dimensions
    assert chosen.fixed["lr"] == 0.02


def test_the_methods_are_what_their_names_say(gcn: nn.Module) -> None:
    settings = {name: untuned(name, gcn) for name in method_names()}
    assert {name: str(s.awp) for name, s in settings.items()} == {
        "WT-AWP auto": "rho=1.0, lam='auto'",
        "W-AWP": "rho=2.0, lam=0.5, layers='all'",
        "SAM": "rho=0.05, lam=1.0, layers='*', radius='global'",
        "ASAM": "rho=0.5, lam=1.0, layers='*', radius='adaptive'",
        "Momentum-SAM": "rho=3.0, lam=1.0, layers='*', radius='global', direction='momentum'",
        "FGSAM": "rho=0.05, lam=0.5, layers='*', radius='global', perturbed_gradient='without-edges'",
        "functional AWP": "rho=2.0, lam=0.5, perturbed_gradient='functional'",
        "EMA": "None",
        "SWA": "None",
        "WT-AWP and EMA": "rho=2.0, lam=0.5",
        "WT-AWP, late start": "rho=2.0, lam=0.5, start=20",
        "WT-AWP, every other step": "rho=2.0, lam=0.5, every=2",
    }
    averages = {name: s.average for name, s in settings.items() if s.average is not None}
    assert averages == {"EMA": 0.95, "SWA": "swa", "WT-AWP and EMA": 0.95}


def test_sam_and_asam_are_those_of_the_package(gcn: nn.Module) -> None:
    assert untuned("SAM", gcn).awp == SAM(gcn).config
    assert untuned("ASAM", gcn).awp == ASAM(gcn).config


def test_a_late_start_leaves_epochs_to_perturb(gcn: nn.Module) -> None:
    name = "WT-AWP, late start"
    assert search_spaces(replace(BASE, epochs=30), AWP, gcn, (), [name])[name].dimensions["start"] == Choice((10, 20))
    with pytest.raises(ValueError, match="needs more than 20 epochs, got 15"):
        search_spaces(replace(BASE, epochs=15), AWP, gcn, (), [name])


def test_what_the_user_chose_is_not_varied(gcn: nn.Module) -> None:
    space = search_spaces(BASE, AWP, gcn, {"lr", "weight_decay"}, ["SAM"])["SAM"]
    assert set(space.dimensions) == {"dropout", "rho"}


def test_a_method_of_one_s_own_can_be_registered_once(monkeypatch: pytest.MonkeyPatch, gcn: nn.Module) -> None:
    monkeypatch.setattr(methods, "METHODS", dict(methods.METHODS))
    monkeypatch.setattr("wtawp.experiments.tuning.space.METHODS", methods.METHODS)
    register_method("AWP", Method("all layers, lam 1", fixed={"rho": 0.5, "lam": 1.0, "layers": "all"}))
    assert str(untuned("AWP", gcn).awp) == "rho=0.5, lam=1.0, layers='all'"
    for name in ("AWP", "plain"):
        with pytest.raises(ValueError, match="there is a method"):
            register_method(name, Method(""))
