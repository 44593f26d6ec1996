"""Normalisation and skip connections of GCN, GAT and GraphSAGE, against dense forward passes written here."""

from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state
from torch.nn import functional as F
from torch_geometric.data import Batch, Data

from wtawp.base import DataError, rng
from wtawp.core import WTAWP, AwpConfig, select
from wtawp.graphs import citation, stratified
from wtawp.models import GAT, GCN, GraphSAGE, Pooled
from wtawp.models.dropout import masks
from wtawp.models.ensemble import Ensemble
from wtawp.models.inputs import prepare
from wtawp.models.norms import BatchNorm, LayerNorm
from wtawp.training import compute_logits, evaluate, fit, fit_batches, fit_many, loop

D, C, N = 6, 3, 14
KINDS = {"GCN": GCN, "GAT": GAT, "GraphSAGE": GraphSAGE}
kinds = pytest.mark.parametrize("kind", KINDS)
norms = pytest.mark.parametrize("norm", [None, "layer", "batch"])
residuals = pytest.mark.parametrize("residual", [False, True])


def build(
    kind: str, seed: int = 0, d_in: int = D, d_out: int = C, *, dropout: float = 0.0, **options: object
) -> nn.Module:
    """A model of three layers, whose norms have weights other than 1 and 0."""
    depth = {"width": 4, "heads": 2, "num_layers": 3} if kind == "GAT" else {"hidden": (8, 5)}
    g = rng("init", seed)
    model = KINDS[kind](d_in, d_out, **depth, dropout=dropout, **options, generator=g).double()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.startswith("norms"):
                p.add_(0.5 * torch.randn(p.shape, generator=g, dtype=p.dtype))
    return model


def trained(model: nn.Module) -> list[nn.Parameter]:
    return [p for p in model.parameters() if p.requires_grad]


def small_graph(seed: int = 0, size: int = N) -> Data:
    g = rng("graph", seed)
    pairs = torch.combinations(torch.arange(size))
    pairs = pairs[torch.rand(len(pairs), generator=g) < 0.25].T
    x = torch.randn(size, D, generator=g, dtype=torch.float64)
    return Data(x=x, edge_index=torch.cat([pairs, pairs.flip(0)], 1), y=torch.randint(0, C, (size,), generator=g))


def words() -> Data:
    data = citation(seed=0, num_nodes=100, num_words=30, topicality=0.6)
    data.x = data.x.double()
    return data


def adjacency(data: Data) -> Tensor:
    a = torch.zeros(len(data.x), len(data.x), dtype=torch.float64)
    a[data.edge_index[1], data.edge_index[0]] = 1
    return a


def naive_convolution(kind: str, conv: nn.Module, h: Tensor, a: Tensor) -> Tensor:
    """One convolution over a dense adjacency matrix, without its skip connection."""
    loops = a + torch.eye(len(a), dtype=a.dtype)
    if kind == "GCN":
        scale = loops.sum(1) ** -0.5
        return torch.diag(scale) @ loops @ torch.diag(scale) @ h @ conv.weight + conv.bias
    if kind == "GraphSAGE":
        means = [h[a[i] > 0].mean(0) if a[i].any() else torch.zeros_like(h[0]) for i in range(len(a))]
        return torch.stack(means) @ conv.neighbour_weight + h @ conv.own_weight + conv.bias
    heads = []
    for one in range(conv.heads):
        width = conv.att_src.shape[1]
        z = h @ conv.lin.weight[:, one * width : (one + 1) * width]
        scores = F.leaky_relu((z @ conv.att_dst[one])[:, None] + (z @ conv.att_src[one])[None, :], 0.2)
        heads.append(scores.masked_fill(loops == 0, -torch.inf).softmax(1) @ z)
    return (torch.cat(heads, 1) if conv.concat else torch.stack(heads).mean(0)) + conv.bias


