"""The inductive protocol, against loops over edges."""

import pytest
import torch
from torch_geometric.data import Batch, Data

from wtawp.base import DataError, rng
from wtawp.graphs import Split, SplitWithoutTest, citation, inductive, stratified
from wtawp.models import GCN
from wtawp.training import evaluate, fit, fit_batches

DATA = citation(seed=0, num_nodes=60, num_words=20)
SPLIT = stratified(DATA.y, seed=0, train=0.3, val=0.3)


def test_what_is_left_are_the_edges_between_nodes_that_are_not_tested() -> None:
    data = DATA.clone()
    data.edge_attr = torch.arange(data.edge_index.shape[1])
    data.train_mask = torch.zeros(60, dtype=torch.bool).index_fill(0, SPLIT.train, True)
    data.name = "a graph"
    known, split = inductive(data, SPLIT)
    tested = set(SPLIT.test.tolist())
    expected = {(i, j, e) for e, (i, j) in enumerate(DATA.edge_index.T.tolist()) if i not in tested and j not in tested}
    ends = known.n_id[known.edge_index]
    assert {(int(i), int(j), int(e)) for i, j, e in zip(*ends, known.edge_attr, strict=True)} == expected
    assert known.num_nodes == 60 - len(tested) == len(known.y)
    assert torch.equal(known.x, DATA.x[known.n_id])
    assert known.name == "a graph"
    assert torch.equal(known.train_mask.nonzero()[:, 0], split.train)
    assert torch.equal(known.n_id[split.train], SPLIT.train)
    assert torch.equal(known.n_id[split.val], SPLIT.val)
    assert len(split.test) == 0
    assert torch.equal(data.edge_index, DATA.edge_index)


def test_nodes_in_no_part_stay_unless_told_otherwise() -> None:
    some = Split(SPLIT.train, SPLIT.val, SPLIT.test[:5])
    assert inductive(DATA, some)[0].num_nodes == 55
    assert inductive(DATA, some, unlabelled=False)[0].num_nodes == len(SPLIT.train) + len(SPLIT.val)


def test_a_model_trained_so_does_not_depend_on_test_nodes_and_is_measured_on_the_full_graph() -> None:
    accuracies = []
    for changed in (False, True):
        data = DATA.clone()
        if changed:
            data.x[SPLIT.test] = 1 - data.x[SPLIT.test]
        model = GCN(20, 7, hidden=(4,), generator=rng("init"))
        result = fit(model, *inductive(data, SPLIT), seed=0, epochs=5)
        assert result.accuracy["test"] != result.accuracy["test"]  # NaN
        assert 0 < result.accuracy["val"] <= 1
        accuracies.append((result.accuracy["train"], result.loss["val"], evaluate(model, DATA, SPLIT.test)))
    assert accuracies[0] == accuracies[1]


def test_an_empty_test_part_is_refused_unless_the_split_says_so() -> None:
    model, none = GCN(20, 7, hidden=(4,), generator=rng("init")), torch.zeros(0, dtype=torch.int64)
    for split in (
        Split(SPLIT.train, SPLIT.val, none),
        Split(SPLIT.train, SPLIT.val, torch.zeros(60, dtype=torch.bool)),
    ):
        with pytest.raises(DataError, match="test part of the split must hold one"):
            fit(model, DATA, split, seed=0, epochs=1)
    with pytest.raises(DataError, match="split has none; train it with fit"):
        fit_batches(model, DATA, SplitWithoutTest(SPLIT.train, SPLIT.val, none), seed=0, epochs=1, batch_size=8)


def test_other_data_than_one_graph_with_a_split_of_its_nodes_are_refused() -> None:
    with pytest.raises(DataError, match="one homogeneous graph"):
        inductive(Batch.from_data_list([DATA, DATA]), SPLIT)
    with pytest.raises(DataError, match="disjoint"):
        inductive(DATA, Split(SPLIT.train, SPLIT.train, SPLIT.test))
    with pytest.raises(DataError, match="there are 50"):
        inductive(Data(x=DATA.x[:50], y=DATA.y[:50], edge_index=torch.zeros(2, 0, dtype=torch.int64)), SPLIT)
