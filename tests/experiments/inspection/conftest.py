import pytest

from wtawp.base import rng
from wtawp.experiments.inspection.models import InspectedModels
from wtawp.graphs import load, stratified
from wtawp.models import GCN


@pytest.fixture(scope="module")
def inspected() -> InspectedModels:
    """Two small models with random weights on a small graph."""
    data = load("wine")
    models = {name: GCN(13, 3, hidden=(8,), generator=rng(name)).eval() for name in ("GCN", "GCN+WT-AWP")}
    return InspectedModels(dict(models), data, stratified(data.y, seed=0))
