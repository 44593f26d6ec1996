"""`fit`, `fit_many`, `attack` and `compare` with models as strangers write them: right, or refused in words."""

import copy
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from strangers_models import STRANGERS, TAKE_X_AND_EDGES, Stranger
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data, HeteroData
from typer.testing import CliRunner

from wtawp import AwpConfig, Split, attack, evaluate, fit, fit_many
from wtawp.base import AttackError, DataError, WtawpError
from wtawp.cli import app

pytestmark = pytest.mark.filterwarnings("ignore:layers='all-but-last'")  # test_strangers_models.py asserts them
SPLIT = Split(torch.arange(0, 9), torch.arange(9, 14), torch.arange(14, 20))
BY_HAND: dict[str, Any] = {"epochs": 4, "lr": 0.05, "weight_decay": 0.0, "select_on": "last"}
REQUIRE_EDGE_INPUTS = ("RGCN", "edge_attr")
RANDOM = ("GPS",)  # dropout and batch norm


def without_unused(stranger: Stranger, name: str) -> Any:
    """The graph without the inputs of edges that the model does not take."""
    data = copy.copy(stranger.data)
    if isinstance(data, Data) and name not in REQUIRE_EDGE_INPUTS:
        del data.edge_attr, data.edge_type
    elif isinstance(data, Data):
        del data["edge_attr" if name == "RGCN" else "edge_type"]
    return data


def in_double_precision(stranger: Stranger) -> Stranger:
    """The same in float64, in which Adam does not magnify how a machine rounds gradients that are nearly 0."""
    data = stranger.data.apply(lambda t: t.double() if t.is_floating_point() else t)
    return replace(stranger, model=stranger.model.double(), data=data)


def trained_by_hand(stranger: Stranger) -> nn.Module:
    """Four epochs of Adam, written out."""
    data = stranger.data
    y = data["paper"].y if isinstance(data, HeteroData) else data.y
    optimizer = torch.optim.Adam([p for p in stranger.model.parameters() if p.requires_grad], lr=0.05)
    for _ in range(4):
        stranger.model.train()
        optimizer.zero_grad()
        F.cross_entropy(stranger.call(stranger.model, data)[SPLIT.train], y[SPLIT.train]).backward()
        optimizer.step()
    return stranger.model.eval()


@pytest.mark.parametrize("name", STRANGERS)
def test_each_is_trained_as_by_hand_through_the_adapter_or_without_it(name: str) -> None:
    stranger = in_double_precision(STRANGERS[name]())
    data = without_unused(stranger, name)
    is_plain = name in (*TAKE_X_AND_EDGES, *REQUIRE_EDGE_INPUTS)
    how = {} if is_plain else {"forward": stranger.call}
    result = fit(stranger.model, data, SPLIT, seed=0, **how, **BY_HAND)
    rows = stranger.call(stranger.model.eval(), stranger.data).detach()
    y = stranger.data["paper"].y if isinstance(stranger.data, HeteroData) else stranger.data.y
    assert result.accuracy["test"] == pytest.approx(float((rows.argmax(1) == y)[SPLIT.test].float().mean()))
    assert evaluate(stranger.model, data, SPLIT.test, **how)[1] == pytest.approx(result.accuracy["test"])
    if name not in RANDOM:
        by_hand = trained_by_hand(in_double_precision(STRANGERS[name]()))
        torch.testing.assert_close(rows, stranger.call(by_hand, stranger.data).detach(), rtol=1e-6, atol=1e-8)


@pytest.mark.filterwarnings("ignore:vmap cannot take", "ignore:There is a performance drop")
@pytest.mark.parametrize("name", STRANGERS)
def test_two_of_each_are_perturbed_and_end_as_each_does_alone(name: str) -> None:
    awp = AwpConfig(rho=0.1, lam=0.5)
    alone, first, second = (STRANGERS[name]() for _ in range(3))
    with torch.no_grad():
        for p in second.model.parameters():
            p.mul_(0.9)
    data = without_unused(alone, name)
    one = fit(alone.model, data, SPLIT, seed=0, awp=awp, forward=alone.call, **BY_HAND)
    both = fit_many([first.model, second.model], data, SPLIT, seeds=[0, 1], awp=awp, forward=alone.call, **BY_HAND)
    assert all(gap != 0 for gap in one.history["gap"])
    if name not in RANDOM:
        assert both[0].loss["test"] == pytest.approx(one.loss["test"], rel=1e-3)
    assert both[1].loss["test"] != both[0].loss["test"]


