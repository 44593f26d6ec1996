"""The learned structure against closed forms, finite differences, a planted noise, and what it must refuse."""

from itertools import count
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp.base import DataError, progress_receiver, rng
from wtawp.graphs import EdgeFlips, Split, citation, stratified, undirected_pairs
from wtawp.models import GAT, GCN
from wtawp.training import evaluate, fit, learn_structure, learned_structure

DATA = citation(seed=0, num_nodes=140, num_words=30)
SPLIT = stratified(DATA.y, seed=0)


def symmetric(size: int, name: str) -> Tensor:
    matrix = torch.rand(size, size, generator=rng(name), dtype=torch.float64)
    return (matrix + matrix.T) / 2


def test_the_spectrum_shrinks_as_singular_values_do() -> None:
    matrix = symmetric(9, "matrix") - 0.5
    left, values, right = torch.linalg.svd(matrix)
    for threshold in (0.0, 0.2, 100.0):
        expected = (left * (values - threshold).clamp_min(0)) @ right
        assert torch.allclose(learned_structure._shrunk_spectrum(matrix, threshold), expected, atol=1e-12)


def test_roughness_is_a_sum_over_pairs_of_nodes() -> None:
    s, x = symmetric(6, "s"), torch.rand(6, 3, generator=rng("x"), dtype=torch.float64)
    scaled = x / (s.sum(1) + learned_structure.LEAST_DEGREE).sqrt()[:, None]
    slow = sum(float(s[i, j] * (scaled[i] - scaled[j]).square().sum()) for i in range(6) for j in range(6)) / 2
    assert float(learned_structure._roughness(s, x @ x.T)) == pytest.approx(slow)


def test_a_step_follows_the_finite_difference_of_what_is_lowered() -> None:
    g, size = rng("tiny"), 7
    upper = (torch.rand(size, size, generator=g) < 0.4).triu(1)
    data = Data(x=torch.rand(size, 3, generator=g).double(), edge_index=(upper | upper.T).nonzero().T)
    data.y = torch.tensor([0, 1, 0, 1, 0, 1, 0])
    split = Split(torch.arange(5), torch.tensor([5]), torch.tensor([6]))
    model = GCN(3, 2, hidden=(4,), dropout=0.0, generator=g).double()
    adjacency = learned_structure._dense_adjacency(data)
    learner = learned_structure._Learner(data, split, adjacency, model, 1e-3, 0.3)
    learner.s = (0.5 * adjacency + 0.3 * symmetric(size, "start")).clamp(0.05, 0.95)
    before = learner.s.clone()

    def lowered(s: Tensor) -> float:
        with_loops = s + torch.eye(size).double()
        norm = with_loops / (with_loops.sum(1)[:, None] * with_loops.sum(1)).sqrt()
        (first, b1), (last, b2) = model.convolution_weights()
        logits = norm @ (norm @ data.x @ first + b1).relu() @ last + b2
        scale = (s.sum(1) + learned_structure.LEAST_DEGREE).rsqrt()
        laplacian = torch.diag(scale) @ (torch.diag(s.sum(1)) - s) @ torch.diag(scale)
        rough = float((data.x.T @ laplacian @ data.x).trace())
        return float(F.cross_entropy(logits[:5], data.y[:5])) + 0.3 * rough + float((s - adjacency).norm())

    learner.step_structure(sparsity=0.2, nuclear=0.0)
    for i, j in ((0, 1), (2, 5), (3, 4)):
        shift = torch.zeros(size, size).double()
        shift[i, j] = shift[j, i] = 1e-6
        slope = (lowered(before + shift) - lowered(before - shift)) / 2e-6 / 2  # of one of the two entries
        assert float(learner.s[i, j]) == pytest.approx(float(before[i, j]) - 1e-3 * (slope + 0.2), abs=1e-8)


