"""Directions and perturbed gradients that are not those of the loss alone, against loops in plain torch."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GCNConv

from wtawp.base import DataError, rng
from wtawp.core import AwpConfig
from wtawp.graphs import Split, load, stratified
from wtawp.models import GCN, MLP, ElasticGNN, SimPGCN
from wtawp.training import fit, fit_batches, fit_many, loop, stack_training

NODES, EPOCHS, LR, DECAY = 12, 3, 0.05, 0.1
G = rng("substitutes")
X, Y = torch.randn(NODES, 4, generator=G, dtype=torch.float64), torch.arange(NODES) % 3
PAIRS = torch.tensor([[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 2], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 6, 9]])
DATA = Data(x=X, edge_index=torch.cat([PAIRS, PAIRS.flip(0)], 1), y=Y)
SPLIT = Split(torch.arange(6), torch.arange(6, 9), torch.arange(9, 12))
Gradients = dict[str, Tensor]

ALL = {"layers": "*", "radius": "global"}
MOMENTUM_SAM = AwpConfig(rho=0.3, lam=1.0, direction="momentum", **ALL)
FGSAM = AwpConfig(rho=0.3, lam=0.6, perturbed_gradient="without-edges", **ALL)
FUNCTIONAL = AwpConfig(rho=0.5, lam=0.7, perturbed_gradient="functional")
SETTINGS = {
    "momentum-SAM": MOMENTUM_SAM,
    "momentum, both losses": AwpConfig(rho=0.4, lam=0.6, layers="all", direction="momentum"),
    "momentum, limited": AwpConfig(rho=0.4, lam=1.0, layers="all", direction="momentum", balance=0.5),
    "FGSAM": FGSAM,
    "FGSAM, some layers": AwpConfig(rho=0.5, lam=0.3, perturbed_gradient="without-edges"),
    "direction without edges": AwpConfig(rho=0.3, lam=1.0, direction="without-edges", **ALL),
    "direction without edges, both losses": AwpConfig(rho=0.5, lam=0.6, direction="without-edges"),
    "functional": FUNCTIONAL,
    "functional SAM": AwpConfig(rho=0.3, lam=1.0, perturbed_gradient="functional", **ALL),
    "functional, two steps": AwpConfig(rho=0.5, lam=0.7, perturbed_gradient="functional", steps=2),
    "functional along the momentum": AwpConfig(
        rho=0.3, lam=1.0, direction="momentum", perturbed_gradient="functional", **ALL
    ),
}


def small_gcn(seed: int = 0, **options: Any) -> GCN:
    return GCN(4, 3, **{"hidden": (5,), "dropout": 0.0, **options}, generator=rng("init", seed)).double()


def propagation() -> Tensor:
    """D^-1/2 (A + I) D^-1/2 as a dense matrix."""
    adjacency = torch.eye(NODES, dtype=torch.float64)
    adjacency[DATA.edge_index[0], DATA.edge_index[1]] = 1
    scale = adjacency.sum(1).rsqrt()
    return scale[:, None] * adjacency * scale


def logits_by_hand(theta: Gradients, matrix: Tensor) -> Tensor:
    hidden = (matrix @ X @ theta["convs.0.weight"] + theta["convs.0.bias"]).relu()
    return (matrix @ hidden @ theta["convs.1.weight"] + theta["convs.1.bias"])[SPLIT.train]


def gradient_by_hand(theta: Gradients, matrix: Tensor) -> Gradients:
    leaves = {n: w.clone().requires_grad_() for n, w in theta.items()}
    loss = -logits_by_hand(leaves, matrix).log_softmax(1)[range(6), Y[:6]].mean()
    return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))


def functional_by_hand(theta: Gradients, shifted: Gradients) -> Gradients:
    """The whole Jacobian of the outputs at the shifted weights, times the derivative of the cross-entropy at theta."""
    matrix = propagation()
    slope = (logits_by_hand(theta, matrix).softmax(1) - F.one_hot(Y[:6], 3)) / 6
    jacobian = torch.autograd.functional.jacobian(
        lambda *weights: logits_by_hand(dict(zip(shifted, weights, strict=True)), matrix), tuple(shifted.values())
    )
    return {n: torch.tensordot(slope, j, dims=2) for n, j in zip(shifted, jacobian, strict=True)}


def norm(tensors: Gradients) -> Tensor:
    return sum(t.square().sum() for t in tensors.values()) ** 0.5


def delta_by_hand(direction: Gradients, theta: Gradients, config: AwpConfig) -> Gradients:
    if config.radius == "global":
        length = norm(direction)
        return {n: config.rho * d / length if length > 0 else d for n, d in direction.items()}
    names = ["convs.0.weight", "convs.1.weight"][: 1 if config.layers == "all-but-last" else 2]
    lengths = {n: direction[n].norm() for n in names}
    return {n: config.rho * theta[n].norm() * direction[n] / length for n, length in lengths.items() if length > 0}


def trained_by_hand(model: nn.Module, config: AwpConfig, *, uses_sgd: bool = False) -> Gradients:
    """The weights after three steps of Adam, or of SGD with momentum, written out."""
    theta = {n: p.detach().clone() for n, p in model.named_parameters()}
    first, second = ({n: torch.zeros_like(w) for n, w in theta.items()} for _ in range(2))
    matrix, alone = propagation(), torch.eye(NODES, dtype=torch.float64)
    for step in range(1, EPOCHS + 1):
        natural = gradient_by_hand(theta, matrix)
        direction = {
            "gradient": natural,
            "momentum": {n: -m for n, m in first.items()},
            "without-edges": gradient_by_hand(theta, alone),
        }[config.direction]
        if config.steps == 2:
            halfway = {n: w + direction[n] / 2 for n, w in theta.items()}
            direction = {n: (d + gradient_by_hand(halfway, matrix)[n]) / 2 for n, d in direction.items()}
        delta = delta_by_hand(direction, theta, config)
        shifted = {n: w + delta[n] if n in delta else w for n, w in theta.items()}
        perturbed = {
            "full": lambda: gradient_by_hand(shifted, matrix),  # noqa: B023
            "without-edges": lambda: gradient_by_hand(shifted, alone),  # noqa: B023
            "functional": lambda: functional_by_hand(theta, shifted),  # noqa: B023
        }[config.perturbed_gradient]()
        if config.balance is not None:
            longest = config.balance * norm(natural)
            perturbed = {n: g * min(1, longest / norm(perturbed)) for n, g in perturbed.items()}
        for n, w in theta.items():
            g = config.lam * perturbed[n] + (1 - config.lam) * natural[n] + DECAY * w
            if uses_sgd:
                first[n] = 0.9 * first[n] + g
                theta[n] = w - LR * first[n]
            else:
                first[n], second[n] = 0.9 * first[n] + 0.1 * g, 0.999 * second[n] + 0.001 * g.square()
                denominator = (second[n] / (1 - 0.999**step)).sqrt() + 1e-8
                theta[n] = w - LR * first[n] / (1 - 0.9**step) / denominator
    return theta


@pytest.mark.parametrize("name", SETTINGS)
def test_it_is_the_loop_in_plain_torch(name: str) -> None:
    model = small_gcn()
    expected = trained_by_hand(model, SETTINGS[name])
    result = fit(model, DATA, SPLIT, seed=0, awp=SETTINGS[name], epochs=EPOCHS, lr=LR, weight_decay=DECAY,
                 select_on="last")  # fmt: skip
    for n, p in model.named_parameters():
        torch.testing.assert_close(p.detach(), expected[n], rtol=0, atol=1e-8)
    assert ("gap" in result.history) == SETTINGS[name].needs_natural_gradient


@pytest.mark.parametrize("name", ["momentum-SAM", "momentum, both losses", "functional along the momentum"])
def test_the_momentum_of_the_user_s_optimizer_is_used(name: str) -> None:
    model = small_gcn()
    expected = trained_by_hand(model, SETTINGS[name], uses_sgd=True)
    fit(model, DATA, SPLIT, seed=0, awp=SETTINGS[name], epochs=EPOCHS, select_on="last",
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=LR, momentum=0.9, weight_decay=DECAY))  # fmt: skip
    for n, p in model.named_parameters():
        torch.testing.assert_close(p.detach(), expected[n], rtol=0, atol=1e-10)


def test_momentum_sam_is_perturbed_downhill_and_needs_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[int] = []
    original = stack_training.TrainingPasses.losses

    def counting(self: stack_training.TrainingPasses, weights: dict[str, Tensor], number: int) -> object:
        passes.append(number)
        return original(self, weights, number)

    monkeypatch.setattr(stack_training.TrainingPasses, "losses", counting)
    small = AwpConfig(rho=1e-3, lam=1.0, direction="momentum", **ALL)
    first = fit(small_gcn(), DATA, SPLIT, seed=0, awp=small, epochs=6)
    assert passes == [0] * 6
    plain = fit(small_gcn(), DATA, SPLIT, seed=0, epochs=6)
    losses = zip(first.history["train_loss"][2:], plain.history["train_loss"][2:], strict=True)
    assert all(perturbed < natural for perturbed, natural in losses), "with the momentum, the loss falls"
    assert {"gap", "gradient_norm"}.isdisjoint(first.history)
    assert first.history["train_loss"][0] == plain.history["train_loss"][0], "without momentum, nothing is perturbed"


@pytest.mark.parametrize(
    ("kind", "name"),
    [*((GCN, name) for name in SETTINGS), *((SimPGCN, name) for name in ("momentum-SAM", "FGSAM", "functional"))],
)
@pytest.mark.parametrize("is_one_stack", [False, True])  # one stack over the whole graph, as on a GPU
def test_many_together_end_as_each_alone(
    name: str, kind: type, is_one_stack: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = load("citation")
    data.x = data.x.double()
    splits = [stratified(data.y, seed=s) for s in range(2)]
    parts = [splits[0], splits[1], splits[0]]
    small = {"hidden": 8} if kind is SimPGCN else {"hidden": (8,)}
    together, alone = (
        [kind(data.num_features, 7, **small, generator=rng("init", i)).double() for i in range(3)] for _ in range(2)
    )
    options: dict[str, Any] = {"awp": SETTINGS[name], "epochs": 4, "select_on": "last"}
    if is_one_stack:
        monkeypatch.setattr(loop, "_stacks", lambda splits, *_, **__: [list(range(len(splits)))])
    results = fit_many(together, data, parts, seeds=[10, 11, 12], **options)
    monkeypatch.undo()
    for i, model in enumerate(alone):
        result = fit(model, data, parts[i], seed=10 + i, **options)
        assert result.history["train_loss"] == pytest.approx(results[i].history["train_loss"], rel=1e-6)
        for p, q in zip(model.parameters(), together[i].parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=0, atol=1e-7)


class Foreign(nn.Module):
    """A module of anybody, with torch's own dropout and a layer that caches its graph."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = GCNConv(4, 8, cached=True), GCNConv(8, 3, cached=True)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.last(F.dropout(self.first(x, edge_index).relu(), 0.5, self.training), edge_index)


