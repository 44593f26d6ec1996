"""Which parameters words and globs select, before any forward pass and after one."""

import pytest
import torch
from tied_model import Tied
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch_geometric.nn import GAT, GCN, GIN, BatchNorm, GATConv, GCNConv, GraphSAGE

from wtawp.base import NotPerturbableError, rng
from wtawp.core import SAM, WTAWP, select
from wtawp.core.selection import Selection
from wtawp.graphs import load
from wtawp.models.registry import model_names, model_spec

X = torch.randn(5, 4, generator=rng("test_selection"))


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3, 3))  # the root's own parameter makes no layer
        self.blocks = nn.ModuleList(
            [nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), nn.ModuleDict({"a": nn.Linear(4, 4)})]
        )
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(4, 2))


def mlp(*extra: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), *extra, nn.Linear(8, 3))


NORMED = nn.Sequential(nn.LayerNorm((2, 4)), nn.Linear(4, 8), nn.Linear(8, 3), nn.LayerNorm((2, 3)))


@pytest.mark.parametrize(
    ("model", "layers", "expected"),
    [
        (mlp(nn.Linear(8, 8)), "all-but-last", ["0.weight", "2.weight"]),
        (mlp(), "all", ["0.weight", "2.weight"]),
        (mlp(), "last", ["2.weight"]),
        (mlp(), ["*.bias", "0.*"], ["0.weight", "0.bias", "2.bias"]),
        (NORMED, "first", ["1.weight"]),
        (NORMED, "all-but-last", ["1.weight"]),
        (nn.Linear(4, 8), "all", ["weight"]),
        (GCN(5, 8, 2, 3), "all-but-last", ["convs.0.lin.weight"]),
        (GCN(5, 8, 3, 3, norm="batch_norm"), "all-but-last", ["convs.0.lin.weight", "convs.1.lin.weight"]),
        (GAT(5, 8, 2, 3, heads=2), "all", ["convs.0.lin.weight", "convs.1.lin.weight"]),
        (GraphSAGE(5, 8, 2, 3), "first", ["convs.0.lin_l.weight", "convs.0.lin_r.weight"]),
        (GIN(5, 8, 2, 3), "all-but-last", ["convs.0.nn.lins.0.weight", "convs.0.nn.lins.1.weight"]),
        (nn.Sequential(GCNConv(5, 8), BatchNorm(8), nn.ReLU(), GATConv(8, 3)), "all-but-last", ["0.lin.weight"]),
        (Nested(), "all", ["blocks.0.0.weight", "blocks.1.a.weight", "head.1.weight"]),
        (Nested(), "all-but-last", ["blocks.0.0.weight", "blocks.1.a.weight"]),
        (Nested(), "scale", ["scale"]),
        (Tied(), "all-but-last", ["embed.weight", "middle.weight"]),
        (Tied(), "all", ["embed.weight", "middle.weight"]),
        (Tied(), "last", ["embed.weight"]),
        (nn.DataParallel(Nested()), "last", ["module.head.1.weight"]),
    ],
)
def test_words_and_globs_choose(model: nn.Module, layers: str | list[str], expected: list[str]) -> None:
    assert list(select(model, layers)) == expected


def test_a_frozen_layer_counts_but_is_not_taken() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    model[0].requires_grad_(False)
    assert select(model) == ("1.weight",)
    model[1].requires_grad_(False)
    with pytest.raises(ValueError, match=r"only frozen parameters, \['0.weight', '1.weight'\]; unfreeze"):
        select(model)


