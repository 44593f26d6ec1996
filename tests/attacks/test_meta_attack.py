"""Metattack against a dense implementation that shares no code with it: torch differentiates through the training."""

import math
from importlib import import_module
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp.attacks import metattack, metattack_many, random_flips, self_training_labels
from wtawp.attacks.meta_attack import MetaOptions, attack_together, meta_gradients
from wtawp.attacks.meta_state import MetaState
from wtawp.base import AttackError, rng
from wtawp.graphs import EdgeFlips, load, stratified, undirected_pairs
from wtawp.models import GCN
from wtawp.models.inputs import features
from wtawp.training import fit

SIZE, CLASSES, WORDS, HIDDEN, STEPS = 30, 3, 12, 4, 12
TRAIN = torch.tensor([0, 1, 2, 9, 14, 22, 23])


def small(seed: int = 0, size: int = SIZE, share: float = 0.12) -> Data:
    """A random graph, some nodes with one edge, with features that say something about the classes."""
    g = rng("metattack", seed)
    upper = (torch.rand(size, size, generator=g) < share).triu(1)
    upper[torch.arange(size - 1), torch.arange(1, size)] |= torch.rand(size - 1, generator=g) < 0.5
    y = torch.arange(size) % CLASSES
    x = (torch.rand(size, WORDS, generator=g) < 0.1).double()
    x[torch.arange(size), y] = 1
    return Data(x=x, y=y, edge_index=(upper | upper.T).nonzero().T.contiguous())


def options(**changes: object) -> MetaOptions:
    given = {"lam": 0.0, "approximate": False, "likelihood_cutoff": None, "steps": STEPS, "hidden": HIDDEN}
    return MetaOptions(**({"initial": "uniform"} | given | changes))  # type: ignore[arg-type]


def state(data: Data, lam: float = 0.0, seed: int = 0, train: Tensor = TRAIN) -> MetaState:
    return MetaState(data, features(data.x), train, None, data.y, CLASSES, seed, lam)


def adjacency_of(data: Data) -> Tensor:
    dense = torch.zeros(data.num_nodes, data.num_nodes, dtype=torch.float64)
    dense[data.edge_index[0], data.edge_index[1]] = 1
    return dense


def weights(data: Data, seed: int, flip: int) -> list[Tensor]:
    g = rng("attack", "metattack", seed, flip)
    shapes = [(data.num_features, HIDDEN), (HIDDEN, CLASSES)]
    return [(2 * torch.rand(s, generator=g, dtype=torch.float64) - 1) / math.sqrt(s[1]) for s in shapes]


def naive_gradient(data: Data, adjacency: Tensor, lam: float, seed: int, flip: int, approximate: bool) -> Tensor:
    """The gradient of both directions of each pair, by autograd through everything, all of it dense."""
    adjacency = adjacency.clone().requires_grad_()
    looped = adjacency + torch.eye(len(adjacency), dtype=adjacency.dtype)
    scale = looped.sum(1) ** -0.5
    hat = scale[:, None] * looped * scale
    rest = torch.tensor([i for i in range(data.num_nodes) if i not in TRAIN.tolist()])
    chosen = [w.requires_grad_() for w in weights(data, seed, flip)]

    def losses() -> tuple[Tensor, Tensor]:
        logits = hat @ (hat @ data.x @ chosen[0]) @ chosen[1]
        inner, outer = (F.cross_entropy(logits[nodes], data.y[nodes]) for nodes in (TRAIN, rest))
        return inner, lam * inner + (1 - lam) * outer

    if approximate:
        total, optimizer = torch.zeros_like(adjacency), torch.optim.Adam(chosen, lr=0.01)
        for _ in range(STEPS):
            inner, outer = losses()
            total += torch.autograd.grad(outer, adjacency, retain_graph=True)[0]
            for w, slope in zip(chosen, torch.autograd.grad(inner, chosen, retain_graph=True), strict=True):
                w.grad = slope
            optimizer.step()
        return total + total.T
    speeds = [torch.zeros_like(w) for w in chosen]
    for _ in range(STEPS):
        found = torch.autograd.grad(losses()[0], chosen, create_graph=True)
        speeds = [0.9 * v + g for v, g in zip(speeds, found, strict=True)]
        chosen = [w - 0.1 * v for w, v in zip(chosen, speeds, strict=True)]
    (slope,) = torch.autograd.grad(losses()[1], adjacency)
    return slope + slope.T


