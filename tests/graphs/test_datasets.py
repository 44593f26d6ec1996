import pytest
from torch_geometric.data import Data
from torch_geometric.utils import contains_self_loops, is_undirected

from wtawp.base import DataError
from wtawp.graphs import NAMES, load

SHAPES = {
    "digits": (1797, 64, 10),
    "wine": (178, 13, 3),
    "breast-cancer": (569, 30, 2),
    "karate": (34, 34, 4),
    "citation": (2000, 800, 7),
    **{f"toy-{name}": (200, 2, 2) for name in ("linear", "moons", "rings", "gaussians")},
}


def test_the_table_here_covers_every_name() -> None:
    assert set(SHAPES) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_each_graph_has_its_known_shape_and_is_undirected(name: str) -> None:
    data = load(name)
    assert isinstance(data, Data)
    assert (data.num_nodes, data.num_features, int(data.y.max()) + 1) == SHAPES[name]
    assert data.validate()
    assert is_undirected(data.edge_index)
    assert not contains_self_loops(data.edge_index)
    assert data.x.isfinite().all()
    assert data.name == name


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(DataError, match=r"no graph called 'core'; there are toy-linear, .*citation"):
        load("core")