@pytest.mark.parametrize(
    ("model", "layers", "message"),
    [
        (nn.ReLU(), "all", "ReLU has no parameters to perturb"),
        (
            nn.Sequential(nn.Linear(4, 2)),
            "all-but-last",
            "one layer, .*0.weight.*, has no 'all-but-last'; use layers='all'",
        ),
        (nn.Sequential(nn.Linear(4, 2)), "conv1.*", r"match none of \['0.weight', '0.bias'\]"),
        (nn.Sequential(nn.Linear(4, 2)), ["*", "conv1.*"], r"\('conv1.\*',\) match none of"),
        (nn.Sequential(nn.Linear(4, 2)), [], "match none of"),
        (nn.Sequential(nn.BatchNorm1d(4)), "all", "no layer has a matrix named"),
        (nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 2)), "all", "have no shape yet; run the model once"),
    ],
)
def test_a_choice_that_makes_no_sense_is_an_error_that_helps(model: nn.Module, layers: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        select(model, layers)


def test_weights_that_are_distributions_are_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weights_are_distributions = True
    with pytest.raises(NotPerturbableError, match=r"weights of 1 \(Linear\) are distributions"):
        select(model)


class HeadFirst(nn.Module):
    """The head is registered before the body; `way` says how the body is computed."""

    def __init__(self, way: str = "called") -> None:
        super().__init__()
        self.way, self.head, self.one, self.two = way, nn.Linear(4, 3), nn.Linear(4, 4), nn.Linear(4, 4)

    def body(self, x: Tensor) -> Tensor:
        return self.two(self.one(x).tanh()).tanh()

    def forward(self, x: Tensor) -> Tensor:
        if self.way == "functional":
            return self.head(F.linear(F.linear(x, self.one.weight).tanh(), self.two.weight).tanh())
        if self.way == "checkpointed":
            return self.head(checkpoint(self.body, x.requires_grad_(), use_reentrant=True))
        return self.head(self.body(x))


class Heads(nn.Module):
    """A body and two heads, of which a step may use one."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2), nn.Linear(4, 2)


def perturbed_in(awp: WTAWP, model: nn.Module, *, form: str = "backward") -> list[str]:
    """The parameters that differ in the last call of the closure, read from the weights themselves."""
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    seen: list[dict[str, Tensor]] = []

    def closure() -> Tensor:
        current = {n: p.detach().clone() for n, p in model.named_parameters()}
        if not awp.config.exact:
            seen.append(current)
        return model(X.clone()).square().mean()

    getattr(awp, form)(closure)
    assert all(torch.equal(p, before[n]) for n, p in model.named_parameters())
    return [n for n, w in seen[-1].items() if not torch.equal(w, before[n])] if seen else list(awp.perturbed)


BODY = ["one.weight", "two.weight"]


@pytest.mark.parametrize("form", ["backward", "loss"])
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("steps", [1, 2])
def test_the_first_step_finds_a_head_that_is_registered_first(form: str, exact: bool, steps: int) -> None:
    model = HeadFirst()
    awp = WTAWP(model, rho=0.5, lam=0.5, exact=exact, steps=steps)
    assert list(awp.perturbed) == ["head.weight", "one.weight"]
    assert "in the order of registration, until the first step" in repr(awp)
    with pytest.warns(
        UserWarning, match=r"last layer is head \(Linear\) in the forward pass, but two \(Linear\)"
    ) as met:
        assert perturbed_in(awp, model, form=form) == BODY
    assert met[0].filename == __file__
    assert list(awp.perturbed) == BODY
    assert perturbed_in(awp, model, form=form) == BODY  # without another warning
    assert not any(m._forward_hooks for m in model.modules())


@pytest.mark.parametrize(("word", "expected"), [("first", ["one.weight"]), ("last", ["head.weight"])])
def test_first_and_last_are_those_of_the_forward_pass(word: str, expected: list[str]) -> None:
    model = HeadFirst()
    with pytest.warns(UserWarning, match=rf"layers='{word}': the {word} layer is"):
        assert perturbed_in(WTAWP(model, rho=0.5, lam=0.5, layers=word), model) == expected
    with pytest.warns(UserWarning, match=rf"layers='{word}': the {word} layer is"):
        assert list(select(model, word, outputs=lambda: {"logits": model(X), "count": 3})) == expected


def test_globs_and_all_need_no_order() -> None:
    model = HeadFirst()
    for layers in ("all", ["two.*"]):
        awp = WTAWP(model, rho=0.5, lam=0.5, layers=layers)
        perturbed_in(awp, model)
        assert "order" not in repr(awp)
    assert select(model, "all", outputs=lambda: pytest.fail("no forward pass is needed")) == (
        "head.weight", "one.weight", "two.weight",
    )  # fmt: skip


@pytest.mark.parametrize("way", ["functional", "checkpointed"])
def test_layers_that_the_graph_does_not_show_stay_in_the_order_of_registration_with_a_warning(way: str) -> None:
    model = HeadFirst(way)
    awp = WTAWP(model, rho=0.5, lam=0.5)
    with pytest.warns(UserWarning, match="does not show all layers, so that the latter counts"):
        assert perturbed_in(awp, model) == ["head.weight", "one.weight"]
    perturbed_in(awp, model)  # it is said once
    assert "because the forward pass does not show that of all of them" in repr(awp)


def test_nothing_is_said_where_both_orders_hold_the_same_layer_back() -> None:
    layers = [nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)]
    model = nn.Sequential(*layers)
    awp = WTAWP(model, rho=0.5, lam=0.5)
    awp.backward(
        lambda: layers[2](checkpoint(model[:2], X.clone().requires_grad_(), use_reentrant=True)).square().mean()
    )
    assert list(awp.perturbed) == ["0.weight", "1.weight"]


def test_the_order_in_a_compiled_model_is_read_without_compiling_it_twice() -> None:
    model = HeadFirst()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    for target, prefix in ((compiled, "_orig_mod."), (model, "")):
        awp = WTAWP(target, rho=0.5, lam=0.5)
        with pytest.warns(UserWarning, match=r"head \(Linear\) in the forward pass"):
            awp.backward(lambda: compiled(X).square().mean())
        with torch._dynamo.config.patch(error_on_recompile=True):
            awp.backward(lambda: compiled(X).square().mean())
        assert list(awp.perturbed) == [f"{prefix}{name}" for name in BODY]


def test_layers_side_by_side_are_one_layer() -> None:
    class Parallel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 3), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.a(x) + self.b(x)

    model = Parallel()
    before = [p.detach().clone() for p in model.parameters()]
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    with pytest.raises(ValueError, match=r"last layer is a \(Linear\), b \(Linear\) .* use layers='all' or globs over"):
        WTAWP(model, rho=0.5, lam=0.5).backward(lambda: model(X).square().mean())
    assert all(torch.equal(p, w) and p.grad.eq(1).all() for p, w in zip(model.parameters(), before, strict=True))


def test_heads_that_are_used_in_turn_are_both_excluded() -> None:
    model = Heads()
    awp = WTAWP(model, rho=0.5, lam=0.5)
    with pytest.warns(UserWarning, match=r"last layer is a \(Linear\) in the forward pass, but b"):
        awp.backward(lambda: model.a(model.body(X).tanh()).square().mean())
    for step in range(1, 6):
        head = model.a if step % 2 == 0 else model.b
        awp.backward(lambda head=head: head(model.body(X).tanh()).square().mean())
        assert list(awp.perturbed) == ["body.weight"]
    assert "choice of layers: a.weight, b.weight" in repr(awp)


def test_a_body_that_is_frozen_at_first_is_perturbed_later() -> None:
    model = HeadFirst()
    awp = WTAWP(model, rho=0.5, lam=0.5)
    for layer in (model.one, model.two):
        layer.requires_grad_(False)
    with pytest.warns(UserWarning, match="is head"), pytest.warns(UserWarning, match="are frozen or unused"):
        assert perturbed_in(awp, model) == []
    model.two.requires_grad_(True)
    assert perturbed_in(awp, model) == ["two.weight"]
    model.one.requires_grad_(True)
    assert perturbed_in(awp, model) == BODY


def test_a_loss_of_the_head_alone_perturbs_nothing_and_says_so() -> None:
    model = Heads()
    awp = WTAWP(model, rho=0.5, lam=0.5)
    with pytest.warns(UserWarning, match=r"\['body.weight', 'a.weight'\] are frozen or unused"):
        awp.backward(lambda: model.b(X).square().mean())
    with pytest.warns(UserWarning, match="last layer is a"):
        awp.backward(lambda: (model.a(model.body(X)) + model.b(X)).square().mean())
    assert list(awp.perturbed) == ["body.weight"]


def test_a_closure_that_fails_keeps_no_hooks_and_no_graph() -> None:
    model = HeadFirst()
    awp = WTAWP(model, rho=0.5, lam=0.5)

    def fail() -> Tensor:
        model(X)
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        awp.backward(fail)
    assert not any(m._forward_hooks for m in model.modules())
    assert awp._selection._calls._outputs == []


def test_what_is_shown_names_every_parameter_once() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.GRU(4, 4), nn.Linear(4, 3))
    model[3].bias.requires_grad_(False)
    selection = Selection(model, "all-but-last")
    assert selection.trainable_names == ("0.weight",)
    assert selection.excluded_layers == ("3.weight",)
    assert selection.other_parameters[:3] == ("0.bias", "1.weight", "1.bias")
    everything = [*selection.trainable_names, *selection.excluded_layers, *selection.other_parameters]
    assert sorted(everything) == sorted(n for n, _ in model.named_parameters())
    assert "unused): 0.bias, 1.weight, 1.bias, 2.weight_ih_l0" in repr(WTAWP(model, rho=0.5, lam=0.5))
    assert "order" not in repr(SAM(model))
    assert repr(WTAWP(model, rho=0.5, lam=0.0)).endswith("perturbing nothing")


PERTURBABLE = [name for name in model_names() if model_spec(name).is_perturbable and not model_spec(name).is_user_code]


@pytest.mark.parametrize("name", PERTURBABLE)
def test_our_models_are_registered_in_the_order_of_their_forward_pass(name: str) -> None:
    """`fit` relies on it, and so do the records of results."""
    spec, data = model_spec(name), load("wine")
    model = spec.build(data.num_features, 3, {}, rng("order", name))
    batch = (torch.zeros(data.num_nodes, dtype=torch.long),) if spec.level == "graph" else ()
    for word in ("all-but-last", "first", "last"):
        awp = WTAWP(model, rho=0.1, lam=0.5, layers=word)
        registered = list(awp.perturbed)
        awp.backward(lambda: model(data.x, data.edge_index, *batch).square().mean())
        assert "layers in the order of the forward pass" in repr(awp)
        assert list(awp.perturbed) == registered == list(select(model, word))


class OwnWeight(nn.Module):
    """A model that holds a weight matrix itself, beside its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.out_weight = nn.Parameter(torch.ones(4, 3))
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x) @ self.out_weight


