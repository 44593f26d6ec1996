from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F
from torch_geometric.nn import APPNP as PygAPPNP  # noqa: N811

from wtawp.base import rng
from wtawp.core import select
from wtawp.graphs import load
from wtawp.models import PPNP


@pytest.mark.parametrize("steps", [10, None])
def test_logits_and_gradients_equal_pyg_s(steps: int | None) -> None:
    data = load("wine")
    model = PPNP(13, 3, hidden=16, steps=steps, dropout=0.0, generator=rng("init"))
    ours = model(data.x, data.edge_index)
    hidden = F.linear(data.x, model.lin1.weight.T, model.lin1.bias).relu()
    local = F.linear(hidden, model.lin2.weight.T, model.lin2.bias)
    theirs = PygAPPNP(steps or 400, 0.1)(local, data.edge_index)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
    grads = [
        torch.autograd.grad(out.logsumexp(1).sum(), model.lin1.weight, retain_graph=True)[0] for out in (ours, theirs)
    ]
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-4)


def test_prepared_rows_give_the_loss_and_gradients_of_the_whole_graph(check_rows: Callable[..., None]) -> None:
    data = load("citation")
    x, model = data.x.double(), PPNP(data.num_features, 7, generator=rng("init")).double()
    few, many = torch.tensor([3, 700, 12, 1999]), torch.arange(1999, 100, -1)
    assert model.prepare(x, data.edge_index, few)[1].shape == (4, 2000)
    assert model.prepare(x, data.edge_index, many)[1].shape == (2000, 2000)  # the operator itself
    for rows in (few, many):
        check_rows(model, x, data.edge_index, rows)  # dropout on sparse features draws what dropout on dense ones does


def test_its_first_linear_map_is_what_the_paper_perturbs() -> None:
    assert select(PPNP(13, 3, generator=rng("init"))) == ("lin1.weight",)


def test_steps_have_a_factored_gradient_and_their_limit_has_none() -> None:
    assert PPNP(13, 3, generator=rng("init")).graph_operators()
    assert not PPNP(13, 3, steps=None, generator=rng("init")).graph_operators()


def test_a_subclass_with_a_forward_of_its_own_gets_the_arguments_it_takes() -> None:
    class Scaled(PPNP):
        def forward(self, x, edge_index, edge_weight=None):  # type: ignore[no-untyped-def]
            return 2 * super().forward(x, edge_index, edge_weight)

    data = load("wine")
    model = Scaled(13, 3, generator=rng("init")).eval()
    whole = model(data.x, data.edge_index)
    for rows in (None, torch.arange(170)):
        out = model(*model.prepare(data.x, data.edge_index, rows))
        torch.testing.assert_close(out, whole if rows is None else whole[rows], rtol=1e-4, atol=1e-4)