def naive_likelihood(degrees: list[int]) -> float:
    tail = [d for d in degrees if d >= 2]
    n, s = len(tail), sum(math.log(d) for d in tail)
    alpha = 1 + n / sum(math.log(d / 1.5) for d in tail)
    return n * math.log(alpha) + n * alpha * math.log(2) + (alpha + 1) * s


def naive_ratio(original: Tensor, changed: Tensor) -> float:
    """Of two dense adjacency matrices."""
    one, other = ([int(d) for d in a.sum(0)] for a in (original, changed))
    return -2 * naive_likelihood(one + other) + 2 * (naive_likelihood(one) + naive_likelihood(other))


def naive_attack(
    data: Data, count: int, *, lam: float, approximate: bool, cutoff: float | None = None
) -> list[tuple[int, int]]:
    original = adjacency_of(data)
    adjacency, flips = original.clone(), []
    for flip in range(count):
        slope = naive_gradient(data, adjacency, lam, 0, flip, approximate)
        best, highest = (0, 0), -math.inf
        for i, j in combinations(range(data.num_nodes), 2):
            is_last = adjacency[i, j] == 1 and min(adjacency[i].sum(), adjacency[j].sum()) == 1
            if is_last or (i, j) in flips:
                continue
            if cutoff is not None and naive_ratio(original, flipped(adjacency, i, j)) >= cutoff:
                continue
            score = float(slope[i, j] * (1 - 2 * adjacency[i, j]))
            if score > highest:
                best, highest = (i, j), score
        flips.append(best)
        adjacency = flipped(adjacency, *best)
    return flips


def flipped(adjacency: Tensor, i: int, j: int) -> Tensor:
    changed = adjacency.clone()
    changed[i, j] = changed[j, i] = 1 - adjacency[i, j]
    return changed


@pytest.mark.parametrize("approximate", [False, True])
@pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
def test_the_gradient_is_that_of_autograd_through_the_whole_training(lam: float, approximate: bool) -> None:
    data = small()
    (found,) = meta_gradients([state(data, lam)], 0, options(lam=lam, approximate=approximate))
    expected = naive_gradient(data, adjacency_of(data), lam, 0, 0, approximate)
    assert float((found.block(0, SIZE) - expected).abs().max()) < 1e-8 * float(expected.abs().max())
    assert float(expected.abs().max()) > 1e-3


@pytest.mark.parametrize("approximate", [False, True])
def test_the_gradient_is_right_too_where_most_factors_are_zero(approximate: bool) -> None:
    data = small(4, 100, 0.001)
    (found,) = meta_gradients([state(data, 1.0)], 0, options(lam=1.0, approximate=approximate))
    expected = naive_gradient(data, adjacency_of(data), 1.0, 0, 0, approximate)
    assert len(found.sparse) == (1 if approximate else 2)
    assert float((found.block(0, 100) - expected).abs().max()) < 1e-8 * float(expected.abs().max())


