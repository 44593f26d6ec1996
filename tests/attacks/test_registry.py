import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.attacks import (
    AttackRequest,
    AttackSpec,
    attack,
    attack_names,
    attack_spec,
    register_attack,
    unregister_attack,
)
from wtawp.base import rng
from wtawp.graphs import EdgeFlips, citation
from wtawp.models import GCN

DATA = citation(seed=0, num_nodes=60, num_words=20)
VICTIMS = [GCN(20, 7, hidden=(8,), generator=rng("victim", i)) for i in range(3)]
TRAIN, REST = torch.arange(0, 60, 3), torch.tensor([i for i in range(60) if i % 3])
REQUEST = AttackRequest(
    data=DATA, victims=VICTIMS, budget=4, nodes=[REST] * 3, labels=[DATA.y, (DATA.y + 1) % 7, DATA.y],
    seeds=[1000, 1001, 2000], split_seeds=[1, 1, 2], trains=[TRAIN] * 3,
)  # fmt: skip


def first_pairs(data: Data, victim: nn.Module, *, budget: int, nodes: Tensor, labels: Tensor, seed: int, skip: int = 0
                ) -> EdgeFlips:  # fmt: skip
    """A user's attack: joins the first node to some others."""
    assert isinstance(victim, nn.Module)
    assert len(nodes) <= len(labels)
    others = torch.arange(1 + skip, 1 + skip + budget)
    pairs = torch.stack([torch.zeros_like(others), others])
    return EdgeFlips.of(pairs, int(data.num_nodes), (("attack", "first"), ("seed", str(seed))))


@pytest.fixture
def registered() -> Iterator[AttackSpec]:
    yield register_attack(AttackSpec(name="first", label="First", function=first_pairs))
    unregister_attack("first")


def test_names_that_records_use_stay() -> None:
    assert set(attack_names()) >= {"random", "dice", "pgd", "minmax", "metattack", "prbcd", "grbcd"}
    assert set(attack_names()) >= {"fga", "nettack", "pgd-features"}
    assert set(attack_names("evasion")) <= set(attack_names())
    assert not {"minmax", "metattack"} & set(attack_names("evasion"))


def test_abilities() -> None:
    assert not attack_spec("random").uses_victim
    assert not attack_spec("dice").uses_victim
    assert all(attack_spec(name).uses_gradient for name in ("pgd", "minmax", "prbcd", "grbcd", "lrbcd"))
    assert attack_spec("eva").uses_predictions
    assert not attack_spec("eva").uses_gradient
    assert attack_spec("metattack").trains_surrogate
    assert not attack_spec("metattack").uses_gradient


def test_a_users_attack_is_used_like_ours(registered: AttackSpec) -> None:
    assert attack_names()[-1] == "first"
    assert attack_spec("first") is registered
    assert dict(registered.options) == {"skip": 0}
    flips = registered.run(REQUEST, skip=2)
    assert [f.pairs[1].tolist() for f in flips] == [[3, 4, 5, 6]] * 3
    assert [dict(f.provenance)["seed"] for f in flips] == ["1000", "1001", "2000"]
    assert len(attack(DATA, VICTIMS[0], method="first", budget=3, nodes=TRAIN)) == 3
    with pytest.raises(TypeError, match="stride"):
        registered.run(REQUEST, stride=2)
    with pytest.raises(ValueError, match="'first' is registered already"):
        register_attack(registered)


def test_a_reference_is_resolved_when_it_is_used() -> None:
    spec = attack_spec(f"{__name__}:first_pairs")
    assert spec.is_user_code
    assert spec.label == "first_pairs"
    assert attack_spec("no.such.module:flip").name == "no.such.module:flip"
    assert len(attack(DATA, VICTIMS[0], method=spec.name, budget=3, nodes=TRAIN, skip=1)) == 3


@pytest.mark.parametrize("name", attack_names())
def test_upper_and_lower_case_do_not_matter(name: str) -> None:
    assert attack_spec(name.upper()) is attack_spec(name.title()) is attack_spec(name)
    with pytest.raises(ValueError, match=f"an attack named '{name}' is registered already"):
        register_attack(AttackSpec(name=name.upper(), label="Mine", function="a.b:c"))


def test_bad_specs_names_and_requests_are_refused() -> None:
    with pytest.raises(ValueError, match=r"one of random, dice, .* got 'metatack'; did you mean metattack\?"):
        attack_spec("metatack")
    with pytest.raises(ValueError, match=r"got 'x'$"):
        attack_spec("x")
    with pytest.raises(ValueError, match="must not hold a colon"):
        register_attack(AttackSpec(name="a:b", label="A", function=first_pairs))
    with pytest.raises(ValueError, match="requires strength"):
        AttackSpec(name="new", label="New", function=lambda data, strength: data)  # noqa: ARG005
    with pytest.raises(ValueError, match="needs of attack 'new' must be among"):
        AttackSpec(name="new", label="New", function=first_pairs, needs="luck")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="stages of attack 'new' must be among"):
        AttackSpec(name="new", label="New", function=first_pairs, stages=())
    with pytest.raises(ValueError, match="changes of attack 'new' must be among"):
        AttackSpec(name="new", label="New", function=first_pairs, changes="labels")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="a name and a label"):
        AttackSpec(name="", label="New", function=first_pairs)
    for name in ("pgd", "unknown"):
        with pytest.raises(ValueError, match="is not an attack that register_attack added"):
            unregister_attack(name)
    with pytest.raises(ValueError, match=r"one or more victims.* got 1, 1, 1, 2, 1"):
        AttackRequest(data=DATA, victims=VICTIMS[:1], budget=1, nodes=[REST], labels=[DATA.y], seeds=[0, 1],
                      split_seeds=[0])  # fmt: skip


def test_reading_the_registry_imports_no_attack() -> None:
    code = (
        "import sys; from wtawp.attacks import attack_names, attack_spec; attack_spec('pgd').label; attack_names();"
        "print(*{m.split('.')[0] for m in sys.modules})"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not set(loaded) & {"torch_geometric", "numba", "scipy", "matplotlib"}
