import importlib
import inspect
from collections.abc import Callable
from dataclasses import is_dataclass

import numpy as np
import pytest
import torch

from wtawp.base import checked_seed, isolated_rng, rng, seed_of


def test_equal_names_give_equal_numbers_and_others_do_not() -> None:
    draw = [torch.rand(4, generator=rng(*names)) for names in (("a", 1), ("a", 1), ("a", 2), ("a1",))]
    assert torch.equal(draw[0], draw[1])
    assert not torch.equal(draw[0], draw[2])
    assert not torch.equal(draw[0], draw[3])


@pytest.mark.parametrize("seed", [3, np.int64(3), np.uint8(3), torch.tensor(3), torch.tensor([3], dtype=torch.int32)])
def test_whole_numbers_of_any_library_are_one_seed(seed: int) -> None:
    assert (checked_seed(seed), type(checked_seed(seed))) == (3, int)
    assert seed_of("split", "cora", seed) == 15076007366361354


@pytest.mark.parametrize(
    "seed", [3.0, 1.5, True, np.bool_(True), torch.tensor(True), torch.tensor(3.0), None, torch.arange(2), [3], b"3"]
)
def test_other_seeds_are_refused(seed: object) -> None:
    with pytest.raises(ValueError, match=r"^seeds\[0\] must be a whole number, such as 0, got "):
        checked_seed(seed, "seeds[0]")
    with pytest.raises(ValueError, match="each name that is not a word must be a whole number"):
        rng("init", seed)  # type: ignore[arg-type]


def _functions_with_a_seed() -> dict[str, Callable[..., object]]:
    """All public functions and classes that take a seed, by their names."""
    packages = [importlib.import_module(f"wtawp.{name}") for name in SEEDED_PACKAGES]
    named = {f"{p.__name__}.{name}": getattr(p, name) for p in packages for name in p.__all__}
    found = {name: f for name, f in named.items() if callable(f) and "seed" in inspect.signature(f).parameters}
    return {name: f for name, f in found.items() if not is_dataclass(f)}  # these hold what was measured


SEEDED_PACKAGES = ("graphs", "training", "attacks", "certificates", "analysis")


@pytest.mark.parametrize("seed", [1.0, None, True])
def test_every_public_function_refuses_what_is_no_seed(seed: object) -> None:
    functions = _functions_with_a_seed()
    assert len(functions) > 30
    for name, function in functions.items():
        parameters = inspect.signature(function).parameters.values()
        others = {
            p.name: None for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        }
        with pytest.raises(ValueError, match=r"^seed must be a whole number, such as 0, got "):
            function(**others | {"seed": seed})
            pytest.fail(f"{name} accepts the seed {seed!r}")


def test_a_word_is_no_seed() -> None:
    with pytest.raises(ValueError, match=r"^seed must be a whole number, such as 0, got '3'"):
        checked_seed("3")


def test_an_isolated_rng_fixes_what_is_drawn_inside_and_hides_it_outside() -> None:
    before = torch.get_rng_state()
    inside = []
    for _ in range(2):
        with isolated_rng("dropout", 3):
            inside.append(torch.rand(3))
    with pytest.raises(KeyError), isolated_rng("dropout", 4):
        torch.rand(3)
        raise KeyError
    assert torch.equal(*inside)
    assert torch.equal(before, torch.get_rng_state())
