from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from wtawp.base import DataError
from wtawp.graphs.feature_flips import FeatureFlips
from wtawp.graphs.flips import EdgeFlips
from wtawp.graphs.graph_flips import Flips, GraphFlips, load_flips

ORIGIN = (("attack", "both"),)
EDGES = EdgeFlips(torch.tensor([[0, 1], [1, 2]]), 3, ORIGIN)
FEATURES = FeatureFlips(torch.tensor([[2], [0]]), 3, 2, ORIGIN)
DATA = Data(x=torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), edge_index=torch.tensor([[0, 1], [1, 0]]))


def test_both_kinds_are_applied_and_counted() -> None:
    flips = GraphFlips(EDGES, FEATURES)
    changed = flips.apply(DATA)
    assert torch.equal(changed.edge_index, EDGES.apply(DATA).edge_index)
    assert torch.equal(changed.x, FEATURES.apply(DATA).x)
    assert (len(flips), flips.num_added(DATA), flips.num_removed(DATA)) == (3, 1, 2)
    assert flips.provenance == ORIGIN


def test_without_feature_flips_the_features_may_be_any() -> None:
    none = FeatureFlips(torch.zeros(2, 0, dtype=torch.int64), 3, 2, ORIGIN)
    data = DATA.clone()
    data.x = data.x / 3
    assert torch.equal(GraphFlips(EDGES, none).apply(data).x, data.x)
    assert GraphFlips(EDGES, none).num_removed(data) == 1


@pytest.mark.parametrize("flips", [EDGES, FEATURES, GraphFlips(EDGES, FEATURES)], ids=lambda f: type(f).__name__)
def test_each_kind_keeps_the_protocol_and_comes_back_from_its_file(tmp_path: Path, flips: Flips) -> None:
    assert isinstance(flips, Flips)
    named = flips.with_origin((("dataset", "x"),))
    assert named.provenance == (("dataset", "x"), *ORIGIN)
    named.save(tmp_path / "f.npz")
    back = load_flips(tmp_path / "f.npz")
    assert type(back) is type(flips)
    assert (len(back), back.provenance) == (len(flips), named.provenance)
    assert torch.equal(back.apply(DATA).x, flips.apply(DATA).x)
    assert torch.equal(back.apply(DATA).edge_index, flips.apply(DATA).edge_index)


def test_parts_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="3 and 4 nodes"):
        GraphFlips(EDGES, FeatureFlips(FEATURES.entries, 4, 2, ORIGIN))
    with pytest.raises(DataError, match="same provenance"):
        GraphFlips(EDGES, FeatureFlips(FEATURES.entries, 3, 2))
    with pytest.raises(DataError, match="there is no file"):
        load_flips(tmp_path / "absent.npz")
