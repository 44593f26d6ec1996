import pytest
import torch
from torch_geometric.data import Data

from wtawp.graphs import describe


def test_a_graph_is_counted_by_hand() -> None:
    edges = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    about = describe(Data(x=torch.zeros(5, 2), edge_index=edges, y=torch.tensor([0, 0, 1, -1, 0])))
    assert (about.graphs, about.nodes, about.edges, about.features, about.classes, about.labelled) == (1, 5, 3, 2, 2, 4)
    assert about.majority == pytest.approx(3 / 4)
    assert about.mean_degree == pytest.approx(6 / 5)
    assert about.homophily == pytest.approx(1 / 2)  # the edge to the node of unknown class does not count


def test_a_collection_is_counted_as_a_whole() -> None:
    pair = Data(x=torch.zeros(2, 1), edge_index=torch.tensor([[0, 1], [1, 0]]), y=torch.tensor([1]))
    lone = Data(x=torch.zeros(1, 1), edge_index=torch.empty(2, 0, dtype=torch.long), y=torch.tensor([0]))
    about = describe([pair, lone, pair])
    assert (about.graphs, about.nodes, about.edges, about.classes, about.labelled) == (3, 5, 2, 2, 3)
    assert about.majority == pytest.approx(2 / 3)
    assert about.homophily is None