@pytest.mark.parametrize("build", [lambda: small_gcn(dropout=0.5), lambda: Foreign().double()])
def test_the_functional_gradient_is_the_natural_one_where_nothing_is_shifted(build: Callable[[], nn.Module]) -> None:
    """Both factors are of one function only if the masks of dropout are the same in both passes."""
    awp, (model, plain) = AwpConfig(rho=1e-9, lam=1.0, perturbed_gradient="functional"), (build() for _ in range(2))
    losses = [
        fit(m, DATA, SPLIT, seed=0, awp=a, epochs=8).history["train_loss"] for m, a in ((model, awp), (plain, None))
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize("options", [{"perturbed_gradient": "without-edges"}, {"direction": "without-edges"}])
@pytest.mark.parametrize("lam", [1.0, 0.6])
def test_a_model_that_uses_no_edges_is_trained_as_without_the_option(options: dict[str, Any], lam: float) -> None:
    weights = []
    for more in ({}, options):
        model = MLP(4, 3, hidden=(5,), dropout=0.0, generator=rng("init")).double()
        fit(model, DATA, SPLIT, seed=0, awp=AwpConfig(rho=0.5, lam=lam, **more), epochs=6, select_on="last")
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    torch.testing.assert_close(weights[0], weights[1], rtol=0, atol=1e-10)


def test_a_layer_that_caches_its_graph_computes_both_graphs() -> None:
    """With edges cached, FGSAM of such a module would be WT-AWP."""
    found = {}
    for name, more in {"WT-AWP": {}, "FGSAM": {"perturbed_gradient": "without-edges"}}.items():
        for cached in (True, False):
            model = Foreign().double().eval()
            model.first.cached = model.last.cached = cached
            awp = AwpConfig(rho=0.5, lam=0.7, **more)
            found[name, cached] = fit(model, DATA, SPLIT, seed=0, awp=awp, epochs=4).history["train_loss"]
    assert found["FGSAM", True] == pytest.approx(found["FGSAM", False])
    assert found["FGSAM", True] != pytest.approx(found["WT-AWP", True], rel=1e-3)


def test_a_step_of_one_pass_updates_the_statistics_of_a_batch_norm_once() -> None:
    statistics = []
    for awp in (None, AwpConfig(rho=1e-9, lam=1.0, direction="momentum", **ALL)):
        model = small_gcn(norm="batch")
        fit(model, DATA, SPLIT, seed=0, awp=awp, epochs=5, select_on="last")
        statistics.append(torch.cat([b.double().flatten() for b in model.buffers()]))
    torch.testing.assert_close(statistics[0], statistics[1], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", SETTINGS)
def test_lam_zero_and_plain_epochs_are_plain_training(name: str) -> None:
    options = {**vars(SETTINGS[name]), "lam": 0.0}
    plain, other, later = (small_gcn(dropout=0.5) for _ in range(3))
    fit(plain, DATA, SPLIT, seed=0, epochs=4, select_on="last")
    fit(other, DATA, SPLIT, seed=0, epochs=4, select_on="last", awp=AwpConfig(**options))
    for p, q in zip(plain.parameters(), other.parameters(), strict=True):
        assert torch.equal(p, q)
    options = {**vars(SETTINGS[name]), "start": 4}
    history = fit(later, DATA, SPLIT, seed=0, epochs=5, awp=AwpConfig(**options)).history["val_loss"]
    assert history[:4] == fit(small_gcn(dropout=0.5), DATA, SPLIT, seed=0, epochs=4).history["val_loss"]


class _NoHostReads(TorchDispatchMode):
    """Refuses operations whose result a CPU would have to wait for, which a CUDA graph cannot record."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func._schema.name not in ("aten::_local_scalar_dense", "aten::nonzero", "aten::equal"), func
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", SETTINGS)
def test_nothing_in_an_epoch_waits_for_a_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original, checked = stack_training.StackTraining.run_epoch, []

    def strictly(self: stack_training.StackTraining, epoch: Tensor, train: Any, *, is_perturbed: bool) -> None:
        if self.epochs_run < 3:  # before that, an epoch is not recorded
            return original(self, epoch, train, is_perturbed=is_perturbed)
        on_cpu = self.device
        self.optimizer.optimizer.zero_grad()
        with monkeypatch.context() as patch, _NoHostReads():
            patch.setattr(type(self.optimizer), "step", lambda *_: None)  # the fused Adam of a GPU is another one
            checked.append(on_cpu)
            return original(self, epoch, train, is_perturbed=is_perturbed)

    monkeypatch.setattr(stack_training.StackTraining, "run_epoch", strictly)
    fit_many([small_gcn(i, dropout=0.5) for i in range(2)], DATA, SPLIT, seeds=[0, 1], awp=SETTINGS[name], epochs=4)
    assert len(checked) == 1


def test_links_graphs_and_heterogeneous_graphs_are_taken_without_their_edges() -> None:
    graphs = [Data(x=X[i : i + 3], edge_index=torch.tensor([[0, 1], [1, 2]]), y=Y[i : i + 1] % 2) for i in range(9)]
    split = Split(torch.arange(4), torch.arange(4, 7), torch.arange(7, 9))

    class Summed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.graphs = GCNConv(4, 2), []

        def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
            self.graphs.append((edge_index.shape[1], int(batch.max()) + 1))
            return torch.zeros(int(batch.max()) + 1, 2, dtype=x.dtype).index_add(0, batch, self.conv(x, edge_index))

    model = Summed().double()
    fit(model, graphs, split, seed=0, awp=FGSAM, epochs=1)
    assert (0, 4) in model.graphs

    hetero = HeteroData()
    hetero["node"].x, hetero["node"].y = X, Y
    hetero["node", "to", "node"].edge_index = DATA.edge_index
    hetero["node", "to", "node"].edge_attr = torch.ones(DATA.num_edges, 2)
    conv, shapes = GCNConv(4, 3).double(), []

    def call(model: nn.Module, data: HeteroData) -> Tensor:
        shapes.append((data["to"].edge_index.shape[1], len(data["to"].edge_attr)))
        return model(data["node"].x, data["to"].edge_index)

    fit(conv, hetero, SPLIT, seed=0, awp=AwpConfig(rho=0.3, lam=0.6, layers="*", perturbed_gradient="without-edges"),
        epochs=1, forward=call)  # fmt: skip
    assert (0, 0) in shapes
    assert hetero["to"].edge_attr.shape == (DATA.num_edges, 2), "the graph of the caller is left as it was"
    assert set(shapes) == {(0, 0), (DATA.num_edges, DATA.num_edges)}


@pytest.mark.parametrize("name", ["FGSAM", "direction without edges"])
def test_augmented_graphs_are_taken_without_their_edges(name: str) -> None:
    other, weights = Data(x=X.flip(0), edge_index=DATA.edge_index, y=Y), []
    options: dict[str, Any] = {"seed": 0, "awp": SETTINGS[name], "epochs": 4, "select_on": "last"}
    for data, augment in ((other, None), (DATA, lambda _data, _epoch: other)):
        model = small_gcn()
        fit(model, data, SPLIT, augment=augment, **options)
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    torch.testing.assert_close(weights[0], weights[1], rtol=0, atol=1e-12)


def test_a_stack_without_edges_of_a_model_with_edge_variables_is_trained() -> None:
    model = ElasticGNN(4, 3, generator=rng("init")).double()
    assert fit(model, DATA, SPLIT, seed=0, awp=FGSAM, epochs=2).history["perturbed_norm"][1] > 0


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda p: torch.optim.SGD(p, lr=0.1),
        lambda p: torch.optim.SGD([{"params": p[:1], "momentum": 0.9}, {"params": p[1:]}], lr=0.1),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, maximize=True),
        lambda p: torch.optim.Adam(p, lr=0.1, maximize=True),
        lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.9),  # averages steps, not gradients
    ],
    ids=["no momentum", "momentum of one group", "SGD uphill", "Adam uphill", "RMSprop"],
)
def test_an_optimizer_that_averages_no_gradients_has_no_direction(
    optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
) -> None:
    with pytest.raises(ValueError, match="needs an optimizer that averages gradients"):
        fit(small_gcn(), DATA, SPLIT, seed=0, awp=MOMENTUM_SAM, epochs=2, optimizer=optimizer)
    plain = AwpConfig(**{**vars(MOMENTUM_SAM), "rho": 0.0})
    fit(small_gcn(), DATA, SPLIT, seed=0, awp=plain, epochs=1, optimizer=optimizer)  # needs no direction


class WithOtherNames(torch.optim.Adam):
    """An optimizer that averages gradients, and keeps the averages under names of its own."""

    def step(self, closure: Any = None) -> None:
        super().step(closure)
        for state in self.state.values():
            state["m"] = state["exp_avg"]
            del state["exp_avg"]


@pytest.mark.parametrize(
    "optimizer",
    [lambda p: WithOtherNames(p, lr=0.1), lambda p: torch.optim.Adam(p[2:], lr=0.1)],
    ids=["other names", "the last layer alone"],
)
def test_averages_that_are_not_found_are_missed_after_the_first_step(
    optimizer: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
) -> None:
    awp = AwpConfig(rho=3.0, lam=1.0, direction="momentum")
    with pytest.raises(ValueError, match=r"and of none of \['convs.0.weight'\], which are to be perturbed"):
        fit(small_gcn(), DATA, SPLIT, seed=0, awp=awp, epochs=2, optimizer=optimizer)


@pytest.mark.parametrize("steps", [1, 3])
def test_random_numbers_of_foreign_modules_are_drawn_anew_in_each_epoch(steps: int) -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last, self.drawn = nn.Linear(4, 5), nn.Linear(5, 3), []

        def forward(self, x: Tensor, _edge_index: Tensor) -> Tensor:
            mask = torch.rand(1)
            if self.training:
                self.drawn.append(float(mask))
            return self.last(torch.tanh(self.first(x.float())) * (1 + mask))

    model, epochs = Noisy(), 4
    awp = AwpConfig(rho=0.5, lam=0.7, perturbed_gradient="functional", steps=steps)
    fit(model, DATA, SPLIT, seed=0, awp=awp, epochs=epochs, select_on="last")
    by_epoch = [model.drawn[i : i + steps + 1] for i in range(0, len(model.drawn), steps + 1)]
    assert len(by_epoch) == epochs
    assert all(numbers[-1] == numbers[0] for numbers in by_epoch), "the functional gradient has the masks of pass 0"
    assert len({number for numbers in by_epoch for number in numbers}) == epochs * steps


@pytest.mark.parametrize("name", ["adj_t", "adj"])
def test_edges_in_two_places_are_not_taken_away_from_one(name: str) -> None:
    twice = DATA.clone()
    twice[name] = torch.eye(NODES)
    with pytest.raises(DataError, match=f"if they are in edge_index alone, and {name} holds them, too"):
        fit(small_gcn(), twice, SPLIT, seed=0, awp=FGSAM, epochs=1)


def test_what_cannot_be_right_is_refused() -> None:
    for awp in (MOMENTUM_SAM, FGSAM, FUNCTIONAL):
        with pytest.raises(ValueError, match="fit and fit_many alone"):
            fit_batches(small_gcn(), DATA, SPLIT, seed=0, batch_size=3, fanouts=(2, 2), awp=awp, epochs=1)
    with pytest.raises(DataError, match="if they are in edge_index"):
        fit(nn.Linear(4, 3).double(), Data(x=X, y=Y), SPLIT, seed=0, awp=AwpConfig(**{**vars(FGSAM), "layers": "*"}),
            forward=lambda model, data: model(data.x), epochs=1)  # fmt: skip
