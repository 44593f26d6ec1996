import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv

from wtawp.analysis import input_gradient_norms, smoothness
from wtawp.base import AnalysisError, DataError, rng
from wtawp.models import GAT, GCN, MLP, PPNP, RGCN, GCNJaccard

TRAIN = torch.tensor([0, 3, 5])


def graph(size: int = 9) -> Data:
    g = rng("smooth graph", size)
    edges = torch.combinations(torch.arange(size))
    edges = edges[torch.rand(len(edges), generator=g) < 0.4].T
    x = torch.rand(size, 5, generator=g, dtype=torch.float64)
    y = torch.randint(0, 3, (size,), generator=g)
    return Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], 1), y=y)


def gcn(number: int = 0) -> GCN:
    return GCN(5, 3, hidden=(4,), generator=rng("init", number)).double().eval()


def dense(data: Data) -> Tensor:
    a = torch.zeros(len(data.y), len(data.y), dtype=torch.float64)
    a[data.edge_index[1], data.edge_index[0]] = 1
    return a


def normalised(a: Tensor) -> Tensor:  # D^-1/2 (A + I) D^-1/2 with the row sums of A + I
    loops = a + torch.eye(len(a), dtype=a.dtype)
    scale = loops.sum(1).rsqrt()
    return scale[:, None] * loops * scale


def logits(model: GCN, x: Tensor, a_hat: Tensor) -> Tensor:
    hidden = (a_hat @ x @ model.convs[0].weight + model.convs[0].bias).relu()
    return a_hat @ hidden @ model.convs[1].weight + model.convs[1].bias


def noise_of(definition: str, shape: tuple[int, int], scale: float, seed: int, number: int) -> Tensor:
    draw = torch.randn if definition == "paper" else torch.rand
    found = draw(*shape, generator=rng("smoothness", definition, seed, number), dtype=torch.float64)
    return scale * found if definition == "paper" else scale * found / found.norm()


def test_the_papers_norms_are_those_of_autograd_through_dense_matrices_and_of_finite_differences() -> None:
    data, models = graph(), [gcn(0), gcn(1)]
    found = input_gradient_norms(models, data, TRAIN, wrt="adjacency", seed=3, noise=0.01, samples=2)
    for b, model in enumerate(models):
        for s in range(2):
            a = (dense(data) + noise_of("paper", (9, 9), 0.01, 3, s)).requires_grad_()

            def loss(a: Tensor, model: GCN = model) -> Tensor:
                return F.cross_entropy(logits(model, data.x, normalised(a))[TRAIN], data.y[TRAIN])

            (slope,) = torch.autograd.grad(loss(a), a)
            assert float(found[b, s]) == pytest.approx(float(slope.norm()), rel=1e-9)
            at, step = a.detach(), 1e-6
            unit = torch.eye(81, dtype=torch.float64).view(81, 9, 9)
            with torch.no_grad():
                differences = torch.stack([(loss(at + step * e) - loss(at - step * e)) / (2 * step) for e in unit])
            assert float(found[b, s]) == pytest.approx(float(differences.norm()), rel=1e-6)


def test_the_released_codes_norms_are_by_a_hat_over_all_nodes_with_dropout() -> None:
    data, model = graph(), gcn()
    model.dropout = 0.0  # then the truth is simple; that it is on is seen below
    found = input_gradient_norms(
        [model], data, TRAIN, wrt="adjacency", definition="released", seed=0, noise=0.3, samples=2
    )
    for s in range(2):
        a_hat = (normalised(dense(data)) + noise_of("released", (9, 9), 0.3, 0, s)).requires_grad_()
        (slope,) = torch.autograd.grad(F.cross_entropy(logits(model, data.x, a_hat), data.y), a_hat)
        assert float(found[0, s]) == pytest.approx(float(slope.norm()), rel=1e-9)
    model.dropout = 0.5
    for wrt in ("adjacency", "features"):
        with_dropout = input_gradient_norms(
            [model], data, TRAIN, wrt=wrt, definition="released", seed=0, noise=0.0, samples=4
        )
        assert len(set(with_dropout[0].tolist())) == 4, "without noise only dropout is left"
    assert not model.training


