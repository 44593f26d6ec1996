import sys
import warnings
from pathlib import Path

import pytest
import torch

from wtawp.base import (
    DataError,
    DownloadError,
    NotPerturbableError,
    VanishingGradientMonitor,
    VanishingGradientWarning,
    WtawpError,
    home,
    isolated_rng,
    rng,
    write_atomic,
)


def test_equal_names_give_equal_numbers_and_others_do_not() -> None:
    draw = [torch.rand(4, generator=rng(*names)) for names in (("a", 1), ("a", 1), ("a", 2), ("a1",))]
    assert torch.equal(draw[0], draw[1])
    assert not torch.equal(draw[0], draw[2])
    assert not torch.equal(draw[0], draw[3])


def test_a_fence_fixes_what_is_drawn_inside_and_hides_it_outside() -> None:
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


def test_errors_can_be_caught_as_ours_or_as_value_errors() -> None:
    for kind in (NotPerturbableError, DataError):
        assert issubclass(kind, WtawpError)
        assert issubclass(kind, ValueError)
    assert issubclass(DownloadError, WtawpError)


def test_our_folder_is_the_chosen_one_or_the_platforms(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WTAWP_HOME", str(tmp_path))
    assert home() == tmp_path
    monkeypatch.delenv("WTAWP_HOME")
    for variable in ("XDG_DATA_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(variable, str(tmp_path / "data"))
    for platform in ("linux", "win32"):
        monkeypatch.setattr(sys, "platform", platform)
        assert home() == tmp_path / "data" / "wtawp"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert home() == Path.home() / "Library" / "Application Support" / "wtawp"


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.bin"
    write_atomic(path, b"one")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write_atomic(path, b"two")
    assert path.read_bytes() == b"one"
    assert list(tmp_path.iterdir()) == [path]


def steps(watch: VanishingGradientMonitor, natural: float, perturbed: float, times: int, loss: float = 1.0) -> None:
    gradients = [torch.tensor([natural, 0.0])], [torch.tensor([0.0]), torch.tensor([perturbed])]
    for _ in range(times):
        watch(*gradients, torch.tensor(loss, requires_grad=True), "rho=9")


@pytest.mark.parametrize(
    "perturbed", [1e-5, 0.05, 0.0]
)  # nothing beside the natural, a hundredth of the first, nothing
@pytest.mark.parametrize("loss", [1.0, 0.9, -2.0])
def test_a_perturbed_gradient_that_vanishes_is_warned_of_once(perturbed: float, loss: float) -> None:
    watch = VanishingGradientMonitor()
    steps(watch, 1.0, 5.0, 1, loss=-1.0 if loss < 0 else 1.0)
    steps(watch, 1.0, perturbed, 28, loss)
    with pytest.warns(VanishingGradientWarning, match="rho=9 is too much here: try a smaller rho") as told:
        steps(watch, 1.0, perturbed, 100, loss)
    assert len(told) == 1


@pytest.mark.parametrize(
    ("natural", "perturbed", "loss"),
    [
        (1.0, 0.3, 1.0),
        (1.0, 6.0, 1.0),
        (0.01, 0.05, 1.0),
        (1.0, 0.0, 0.7),
        (float("nan"), 0.0, 1.0),
        (float("inf"), 0.0, 1.0),
        (0.0, 0.0, 1.0),
    ],
    ids=["shorter", "longer", "both vanish", "learnt", "no number", "infinite", "nothing"],
)
def test_healthy_gradients_and_models_that_learn_are_not_warned_of(
    natural: float, perturbed: float, loss: float
) -> None:
    watch = VanishingGradientMonitor()
    steps(watch, 1.0, 5.0, 1)
    with warnings.catch_warnings(record=True, action="always") as told:
        steps(watch, natural, perturbed, 100, loss)
    assert told == []


def test_looks_must_be_in_a_row_and_no_gradient_is_none() -> None:
    watch = VanishingGradientMonitor()
    with warnings.catch_warnings(record=True, action="always") as told:
        for _ in range(20):
            steps(watch, 1.0, 0.0, 19)
            steps(watch, 1.0, 3.0, 1)  # every second look
        watch([], [], torch.tensor(1.0), "")
    assert told == []
    assert watch.steps == 401
