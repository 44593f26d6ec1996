import pytest
from torch import nn

from wtawp.base import rng
from wtawp.core import AwpConfig
from wtawp.experiments.spec import Setting
from wtawp.experiments.tuning.dimensions import Choice, Range
from wtawp.experiments.tuning.space import Space, layer_words, rounded, search_spaces, varies_dropout
from wtawp.models import GCN, ModelSpec, register_model, registry

AWP = AwpConfig(rho=1.0, lam=0.7)


class NoDropout(nn.Module):
    """A model whose constructor takes no dropout."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.only = nn.Linear(d_in, d_out)


@pytest.fixture(scope="module")
def gcn() -> GCN:
    return GCN(13, 3, generator=rng("test"))


def test_plain_training_varies_what_it_has_and_wtawp_varies_its_own_too(gcn: GCN) -> None:
    spaces = search_spaces(Setting(dataset="wine"), AWP, gcn, ())
    assert list(spaces["plain"].dimensions) == ["lr", "weight_decay", "dropout"]
    assert list(spaces["WT-AWP"].dimensions) == ["lr", "weight_decay", "dropout", "rho", "lam", "balance", "layers"]
    assert spaces["plain"].start == {"lr": 0.01, "weight_decay": 5e-4, "dropout": 0.5}
    assert spaces["WT-AWP"].start == {
        **spaces["plain"].start, "rho": 1.0, "lam": 0.7, "balance": None, "layers": "all-but-last",
    }  # fmt: skip
    assert all(not space.fixed for space in spaces.values())


def test_what_the_user_set_is_not_varied_and_reaches_every_trial(gcn: GCN) -> None:
    base = Setting(dataset="wine", lr=0.02, options=(("dropout", 0.3),))
    spaces = search_spaces(base, AwpConfig(rho=2.0, lam=0.7, layers="all"), gcn, {"lr", "rho", "layers"})
    assert set(spaces["WT-AWP"].dimensions) == {"weight_decay", "lam", "balance"}
    setting = spaces["WT-AWP"].setting(base, {"weight_decay": 1e-3, "lam": 0.25, "balance": 4.0})
    assert setting.awp == AwpConfig(rho=2.0, lam=0.25, balance=4.0, layers="all")
    assert (setting.lr, setting.weight_decay, setting.options) == (0.02, 1e-3, (("dropout", 0.3),))
    plain = spaces["plain"].setting(base, {"weight_decay": 1e-3})
    assert (plain.awp, plain.lr, plain.options) == (None, 0.02, (("dropout", 0.3),))


def test_a_model_without_dropout_is_searched_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_SPECS", dict(registry._SPECS))
    register_model(ModelSpec(name="NoDropoutHere", constructor=NoDropout))
    base = Setting(dataset="wine", model="NoDropoutHere")
    assert not varies_dropout(base)
    spaces = search_spaces(base, AwpConfig(rho=1.0, lam=0.7, layers="all"), NoDropout(13, 3), ())
    assert "dropout" not in spaces["plain"].dimensions
    assert "layers" not in spaces["WT-AWP"].dimensions  # there is one layer, and one way to choose it
    assert spaces["WT-AWP"].fixed == {"layers": "all"}
    assert spaces["WT-AWP"].setting(base, {"lr": 0.01, "weight_decay": 1e-3, "rho": 1.0, "lam": 0.5, "balance": None})


def test_a_range_includes_the_value_without_tuning_where_it_can(gcn: GCN) -> None:
    wide = search_spaces(Setting(dataset="wine", lr=0.5, weight_decay=0.1), AWP, gcn, ())["plain"]
    assert wide.dimensions["lr"] == Range(0.002, 0.5, is_log=True)
    assert wide.start is not None
    none = search_spaces(Setting(dataset="wine", weight_decay=0.0), AWP, gcn, ())["plain"]
    assert none.start is None  # 0 has no place on a logarithmic axis


def test_words_that_perturb_the_same_weights_are_tried_once() -> None:
    three = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
    assert layer_words(three, "first") == ("first", "all", "all-but-last", "last")
    assert layer_words(nn.Sequential(nn.Linear(2, 2)), "all") == ("all",)


def test_numbers_have_three_digits_and_stay_in_their_space() -> None:
    assert [rounded(v) for v in (0.00123456, 0.999, None, "all")] == [0.00123, 0.999, None, "all"]
    assert Range(0.0, 1.0).contains(1.0)
    assert not Range(0.0, 1.0).contains(float("nan"))
    assert not Range(0.0, 1.0).contains("all")
    assert Choice((None, 1.0)).contains(None)
    space = Space("plain", {"lr": Range(0.1, 1.0)}, {"weight_decay": 0.0}, None)
    assert space.content == {
        "varied": {"lr": {"low": 0.1, "high": 1.0, "is_log": False}}, "fixed": {"weight_decay": 0.0}, "start": None,
    }  # fmt: skip