@pytest.mark.parametrize("definition", ["paper", "released"])
def test_models_with_batch_norms_are_measured_each_with_its_own_averages_which_stay(definition: str) -> None:
    data = graph()
    models = [GCN(5, 3, hidden=(4,), norm="batch", residual=True, generator=rng(i)).double() for i in range(2)]
    for times, model in enumerate(models):
        for _ in range(times + 1):
            model(data.x, data.edge_index)
        model.eval()
    before = [model.norms[0].running_mean.clone() for model in models]
    options = {"wrt": "adjacency", "definition": definition, "seed": 0, "noise": 0.1, "samples": 2}
    together = input_gradient_norms(models, data, TRAIN, **options)
    for b, model in enumerate(models):
        alone = input_gradient_norms([model], data, TRAIN, **options)
        torch.testing.assert_close(together[b], alone[0])
        assert torch.equal(model.norms[0].running_mean, before[b])


@pytest.mark.parametrize("definition", ["paper", "released"])
def test_norms_by_features(definition: str) -> None:
    data, model = graph(), gcn()
    model.dropout = 0.0
    found = input_gradient_norms(
        [model, gcn(1)], data, [TRAIN, TRAIN], wrt="features", definition=definition, seed=1, noise=0.1, samples=2
    )
    nodes = TRAIN if definition == "paper" else torch.arange(9)
    for s in range(2):
        x = (data.x + noise_of(definition, (9, 5), 0.1, 1, s)).requires_grad_()
        loss = F.cross_entropy(logits(model, x, normalised(dense(data)))[nodes], data.y[nodes])
        (slope,) = torch.autograd.grad(loss, x)
        assert float(found[0, s]) == pytest.approx(float(slope.norm()), rel=1e-9)
    assert found.shape == (2, 2)


def test_of_a_linear_model_without_noise_the_norms_are_closed_forms() -> None:
    """One linear layer and two classes with the same logit: dL/dlogits is (1/2 - [y = c]) / k at each of k nodes."""
    data = graph()
    data.y = torch.arange(9) % 2
    model = GCN(5, 2, hidden=(), generator=rng("init")).double().eval()
    with torch.no_grad():
        model.convs[0].weight.copy_(torch.ones(5, 2))  # both classes alike
        model.convs[0].bias.zero_()
    a_hat, k = normalised(dense(data)), len(TRAIN)
    at_logits = torch.zeros(9, 2, dtype=torch.float64)
    at_logits[TRAIN] = (0.5 - F.one_hot(data.y[TRAIN], 2).double()) / k
    by_x = a_hat.T @ at_logits @ model.convs[0].weight.detach().T
    found = input_gradient_norms([model], data, TRAIN, wrt="features", seed=0, noise=0.0, samples=1)
    assert float(found) == pytest.approx(float(by_x.norm()), abs=1e-12)


