from collections.abc import Callable
from importlib import import_module
from typing import Literal

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data

from wtawp.attacks import project_onto_budget
from wtawp.attacks.gradient import BlackBoxVictim, FactoredGradient, FactoredVictims
from wtawp.attacks.relaxed import RelaxedFlips, target_of
from wtawp.base import rng
from wtawp.models import GCN

SIZE, CLASSES = 12, 3
ALL = torch.triu_indices(SIZE, SIZE, 1)
CODES = ALL[0] * SIZE + ALL[1]
NODES = torch.tensor([0, 2, 3, 7, 11])


def relaxed(data: Data, seed: int = 0) -> RelaxedFlips:
    """Some pairs, edges among them, flipped a little."""
    g = rng("relaxed", seed)
    pairs = torch.triu_indices(SIZE, SIZE, 1)
    pairs = pairs[:, torch.rand(pairs.shape[1], generator=g) < 0.4]
    return RelaxedFlips(pairs[0] * SIZE + pairs[1], torch.rand(pairs.shape[1], generator=g, dtype=data.x.dtype))


def dense(flips: RelaxedFlips) -> Tensor:  # -> [n, n], upper triangle
    out = torch.zeros(SIZE * SIZE, dtype=flips.amounts.dtype)
    out[flips.codes] = flips.amounts
    return out.view(SIZE, SIZE)


def dense_loss(data: Data, model: GCN, upper: Tensor, nodes: Tensor, kind: str) -> Tensor:
    """The released code's way: everything dense, with no code shared."""
    adjacency = torch.zeros(SIZE, SIZE, dtype=torch.float64)
    adjacency[data.edge_index[0], data.edge_index[1]] = 1
    p = upper.triu(1)
    changed = adjacency + (1 - 2 * adjacency) * (p + p.T)
    changed = changed - torch.diag(changed.diag()) + torch.eye(SIZE, dtype=torch.float64)
    scale = changed.sum(1) ** -0.5
    hat = scale[:, None] * changed * scale
    x = data.x
    for layer, conv in enumerate(model.convs):
        x = hat @ x @ conv.weight + conv.bias
        x = x.relu() if layer + 1 < len(model.convs) else x
    logits, labels = x[nodes], data.y[nodes]
    if kind == "ce":
        return -logits.log_softmax(1)[torch.arange(len(nodes)), labels].mean()
    margins = [
        torch.stack([row[c] for c in range(CLASSES) if c != y]).max() - row[y]
        for row, y in zip(logits, labels.tolist(), strict=True)
    ]
    return torch.stack(margins).clamp(max=0).mean()


def gradient_of(data: Data, model: GCN, flips: RelaxedFlips, kind: str) -> FactoredGradient:
    return FactoredVictims(target_of(data, [NODES], [data.y], kind), [model.eval()]).gradient(flips)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["ce", "margin"])
@pytest.mark.parametrize("hidden", [(), (5,), (6, 5)])
@pytest.mark.parametrize("loops", [False, True])
def test_the_gradient_of_all_pairs_is_that_of_a_dense_network(
    kind: str, hidden: tuple[int, ...], loops: bool, small: Callable[..., Data], small_victim: Callable[..., GCN]
) -> None:
    data, model = small(), small_victim(hidden=hidden)
    if loops:
        data.edge_index = torch.cat([data.edge_index, torch.tensor([[1, 4], [1, 4]])], dim=1)
    flips = relaxed(data)
    found = gradient_of(data, model, flips, kind).at(CODES)
    upper = dense(flips).requires_grad_()
    (expected,) = torch.autograd.grad(dense_loss(data, model, upper, NODES, kind), upper)
    assert torch.allclose(found, expected[tuple(ALL)], atol=1e-12)
    assert found.abs().max() > 1e-4


def test_the_gradient_is_what_finite_differences_say(
    small: Callable[..., Data], small_victim: Callable[..., GCN]
) -> None:
    data, model, flips = small(1), small_victim(1), relaxed(small(1), 1)
    found = gradient_of(data, model, flips, "ce").at(CODES)
    upper, step = dense(flips), 1e-5
    for place, (i, j) in enumerate(ALL.T.tolist()):
        moved = [upper.clone(), upper.clone()]
        moved[0][i, j] += step
        moved[1][i, j] -= step
        up, down = (float(dense_loss(data, model, m, NODES, "ce").detach()) for m in moved)
        assert float(found[place]) == pytest.approx((up - down) / (2 * step), abs=1e-8)


