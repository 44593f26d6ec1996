from collections.abc import Callable
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn.models import basic_gnn

from wtawp.attacks import grbcd, prbcd, random_flips
from wtawp.attacks.prbcd_attack import GRBCDAttack, PRBCDAttack, _distinct_pairs
from wtawp.base import AttackError, isolated_rng, rng
from wtawp.graphs import EdgeFlips, budget_of, citation, stratified, undirected_pairs
from wtawp.models import GAT, GCN, GCNSVD, GIN, MLP, PPNP, RGCN, GCNJaccard, GraphSAGE, SimPGCN
from wtawp.training import evaluate, fit

DATA = citation(seed=0, num_nodes=200, num_words=60, topicality=0.6)
SPLIT = stratified(DATA.y, seed=0, train=0.2, val=0.2)
both = pytest.mark.parametrize("attack", [prbcd, grbcd], ids=["prbcd", "grbcd"])
Attack = Callable[..., EdgeFlips]
LOSSES = ["ce", "masked_ce", "margin", "prob_margin", "tanh_margin"]


@pytest.fixture(scope="module")
def victim() -> GCN:
    model = GCN(60, 7, hidden=(16,), generator=rng("init"))
    fit(model, DATA, SPLIT, seed=0, epochs=60)
    return model


def small(seed: int = 0, size: int = 12) -> Data:
    g = rng("small", seed)
    upper = (torch.rand(size, size, generator=g) > 0.7).triu(1)
    upper[0, 1] = True
    x, y = torch.randn(size, 4, generator=g, dtype=torch.float64), torch.arange(size) % 3
    return Data(x=x, y=y, edge_index=(upper + upper.T).nonzero().T.contiguous())


def gcn(seed: int = 0) -> GCN:
    return GCN(4, 3, hidden=(5,), generator=rng("gcn", seed)).double()


def attacked(model: nn.Module, flips: EdgeFlips) -> tuple[float, float]:
    return evaluate(model, flips.apply(DATA), SPLIT.test)


@both
@pytest.mark.parametrize("loss", LOSSES)
def test_it_hurts_more_than_random_flips(attack: Attack, loss: str, victim: GCN) -> None:
    options = {"budget": 0.05, "nodes": SPLIT.test, "labels": DATA.y, "seed": 0, "steps": 30, "block_size": 5000}
    accuracy = attacked(victim, attack(DATA, victim, loss=loss, **options))[1]
    at_random = [attacked(victim, random_flips(DATA, budget=0.05, seed=s))[1] for s in range(5)]
    assert accuracy < min(at_random) - 0.02


@both
def test_the_victim_is_left_as_it_was(attack: Attack, victim: GCN) -> None:
    victim.train()
    victim.convs[0].eval()
    before = {name: value.clone() for name, value in victim.state_dict().items()}
    grads = [p.grad for p in victim.parameters()]
    coefficients = dict(PRBCDAttack.coeffs), dict(GRBCDAttack.coeffs)
    attack(DATA, victim, budget=3, nodes=SPLIT.test, labels=DATA.y, seed=0, steps=2, block_size=100)
    assert all(torch.equal(value, before[name]) for name, value in victim.state_dict().items())
    assert all(p.grad is g for p, g in zip(victim.parameters(), grads, strict=True))
    assert (victim.training, victim.convs[0].training, victim.convs[1].training) == (True, False, True)
    assert (PRBCDAttack.coeffs, GRBCDAttack.coeffs) == coefficients


@both
def test_nothing_is_printed_unless_asked_for(
    attack: Attack,
    capfd: pytest.CaptureFixture[str],
) -> None:
    options = {"budget": 3, "nodes": DATA.y > 0, "labels": DATA.y, "seed": 0, "steps": 2, "block_size": 100}
    model = GCN(60, 7, hidden=(4,), generator=rng("init"))
    attack(DATA, model, **options)
    assert capfd.readouterr() == ("", "")
    attack(DATA, model, progress=True, **options)
    assert "Attack" in capfd.readouterr().err


