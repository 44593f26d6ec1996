import pytest
import torch
from torch import Tensor, nn

from wtawp.base import rng
from wtawp.core import select
from wtawp.graphs import load
from wtawp.models import MLP
from wtawp.models.dropout import masks


def test_it_is_a_stack_of_linear_layers_and_ignores_edges() -> None:
    model = MLP(2, 2, hidden=(5, 4), dropout=0.0, generator=rng("init"))
    x = torch.randn(7, 2, generator=rng("x"))
    stack: list[nn.Module] = []
    for lin in model.lins:
        same = nn.Linear(*lin.weight.shape)
        same.load_state_dict({"weight": lin.weight.T, "bias": lin.bias})
        stack += [same, nn.ReLU()]
    torch.testing.assert_close(model(x), nn.Sequential(*stack[:-1])(x))
    assert torch.equal(model(x), model(x, torch.tensor([[0], [1]])))


def test_linear_means_without_activation() -> None:
    model = MLP(2, 2, hidden=(100, 100), dropout=0.0, linear=True, generator=rng("init"))
    x = torch.randn(7, 2, generator=rng("x"))
    torch.testing.assert_close(model(3 * x) - model(0 * x), 3 * (model(x) - model(0 * x)), rtol=1e-4, atol=1e-5)
    assert select(model) == ("lins.0.weight", "lins.1.weight")


@pytest.mark.parametrize("form", ["sparse", "dense", "coo"])
@pytest.mark.parametrize("linear", [False, True])
def test_prepared_rows_give_the_loss_and_gradients_of_the_whole_graph(form: str, linear: bool) -> None:
    data = load("citation")
    rows, x = torch.tensor([3, 700, 12, 1999]), data.x.double() + 0.1 * (form == "dense")
    model = MLP(data.num_features, 7, hidden=(16, 8), linear=linear, generator=rng("init")).double()
    given = x.to_sparse() if form == "coo" else x
    prepared = model.prepare(given, data.edge_index, rows)
    assert isinstance(prepared[0], Tensor) == (form == "dense")
    assert prepared[0].shape == (4, data.num_features)
    whole = model.prepare(given, data.edge_index, None)
    found = []
    for arguments, taken in ((prepared, slice(None)), (whole, rows), ((x, data.edge_index), rows)):
        model.zero_grad()
        with masks(torch.tensor(12345)):
            loss = model(*arguments)[taken].logsumexp(1).sum()
        loss.backward()
        found.append([loss.detach(), *(p.grad.clone() for p in model.parameters())])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-9)
