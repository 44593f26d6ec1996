import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from wtawp.core import AwpConfig
from wtawp.core.config import AUTO_RULE, LAYER_WORDS


@pytest.mark.parametrize("module", ["wtawp.core.config", "wtawp.core", "wtawp.training.options", "wtawp.training"])
def test_options_are_imported_without_torch(module: str) -> None:
    code = f"import sys, {module}; print('torch' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "False"


def test_equal_options_are_one_key() -> None:
    one, other = (AwpConfig(rho=0.5, lam=0.5, layers=layers) for layers in (["a.*", "b.*"], ("a.*", "b.*")))
    assert one == other
    assert len({one, other}) == 1
    assert one.layers == ("a.*", "b.*")


def test_lam_zero_and_rho_zero_are_plain() -> None:
    assert AwpConfig(rho=0.0, lam=0.5).is_plain
    assert AwpConfig(rho=0.5, lam=0.0).is_plain
    assert not AwpConfig(rho=0.5, lam=0.5).is_plain


def test_only_what_differs_from_the_defaults_is_printed() -> None:
    assert str(AwpConfig(rho=0.5, lam=1.0)) == "rho=0.5, lam=1.0"
    assert str(AwpConfig(rho=0.5, lam=1.0, layers="all", steps=3)) == "rho=0.5, lam=1.0, layers='all', steps=3"


@pytest.mark.parametrize("word", LAYER_WORDS)
def test_every_word_is_an_option(word: str) -> None:
    assert AwpConfig(rho=0.5, lam=0.5, layers=word).layers == word


def test_bad_options_are_refused() -> None:
    with pytest.raises(ValueError, match=r"lam must lie in \[0, 1\] or be .auto., got 2.0"):
        AwpConfig(rho=0.5, lam=2.0)
    with pytest.raises(ValueError, match="projection must be one of"):
        AwpConfig(rho=0.5, lam=0.5, projection="cube")  # type: ignore[arg-type]


def test_true_is_not_a_number() -> None:
    for name in ("lam", "rho"):
        with pytest.raises(ValueError, match=name):
            AwpConfig(**{"lam": 0.5, "rho": 0.5, name: True})


def test_substitutes_for_gradients_are_refused_where_they_have_no_meaning() -> None:
    with pytest.raises(ValueError, match="direction must be one of"):
        AwpConfig(rho=0.5, lam=0.5, direction="up")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="perturbed_gradient must be one of"):
        AwpConfig(rho=0.5, lam=0.5, perturbed_gradient="natural")  # type: ignore[arg-type]
    for options in ({"exact": True}, {"lam": "auto"}):
        for name, value in (("direction", "momentum"), ("perturbed_gradient", "functional")):
            with pytest.raises(ValueError, match=f"cannot be combined with {name}='{value}'"):
                AwpConfig(**{"rho": 0.5, "lam": 0.5, name: value, **options})
    with pytest.raises(ValueError, match="steps=2 needs gradients to climb"):
        AwpConfig(rho=0.5, lam=0.5, direction="without-edges", steps=2)


@pytest.mark.parametrize(
    ("options", "needs_fit", "needs_natural"),
    [
        ({}, False, True),
        ({"lam": 1.0}, False, True),
        ({"direction": "momentum", "lam": 1.0}, True, False),
        ({"direction": "without-edges", "lam": 1.0}, True, False),
        ({"direction": "momentum"}, True, True),
        ({"direction": "momentum", "lam": 1.0, "balance": 2.0}, True, True),
        ({"direction": "momentum", "lam": 1.0, "perturbed_gradient": "functional"}, True, True),
        ({"perturbed_gradient": "without-edges", "lam": 1.0}, True, True),
    ],
)
def test_what_options_need(options: dict[str, Any], needs_fit: bool, needs_natural: bool) -> None:
    config = AwpConfig(**{"rho": 0.5, "lam": 0.5, **options})
    assert (config.needs_fit, config.needs_natural_gradient) == (needs_fit, needs_natural)


def test_the_content_has_the_newest_options_only_if_they_are_chosen() -> None:
    assert {"direction", "perturbed_gradient"}.isdisjoint(AwpConfig(rho=0.5, lam=0.5).content)
    config = AwpConfig(rho=0.5, lam=0.5, direction="momentum")
    assert config.content["direction"] == "momentum"
    assert AwpConfig.from_content(config.content) == config


def test_the_version_of_the_rule_is_part_of_the_content_where_lam_follows_it() -> None:
    auto, fixed = AwpConfig(rho=0.5, lam="auto"), AwpConfig(rho=0.5, lam=0.5)
    assert auto.content["rule"] == AUTO_RULE
    assert "rule" not in fixed.content
    for config in (auto, fixed):
        assert AwpConfig.from_content(config.content) == config
    before = {name: value for name, value in auto.content.items() if name != "rule"}
    for content, number in ((before, 1), ({**auto.content, "rule": AUTO_RULE + 1}, AUTO_RULE + 1)):
        with pytest.raises(ValueError, match=f"followed rule {number} there, and follows rule {AUTO_RULE}"):
            AwpConfig.from_content(content)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"exact": "no"}, "exact must be True or False, got 'no'"),
        ({"every": True}, "every must be a whole number >= 1, got True"),
        ({"start": 1.0}, r"start must be a whole number >= 0, got 1\.0"),
    ],
)
def test_options_of_another_kind_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AwpConfig(rho=1.0, lam=0.7, **options)


def test_numbers_of_numpy_are_numbers_and_tensors_are_none() -> None:
    options = AwpConfig(rho=np.int64(1), lam=np.float32(0.5), balance=np.float64(2.0))  # type: ignore[arg-type]
    assert options == AwpConfig(rho=1, lam=0.5, balance=2.0)
    assert (type(options.rho), type(options.lam)) == (int, float)
    with pytest.raises(ValueError, match=r"lam must be a number, got Tensor; pass its .item\(\)"):
        AwpConfig(rho=1.0, lam=torch.tensor(0.5))  # type: ignore[arg-type]


def test_whole_numbers_of_numpy_identify_runs_as_those_of_python() -> None:
    assert AwpConfig(rho=1.0, lam=0.7, every=np.int64(2)) == AwpConfig(rho=1.0, lam=0.7, every=2)  # type: ignore[arg-type]
    assert type(AwpConfig(rho=1.0, lam=0.7, steps=np.int32(2)).steps) is int  # type: ignore[arg-type]
