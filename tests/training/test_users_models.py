"""Modules and data as users have them: what they keep, replace and leave out, against `fit` alone or a loop by hand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GCN as PygGCN  # noqa: N811
from torch_geometric.nn import GCNConv, SAGEConv, global_mean_pool

from wtawp.base import CheckpointError, rng
from wtawp.core import AwpConfig
from wtawp.graphs import Split
from wtawp.models import GCN, PPNP
from wtawp.training import compute_logits, evaluate, fit, fit_batches, fit_many

N = 60
SPLIT = Split(torch.arange(25), torch.arange(25, 40), torch.arange(40, N))
SHORT: dict[str, Any] = {"seed": 0, "epochs": 8}


def graph() -> Data:
    g = rng("users")
    edges = torch.randint(0, N, (2, 150), generator=g)
    return Data(x=torch.rand(N, 6, generator=g), edge_index=edges, y=torch.arange(N) % 3)


def seeded(build: Callable[[], nn.Module]) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build()


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:  # noqa: ARG002
        return self.layer(x)


class Tripled(Linear):
    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return 3 * super().forward(x, edge_index)


def frozen() -> nn.Module:
    model = GCN(6, 3, generator=rng("init"))
    next(model.parameters()).requires_grad_(False)
    return model


@pytest.mark.parametrize(
    "build",
    [
        [lambda: PPNP(6, 3, alpha=0.1, generator=rng("init")), lambda: PPNP(6, 3, alpha=0.9, generator=rng("init"))],
        [lambda: GCN(6, 3, dropout=0.0, generator=rng("init")), lambda: GCN(6, 3, dropout=0.9, generator=rng("init"))],
        [lambda: seeded(lambda: PygGCN(6, 8, 2, 3)), lambda: seeded(lambda: PygGCN(6, 8, 2, 3, act="tanh"))],
        [lambda: seeded(Linear), lambda: seeded(Tripled)],
        [frozen, lambda: GCN(6, 3, generator=rng("init"))],
    ],
    ids=["alpha", "dropout", "activation", "class", "frozen"],
)
def test_models_of_other_options_are_trained_together_as_each_alone(build: list[Callable[[], nn.Module]]) -> None:
    awp = AwpConfig(rho=0.5, lam=0.5, layers="all")
    many = fit_many([b() for b in build], graph(), SPLIT, seeds=[0, 0], epochs=8, awp=awp)
    alone = [fit(b(), graph(), SPLIT, awp=awp, **SHORT) for b in build]
    for one, other in zip(many, alone, strict=True):
        assert one.history["train_loss"] == pytest.approx(other.history["train_loss"], rel=1e-5)
    assert many[0].history["train_loss"][-1] != pytest.approx(many[1].history["train_loss"][-1], rel=1e-4)


@pytest.mark.parametrize(
    ("one", "other", "difference"),
    [
        (
            lambda: PPNP(6, 3, alpha=0.1, generator=rng("init")),
            lambda: PPNP(6, 3, alpha=0.9, generator=rng("init")),
            r"alpha of the model \(0\.1 in the file, 0\.9 now\)",
        ),
        (lambda: seeded(Linear), lambda: seeded(Tripled), "Linear in the file, .*Tripled now"),
    ],
    ids=["alpha", "class"],
)
def test_a_checkpoint_of_other_options_is_refused(
    one: Callable[[], nn.Module], other: Callable[[], nn.Module], difference: str, tmp_path: Path
) -> None:
    path = tmp_path / "weights.pt"
    fit(one(), graph(), SPLIT, checkpoint=path, **SHORT)
    fit(one(), graph(), SPLIT, checkpoint=path, **SHORT)
    with pytest.raises(CheckpointError, match=f"written by another training: .*{difference}"):
        fit(other(), graph(), SPLIT, checkpoint=path, **SHORT)


class Centred(Linear):
    """Subtracts a running mean, which it replaces by another tensor; draws, so that members run one by one."""

    mean: Tensor

    def __init__(self, *, draws: bool = False) -> None:
        super().__init__()
        self.draws = draws
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.mean(0).detach()
        return super().forward(F.dropout(x - self.mean, 0.5, self.training and self.draws), edge_index)


@pytest.mark.parametrize("awp", [None, AwpConfig(rho=0.5, lam=0.5, layers="all")])
@pytest.mark.parametrize("draws", [False, True])
def test_buffers_that_a_forward_pass_replaces_are_kept(awp: AwpConfig | None, draws: bool) -> None:
    data = graph()
    expected = (1 - 0.9**8) * data.x.mean(0)
    alone, many = Centred(draws=draws), [Centred(draws=draws) for _ in range(2)]
    fit(alone, data, SPLIT, awp=awp, select_on="last", **SHORT)
    fit_many(many, data, SPLIT, seeds=[0, 1], epochs=8, awp=awp, select_on="last")
    for model in (alone, *many):
        torch.testing.assert_close(model.mean, expected)


@pytest.mark.parametrize("awp", [None, AwpConfig(rho=0.5, lam=0.5, layers="all")])
def test_buffers_that_a_batch_replaces_are_those_of_the_selected_epoch(awp: AwpConfig | None) -> None:
    model = Centred()
    result = fit_batches(model, graph(), SPLIT, awp=awp, batch_size=5, fanouts=(2,), select_on="last", **SHORT)
    assert model.mean.min() > 0.2
    assert result.loss["val"] == pytest.approx(result.history["val_loss"][-1], rel=1e-6)


def test_an_adapter_is_warned_of_what_a_list_of_graphs_loses() -> None:
    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.layer = GCNConv(4, 8), nn.Linear(8, 2)

        def forward(self, x: Tensor, edges: Tensor, weight: Tensor | None, batch: Tensor) -> Tensor:
            return self.layer(global_mean_pool(self.conv(x, edges, weight).relu(), batch))

    g = rng("graphs")
    graphs = [
        Data(x=torch.rand(6, 4, generator=g), edge_index=torch.randint(0, 6, (2, 12), generator=g),
             edge_weight=torch.rand(12, generator=g), y=torch.tensor([i % 2])) for i in range(20)
    ]  # fmt: skip
    split = Split(torch.arange(10), torch.arange(10, 15), torch.arange(15, 20))
    model = Pooled()

    def forward(model: nn.Module, data: Data) -> Tensor:
        return model(data.x, data.edge_index, data.edge_weight, data.batch)

    with pytest.warns(UserWarning, match="of the graphs; edge_weight would be missing there"):
        fit(model, graphs, split, forward=forward, **SHORT)
    with pytest.warns(UserWarning, match="of the graphs; edge_weight would be missing there"):
        evaluate(model, graphs, split.test, forward=forward)
    for each in graphs:
        del each.edge_weight
    fit(model, graphs, split, forward=forward, **SHORT)


def test_an_equal_loss_in_double_precision_is_no_improvement() -> None:
    data = graph()
    data.y = torch.randn(N, 1, generator=rng("targets")).double()
    for i in range(4):
        result = fit(
            GCN(6, 1, dropout=0.0, generator=rng("init", i)), data, SPLIT, seed=0, epochs=30, lr=0.0, weight_decay=0.0,
            patience=5, select_on="loss", loss=F.mse_loss, metric=F.mse_loss, lower_is_better=True,
        )  # fmt: skip
        assert (result.epoch, len(result.history["val_loss"])) == (0, 6)


@pytest.mark.parametrize("train", [fit, fit_batches])
def test_a_loss_with_something_to_learn_is_refused(train: Callable[..., object]) -> None:
    class Tempered(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.temperature = nn.Parameter(torch.ones(()))

        def forward(self, output: Tensor, target: Tensor) -> Tensor:
            return F.cross_entropy(output * self.temperature, target)

    options = {} if train is fit else {"batch_size": 5, "fanouts": (2, 2)}
    model, loss = GCN(6, 3, generator=rng("init")), Tempered()
    with pytest.raises(ValueError, match="loss is a Tempered with parameters, which would not be trained"):
        train(model, graph(), SPLIT, loss=loss, **options, **SHORT)
    train(model, graph(), SPLIT, loss=loss.requires_grad_(False), **options, **SHORT)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_a_module_that_looks_up_categories_is_trained_in_minibatches(dtype: torch.dtype) -> None:
    class Embedded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.conv = nn.Embedding(5, 8), SAGEConv(8, 3)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return self.conv(self.table(x[:, 0].long()), edge_index)

    data = graph()
    data.x = torch.randint(0, 5, (N, 1), generator=rng("categories")).to(dtype)
    model = Embedded()
    fit_batches(model, data, SPLIT, batch_size=5, fanouts=(3,), **SHORT)
    with torch.no_grad():
        expected = model(data.x, data.edge_index)
    torch.testing.assert_close(compute_logits(model, data, num_hops=1), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int32])
def test_labels_of_any_whole_type_are_taken_of_heterogeneous_graphs(dtype: torch.dtype) -> None:
    data, plain = HeteroData(), graph()
    data["a"].x, data["a"].y = plain.x, (plain.y > 0).to(dtype)
    data["a", "to", "a"].edge_index = plain.edge_index

    def forward(model: nn.Module, data: HeteroData) -> Tensor:
        return model(data["a"].x, data["a", "to", "a"].edge_index)

    fit(PygGCN(6, 8, 2, 2), data, SPLIT, forward=forward, **SHORT)
    assert data["a"].y.dtype == dtype


def test_links_are_trained_with_splits_of_lists_and_without_edges() -> None:
    data = graph()
    data.edge_label_index = torch.stack([torch.arange(N), torch.arange(N).flip(0)])
    data.edge_label, edges = torch.arange(N) % 2, data.edge_index
    lists = Split([*range(25)], [*range(25, 40)], [*range(40, N)])  # type: ignore[arg-type]
    del data.edge_index
    results = [
        fit(seeded(lambda: PygGCN(6, 8, 2, 3)), data, split, forward=lambda m, g: m(g.x, edges),
            decoder=lambda a, b: a * b, **SHORT) for split in (lists, SPLIT)
    ]  # fmt: skip
    assert results[0].history == results[1].history


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state:UserWarning")
def test_a_buffer_that_cannot_be_stacked_is_refused() -> None:
    model = Linear()
    model.register_buffer("adjacency", torch.eye(N).to_sparse_csr())
    with pytest.raises(ValueError, match=r"adjacency of Linear is torch.sparse_csr.*to_sparse_coo\(\)"):
        fit(model, graph(), SPLIT, **SHORT)


def test_features_that_require_gradients_and_gradients_that_are_off_change_nothing() -> None:
    data, of_leaf = graph(), graph()
    of_leaf.x.requires_grad_()
    expected = fit(GCN(6, 3, generator=rng("init")), data, SPLIT, **SHORT)
    assert fit(GCN(6, 3, generator=rng("init")), of_leaf, SPLIT, **SHORT).history == expected.history
    assert of_leaf.x.requires_grad
    assert of_leaf.x.grad is None
    with torch.no_grad():
        assert fit(GCN(6, 3, generator=rng("init")), data, SPLIT, **SHORT).history == expected.history
