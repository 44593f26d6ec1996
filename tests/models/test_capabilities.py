import copy
import inspect
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from wtawp import attack, certify, fit, fit_many
from wtawp.base import rng
from wtawp.certificates import Noise
from wtawp.core import AwpConfig
from wtawp.graphs import gcn_operator, spmm, stratified
from wtawp.graphs.generate import citation
from wtawp.models import capabilities, model_names, model_spec
from wtawp.training import evaluate, fit_batches

DATA = citation(seed=0, num_nodes=60, num_words=30)
CAPABILITIES = [
    kind
    for _, kind in inspect.getmembers(capabilities, inspect.isabstract)
    if kind.__module__ == capabilities.__name__  # not what it imports
]
OUR_METHODS = sorted({name for kind in CAPABILITIES for name in kind.__abstractmethods__})
FORMER_METHODS = ("views", "through", "convolutions")


class Plain(nn.Module):
    """A user's GNN without dropout, in dense algebra."""

    def __init__(self, d_in: int = 30, d_out: int = 7) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(d_in, 8), nn.Linear(8, d_out)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        weight = x.new_ones(edge_index.shape[1]) if edge_weight is None else edge_weight
        graph = torch.eye(len(x), dtype=x.dtype).index_put(tuple(edge_index), weight, accumulate=True)
        graph = graph / graph.sum(1, keepdim=True)
        return graph @ self.two((graph @ self.one(x)).relu())


class SameNames(Plain):
    """The same with methods that are called as ours are, and mean something else."""


def misuse(*_: object, **__: object) -> object:
    raise AssertionError("a method of the user's own was taken for ours")


for method in (*OUR_METHODS, *FORMER_METHODS):
    setattr(SameNames, method, misuse)


def pair() -> tuple[Plain, SameNames]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        plain, same = Plain(), SameNames()
    same.load_state_dict(plain.state_dict())
    return plain, same


def weights(model: nn.Module) -> Tensor:
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def test_the_names_that_are_tried_are_those_of_the_capabilities() -> None:
    assert OUR_METHODS == [
        "batch_arguments", "convolution_weights", "extra_loss", "forward_args", "graph_operators", "infer_layer",
        "needs_gcn_weights", "num_hops", "pair_filter", "prepare", "prepare_graphs",
    ]  # fmt: skip
    assert not any(isinstance(SameNames(), kind) for kind in CAPABILITIES)


@pytest.mark.parametrize("awp", [None, AwpConfig(rho=0.5, lam=0.5)])
def test_a_user_s_module_with_our_method_names_trains_as_one_without(awp: AwpConfig | None) -> None:
    split = stratified(DATA.y, seed=0, train=0.3, val=0.3)
    trained = []
    for model in pair():
        fit(model, DATA, split, seed=0, epochs=5, awp=awp)
        trained.append((weights(model), evaluate(model, DATA, split.test)))
    assert torch.equal(trained[0][0], trained[1][0])
    assert trained[0][1] == trained[1][1]
    assert not torch.equal(trained[0][0], weights(pair()[0]))


def test_so_it_does_in_a_stack() -> None:
    split = stratified(DATA.y, seed=0, train=0.3, val=0.3)
    stacks = [[copy.deepcopy(model) for _ in range(2)] for model in pair()]
    for models in stacks:
        fit_many(models, DATA, [split] * 2, seeds=[0, 1], epochs=3, awp=AwpConfig(rho=0.5, lam=0.5))
    for plain, same in zip(*stacks, strict=True):
        assert torch.equal(weights(plain), weights(same))


def test_so_it_does_in_minibatches() -> None:
    class AlongEdges(Plain):
        """Batches hold the edges into their nodes, so that a module must add up the sources of edges."""

        def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
            return Plain.forward(self, x, edge_index.flip(0), edge_weight)

    class AlongEdgesWithSameNames(SameNames):
        forward = AlongEdges.forward

    split = stratified(DATA.y, seed=0, train=0.3, val=0.3)
    models = AlongEdges(), AlongEdgesWithSameNames()
    models[1].load_state_dict(models[0].state_dict())
    results = [fit_batches(m, DATA, split, seed=0, batch_size=5, fanouts=(2, 2), epochs=2) for m in models]
    assert results[0] == results[1]
    assert torch.equal(weights(models[0]), weights(models[1]))


def test_it_is_attacked_and_certified_as_any_other() -> None:
    results: list[Tensor] = []
    for model in pair():
        flips = attack(DATA, model, method="pgd", budget=3, nodes=torch.arange(60), seed=0, steps=5)
        certificate = certify(DATA, model, edges=Noise(p_add=0.01, p_del=0.3), samples=20, seed=0)
        results.append(torch.cat([flips.pairs.flatten(), torch.from_numpy(certificate.p_lower)]))
    assert torch.equal(*results)


@pytest.mark.parametrize("name", model_names())
def test_our_models_can_be_copied_pickled_and_saved(name: str, tmp_path: Path) -> None:
    model = model_spec(name).build(30, 7, {}, rng("init")).eval()
    batch = (torch.zeros(60, dtype=torch.int64),) if model_spec(name).level == "graph" else ()
    before = model(DATA.x, DATA.edge_index, *batch)  # fills the caches
    torch.save(model, tmp_path / "model.pt")
    copies: list[Callable[..., Tensor]] = [
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        torch.load(tmp_path / "model.pt", weights_only=False),
    ]
    for copied in copies:
        assert torch.equal(copied(DATA.x, DATA.edge_index, *batch), before)


@pytest.mark.parametrize("name", model_names())
def test_our_models_say_what_they_take(name: str) -> None:
    spec = model_spec(name)
    model = spec.build(30, 7, {}, rng("init"))
    of_level = {"node": capabilities.StackAware, "graph": capabilities.StackAwareOnGraphs}
    assert [level for level, kind in of_level.items() if isinstance(model, kind)] == [spec.level]


def test_a_capability_without_its_method_cannot_be_built() -> None:
    class Forgetful(nn.Module, capabilities.HasExtraLoss):
        pass

    with pytest.raises(TypeError, match="extra_loss"):
        Forgetful()


def test_named_operators_are_those_of_the_forward_pass() -> None:
    model = model_spec("GCN").build(30, 7, {}, rng("init")).eval()
    assert isinstance(model, capabilities.SupportsFactoredGradient)
    (named,) = model.graph_operators()
    assert isinstance(named, capabilities.NormalisedAdjacency)

    class Recorded:
        def __matmul__(self, factor: Tensor) -> Tensor:
            return spmm(gcn_operator(DATA.edge_index, None, 60, power=named.power), factor)

    logits = model(*model.forward_args(DATA.x, (Recorded(),)))
    torch.testing.assert_close(logits, model(DATA.x, DATA.edge_index))