def naive_hidden(kind: str, model: nn.Module, data: Data, before_norm: list[Tensor] | None = None) -> Tensor:
    """The forward pass, slow and dense; what is normalised is appended to `before_norm`."""
    h, a = data.x, adjacency(data)
    for number, conv in enumerate(model.convs):
        out = naive_convolution(kind, conv, h, a)
        if number + 1 == len(model.convs):
            return out
        if conv.skip_weight is not None:
            out = out + h @ conv.skip_weight
        if before_norm is not None:
            before_norm.append(out)
        norm = model.norms[number]
        if isinstance(norm, LayerNorm):
            rows = [(row - row.mean()) / (row.var(correction=0) + 1e-5).sqrt() for row in out]
            out = torch.stack(rows) * norm.weight + norm.bias
        elif isinstance(norm, BatchNorm):
            mean, var = norm.running_mean, norm.running_var
            if model.training:
                mean, var = out.mean(0), out.var(0, correction=0)
            out = (out - mean) / (var + 1e-5).sqrt() * norm.weight + norm.bias
        h = F.elu(out) if kind == "GAT" else out.relu()
    raise AssertionError("a model has a last layer")


@kinds
@norms
@residuals
@pytest.mark.parametrize("training", [True, False])
def test_logits_and_gradients_are_those_of_a_dense_forward_pass(
    kind: str, norm: str | None, residual: bool, training: bool
) -> None:
    data, model = small_graph(), build(kind, norm=norm, residual=residual)
    model(small_graph(1).x, small_graph(1).edge_index)  # so that running averages are not 0 and 1
    model.train(training)
    results = []
    for logits in (naive_hidden(kind, model, data), model(data.x, data.edge_index)):
        loss = (logits.logsumexp(1) - logits[:, 0]).square().sum()
        results.append((logits, *torch.autograd.grad(loss, trained(model))))
    torch.testing.assert_close(results[0], results[1], rtol=1e-9, atol=1e-9)


@kinds
def test_running_averages_are_those_of_torchs_batch_norm(kind: str) -> None:
    model, theirs = build(kind, norm="batch", residual=True), [nn.BatchNorm1d(8).double() for _ in range(2)]
    theirs[1] = nn.BatchNorm1d(len(model.norms[1].weight)).double()
    for seed in range(3):
        data, inputs = small_graph(seed), []
        naive_hidden(kind, model, data, inputs)
        model(data.x, data.edge_index)
        for norm, x in zip(theirs, inputs, strict=True):
            norm(x.detach())
    for ours, norm in zip(model.norms, theirs, strict=True):
        torch.testing.assert_close(ours.running_mean, norm.running_mean)
        torch.testing.assert_close(ours.running_var, norm.running_var)


def test_the_defaults_are_the_models_without_norm_and_skip_connections() -> None:
    """Same names, same order, same draws: a second implementation of the initial weights."""

    def uniform(g: torch.Generator, bound: float, *shape: int) -> Tensor:
        return torch.empty(shape).uniform_(-bound, bound, generator=g)

    expected: dict[str, dict[str, Tensor]] = {"GCN": {}, "GraphSAGE": {}, "GAT": {}}
    g = rng("init")
    for i, (a, b) in enumerate(pairwise((D, 8, 5, C))):
        expected["GCN"] |= {f"convs.{i}.weight": uniform(g, b**-0.5, a, b), f"convs.{i}.bias": uniform(g, b**-0.5, b)}
    g = rng("init")
    for i, (a, b) in enumerate(pairwise((D, 8, 5, C))):
        for name in ("neighbour_weight", "own_weight"):
            expected["GraphSAGE"][f"convs.{i}.{name}"] = uniform(g, a**-0.5, a, b)
        expected["GraphSAGE"][f"convs.{i}.bias"] = uniform(g, a**-0.5, b)
    g = rng("init")
    for i, (a, heads, width) in enumerate(((D, 2, 4), (8, 1, C))):
        lin = uniform(g, (6 / (a + heads * width)) ** 0.5, a, heads * width)
        for name in ("att_src", "att_dst"):
            expected["GAT"][f"convs.{i}.{name}"] = uniform(g, (6 / (heads + width)) ** 0.5, heads, width)
        expected["GAT"] |= {f"convs.{i}.bias": torch.zeros(heads * width), f"convs.{i}.lin.weight": lin}
    models = {
        "GCN": GCN(D, C, hidden=(8, 5), generator=rng("init")),
        "GraphSAGE": GraphSAGE(D, C, hidden=(8, 5), generator=rng("init")),
        "GAT": GAT(D, C, width=4, heads=2, generator=rng("init")),
    }
    for kind, model in models.items():
        state = model.state_dict()
        assert list(state) == list(expected[kind])
        for name, t in state.items():
            torch.testing.assert_close(t, expected[kind][name], rtol=1e-6, atol=0)