NOT_PLAIN = [name for name in STRANGERS if name not in (*TAKE_X_AND_EDGES, *REQUIRE_EDGE_INPUTS)]


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_without_an_adapter_the_others_are_refused_with_the_adapter_to_write(name: str) -> None:
    stranger = STRANGERS[name]()
    for train in (lambda m, d: fit(m, d, SPLIT, seed=0), lambda m, d: evaluate(m, d, SPLIT.test)):
        with pytest.raises(DataError, match="forward=lambda model, data: model"):
            train(stranger.model, without_unused(stranger, name))


class Undirected(nn.Module):
    """A module around another one, as the refusals of attacks ask for: with weights of edges."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        hidden = self.model.conv1(x, edge_index, edge_weight).relu()
        return self.model.conv2(hidden, edge_index, edge_weight)


@pytest.mark.parametrize("name", STRANGERS)
def test_attacks_that_need_no_victim_run_and_others_say_what_the_victim_lacks(name: str) -> None:
    stranger = STRANGERS[name]()
    data = without_unused(stranger, name)
    if isinstance(data, HeteroData):
        with pytest.raises(DataError, match="attacks flip edges of one homogeneous graph, a PyG Data, got HeteroData"):
            attack(data, stranger.model, budget=2, method="random")
        return
    edges = torch.cat([data.edge_index, data.edge_index.flip(0)], 1).unique(dim=1)
    data.edge_index = edges[:, edges[0] != edges[1]]
    assert len(attack(data, stranger.model, budget=2, method="random")) == 2
    with pytest.raises(WtawpError, match=r"takes no edge_weight|put a module around|in a module around|cached=False"):
        attack(data, stranger.model, budget=2, nodes=[0, 1, 2], method="prbcd", block_size=500)


def test_a_module_around_a_stranger_is_attacked() -> None:
    stranger = STRANGERS["tuple output"]()
    data = without_unused(stranger, "tuple output")
    edges = torch.cat([data.edge_index, data.edge_index.flip(0)], 1).unique(dim=1)
    data.edge_index = edges[:, edges[0] != edges[1]]
    flips = attack(data, Undirected(stranger.model), budget=2, nodes=[0, 1, 2], method="pgd", steps=3)
    assert 1 <= len(flips) <= 2
    with pytest.raises(AttackError, match=r"'strongest' needs a victim, a torch.nn.Module, got NoneType"):
        attack(data, budget=2, nodes=[0, 1, 2])
    with pytest.raises(DataError, match="know no weights of edges; attack a copy of the graph without edge_weight"):
        data.edge_weight = torch.ones(data.num_edges)
        attack(data, budget=2, method="random")


def compared(folder: Path, build: str, data: Any) -> tuple[int, str]:
    """The exit status and the output of `wtawp compare` on a graph and an expression for a model, both in files."""
    (folder / "people.py").write_text(f"import strangers_models\n\ndef build(d_in, d_out):\n    return {build}\n")
    torch.save(data, folder / "g.pt")
    options = "--model people:build --splits 2 --inits 1 --epochs 1 --train 0.4 --val 0.3 --rho 0.1 --store s.sqlite"
    result = CliRunner().invoke(app, ["compare", str(folder / "g.pt"), *options.split()])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, " ".join(result.output.split())


REFUSALS = {
    **dict.fromkeys(("to_hetero", "HGT", "HeteroConv last"), "must hold a PyG Data or a dict of tensors, got"),
    **dict.fromkeys(("two heads", "tuple output"), "got tuple; choose the tensor in a module around"),
    "RGCN": "the types of the edges are not used",
    "edge_attr": "the attributes of the edges are not used",
    "lazy layers": "has no shape yet (a lazy layer)",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "people", raising=False)
    return tmp_path


@pytest.mark.filterwarnings(
    "default::wtawp.base.UnusedDataWarning", "ignore:vmap cannot take", "ignore:There is a performance drop"
)
@pytest.mark.parametrize("name", STRANGERS)
def test_each_is_compared_or_refused_before_it_is_trained(name: str, folder: Path) -> None:
    build = (
        "strangers_models.LazyLayers()" if name == "lazy layers" else f"strangers_models.STRANGERS[{name!r}]().model"
    )
    status, output = compared(folder, build, without_unused(STRANGERS[name](), name))
    if name in REFUSALS:
        assert status == 1
        assert REFUSALS[name] in output
        assert "[comparison: " in output
        assert "runs to train" not in output
    else:
        assert status == 0, output
        assert "runs trained, 0 known before, 0 failed" in output