def test_one_flip_is_nearly_the_best_of_all_single_flips() -> None:
    data, model, nodes = small(1), gcn(1).eval(), torch.tensor([0, 2, 3, 7, 11])
    options = {"budget": 1, "nodes": nodes, "labels": data.y, "seed": 0, "loss": "ce"}

    def loss(pair: Tensor) -> float:
        changed = EdgeFlips(pair, 12).apply(data)
        with torch.no_grad():
            return float(F.cross_entropy(model(changed.x, changed.edge_index)[nodes], data.y[nodes]))

    losses = [loss(torch.tensor(pair)[:, None]) for pair in combinations(range(12), 2)]
    found = loss(prbcd(data, model, **options).pairs)  # type: ignore[arg-type]
    assert sum(other > found for other in losses) <= 3  # of 66
    assert loss(grbcd(data, model, **options).pairs) > sorted(losses)[33]  # type: ignore[arg-type]


@both
@pytest.mark.parametrize(
    "build",
    [
        lambda g: GCN(60, 7, hidden=(8,), generator=g),
        lambda g: GAT(60, 7, width=2, heads=2, generator=g),
        lambda g: PPNP(60, 7, hidden=8, generator=g),
        lambda g: PPNP(60, 7, hidden=8, steps=None, generator=g),
        lambda g: SimPGCN(60, 7, hidden=8, generator=g),
        lambda g: GCNJaccard(60, 7, hidden=(8,), generator=g),
        lambda g: RGCN(60, 7, hidden=(8,), generator=g),
        lambda g: GraphSAGE(60, 7, hidden=(8,), generator=g),
        lambda g: GIN(60, 7, hidden=(8,), generator=g),
        lambda _: basic_gnn.GCN(60, 8, 2, 7),
        lambda g: GCN(60, 7, hidden=(8,), generator=g).requires_grad_(False),
    ],
    ids=["GCN", "GAT", "PPNP", "exact PPNP", "SimPGCN", "GCNJaccard", "RGCN", "GraphSAGE", "GIN", "PyG", "frozen"],
)
def test_every_model_that_takes_edge_weights_can_be_attacked(attack: Attack, build: type) -> None:
    with isolated_rng("theirs"):
        model = build(rng("init")).eval()
    with torch.no_grad():
        labels = model(DATA.x, DATA.edge_index).argmax(1)  # what it says now, so that any change hurts
    flips = attack(
        DATA, model, budget=0.1, nodes=SPLIT.test, labels=labels, seed=0, steps=6, block_size=3000, loss="ce"
    )
    changed = flips.apply(DATA)
    with torch.no_grad():
        before, after = (
            F.cross_entropy(model(d.x, d.edge_index)[SPLIT.test], labels[SPLIT.test]) for d in (DATA, changed)
        )
    assert after > before


@both
def test_one_node_can_be_the_target(attack: Attack, victim: GCN) -> None:
    victim.eval()
    with torch.no_grad():
        right = victim(DATA.x, DATA.edge_index).argmax(1) == DATA.y
    node = SPLIT.test[right[SPLIT.test]][:1]
    flips = attack(DATA, victim, budget=8, nodes=node, labels=DATA.y, seed=0, steps=20, loss="ce")
    with torch.no_grad():
        changed = flips.apply(DATA)
        assert victim(changed.x, changed.edge_index).argmax(1)[node] != DATA.y[node]


@both
def test_a_victim_that_gives_nothing_to_climb_is_said_so(
    attack: Attack, blind: nn.Module, weightless: nn.Module, broken: nn.Module
) -> None:
    data, dead = small(), gcn()
    nn.init.zeros_(dead.convs[1].weight)  # type: ignore[arg-type]
    mlp = MLP(4, 3, hidden=(5,), generator=rng("mlp")).double()
    for model, message in [
        (dead, "gradient is zero for every edge"),
        (blind, "ignores the graph"),
        (mlp, "ignores the graph"),
        (weightless, "takes no edge_weight"),
        (broken, "NaN or infinite logits"),
    ]:
        with pytest.raises(AttackError, match=message):
            attack(data, model, budget=1, nodes=data.y == 0, labels=data.y, seed=0, steps=2)
    with torch.no_grad():
        wrong = gcn().eval()(data.x, data.edge_index).argmin(1)
    with pytest.raises(AttackError, match="misclassified"):
        attack(data, gcn(), budget=1, nodes=data.y == 0, labels=wrong, seed=0, loss="margin")
    svd = GCNSVD(4, 3, rank=3, generator=rng("svd")).double()
    with pytest.raises(ValueError, match="find the flips on a GCN"):
        attack(data, svd, budget=1, nodes=data.y == 0, labels=data.y, seed=0)