@kinds
@norms
def test_skip_weights_are_drawn_after_all_others_of_their_layer(kind: str, norm: str | None) -> None:
    plain, strong = (build(kind, norm=norm, residual=residual).state_dict() for residual in (False, True))
    own = ".lin.weight" if kind == "GAT" else ".own_weight" if kind == "GraphSAGE" else ".weight"
    assert torch.equal(plain[f"convs.0{own}"], strong[f"convs.0{own}"])
    assert set(strong) - set(plain) == {"convs.0.skip_weight", "convs.1.skip_weight"}


@kinds
@pytest.mark.parametrize("norm", [None, "layer"])
@pytest.mark.parametrize("is_dense", [False, True])
def test_blocks_give_the_loss_and_gradients_of_the_whole_graph(
    kind: str, norm: str | None, is_dense: bool, check_rows: Callable[..., None]
) -> None:
    data = words()
    model = build(kind, d_in=30, d_out=7, dropout=0.4, norm=norm, residual=True)
    check_rows(model, data.x + 0.1 * is_dense, data.edge_index, torch.tensor([3, 70, 12, 99]))
    whole = model.eval()(data.x, data.edge_index)
    torch.testing.assert_close(model(*model.prepare(data.x, data.edge_index, None)), whole)


@kinds
@residuals
def test_a_batch_norm_sees_all_nodes_whatever_rows_are_wanted(kind: str, residual: bool) -> None:
    data, rows = words(), torch.tensor([3, 70])
    model = build(kind, d_in=30, d_out=7, norm="batch", residual=residual)
    arguments, taken = prepare(model, data, rows)
    torch.testing.assert_close(model(*arguments)[taken], naive_hidden(kind, model, data)[rows], rtol=0, atol=1e-9)


@kinds
@norms
@residuals
def test_a_stack_computes_what_its_members_do_and_each_has_its_own_running_averages(
    kind: str, norm: str | None, residual: bool
) -> None:
    data = words()
    members = [build(kind, i, 30, 7, dropout=0.4, norm=norm, residual=residual) for i in range(3)]
    parameters, buffers = stack_module_state(members)
    for _ in range(2):
        with masks(torch.arange(3)):
            together = functional_call(members[0], (parameters, buffers), (data.x, data.edge_index))
    for i, member in enumerate(members):
        for _ in range(2):
            with masks(torch.tensor(i)):
                alone = member(data.x, data.edge_index)
        torch.testing.assert_close(together[i], alone, rtol=0, atol=1e-9)
        for name, buffer in member.named_buffers():
            torch.testing.assert_close(buffers[name][i], buffer, rtol=0, atol=1e-9)
    assert bool(buffers) == (norm == "batch")


