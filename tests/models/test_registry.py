import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from wtawp import models
from wtawp.base import isolated_rng, rng
from wtawp.graphs import citation
from wtawp.models import GCN, ModelSpec, model_names, model_spec, register_model, registry
from wtawp.models.dropout import masks
from wtawp.models.gcn import linear_gcn

BUILT_IN = tuple(name for name in model_names() if not model_spec(name).is_user_code)
IN_RECORDS = {  # names in the settings of committed records, which must stay
    "GCN", "GAT", "PPNP", "MLP", "GCNJaccard", "GCNSVD", "RGCN", "SimPGCN", "PooledGCN", "PooledGIN", "PooledSAGE",
}  # fmt: skip
VARIANTS = {"LinearGCN": linear_gcn}  # entries that build another entry's class with other options


class Own(nn.Module):
    """Somebody's own: it draws from torch's global state, and takes no generator."""

    def __init__(self, d_in: int, d_out: int, width: int = 4) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(d_in, width), nn.Linear(width, d_out)


@pytest.fixture(autouse=True)
def _registry_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_SPECS", {n: spec for n, spec in registry._SPECS.items() if not spec.is_user_code})


def test_names_that_records_use_stay_and_every_model_has_a_level() -> None:
    assert set(model_names()) >= IN_RECORDS
    assert sorted(model_names("node") + model_names("graph")) == sorted(model_names())
    assert {name for name in BUILT_IN if not model_spec(name).is_perturbable} == {"RGCN"}


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_spec_builds_the_exported_class_of_its_name(name: str) -> None:
    spec = model_spec(name)
    assert spec.resolve() is (VARIANTS[name] if name in VARIANTS else getattr(models, name))
    assert spec.label == name
    model, again = (spec.build(30, 7, {} if name in VARIANTS else {"dropout": 0.25}, rng("init", 1)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
    assert ("dropout" in spec.options()) == (name not in VARIANTS)
    assert not {"d_in", "d_out", "generator"} & set(spec.options())


def test_the_defaults_that_are_not_everybody_s() -> None:
    specs = {name: model_spec(name) for name in BUILT_IN}

    def those(field: str, value: object) -> set[str]:
        return {name for name, spec in specs.items() if getattr(spec, field) == value}

    assert those("is_perturbable", False) == {"RGCN"}
    assert those("weight_decay", 0.0) == {"RGCN", "LinearGCN"}
    assert those("surrogate_select_on", "either") == {"LinearGCN"}
    assert those("uses_edges", False) == {"MLP"}
    assert those("needs_shared_features", True) == {"GCNJaccard", "GNNGuard"}
    pooled = {"PooledGCN", "PooledGIN", "PooledSAGE"}
    assert those("level", "graph") == those("select_on", "accuracy") == those("layers", "first") == pooled
    defences = {"GCNJaccard", "GCNSVD", "RGCN", "SimPGCN", "GNNGuard", "SoftMedianGCN", "ElasticGNN"}
    assert those("is_defence", True) == defences
    assert specs["GAT"].cost == 3.5
    assert all(spec.description for spec in specs.values())


def test_what_is_said_of_perturbation_is_what_the_core_sees() -> None:
    for name in BUILT_IN:
        model = model_spec(name).build(30, 7, {}, rng("init"))
        assert model_spec(name).is_perturbable != getattr(model, "weights_are_distributions", False)


def test_a_class_of_somebody_s_own_is_named_by_its_module_and_not_imported() -> None:
    spec = model_spec("no_such.module:Model")
    assert (spec.is_user_code, spec.cost, spec.label, spec.reference) == (True, 1.0, "Model", "no_such.module:Model")
    with pytest.raises(ImportError, match="no_such"):
        spec.build(3, 2, {}, rng("init"))
    with pytest.raises(ImportError, match="has no attribute 'nothing'"):
        model_spec("math:nothing").build(3, 2, {}, rng("init"))
    with pytest.raises(ValueError, match="math:pi must be a class or a function, got float"):
        model_spec("math:pi").build(3, 2, {}, rng("init"))
    with pytest.raises(ValueError, match=r"math:pow must make a torch\.nn\.Module, got float"):
        model_spec("math:pow").build(3, 2, {}, rng("init"))


def test_somebody_s_own_class_draws_from_the_global_state_seeded_by_the_generator() -> None:
    state = torch.get_rng_state()
    spec = ModelSpec(name="mine", constructor=Own)
    model = spec.build(3, 2, {"width": 5}, rng("init", 2, 3))
    with isolated_rng("init", 2, 3):
        expected = Own(3, 2, width=5)
    assert torch.equal(model.one.weight, expected.one.weight)
    assert torch.equal(torch.get_rng_state(), state)
    assert spec.options() == {"width": 4}
    assert spec.reference.endswith(":Own")


def test_a_registered_model_is_known_by_its_name() -> None:
    register_model(ModelSpec(name="Mine", constructor=Own, level="graph", weight_decay=0.0))
    spec = model_spec("Mine")
    assert (spec.is_user_code, spec.weight_decay, model_names()[-1]) == (True, 0.0, "Mine")
    assert "Mine" in model_names("graph")
    assert "Mine" not in model_names("node")
    assert isinstance(spec.build(3, 2, {}, rng("init")), Own)
    for taken in ("Mine", "GCN"):
        with pytest.raises(ValueError, match=f"there is a model called {taken} already; choose another name"):
            register_model(ModelSpec(name=taken, constructor=GCN))


@pytest.mark.parametrize(
    ("name", "nearest"), [("gnc", "GCN"), ("GCNN", "GCN"), ("softmedian", "SoftMedianGCN"), ("APPNP", "PPNP")]
)
def test_an_unknown_name_is_refused_with_the_nearest_one(name: str, nearest: str) -> None:
    with pytest.raises(ValueError, match=rf"model must be one of GCN, .*got '{name}'; did you mean {nearest}\?"):
        model_spec(name)


@pytest.mark.parametrize("name", BUILT_IN)
def test_upper_and_lower_case_do_not_matter(name: str) -> None:
    assert model_spec(name.lower()) is model_spec(name.upper()) is model_spec(name)
    with pytest.raises(ValueError, match=f"there is a model called {name} already"):
        register_model(ModelSpec(name=name.swapcase(), constructor=GCN))


def test_a_name_like_no_other_gets_no_hint() -> None:
    with pytest.raises(ValueError, match=r"or package\.module:Class, got 'xyzzy'$"):
        model_spec("xyzzy")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"name": ""}, "name must be a text that is not empty"),
        ({"constructor": "GCN"}, "constructor must be a callable or package.module:name, got 'GCN'"),
        ({"constructor": 3}, "constructor must be a callable or package.module:name, got 3"),
        ({"level": "edge"}, "level must be 'node' or 'graph', got 'edge'"),
        ({"weight_decay": -1.0}, "weight_decay must be a finite number >= 0, got -1.0"),
        ({"cost": 0.0}, "cost must be a finite number > 0, got 0.0"),
    ],
)
def test_a_spec_is_checked_when_it_is_made(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ModelSpec(**{"name": "Mine", "constructor": Own, **wrong})  # type: ignore[arg-type]


def test_reading_the_registry_imports_nothing_that_computes() -> None:
    code = (
        "import sys, wtawp.base; before = set(sys.modules)\n"
        "from wtawp.models import model_names, model_spec\n"
        "[model_spec(name) for name in model_names()]\n"
        "print(*sorted({m.split('.')[0] for m in set(sys.modules) - before}))\n"
        "print(*sorted(m for m in sys.modules if m.startswith('wtawp')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy, ours = (set(line.split()) for line in done.stdout.splitlines())
    assert not heavy & {"torch", "torch_geometric", "numba", "matplotlib", "scipy", "sklearn"}
    assert {name for name in ours if not name.startswith("wtawp.base")} == {
        "wtawp",
        "wtawp.models",
        "wtawp.models.registry",
    }


@pytest.mark.parametrize("features", ["words", "dense"])
@pytest.mark.parametrize("name", [name for name in model_names("node") if name in BUILT_IN])
def test_under_autocast_a_model_computes_nearly_the_same_and_its_gradients_are_float32(
    name: str, features: str
) -> None:
    data = citation(seed=0, num_nodes=80, num_words=40)
    x = data.x if features == "words" else data.x + 0.1 * torch.rand(data.x.shape, generator=rng("x"))
    model, losses = model_spec(name).build(40, 7, {}, rng("init")), []
    for is_enabled in (False, True):
        with masks(torch.tensor(3)), torch.autocast("cpu", torch.bfloat16, enabled=is_enabled):
            loss = F.cross_entropy(model(x, data.edge_index), data.y)
        losses.append(loss)
    weights = [p for p in model.parameters() if p.requires_grad]
    gradients = [  # a weight of the loss of its own is not used here
        [g for g in torch.autograd.grad(loss, weights, allow_unused=True) if g is not None] for loss in losses
    ]
    assert float(losses[1].detach()) == pytest.approx(float(losses[0].detach()), rel=0.02)
    assert {g.dtype for g in gradients[1]} == {torch.float32}
    norms = [torch.cat([g.flatten() for g in of_pass]).norm() for of_pass in gradients]
    difference = torch.cat([(a - b).flatten() for a, b in zip(*gradients, strict=True)]).norm()
    assert difference < 0.1 * norms[0]