@both
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": torch.full((12,), 3)}, "labels go up to 3, but the logits have 3 classes"),
        ({"labels": torch.full((12,), -1)}, "must be known"),
        ({"nodes": torch.tensor([12])}, "nodes must lie in 0 to 11"),
        ({"loss": "cw"}, "loss must be one of 'ce', 'masked_ce', 'margin'"),
        ({"steps": 0}, "steps must be >= 1"),
        ({"block_size": 2, "budget": 4, "steps": 1}, "4 flips must be found among them; raise block_size"),
        ({"budget": 0}, "budget"),
    ],
)
def test_bad_arguments_are_refused(attack: Attack, change: dict[str, object], message: str) -> None:
    data = small()
    options = {"budget": 1, "nodes": data.y == 0, "labels": data.y, "seed": 0, **change}
    with pytest.raises(ValueError, match=message):
        attack(data, gcn(), **options)


def test_a_block_may_be_smaller_than_the_budget_of_grbcd() -> None:
    data = small()
    options = {"budget": 12, "nodes": data.y == 0, "labels": data.y, "seed": 0, "steps": 6, "block_size": 11}
    assert 0 < len(grbcd(data, gcn(), **options)) <= 12  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="12 flips must be found among them"):
        prbcd(data, gcn(), **options)  # type: ignore[arg-type]


def test_draws_hardly_ever_give_fewer_distinct_pairs_pairs_than_expected() -> None:
    for draws, pairs in ((10, 66), (100, 66), (1000, 66), (5000, 500_000), (250_000, 10**12), (1000, 10**17)):
        least = _distinct_pairs(draws, pairs)
        assert 0.4 * min(draws, pairs) < least <= min(draws, pairs)
        found = [len(torch.randint(pairs, (draws,), generator=rng("draws", i)).unique()) for i in range(20)]
        assert min(found) >= least


def test_bad_arguments_of_prbcd_alone_are_refused() -> None:
    data = small()
    for change, message in (({"samples": -1}, "samples"), ({"step_size": 0.0}, "step_size")):
        with pytest.raises(ValueError, match=message):
            prbcd(data, gcn(), budget=1, nodes=data.y == 0, labels=data.y, seed=0, **change)  # type: ignore[arg-type]
    full = Data(x=data.x[:3], y=data.y[:3], edge_index=(1 - torch.eye(3)).nonzero().T)
    with pytest.raises(ValueError, match="all 3 pairs"):
        prbcd(full, gcn(), budget=1.0, nodes=full.y == 0, labels=full.y, seed=0)


@both
@settings(max_examples=10, deadline=None)
@given(size=st.integers(4, 14), seed=st.integers(0, 1000), share=st.floats(0.05, 0.9), loops=st.booleans())
def test_flips_of_any_small_graph_keep_the_budget(
    attack: Attack,
    size: int,
    seed: int,
    share: float,
    loops: bool,
) -> None:
    data = small(seed, size)
    if loops:
        data.edge_index = torch.cat([data.edge_index, torch.tensor([[1], [1]])], dim=1)
    edges = undirected_pairs(data).shape[1]
    budget, before, state = max(1, int(share * edges)), data.edge_index.clone(), torch.get_rng_state()
    options = {"budget": budget, "nodes": data.y < 2, "labels": data.y, "seed": seed, "steps": 3, "loss": "ce"}
    linear = GCN(4, 3, hidden=(), generator=rng("linear", seed)).double()  # no ReLU that may be dead
    one, same = (attack(data, linear, **options) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(one.pairs, same.pairs)
    assert torch.equal(data.edge_index, before)
    assert len(one) <= budget_of(data, budget)
    changed = one.apply(data)
    assert changed.has_self_loops() == loops
    assert undirected_pairs(changed).shape[1] == edges + one.num_added(data) - one.num_removed(data)
