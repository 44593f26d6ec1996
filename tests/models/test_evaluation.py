import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv, SGConv

from wtawp.base import WtawpError
from wtawp.models.evaluation import evaluating, refuse_cached


def test_modes_come_back_also_after_an_error() -> None:
    model = nn.Sequential(nn.Dropout(), nn.Dropout()).train()
    model[0].eval()
    with pytest.raises(KeyError), evaluating(model):
        assert not any(module.training for module in model.modules())
        raise KeyError
    assert [module.training for module in model.modules()] == [True, False, True]
    with evaluating(lambda x, _: x):  # a callable that is no module has no mode
        pass


def test_layers_that_keep_the_first_graph_are_refused() -> None:
    class Own(nn.Module):
        def __init__(self, layer: nn.Module) -> None:
            super().__init__()
            self.layer = layer

        def cached(self) -> None:
            """Something else by that name."""

    with torch.random.fork_rng():
        for fine in (GCNConv(2, 2), Own(SGConv(2, 2)), nn.Linear(2, 2), lambda x, _: x):
            refuse_cached(fine)
        with pytest.raises(WtawpError, match=r"Own\.layer, a SGConv, keeps the graph it saw first \(cached=True\)"):
            refuse_cached(Own(SGConv(2, 2, cached=True)))
        with pytest.raises(WtawpError, match=r"the model, a GCNConv, .* build it with cached=False"):
            refuse_cached(GCNConv(2, 2, cached=True))