@pytest.mark.parametrize("kind", [RGCN, PPNP])
def test_models_with_several_views_or_products_agree_with_all_pairs_as_edges(
    kind: type[nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = graph()
    model = kind(5, 3, generator=rng("init")).double().eval()
    if not smoothness._shows_products(model):
        pytest.skip(f"{kind.__name__} shows no products")
    thin = input_gradient_norms([model], data, TRAIN, wrt="adjacency", seed=0, noise=0.01, samples=2)
    monkeypatch.setattr(smoothness, "_shows_products", lambda _: False)
    full = input_gradient_norms([model], data, TRAIN, wrt="adjacency", seed=0, noise=0.01, samples=2)
    torch.testing.assert_close(thin, full, rtol=1e-8, atol=1e-12)


def test_noise_that_is_too_large_to_keep_is_drawn_again_in_the_same_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    data, model = graph(), gcn()
    kept = input_gradient_norms([model], data, TRAIN, wrt="adjacency", seed=0, samples=2)
    monkeypatch.setattr(smoothness, "MAX_CACHED", 0)
    assert torch.equal(input_gradient_norms([model], data, TRAIN, wrt="adjacency", seed=0, samples=2), kept)
    monkeypatch.setattr(smoothness, "BLOCK", 20)  # blocks of two rows: another draw of the same small noise
    parts = input_gradient_norms([model], data, TRAIN, wrt="adjacency", seed=0, samples=2)
    torch.testing.assert_close(parts, kept, rtol=1e-3, atol=1e-9)
    released = input_gradient_norms(
        [model], data, TRAIN, wrt="adjacency", seed=0, samples=2, definition="released", noise=0.5
    )
    monkeypatch.setattr(smoothness, "MAX_CACHED", 1 << 20)
    again = input_gradient_norms(
        [model], data, TRAIN, wrt="adjacency", seed=0, samples=2, definition="released", noise=0.5
    )
    torch.testing.assert_close(released, again)


class Own(nn.Module):
    """Somebody's own model, of PyTorch Geometric's layers and torch's dropout."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = GCNConv(5, 3).double()

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.conv(F.dropout(x, 0.5, self.training), edge_index, edge_weight)


def test_somebodys_own_model_is_differentiated_by_the_weights_of_all_pairs() -> None:
    data = graph()
    with torch.random.fork_rng():
        model = Own().eval()
    ours = GCN(5, 3, hidden=(), generator=rng("init")).double().eval()
    with torch.no_grad():
        ours.convs[0].weight.copy_(model.conv.lin.weight.T)
        ours.convs[0].bias.copy_(model.conv.bias)
    state = torch.random.get_rng_state()
    for wrt in ("adjacency", "features"):
        one, other = (input_gradient_norms([m], data, TRAIN, wrt=wrt, seed=0, samples=2) for m in (model, ours))
        torch.testing.assert_close(one, other)
    released = input_gradient_norms([model], data, TRAIN, wrt="features", seed=0, samples=2, definition="released")
    assert bool((released > 0).all())
    assert torch.equal(torch.random.get_rng_state(), state)


def test_what_cannot_be_measured_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    data, model = graph(), gcn()
    measure = input_gradient_norms
    with pytest.raises(ValueError, match="wrt one of"):
        measure([model], data, TRAIN, wrt="edges", seed=0)
    with pytest.raises(ValueError, match="samples must be >= 1"):
        measure([model], data, TRAIN, wrt="features", seed=0, samples=0)
    with pytest.raises(ValueError, match="1 models and 2 sets"):
        measure([model], data, [TRAIN, TRAIN], wrt="features", seed=0)
    with pytest.raises(ValueError, match="in training mode"):
        measure([model.train()], data, TRAIN, wrt="features", seed=0)
    with pytest.raises(AnalysisError, match="makes degrees negative"):
        measure([model.eval()], data, TRAIN, wrt="adjacency", seed=0, noise=50.0, samples=1)
    with pytest.raises(AnalysisError, match="leaves out edges"):
        measure([GCNJaccard(5, 3, generator=rng("init")).double().eval()], data, TRAIN, wrt="adjacency", seed=0)
    with pytest.raises(AnalysisError, match="does not show where it uses A_hat"):
        gat = GAT(5, 3, generator=rng("init")).double().eval()
        measure([gat], data, TRAIN, wrt="adjacency", seed=0, definition="released")
    monkeypatch.setattr(smoothness, "MAX_DENSE_NODES", 5)
    with pytest.raises(AnalysisError, match="for up to 5 nodes"):
        measure([gat], data, TRAIN, wrt="adjacency", seed=0)
    with torch.no_grad():
        model.convs[0].weight.fill_(float("nan"))
    with pytest.raises(AnalysisError, match="NaN or infinite"):
        measure([model], data, TRAIN, wrt="features", seed=0, samples=1)


def test_a_model_that_ignores_the_graph_is_flat_in_it() -> None:
    data, model = graph(), MLP(5, 3, generator=rng("init")).double().eval()
    found = {w: input_gradient_norms([model], data, TRAIN, wrt=w, seed=0, samples=2) for w in ("adjacency", "features")}
    assert bool((found["features"] > 0).all())
    assert bool((found["adjacency"] == 0).all())


@pytest.mark.parametrize("wrt", ["features", "adjacency"])
def test_nodes_may_be_masks_or_lists_and_must_have_labels(wrt: str) -> None:
    data, models = graph(), [gcn(0), gcn(1)]
    mask = torch.zeros(9, dtype=torch.bool)
    mask[TRAIN] = True
    options = {"wrt": wrt, "seed": 0, "samples": 1}
    expected = input_gradient_norms(models, data, TRAIN, **options)
    for choice in (mask, TRAIN.tolist(), TRAIN.numpy(), mask.tolist(), [TRAIN, mask], [TRAIN.tolist(), mask.numpy()]):
        assert torch.equal(input_gradient_norms(models, data, choice, **options), expected)
    data.y[3] = -1
    for choice, message in ((TRAIN, "such as number 3"), ([-1], "must lie in 0 to 8"), (mask.long(), "type bool")):
        with pytest.raises(DataError, match=message):
            input_gradient_norms(models, data, choice, **options)
    with pytest.raises(DataError, match="1 of 9 nodes have none"):
        input_gradient_norms(models, data, TRAIN, definition="released", **options)
