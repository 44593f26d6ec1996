"""Attacks through defences: each gradient against dense autograd of the same model written out here, no code shared."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp.attacks import pgd, pgd_many
from wtawp.attacks.gradient import FactoredVictims
from wtawp.attacks.recording_operators import TruncatedOperator, largest_eigenpairs, solve_orthogonal
from wtawp.attacks.relaxed import RelaxedFlips, target_of
from wtawp.base import DataError, rng
from wtawp.graphs import (
    EdgeFlips,
    citation,
    jaccard,
    knn_operator,
    low_rank_operator,
    stratified,
    sum_operator,
)
from wtawp.models import GCN, GCNSVD, PPNP, RGCN, GCNJaccard, SimPGCN
from wtawp.training import evaluate, fit

N, D, C, RANK = 25, 12, 3, 6
ALL = torch.triu_indices(N, N, 1)
CODES = ALL[0] * N + ALL[1]
NODES = torch.tensor([0, 2, 3, 7, 11, 20])
THRESHOLD = 0.3


def graph(seed: int = 0) -> Data:
    g = rng("views", seed)
    upper = (torch.rand(N, N, generator=g) > 0.8).triu(1).long()
    x = (torch.rand(N, D, generator=g) > 0.6).double()
    return Data(x=x, y=torch.arange(N) % C, edge_index=(upper + upper.T).nonzero().T.contiguous())


def relaxed(victims: FactoredVictims) -> RelaxedFlips:
    """Some pairs, edges among them, flipped a little: such as an attack comes to, so none that a filter stops."""
    g = rng("relaxed")
    kept = torch.rand(len(CODES), generator=g) < 0.4
    if victims.passes is not None:
        kept &= victims.passes(0, N)[tuple(ALL)]
    return RelaxedFlips(CODES[kept], 0.1 + 0.5 * torch.rand(int(kept.sum()), generator=g, dtype=torch.float64))


def normalised(a: Tensor, power: float = -0.5) -> Tensor:
    a = a + torch.eye(N, dtype=a.dtype)
    scale = a.sum(1) ** power
    return scale[:, None] * a * scale


def convolved(model: nn.Module, x: Tensor, hat: Tensor) -> Tensor:
    for layer, conv in enumerate(model.convs):  # type: ignore[arg-type,union-attr]
        x = hat @ x @ conv.weight + conv.bias
        x = x.relu() if layer == 0 else x
    return x


def dense_gcn(model: nn.Module, x: Tensor, a: Tensor) -> Tensor:
    return convolved(model, x, normalised(a))


def dense_jaccard(model: nn.Module, x: Tensor, a: Tensor) -> Tensor:
    return convolved(model.gcn, x, normalised(a * alike(x)))  # type: ignore[arg-type]


def alike(x: Tensor) -> Tensor:
    common, either = (x[:, None] * x).sum(2), torch.maximum(x[:, None], x).sum(2)
    return (common / either >= THRESHOLD).double()


def dense_rgcn(model: nn.Module, x: Tensor, a: Tensor) -> Tensor:
    mean = variance = x
    for conv in model.convs:  # type: ignore[union-attr]
        mean, variance = F.elu(mean @ conv.mean_weight), (variance @ conv.variance_weight).relu()
        attention = (-conv.gamma * variance).exp()
        mean = normalised(a) @ (mean * attention)
        variance = normalised(a, -1.0) @ (variance * attention**2)
    return mean


def dense_simpgcn(model: nn.Module, x: Tensor, a: Tensor) -> Tensor:
    near = knn_operator(x, 4).to_dense()
    for conv in (model.conv1, model.conv2):
        gates = x @ conv.gates + conv.gate_bias  # type: ignore[operator,union-attr]
        share, loop = gates[:, :1].sigmoid(), 0.1 * gates[:, 1:]
        local = x @ conv.weight  # type: ignore[operator,union-attr]
        x = share * (normalised(a) @ local + conv.bias) + (1 - share) * (near @ local + conv.bias)  # type: ignore[operator,union-attr]
        x = x + loop * (local + conv.bias)  # type: ignore[operator,union-attr]
    return x


def dense_appnp(model: nn.Module, x: Tensor, a: Tensor) -> Tensor:
    local = (x @ model.lin1.weight + model.lin1.bias).relu() @ model.lin2.weight + model.lin2.bias  # type: ignore[operator,union-attr]
    out = local
    for _ in range(3):
        out = 0.8 * normalised(a) @ out + 0.2 * local
    return out


def dense_svd(model: nn.Module, x: Tensor, a: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(a)
    kept = values.abs().topk(RANK).indices
    low = vectors[:, kept] * values[kept] @ vectors[:, kept].T + torch.eye(N, dtype=a.dtype)
    degree = low.sum(1)
    scale = torch.where(degree > 0, torch.where(degree > 0, degree, 1) ** -0.5, 0)
    return convolved(model, x, scale[:, None] * low * scale)


Dense = Callable[[nn.Module, Tensor, Tensor], Tensor]
DEFENCES: dict[str, tuple[Callable[[int], nn.Module], Dense]] = {
    "gcn": (lambda s: GCN(D, C, hidden=(5,), generator=rng(s)), dense_gcn),
    "jaccard": (lambda s: GCNJaccard(D, C, hidden=(5,), threshold=THRESHOLD, generator=rng(s)), dense_jaccard),
    "rgcn": (lambda s: RGCN(D, C, hidden=(5,), generator=rng(s)), dense_rgcn),
    "simpgcn": (lambda s: SimPGCN(D, C, hidden=5, neighbours=4, generator=rng(s)), dense_simpgcn),
    "appnp": (lambda s: PPNP(D, C, hidden=5, steps=3, alpha=0.2, generator=rng(s)), dense_appnp),
    "svd": (lambda s: GCNSVD(D, C, hidden=(5,), rank=RANK, generator=rng(s)), dense_svd),
}
defences = pytest.mark.parametrize("name", DEFENCES)


def make(name: str, seed: int = 0) -> nn.Module:
    return DEFENCES[name][0](seed).double().eval()


def dense_loss(name: str, model: nn.Module, data: Data, upper: Tensor) -> Tensor:
    a = torch.zeros(N, N, dtype=torch.float64)
    a[data.edge_index[0], data.edge_index[1]] = 1
    changed = a + (1 - 2 * a) * (upper.triu(1) + upper.triu(1).T)
    return F.cross_entropy(DEFENCES[name][1](model, data.x, changed)[NODES], data.y[NODES])


def upper_of(flips: RelaxedFlips) -> Tensor:
    out = torch.zeros(N * N, dtype=torch.float64)
    out[flips.codes] = flips.amounts
    return out.view(N, N)


@defences
def test_the_gradient_through_a_defence_is_that_of_the_dense_one(name: str) -> None:
    data, model = graph(), make(name)
    victims = FactoredVictims(target_of(data, [NODES], [data.y], "ce"), [model])
    flips = relaxed(victims)
    found = victims.gradient(flips).at(CODES)
    upper = upper_of(flips).requires_grad_()
    value = dense_loss(name, model, data, upper)
    assert float(victims.losses(flips)) == pytest.approx(float(value.detach()), abs=1e-9)
    (slope,) = torch.autograd.grad(value, upper)
    expected = slope[tuple(ALL)]
    if victims.passes is not None:  # of pairs that never join the gradient is not looked at
        kept = alike(data.x)[tuple(ALL)] > 0
        assert 0.2 < kept.double().mean() < 0.8
        found, expected = found[kept], expected[kept]
    assert torch.allclose(found, expected, rtol=1e-6, atol=1e-9)
    assert found.abs().max() > 1e-4


@defences
def test_the_gradient_through_a_defence_is_what_finite_differences_of_its_own_forward_pass_say(name: str) -> None:
    data, model = graph(1), make(name, 1)
    victims = FactoredVictims(target_of(data, [NODES], [data.y], "ce"), [model])
    flips = relaxed(victims)
    found, step = victims.gradient(flips).at(flips.codes), 1e-5
    for place in range(0, len(flips.codes), 7):
        losses = []
        for sign in (1, -1):
            moved = flips.amounts.clone()
            moved[place] += sign * step
            losses.append(float(victims.losses(RelaxedFlips(flips.codes, moved))))
        assert float(found[place]) == pytest.approx((losses[0] - losses[1]) / (2 * step), abs=1e-7)


@defences
def test_whole_flips_are_judged_as_the_defence_itself_judges_them(name: str) -> None:
    data, model = graph(2), make(name, 2)
    victims = FactoredVictims(target_of(data, [NODES], [data.y], "ce"), [model])
    passing = CODES if victims.passes is None else CODES[victims.passes(0, N)[tuple(ALL)]]
    codes = passing[torch.randperm(len(passing), generator=rng("whole"))[:8]].sort().values
    changed = EdgeFlips(torch.stack([codes // N, codes % N]), N).apply(data)
    found = float(victims.losses(RelaxedFlips(codes, torch.ones(8, dtype=torch.float64))))
    with torch.no_grad():
        logits = model(changed.x, changed.edge_index)
    assert found == pytest.approx(float(F.cross_entropy(logits[NODES], data.y[NODES])), abs=1e-9)


@defences
def test_many_models_of_a_defence_get_the_flips_that_each_gets_alone(name: str) -> None:
    data, models = graph(3), [make(name, s) for s in range(2)]
    options = {"budget": 4, "steps": 6, "step_size": 5.0}
    together = pgd_many(data, models, nodes=[NODES] * 2, labels=[data.y] * 2, seeds=[0, 1], **options)  # type: ignore[arg-type]
    for seed, model in enumerate(models):
        alone = pgd(data, model, nodes=NODES, labels=data.y, seed=seed, **options)  # type: ignore[arg-type]
        assert torch.equal(alone.pairs, together[seed].pairs)


def test_the_filter_of_a_defence_is_never_wasted_a_flip_on() -> None:
    data, model = graph(4), make("jaccard", 4)
    flips = pgd(data, model, budget=20, nodes=NODES, labels=data.y, seed=0, steps=20, step_size=50.0)
    assert len(flips) > 5
    assert bool((jaccard(flips.pairs, data.x) >= THRESHOLD).all())


def test_a_filter_that_leaves_nothing_is_said_so() -> None:
    data = graph()
    data.x = torch.eye(N, D, dtype=torch.float64)
    data.x[D:, 0] = 0
    data.x[D:] = torch.eye(N, dtype=torch.float64)[D:, -D:]
    model = GCNJaccard(D, C, hidden=(5,), threshold=1.0, generator=rng("strict")).double()
    edges = data.edge_index[:, jaccard(data.edge_index, data.x) < 1]
    with pytest.raises(DataError, match="GCNJaccard filters out every edge"):
        bare = Data(x=data.x, y=data.y, edge_index=edges)
        pgd(bare, model, budget=1, nodes=NODES, labels=data.y, seed=0)


def test_truncation_is_that_of_the_singular_values() -> None:
    data = graph(5)
    target = target_of(data, [NODES], [data.y], "ce")
    operator = TruncatedOperator(target, target.no_flips(), RANK)
    expected = low_rank_operator(data.edge_index, None, N, torch.float64, RANK).to_dense()
    assert torch.allclose(operator.times(torch.eye(N, dtype=torch.float64)[None])[0], expected, atol=1e-9)
    assert len(largest_eigenpairs(operator.adjacency, N)[0]) == N
    with pytest.raises(ValueError, match="of one graph, got 2"):
        TruncatedOperator(target_of(data, [NODES] * 2, [data.y] * 2, "ce"), target.no_flips(), RANK)


def test_the_equations_beside_the_kept_vectors_are_solved() -> None:
    data = graph(6)
    matrix = sum_operator(data.edge_index, None, N, torch.float64)
    values, vectors = largest_eigenpairs(matrix, RANK)
    assert torch.allclose(matrix.to_dense() @ vectors, vectors * values, atol=1e-9)
    wanted = torch.randn(N, RANK, dtype=torch.float64, generator=rng("wanted"))
    wanted = wanted - vectors @ (vectors.T @ wanted)
    found = solve_orthogonal(matrix, values, vectors, wanted)
    assert torch.allclose(values * found - matrix.to_dense() @ found, wanted, atol=1e-7)
    assert torch.allclose(vectors.T @ found, torch.zeros(RANK, RANK, dtype=torch.float64), atol=1e-8)


@pytest.mark.parametrize("name", ["jaccard", "rgcn", "simpgcn", "appnp", "svd"])
def test_an_attack_that_knows_the_defence_is_at_least_as_strong_as_one_that_does_not(name: str) -> None:
    data = citation(seed=0, num_nodes=80, num_words=40, topicality=0.6)
    split, classes = stratified(data.y, seed=0, train=0.3, val=0.2), int(data.y.max()) + 1
    plain = GCN(40, classes, hidden=(8,), generator=rng("plain"))
    kinds: dict[str, Callable[[], nn.Module]] = {
        "jaccard": lambda: GCNJaccard(40, classes, hidden=(8,), threshold=0.1, generator=rng("defence")),
        "rgcn": lambda: RGCN(40, classes, hidden=(8,), generator=rng("defence")),
        "simpgcn": lambda: SimPGCN(40, classes, hidden=8, neighbours=5, generator=rng("defence")),
        "appnp": lambda: PPNP(40, classes, hidden=8, generator=rng("defence")),
        "svd": lambda: GCNSVD(40, classes, hidden=(8,), rank=8, generator=rng("defence")),
    }
    defence, options = kinds[name](), {"budget": 0.1, "nodes": split.test, "labels": data.y, "seed": 0, "steps": 20}
    for model in (plain, defence):
        fit(model, data, split, seed=0, epochs=30)
    transferred, adaptive = (pgd(data, model, **options) for model in (plain, defence))  # type: ignore[arg-type]
    losses = [evaluate(defence, flips.apply(data), split.test)[0] for flips in (transferred, adaptive)]
    assert losses[1] >= losses[0]
    assert losses[1] > evaluate(defence, data, split.test)[0]


def test_a_cut_through_equal_eigenvalues_gives_numbers_all_the_same() -> None:
    stars = torch.tensor([(c, c + leaf) for c in (0, 5, 10, 15, 20) for leaf in range(1, 5)]).T
    data = graph(7)
    data.edge_index = torch.cat([stars, stars.flip(0)], 1)
    flips = pgd(data, make("svd"), budget=3, nodes=NODES, labels=data.y, seed=0, steps=5, step_size=5.0)
    assert 0 < len(flips) <= 3