@pytest.mark.parametrize("approximate", [False, True])
@pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
def test_the_first_five_flips_are_those_of_a_naive_implementation(lam: float, approximate: bool) -> None:
    data = small(1)
    expected = naive_attack(data, 5, lam=lam, approximate=approximate)
    attacked = state(data, lam)
    attack_together([attacked], 5, options(lam=lam, approximate=approximate), lambda _: None)
    assert [(code // SIZE, code % SIZE) for code in attacked.flipped.tolist()] == expected


def test_blocks_of_rows_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    data = small(1)
    asked = {"budget": 6, "train": TRAIN, "labels": data.y, "seed": 0, "steps": 5, "likelihood_cutoff": 0.05}
    whole = metattack(data, **asked)
    monkeypatch.setattr(import_module("wtawp.attacks.meta_state"), "CPU_BLOCK", 4 * SIZE)
    assert torch.equal(metattack(data, **asked).pairs, whole.pairs)


def test_flips_under_the_likelihood_test_are_those_of_a_naive_implementation() -> None:
    data, cutoff = small(1), 0.004
    attacked = state(data)
    attack_together([attacked], 5, options(likelihood_cutoff=cutoff), lambda _: None)
    found = [(code // SIZE, code % SIZE) for code in attacked.flipped.tolist()]
    assert found == naive_attack(data, 5, lam=0.0, approximate=False, cutoff=cutoff)
    assert found != naive_attack(data, 5, lam=0.0, approximate=False)
    changed = EdgeFlips.of(torch.tensor(found).T, SIZE).apply(data)
    assert naive_ratio(adjacency_of(data), adjacency_of(changed)) < cutoff


@pytest.mark.parametrize("approximate", [False, True])
def test_attacks_trained_together_are_those_alone(approximate: bool) -> None:
    data = small(3)
    trains = [TRAIN, torch.arange(5), torch.arange(10, 29, 2)]  # of different sizes
    shared = {"budget": 6, "steps": 10, "hidden": 5, "lam": 0.3, "approximate": approximate}
    alone = [
        metattack(data, train=train, labels=data.y, seed=seed, **shared)  # type: ignore[arg-type]
        for seed, train in enumerate(trains)
    ]
    many = metattack_many(data, trains=trains, labels=[data.y] * 3, seeds=range(3), **shared)  # type: ignore[arg-type]
    assert [(one.pairs.tolist(), one.provenance) for one in many] == [(o.pairs.tolist(), o.provenance) for o in alone]
    states = [state(data, 0.3, seed, train) for seed, train in enumerate(trains)]
    attack_together(states, 6, options(lam=0.3, approximate=approximate, steps=10, hidden=5), lambda _: None)
    found = [EdgeFlips.of(torch.stack([m.flipped // SIZE, m.flipped % SIZE]), SIZE).pairs.tolist() for m in states]
    assert found == [one.pairs.tolist() for one in alone]


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 1000), lam=st.sampled_from([0.0, 0.5, 1.0]), approximate=st.booleans())
def test_no_node_loses_its_last_edge_and_no_pair_is_flipped_twice(seed: int, lam: float, approximate: bool) -> None:
    data = small(seed, 14, 0.05)
    before = adjacency_of(data).sum(0)
    train = torch.arange(0, 14, 2)
    asked = {"train": train, "labels": data.y, "seed": seed, "steps": 4, "lam": lam, "approximate": approximate}
    flips = metattack(data, budget=1.0, **asked)  # type: ignore[arg-type]
    assert len(flips) == undirected_pairs(data).shape[1]  # EdgeFlips refuses a pair that stands there twice
    assert bool((adjacency_of(flips.apply(data)).sum(0)[before > 0] > 0).all())


def test_where_nothing_more_may_be_flipped_there_are_fewer_flips() -> None:
    i, j = torch.triu_indices(4, 4, 1)
    complete = Data(
        x=torch.eye(4), y=torch.arange(4) % 2, edge_index=torch.stack([torch.cat([i, j]), torch.cat([j, i])])
    )
    asked = {"budget": 6, "train": torch.tensor([0, 1]), "labels": complete.y, "seed": 0}
    assert len(metattack(complete, **asked)) == 4  # type: ignore[arg-type]  # two edges keep all nodes joined
    with pytest.raises(AttackError, match="no flip is allowed"):
        metattack(complete, likelihood_cutoff=0.1, **asked)  # type: ignore[arg-type]
    pair = Data(x=torch.eye(2), y=torch.tensor([0, 1]), edge_index=torch.tensor([[0, 1], [1, 0]]))
    with pytest.raises(AttackError, match="no flip is allowed"):
        metattack(pair, budget=1, train=torch.tensor([0]), labels=pair.y, seed=0)


def test_progress_is_told_after_each_flip() -> None:
    data, told = small(), []
    metattack_many(
        data, budget=2, trains=[TRAIN, TRAIN], labels=[data.y, data.y], seeds=[0, 1], steps=2,
        progress=lambda share, text: told.append((share, text)),
    )  # fmt: skip
    assert [share for share, _ in told] == [0.25, 0.5, 0.75, 1.0]
    assert told[-1][1] == "flip 2 of 2, attacks 2 to 2 of 2"


def test_labels_and_nodes_that_do_not_count_have_no_say() -> None:
    data = small()
    asked = {"budget": 3, "seed": 0, "steps": 5, "train": TRAIN}
    some = torch.tensor([3, 4, 5, 6, 7])
    flips = metattack(data, labels=data.y, unlabelled=some, **asked)  # type: ignore[arg-type]
    assert torch.equal(metattack(data, labels=data.y, unlabelled=some.flip(0), **asked).pairs, flips.pairs)  # type: ignore[arg-type]
    hidden = torch.full_like(data.y, -1)
    hidden[TRAIN], hidden[some] = data.y[TRAIN], data.y[some]
    assert torch.equal(metattack(data, labels=hidden, unlabelled=some, **asked).pairs, flips.pairs)  # type: ignore[arg-type]
    only_train = torch.where(torch.isin(torch.arange(SIZE), TRAIN), data.y, -1)
    as_mask = torch.isin(torch.arange(SIZE), TRAIN)
    one = metattack(data, labels=only_train, lam=1.0, **asked)  # type: ignore[arg-type]
    assert torch.equal(metattack(data, labels=data.y, lam=1.0, **{**asked, "train": as_mask}).pairs, one.pairs)  # type: ignore[arg-type]


def test_self_training_labels_are_true_where_known() -> None:
    logits = torch.tensor([[0.0, 1.0], [2.0, 1.0], [0.0, 3.0]])
    labels = torch.tensor([0, 1, 0])
    assert self_training_labels(logits, labels, torch.tensor([0])).tolist() == [0, 0, 1]
    assert self_training_labels(logits, labels, torch.tensor([False, True, False])).tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match=r"logits \[n, c\]"):
        self_training_labels(logits, labels[:2], torch.tensor([0]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": torch.zeros(0, dtype=torch.int64)}, "train must hold one or more of the nodes"),
        ({"train": torch.zeros(SIZE, dtype=torch.bool)}, "train must hold one or more of the nodes"),
        ({"train": torch.tensor([0, SIZE])}, f"train must lie in 0 to {SIZE - 1}"),
        ({"train": torch.arange(SIZE)}, "every node is in train"),
        ({"unlabelled": TRAIN}, "holds training nodes"),
        ({"unlabelled": torch.zeros(0, dtype=torch.int64)}, "unlabelled must hold one or more of the nodes"),
        ({"labels": torch.zeros(SIZE - 1, dtype=torch.int64)}, "one for each node"),
        ({"labels": torch.zeros(SIZE)}, "whole numbers"),
        ({"labels": torch.full((SIZE,), CLASSES)}, f"0 to {CLASSES - 1}, got {CLASSES} to {CLASSES}"),
        ({"labels": torch.full((SIZE,), -1)}, "pass guesses"),
        ({"steps": 0}, "steps and hidden must be >= 1"),
        ({"hidden": 0}, "steps and hidden must be >= 1"),
        ({"lam": 1.5}, "lam must lie between"),
        ({"likelihood_cutoff": 0.0}, "likelihood_cutoff must be positive"),
        ({"initial": "normal"}, "initial must be one of 'uniform', 'glorot', got 'normal'"),
        ({"budget": 0}, "budget"),
    ],
)
def test_bad_arguments_are_refused(changes: dict[str, object], message: str) -> None:
    data = small()
    asked = {"budget": 1, "train": TRAIN, "labels": data.y, "seed": 0, "steps": 2} | changes
    with pytest.raises(ValueError, match=message):
        metattack(data, **asked)  # type: ignore[arg-type]


@pytest.mark.parametrize("x", [None, torch.full((SIZE, 3), math.nan), torch.zeros(SIZE, 3, dtype=torch.int64)])
def test_bad_features_are_refused(x: Tensor | None) -> None:
    data = small()
    data.x, data.num_nodes = x, SIZE
    with pytest.raises(ValueError, match=r"data\.x"):
        metattack(data, budget=1, train=TRAIN, labels=data.y, seed=0)


def test_features_that_say_nothing_and_features_that_are_too_large_are_errors() -> None:
    data = small()
    data.x = torch.zeros_like(data.x)
    with pytest.raises(AttackError, match="gradient is zero"):
        metattack(data, budget=1, train=TRAIN, labels=data.y, seed=0)
    data.x = 1e30 * small().x.float()
    with pytest.raises(AttackError, match="not finite"):
        metattack(data, budget=1, train=TRAIN, labels=data.y, seed=0)


def test_lists_of_different_lengths_are_refused() -> None:
    data = small()
    with pytest.raises(ValueError, match="of one length"):
        metattack_many(data, budget=1, trains=[TRAIN], labels=[data.y], seeds=[0, 1])
    with pytest.raises(ValueError, match="one or more"):
        metattack_many(data, budget=1, trains=[], labels=[], seeds=[])


@pytest.mark.slow
@pytest.mark.usefixtures("offline")
def test_fifty_flips_on_cora_hurt_more_than_two_hundred_and_fifty_at_random() -> None:
    data = load("cora")
    split = stratified(data.y, seed=0)

    def trained(graph: Data, init: int) -> tuple[GCN, float]:
        model = GCN(data.num_features, 7, hidden=(16,), generator=rng("init", init))
        return model, 100 * fit(model, graph, split, seed=init).accuracy["test"]

    surrogate, _ = trained(data, 9)
    with torch.no_grad():
        labels = self_training_labels(surrogate.eval()(data.x, data.edge_index), data.y, split.train)
    flips = metattack(data, budget=50, train=split.train, labels=labels, seed=0)
    chance = random_flips(data, budget=250, seed=0)
    poisoned, shaken = (sum(trained(f.apply(data), init)[1] for init in range(3)) / 3 for f in (flips, chance))
    assert poisoned < shaken - 0.5