def test_a_weight_of_the_model_itself_is_said_to_be_no_layer() -> None:
    with pytest.warns(UserWarning, match=r"\['out_weight'\] belong to OwnWeight itself and to no layer"):
        assert select(OwnWeight()) == ("layers.0.weight",)
    assert select(OwnWeight(), ["*weight"]) == ("out_weight", "layers.0.weight", "layers.2.weight")
    assert select(nn.Linear(3, 2), "all") == ("weight",)  # a layer alone is its own


def test_layers_that_are_added_later_are_warned_of_once() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3))
    awp = WTAWP(model, rho=0.5, lam=0.5, layers="all")
    model.append(nn.Linear(3, 3))
    with pytest.warns(UserWarning, match=r"did not have when WTAWP was built, .* \['2.bias', '2.weight'\]"):
        awp.backward(lambda: model(torch.ones(2, 4)).square().sum())
    awp.backward(lambda: model(torch.ones(2, 4)).square().sum())  # a second warning would be an error


def test_a_shared_parameter_is_known_by_all_its_names() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    model[2].weight = model[0].weight
    awp = WTAWP(model, rho=0.5, lam=0.5, layers="all")
    awp.backward(lambda: model(torch.ones(2, 3)).square().sum())  # a warning would be an error
    assert list(awp.perturbed) == ["0.weight"]