@kinds
@norms
@residuals
@pytest.mark.parametrize("is_one_stack", [False, True])  # on a GPU, the models of all splits are one stack
def test_models_that_are_trained_together_end_as_each_does_alone(
    kind: str, norm: str | None, residual: bool, is_one_stack: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = words()
    splits = [stratified(data.y, seed=seed, train=0.2, val=0.2) for seed in (0, 0, 1)]
    splits[1] = splits[0]  # two members are one stack, the third is another one
    awp = AwpConfig(rho=0.3, lam=0.5)
    options = {"d_in": 30, "d_out": 7, "dropout": 0.4, "norm": norm, "residual": residual}
    together, alone = ([build(kind, i, **options) for i in range(3)] for _ in "ab")
    with monkeypatch.context() as patched:
        if is_one_stack:
            patched.setattr(loop, "_stacks", lambda splits, *_, **__: [list(range(len(splits)))])
        results = fit_many(together, data, splits, seeds=[10, 11, 12], awp=awp, epochs=8)
    for i, model in enumerate(alone):
        result = fit(model, data, splits[i], seed=10 + i, awp=awp, epochs=8)
        assert result.epoch == results[i].epoch
        for name, t in model.state_dict().items():
            torch.testing.assert_close(together[i].state_dict()[name], t, rtol=0, atol=1e-9)
        loss, _ = evaluate(model, data, splits[i].test)
        assert loss == pytest.approx(result.loss["test"], rel=1e-6)


@kinds
@residuals
def test_one_epoch_of_fit_is_a_naive_step_on_the_whole_graph(kind: str, residual: bool) -> None:
    """The loss, the step of SGD, and running averages that follow all nodes in the natural pass alone."""
    data = words()
    split = stratified(data.y, seed=0, train=0.2, val=0.2)
    model, naive = (build(kind, d_in=30, d_out=7, norm="batch", residual=residual) for _ in "ab")
    inputs: list[Tensor] = []
    loss = F.cross_entropy(naive_hidden(kind, naive, data, inputs)[split.train], data.y[split.train])
    gradients = torch.autograd.grad(loss, trained(naive))
    result = fit(model, data, split, seed=0, epochs=1, select_on="last", optimizer=lambda p: torch.optim.SGD(p, lr=0.5))
    assert result.history["train_loss"][0] == pytest.approx(float(loss.detach()), rel=1e-9)
    for p, q, gradient in zip(trained(model), trained(naive), gradients, strict=True):
        torch.testing.assert_close(p, q - 0.5 * gradient, rtol=0, atol=1e-9)
    perturbed = build(kind, d_in=30, d_out=7, norm="batch", residual=residual)
    fit(perturbed, data, split, seed=0, epochs=1, select_on="last", awp=AwpConfig(rho=1.0, lam=0.5))
    for number, x in enumerate(inputs):
        for norm in (model.norms[number], perturbed.norms[number]):
            torch.testing.assert_close(norm.running_mean, 0.1 * x.mean(0), rtol=0, atol=1e-9)
            torch.testing.assert_close(norm.running_var, 0.9 + 0.1 * x.var(0), rtol=0, atol=1e-9)


@kinds
def test_a_batch_norm_freezes_the_biases_before_it_which_change_nothing(kind: str) -> None:
    data, model = small_graph(), build(kind, norm="batch", residual=True)
    frozen = [name for name, p in model.named_parameters() if not p.requires_grad]
    assert frozen == ["convs.0.bias", "convs.1.bias"]
    before = model(data.x, data.edge_index)
    with torch.no_grad():
        model.convs[0].bias.add_(1.0)
    torch.testing.assert_close(model(data.x, data.edge_index), before)
    assert all(p.requires_grad for p in build(kind, norm="layer", residual=True).parameters())


@kinds
def test_the_second_order_term_goes_through_the_norms(kind: str) -> None:
    data = words()
    split = stratified(data.y, seed=0, train=0.2, val=0.2)
    awp = AwpConfig(rho=0.1, lam=0.5, exact=True)
    for norm in ("layer", "batch"):
        model = build(kind, d_in=30, d_out=7, norm=norm, residual=True)
        assert fit(model, data, split, seed=0, awp=awp, epochs=2).loss["train"] < 5


@kinds
@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_minibatches_train_and_layers_are_computed_exactly(kind: str, norm: str) -> None:
    data = words()
    split = stratified(data.y, seed=0, train=0.3, val=0.2)
    model = build(kind, d_in=30, d_out=7, norm=norm, residual=True)
    awp = AwpConfig(rho=0.1, lam=0.5)
    result = fit_batches(model, data, split, fanouts=(4, 4, 4), batch_size=8, seed=0, epochs=5, awp=awp)
    assert result.history["train_loss"][-1] < result.history["train_loss"][0]
    torch.testing.assert_close(
        compute_logits(model, data, max_edges=50), model.eval()(data.x, data.edge_index), rtol=0, atol=1e-9
    )


@kinds
def test_batches_with_all_neighbours_have_the_logits_of_the_whole_graph_with_layer_norm(kind: str) -> None:
    data = words()
    model = build(kind, d_in=30, d_out=7, norm="layer", residual=True).eval()
    logits = compute_logits(model, data, torch.tensor([5, 2, 90]))
    torch.testing.assert_close(logits, naive_hidden(kind, model, data)[[5, 2, 90]], rtol=0, atol=1e-9)


@kinds
@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_words_for_layers_choose_skip_weights_with_their_layer_and_no_norms(kind: str, norm: str) -> None:
    model, data = build(kind, norm=norm, residual=True), small_graph()
    matrices = {"GCN": ["weight"], "GAT": ["lin.weight"], "GraphSAGE": ["neighbour_weight", "own_weight"]}[kind]

    def named(*numbers: int) -> set[str]:
        skips = {f"convs.{i}.skip_weight" for i in numbers if i < 2}
        return skips | {f"convs.{i}.{name}" for i in numbers for name in matrices}

    chosen = {"all-but-last": named(0, 1), "first": named(0), "last": named(2), "all": named(0, 1, 2)}
    for word, names in chosen.items():
        assert set(select(model, word)) == names
        assert set(select(model, word, outputs=lambda: model(data.x, data.edge_index))) == names
    awp = WTAWP(model, rho=0.5, lam=0.5)
    awp.backward(lambda: F.cross_entropy(model(data.x, data.edge_index), data.y))
    assert set(awp.perturbed) == chosen["all-but-last"]


@kinds
def test_bad_options_say_what_was_expected(kind: str) -> None:
    with pytest.raises(ValueError, match='norm must be "layer", "batch" or None, got \'group\''):
        build(kind, norm="group")
    with pytest.raises(ValueError, match="residual must be True or False, got 'yes'"):
        build(kind, residual="yes")
    if kind == "GAT":
        with pytest.raises(ValueError, match="num_layers must be >= 1, got 0"):
            GAT(D, C, num_layers=0, generator=rng("init"))


def test_one_attention_layer_has_nothing_hidden() -> None:
    data, model = small_graph(), GAT(D, C, num_layers=1, norm="batch", residual=True, generator=rng("init")).double()
    assert [name for name, _ in model.named_parameters() if "norm" in name or "skip" in name] == []
    torch.testing.assert_close(model.eval()(data.x, data.edge_index), naive_hidden("GAT", model, data))


def test_a_batch_norm_refuses_a_single_row() -> None:
    with pytest.raises(DataError, match='norm="batch" needs two nodes or more in training, got one'):
        BatchNorm(3)(torch.ones(1, 3))
    assert BatchNorm(3).eval()(torch.ones(1, 3)).shape == (1, 3)


def test_norms_of_two_kinds_are_not_one_architecture() -> None:
    with pytest.raises(ValueError, match="models of one architecture"):
        Ensemble([build("GCN", norm="layer"), build("GCN", norm="batch")])


@pytest.mark.parametrize("kind", ["GCN", "GraphSAGE"])
@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_a_classifier_of_graphs_normalises_over_its_training_graphs(kind: str, norm: str) -> None:
    graphs = [small_graph(seed, 4 + seed) for seed in range(12)]
    for i, graph in enumerate(graphs):
        graph.y = torch.tensor([i % 2])
    split = stratified(torch.tensor([i % 2 for i in range(12)]), seed=0, train=0.5, val=0.25)
    model, again = (
        Pooled(build(kind, norm=norm, residual=True), C, 2, generator=rng("read-out")).double() for _ in "ab"
    )
    chosen, inputs = Batch.from_data_list([graphs[i] for i in split.train.tolist()]), []
    hidden = naive_hidden(kind, model.encoder, chosen, inputs)
    logits = model.readout(torch.stack([hidden[chosen.batch == i].mean(0) for i in range(len(split.train))]))
    result = fit(model, graphs, split, seed=0, epochs=1, select_on="last")
    assert result.history["train_loss"][0] == pytest.approx(float(F.cross_entropy(logits, chosen.y).detach()), rel=1e-9)
    if norm == "batch":
        torch.testing.assert_close(model.encoder.norms[0].running_mean, 0.1 * inputs[0].mean(0), rtol=0, atol=1e-9)
    fit_many([again, Pooled(build(kind, 1, norm=norm, residual=True), C, 2, generator=rng("other")).double()],
             graphs, split, seeds=[0, 1], epochs=1, select_on="last")  # fmt: skip
    for name, t in model.state_dict().items():
        torch.testing.assert_close(again.state_dict()[name], t, rtol=0, atol=1e-9)