def test_edges_that_were_added_between_classes_weigh_less_than_others_and_a_gcn_gains() -> None:
    data = citation(seed=0, num_nodes=300, num_words=100)
    split, clean = stratified(data.y, seed=0), undirected_pairs(data)
    drawn = torch.randint(0, 300, (2, 4000), generator=rng("noise"))
    apart = drawn[:, (data.y[drawn[0]] != data.y[drawn[1]]) & (drawn[0] < drawn[1])]
    codes = torch.unique(apart[0] * 300 + apart[1])
    codes = codes[~torch.isin(codes, clean[0] * 300 + clean[1])]
    codes = codes[torch.randperm(len(codes), generator=rng("which"))[: clean.shape[1] // 2]]
    added = torch.stack([codes // 300, codes % 300])
    noisy = EdgeFlips.of(added, 300).apply(data)
    learned = learn_structure(noisy, split, seed=0)
    weights = torch.zeros(300, 300)
    weights[learned.edge_index[0], learned.edge_index[1]] = learned.edge_weight
    assert float(weights[added[0], added[1]].mean()) < 0.9 * float(weights[clean[0], clean[1]].mean())
    accuracies = []
    for graph in (noisy, learned):
        model = GCN(100, 7, hidden=(16,), generator=rng("init"))
        fit(model, graph, split, seed=0, epochs=100)
        accuracies.append(evaluate(model, graph, split.test)[1])
    assert accuracies[1] > accuracies[0]


def test_the_result_is_a_weighted_undirected_graph_and_the_input_is_left_alone() -> None:
    data, state = DATA.clone(), torch.get_rng_state()
    learned = learn_structure(data, SPLIT, seed=0, epochs=16, every=4, prune=0.02)
    assert all(torch.equal(data[key], DATA[key]) for key in DATA.keys())  # noqa: SIM118
    assert torch.equal(torch.get_rng_state(), state)
    assert learned.x is data.x
    assert learned.is_undirected()
    assert not learned.has_self_loops()
    assert 0.02 < float(learned.edge_weight.min()) <= float(learned.edge_weight.max()) <= 1
    fit(GAT(30, 7, generator=rng("init")), learned, SPLIT, seed=0, epochs=2)


def test_progress_never_moves_back() -> None:
    shares: list[float] = []
    with progress_receiver(shares.append, interval=0.0):
        learn_structure(DATA, SPLIT, seed=0, epochs=4, every=2)
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)


def test_the_same_seed_gives_the_same_graph_and_test_labels_do_not_matter() -> None:
    other = DATA.clone()
    other.y[SPLIT.test] = DATA.y[SPLIT.test].roll(1)
    how: dict[str, Any] = {"seed": 0, "epochs": 16, "every": 4}
    one, again, blind = (learn_structure(data, SPLIT, **how) for data in (DATA, DATA, other))
    for each in (again, blind):
        assert torch.equal(each.edge_index, one.edge_index)
        assert torch.equal(each.edge_weight, one.edge_weight)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.bool])
def test_labels_of_every_whole_number_type_give_the_same_graph(dtype: torch.dtype) -> None:
    data, small = DATA.clone(), DATA.clone()
    data.y = DATA.y.to(dtype).long()
    small.y = DATA.y.to(dtype)
    expected, learned = (learn_structure(each, SPLIT, seed=0, epochs=4, every=2) for each in (data, small))
    assert torch.equal(learned.edge_weight, expected.edge_weight)
    assert learned.y is small.y  # the caller's labels


def test_the_graph_that_was_passed_is_returned_if_none_is_better(monkeypatch: pytest.MonkeyPatch) -> None:
    rising = count()
    monkeypatch.setattr(learned_structure, "_validation_loss", lambda *_: next(rising))
    kept = learn_structure(DATA, SPLIT, seed=0, epochs=8, every=2)
    assert next(rising) == 5  # the graph as it is, and four others
    assert torch.equal(kept.edge_weight, torch.ones(DATA.edge_index.shape[1]))
    kept.edge_weight = None
    assert torch.equal(undirected_pairs(kept), undirected_pairs(DATA))


def test_masks_of_the_graph_are_used_without_a_split() -> None:
    data = DATA.clone()
    for part in ("train", "val", "test"):
        data[f"{part}_mask"] = torch.zeros(140, dtype=torch.bool).index_fill(0, getattr(SPLIT, part), True)
    how: dict[str, Any] = {"seed": 0, "epochs": 4, "every": 2}
    assert torch.equal(learn_structure(data, **how).edge_weight, learn_structure(DATA, SPLIT, **how).edge_weight)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs must be a whole number >= 1"),
        ({"every": 1.5}, "every must be a whole number >= 1"),
        ({"hidden": True}, "hidden must be a whole number >= 1"),
        ({"lr": 0.0}, "lr must be a number above 0"),
        ({"nuclear": -1.0}, "nuclear must be a number >= 0"),
        ({"smoothness": float("nan")}, "smoothness must be a number >= 0"),
        ({"prune": 1.0}, r"prune must be a number in \[0, 1\)"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        learn_structure(DATA, SPLIT, seed=0, **options)


def test_graphs_that_it_cannot_learn_are_refused() -> None:
    large = Data(x=torch.zeros(5001, 1), edge_index=torch.zeros(2, 0, dtype=torch.int64))
    with pytest.raises(DataError, match="at most 5,000 nodes; this one has 5,001"):
        learn_structure(large, SPLIT, seed=0)
    with pytest.raises(DataError, match="takes one graph, a PyG Data, got list"):
        learn_structure([DATA], SPLIT, seed=0)  # type: ignore[arg-type]
    for change, message in (
        ({"x": DATA.x.to_sparse()}, "dense matrix"),
        ({"edge_weight": torch.ones(DATA.edge_index.shape[1])}, "learn_structure learns .* this one has edge_weight"),
        ({"edge_index": torch.tensor([[0], [1]])}, "must be undirected"),
        ({"y": None}, "no targets"),
        ({"y": DATA.y.float()}, "need class numbers as targets"),
    ):
        data = DATA.clone()
        for key, value in change.items():
            data[key] = value
        with pytest.raises(DataError, match=message):
            learn_structure(data, SPLIT, seed=0)
