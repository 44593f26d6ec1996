import subprocess
import sys

import pytest

from wtawp.core import AwpConfig
from wtawp.core.config import LAYER_WORDS


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
