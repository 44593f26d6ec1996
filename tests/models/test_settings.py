"""What distinguishes models of one architecture besides their weights."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.nn import GCN as PygGCN  # noqa: N811

from wtawp.base import rng
from wtawp.models import GCN, PPNP
from wtawp.models.ensemble import Ensemble
from wtawp.models.settings import difference_of, settings_of


class Own(nn.Module):
    def __init__(self, scale: float = 1.0, act: object = F.relu) -> None:
        super().__init__()
        self.layer, self.scale, self.act = nn.Linear(3, 2), scale, act
        self.seen, self.counts, self._cached_size = torch.zeros(2), {"a": 1}, 7

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * self.act(self.layer(x))


class Tripled(Own):
    def forward(self, x: Tensor) -> Tensor:
        return 3 * self.act(self.layer(x))


gcn, ppnp = (partial(kind, 3, 2, generator=rng("init")) for kind in (GCN, PPNP))


def test_numbers_words_and_functions_are_settings_and_tensors_and_caches_are_not() -> None:
    settings = settings_of(Own())
    assert settings["scale"] == "1.0"
    assert settings["counts"] == "{a: 1}"
    assert settings["act"].startswith("torch.nn.functional.relu ")
    assert not settings.keys() & {"seen", "_cached_size", "training", "_parameters"}
    assert settings["layer.in_features"] == "3"


@pytest.mark.parametrize(
    ("one", "other", "difference"),
    [
        (Own(), Own(), ""),
        (Own(1.0), Own(2.0), "scale (1.0 and 2.0)"),
        (Own(), Own(act=torch.tanh), "act (torch.nn.functional.relu "),
        (Own(), Tripled(), "class ("),
        (Own().requires_grad_(False), Own(), "frozen layer.weight (True and nothing)"),
        (gcn(dropout=0.1), gcn(dropout=0.2), "dropout (0.1 and 0.2)"),
        (ppnp(alpha=0.1), ppnp(alpha=0.9), "alpha (0.1 and 0.9)"),
        (PygGCN(3, 8, 2, 2, act="relu"), PygGCN(3, 8, 2, 2, act="tanh"), "act.class ("),
        (PygGCN(3, 8, 2, 2), PygGCN(3, 8, 2, 2).eval(), ""),
    ],
)
def test_the_first_difference_is_named(one: nn.Module, other: nn.Module, difference: str) -> None:
    assert difference_of(one, other).startswith(difference)
    assert bool(difference_of(one, other)) == bool(difference)


def test_models_of_other_settings_are_not_evaluated_with_the_code_of_the_first_one() -> None:
    with pytest.raises(ValueError, match=r"differ in scale \(1.0 and 2.0\); evaluate them one by one"):
        Ensemble([Own(), Own(2.0)])
