"""EvA: exhaustive search on small graphs, black boxes of several kinds, and objectives of the caller."""

from collections.abc import Callable
from itertools import combinations

import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GAT

from wtawp import attack
from wtawp.attacks import eva
from wtawp.attacks.eva_attack import Crossover
from wtawp.attacks.flipped_graphs import FlippedGraphs
from wtawp.base import AttackError, progress_receiver, rng
from wtawp.certificates import Noise, vote
from wtawp.graphs import citation, undirected_pairs
from wtawp.models import GCN

ALL = torch.arange(12)


@pytest.mark.parametrize("crossover", ["credit", "uniform"])
def test_two_flips_are_as_bad_for_the_victim_as_the_worst_of_all_pairs_of_flips(
    small: Callable[..., Data], small_victim: Callable[..., GCN], crossover: Crossover
) -> None:
    data, victim = small(7), small_victim(7).eval()
    data.y = victim(data.x, data.edge_index).argmax(1)  # so that all is correct before
    i, j = torch.triu_indices(12, 12, 1)
    every_two = (i * 12 + j)[torch.tensor(list(combinations(range(66), 2)))]
    with torch.no_grad():
        correct = (FlippedGraphs(data, victim).outputs(every_two).argmax(2) == data.y).sum(1)
    assert int((correct == correct.min()).sum()) == 14  # of 2,145
    flips = eva(data, victim, budget=2, nodes=ALL, labels=data.y, seed=0, steps=10, population=40, crossover=crossover)
    changed = flips.apply(data)
    assert int((victim(changed.x, changed.edge_index).argmax(1) == data.y).sum()) == int(correct.min()) == 9


def test_hard_labels_give_the_same_flips_as_a_victim_that_returns_classes(
    small: Callable[..., Data], small_victim: Callable[..., GCN]
) -> None:
    data, victim = small(), small_victim()
    options = {"budget": 3, "nodes": ALL, "labels": data.y, "seed": 0, "steps": 4, "population": 6}
    hard = eva(data, victim, hard_labels=True, **options)  # type: ignore[arg-type]
    classes = eva(data, lambda x, edges: victim.eval()(x, edges).argmax(1), **options)  # type: ignore[arg-type]
    assert torch.equal(hard.pairs, classes.pairs)


def test_a_model_without_edge_weights_and_a_plain_function_are_attacked_by_name(small: Callable[..., Data]) -> None:
    data = small()
    torch.manual_seed(0)
    model = GAT(4, 4, num_layers=2, out_channels=3).double()
    few = {"budget": 3, "method": "eva", "steps": 3, "population": 6}
    flips = attack(data, model, **few)  # type: ignore[arg-type]
    assert 0 < len(flips) <= 3
    assert model.training
    assert torch.equal(attack(data, lambda x, edges: model.eval()(x, edges), **few).pairs, flips.pairs)  # type: ignore[arg-type]
    with pytest.raises(AttackError, match=r"torch\.nn\.Module"):
        attack(data, lambda x, _: x, budget=3, method="pgd")


def test_an_objective_of_the_whole_graph_is_lowered(small: Callable[..., Data]) -> None:
    def degrees(x: Tensor, edge_index: Tensor) -> Tensor:
        counts = torch.bincount(edge_index[0], minlength=len(x)).double()
        return torch.stack([counts, -counts], 1)

    data = small()
    least: list[tuple[int, float]] = []
    shares: list[float] = []
    with progress_receiver(shares.append, interval=0.0):
        flips = eva(
            data, degrees, budget=4, nodes=ALL, labels=data.y, seed=0, steps=30, population=30,
            objective=lambda logits: logits[:, 0].sum(), progress=lambda *at: least.append(at),
        )  # fmt: skip
    assert shares == [step / 30 for step in range(30)]
    edges = undirected_pairs(data).shape[1]
    assert flips.num_removed(data) == 4  # the only way to lower the sum of degrees by 8
    assert least[-1] == (30 * 31 + 1, 2.0 * (edges - 4))
    assert [value for _, value in least] == sorted((value for _, value in least), reverse=True)