@pytest.mark.parametrize("block", [1, 40, 1 << 20])
@pytest.mark.parametrize("step", [0.01, 1.0, 1000.0])
def test_a_step_block_by_block_is_the_projection_of_all_pairs(
    block: int,
    step: float,
    monkeypatch: pytest.MonkeyPatch,
    small: Callable[..., Data],
    small_victim: Callable[..., GCN],
) -> None:
    monkeypatch.setitem(import_module("wtawp.attacks.gradient").BLOCK, "cpu", block)
    data = small(2)
    flips = relaxed(data, 2)
    gradient = gradient_of(data, small_victim(2), flips, "ce")
    assert isinstance(gradient, FactoredGradient)
    after = gradient.ascend(flips, step, budget=4)
    expected = project_onto_budget(dense(flips)[tuple(ALL)] + step * gradient.at(CODES), 4)
    assert torch.allclose(dense(after)[tuple(ALL)], expected, atol=1e-9)
    assert bool((after.amounts > 0).all())
    assert bool((after.codes.diff() > 0).all())


@pytest.mark.parametrize("block", [1, 1000, 1 << 20])
def test_many_victims_climb_as_each_does_alone(
    block: int, monkeypatch: pytest.MonkeyPatch, small: Callable[..., Data], small_victim: Callable[..., GCN]
) -> None:
    monkeypatch.setitem(import_module("wtawp.attacks.gradient").BLOCK, "cpu", block)
    data, nodes = small(5), [NODES, NODES[:2], torch.arange(SIZE)]
    models = [small_victim(seed).eval() for seed in range(3)]
    together = FactoredVictims(target_of(data, nodes, [data.y] * 3, "ce"), models)
    alone = [FactoredVictims(target_of(data, [n], [data.y], "ce"), [m]) for n, m in zip(nodes, models, strict=True)]
    flips, single = together.target.no_flips(), [one.target.no_flips() for one in alone]
    for step in (1e-3, 30.0, 10.0, 0.1):  # at first so small that hardly anything is cut off
        gradient = together.gradient(flips)
        assert gradient.is_zero().tolist() == [False] * 3
        flips = gradient.ascend(flips, step, 4)
        single = [one.gradient(s).ascend(s, step, 4) for one, s in zip(alone, single, strict=True)]
        for b, one in enumerate(single):
            mine = together.target.copy_of(flips.codes) == b
            assert torch.equal(flips.codes[mine] - b * SIZE**2, one.codes)
            assert torch.allclose(flips.amounts[mine], one.amounts, rtol=0, atol=1e-12)
        assert torch.allclose(
            together.losses(flips), torch.cat([one.losses(s) for one, s in zip(alone, single, strict=True)])
        )


@pytest.mark.parametrize("norm", [None, "layer", "batch"])
def test_victims_with_norms_and_skip_connections_are_differentiated_each_with_its_own_running_averages(
    norm: Literal["layer", "batch"] | None, small: Callable[..., Data]
) -> None:
    data, models = small(3), []
    for seed in range(2):
        models.append(
            GCN(data.num_features, CLASSES, hidden=(6, 5), norm=norm, residual=True, generator=rng(seed)).double()
        )
        for other in range(seed + 1):
            models[seed](small(other).x, small(other).edge_index)  # training mode: the averages follow
        models[seed].eval()
    together = FactoredVictims(target_of(data, [NODES] * 2, [data.y] * 2, "ce"), models)
    gradient = together.gradient(together.target.no_flips())
    for b, model in enumerate(models):
        alone = BlackBoxVictim(target_of(data, [NODES], [data.y], "ce"), model)
        flips = alone.target.no_flips()
        torch.testing.assert_close(together.logits(together.target.no_flips())[0][b], model(data.x, data.edge_index))
        expected = alone.gradient(flips)
        assert torch.equal(expected.codes, CODES)
        torch.testing.assert_close(gradient.at(CODES + b * SIZE**2), expected.values, rtol=0, atol=1e-12)
