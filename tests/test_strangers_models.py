"""Models as strangers write them: what is perturbed in each, and that a step of the method is right on it."""

from contextlib import nullcontext
from dataclasses import dataclass
from fnmatch import fnmatchcase

import pytest
import torch
from strangers_models import STRANGERS, TAKE_X_AND_EDGES, Stranger
from torch import Tensor

from wtawp import WTAWP, AwpConfig, fit
from wtawp.core import select
from wtawp.graphs import Split


@dataclass(frozen=True)
class Expected:
    """What a model is expected to have perturbed, as globs over its parameters.

    Attributes:
        perturbed: The parameters before the last layer.
        excluded: Those of the last layer.
        differs: Whether the order of registration would choose otherwise, of which the user is warned.
    """

    perturbed: tuple[str, ...]
    excluded: tuple[str, ...]
    differs: bool = False


EXPECTED = {
    "GraphSAGE": Expected(("convs.0.lin_?.weight",), ("convs.1.lin_?.weight",)),
    "GAT": Expected(("convs.0.lin.weight",), ("convs.1.lin.weight",)),
    "GATv2": Expected(("conv1.lin_?.weight",), ("conv2.lin_?.weight",)),
    "JumpingKnowledge": Expected(("body.convs.?.lin.weight",), ("body.lin.weight",)),
    "PNA": Expected(("convs.0.*weight",), ("convs.1.*weight",)),
    "GPS": Expected(
        ("start.weight", "conv.conv.*weight", "conv.attn.*weight", "conv.mlp.*weight"), ("head.weight",)
    ),
    "RGCN": Expected(("conv1.weight",), ("conv2.weight",)),
    "to_hetero": Expected(("conv1.*weight", "conv2.*__paper.*weight"), ("lin.paper.weight",), differs=True),
    "HGT": Expected(("start.*weight", "convs.*weight"), ("head.weight",)),
    "HeteroConv last": Expected(("convs.0.*weight",), ("convs.1.*___paper>.*weight",), differs=True),
    "two heads": Expected(("conv.lin.weight",), ("classes.weight", "features.weight"), differs=True),
    "head first": Expected(("conv?.lin.weight",), ("head.weight",), differs=True),
    "cached": Expected(("conv1.lin.weight",), ("conv2.lin.weight",)),
    "tuple output": Expected(("conv1.lin.weight",), ("conv2.lin.weight",)),
    "LSTM readout": Expected(("conv?.lin.weight",), ("head.weight",)),
    "LSTM last": Expected(("conv?.lin.weight",), (), differs=True),
    "weight norm": Expected(
        ("start.parametrizations.weight.original1", "conv.lin.weight"), ("head.parametrizations.weight.original1",)
    ),
    "lazy layers": Expected(("conv1.lin_?.weight", "conv2.lin.weight"), ("head.weight",)),
    "edge_attr": Expected(("start.weight", "conv.nn.*.weight"), ("head.lin_*.weight",)),
}  # fmt: skip


def matching(stranger: Stranger, globs: tuple[str, ...]) -> list[str]:
    names = [n for n, _ in stranger.model.named_parameters()]
    assert all(any(fnmatchcase(n, g) for n in names) for g in globs)
    return [n for n in names if any(fnmatchcase(n, g) for g in globs)]


def warning_of(expected: Expected) -> object:
    return pytest.warns(UserWarning, match="in the forward pass, but") if expected.differs else nullcontext()


def test_every_stranger_is_expected() -> None:
    assert set(EXPECTED) == set(STRANGERS)


@pytest.mark.parametrize("name", STRANGERS)
def test_a_step_moves_the_weights_before_the_last_layer_and_no_others(name: str) -> None:
    stranger, expected = STRANGERS[name](), EXPECTED[name]
    model = stranger.model
    perturbed, before = matching(stranger, expected.perturbed), [p.detach().clone() for p in model.parameters()]
    met: list[list[Tensor]] = []

    def closure() -> Tensor:
        met.append([p.detach().clone() for p in model.parameters()])
        with torch.random.fork_rng():
            torch.manual_seed(0)  # the same dropout in both passes
            return stranger.loss()

    awp = WTAWP(model, rho=0.5, lam=0.5)
    with warning_of(expected):
        loss = awp.backward(closure)
    assert loss.isfinite()
    assert list(awp.perturbed) == perturbed
    named = [n for n, _ in model.named_parameters()]
    moved = [n for n, a, b in zip(named, before, met[-1], strict=True) if not torch.equal(a, b)]
    assert moved == [n for n in perturbed if model.get_parameter(n).grad is not None]
    assert all(torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True))
    excluded = matching(stranger, expected.excluded)
    assert (f"\nnot perturbed by this choice of layers: {', '.join(excluded)}\n" in repr(awp)) == bool(excluded)

    # the gradient is the mean of those at both points, each computed by plain autograd
    found = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    gradients = []
    for weights in met[:2]:
        model.zero_grad()
        with torch.no_grad():
            for p, w in zip(model.parameters(), weights, strict=True):
                p.copy_(w)
        closure().backward()
        gradients.append({n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})
    natural, at_perturbed = gradients
    assert found.keys() == natural.keys()
    for n, gradient in found.items():
        torch.testing.assert_close(gradient, (natural[n] + at_perturbed[n]) / 2, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", TAKE_X_AND_EDGES)
def test_fit_perturbs_what_a_loop_of_ones_own_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from wtawp.training import stack_training

    stranger, expected = STRANGERS[name](), EXPECTED[name]
    chosen: list[tuple[str, ...]] = []

    def recorded(*arguments: object, **options: object) -> tuple[str, ...]:
        chosen.append(select(*arguments, **options))
        return chosen[-1]

    monkeypatch.setattr(stack_training, "select", recorded)
    del stranger.data.edge_attr, stranger.data.edge_type  # `fit` warns that these models do not take them
    nodes = torch.arange(20)
    split = Split(nodes[:9], nodes[9:15], nodes[15:])
    with warning_of(expected):
        fit(stranger.model, stranger.data, split, seed=0, awp=AwpConfig(rho=0.1, lam=0.5), epochs=1)
    assert [list(names) for names in chosen] == [matching(stranger, expected.perturbed)]