def test_the_coverage_of_conformal_sets_falls() -> None:
    data = citation(seed=0, num_nodes=60, num_words=20)
    victim, nodes = GCN(20, 7, generator=rng("victim")).eval(), torch.arange(30)
    data.y = victim(data.x, data.edge_index).argmax(1)
    scores = victim(data.x, data.edge_index).detach().softmax(1).gather(1, data.y[:, None])[:, 0]
    threshold = scores[30:].median()  # of calibration nodes, half of which are then covered

    def is_covered(logits: Tensor) -> Tensor:  # the true class is in the set
        return (logits.softmax(1).gather(1, data.y[:, None])[:, 0] >= threshold).float()

    def coverage(graph: Data) -> float:
        return float(is_covered(victim(graph.x, graph.edge_index).detach())[nodes].mean())

    flips = eva(
        data, victim, budget=20, nodes=nodes, labels=data.y, seed=0, steps=10, population=20, objective=is_covered
    )
    assert coverage(flips.apply(data)) < coverage(data) - 0.15


def test_the_ratio_of_nodes_with_a_clear_majority_of_votes_falls() -> None:
    data = citation(seed=0, num_nodes=50, num_words=20)
    model = GCN(20, 7, generator=rng("victim")).eval()

    def smoothed(x: Tensor, edge_index: Tensor) -> Tensor:  # counts of votes under noise, in the place of logits
        graph = Data(x=x, edge_index=edge_index, num_nodes=len(x))
        return vote(graph, model, edges=Noise(p_add=0.001, p_del=0.4), samples=20, seed=0).counts.float()

    def is_certified(counts: Tensor) -> Tensor:
        return (counts.amax(1) >= 18).float()

    def ratio(graph: Data) -> float:
        return float(is_certified(smoothed(graph.x, graph.edge_index)).mean())

    flips = eva(
        data, smoothed, budget=5, nodes=torch.arange(50), labels=data.y, seed=0, steps=4, population=8,
        objective=is_certified,
    )  # fmt: skip
    assert ratio(flips.apply(data)) < ratio(data)


def test_the_search_ends_when_nothing_is_left_to_attack(small: Callable[..., Data]) -> None:
    data, seen = small(), []

    def victim(x: Tensor, edge_index: Tensor) -> Tensor:  # right on the clean graph alone
        is_clean = edge_index.shape[1] == data.edge_index.shape[1] and bool((edge_index == data.edge_index).all())
        return torch.nn.functional.one_hot(data.y if is_clean else (data.y + 1) % 3, 3).double()[: len(x)]

    eva(
        data, victim, budget=1, nodes=ALL, labels=data.y, seed=0, steps=50, population=4,
        progress=lambda *at: seen.append(at),
    )  # fmt: skip
    assert seen == [(9, 0.0)]


@pytest.mark.parametrize(
    "options",
    [{"steps": 0}, {"population": 1}, {"mutation": 0.0}, {"mutation": 1.5}, {"tournament_size": 0},
     {"crossover": "one-point"}],
)  # fmt: skip
def test_options_out_of_range_are_refused(
    small: Callable[..., Data], small_victim: Callable[..., GCN], options: dict[str, object]
) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        eva(small(), small_victim(), budget=2, nodes=ALL, labels=small().y, seed=0, **options)  # type: ignore[arg-type]


def test_outputs_labels_and_objectives_that_do_not_fit_are_refused(
    small: Callable[..., Data], small_victim: Callable[..., GCN]
) -> None:
    data, few = small(), {"budget": 2, "nodes": ALL, "seed": 0, "steps": 1, "population": 2}
    with pytest.raises(ValueError, match="logits have 3 classes"):
        eva(data, small_victim(), labels=data.y + 1, **few)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must be known"):
        eva(data, small_victim(), labels=data.y - 1, **few)  # type: ignore[arg-type]
    with pytest.raises(AttackError, match="infinite logits"):
        eva(data, lambda x, _: torch.full((len(x), 3), torch.inf), labels=data.y, **few)  # type: ignore[arg-type]
    for value, match in ((torch.zeros(5), "one number, or one for each"), (torch.tensor(torch.nan), "NaN")):
        with pytest.raises(AttackError, match=match):
            eva(data, small_victim(), labels=data.y, objective=lambda _, v=value: v, **few)  # type: ignore[misc,arg-type]
