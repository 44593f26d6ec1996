from pathlib import Path

import pytest
import torch

from wtawp.base import AnalysisError, rng
from wtawp.experiments.inspection.checkpoints import load_weights, read_state_dict
from wtawp.models import GAT, GCN


@pytest.fixture
def model() -> GCN:
    return GCN(13, 3, hidden=(8,), generator=rng("weights"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "weights.pt"


def refusal(path: Path) -> str:
    with pytest.raises(AnalysisError) as caught:
        read_state_dict(path)
    return str(caught.value)


def test_weights_come_into_the_model_bit_for_bit(model: GCN, path: Path) -> None:
    torch.save(model.state_dict(), path)
    other = GCN(13, 3, hidden=(8,), generator=rng("other"))
    load_weights(other, path)
    assert all(torch.equal(other.state_dict()[name], t) for name, t in model.state_dict().items())


def test_another_architecture_is_refused_with_names_and_shapes(model: GCN, path: Path) -> None:
    torch.save(model.state_dict(), path)
    with pytest.raises(
        AnalysisError, match=r"another architecture than GCN .*convs.0.weight is \[13, 8\], not \[13, 64\].*--option"
    ):
        load_weights(GCN(13, 3, generator=rng("init")), path)
    with pytest.raises(AnalysisError, match="is missing"):
        load_weights(GAT(13, 3, generator=rng("init")), path)


@pytest.mark.parametrize("key", ["state_dict", "model"])
def test_a_state_dict_inside_a_checkpoint_is_named(model: GCN, path: Path, key: str) -> None:
    torch.save({"epoch": 3, key: model.state_dict()}, path)
    message = refusal(path)
    assert f"weights are under '{key}'" in message
    torch.save(torch.load(path, weights_only=True)[key], path)  # what it advises
    assert read_state_dict(path).keys() == model.state_dict().keys()


def test_the_prefix_of_distributed_training_is_explained(model: GCN, path: Path) -> None:
    torch.save({f"module.{name}": t for name, t in model.state_dict().items()}, path)
    with pytest.raises(AnalysisError, match=r"begin with 'module\.'.*model\.module\.state_dict\(\)"):
        load_weights(model, path)


def test_a_pickled_model_is_refused_without_advice_to_run_it(model: GCN, path: Path) -> None:
    torch.save(model, path)
    message = refusal(path)
    assert "holds an object of wtawp.models.gcn.GCN" in message
    assert "torch.save(model.state_dict(), file)" in message
    assert "weights_only" not in message
    assert "\x1b" not in message


def test_what_holds_no_weights_is_refused(path: Path) -> None:
    for content, expected in (
        ([1, 2], "must hold a state dict"),
        ({}, "not a dict of nothing"),
        ({"lr": 0.1}, "not a dict of 'lr'"),
    ):
        torch.save(content, path)
        assert expected in refusal(path)
    path.write_bytes(b"no checkpoint")
    assert "not a file that torch.save wrote" in refusal(path)
    assert "there is no checkpoint" in refusal(path.with_name("nowhere.pt"))


def test_tensors_that_repeat_or_overrun_their_numbers_are_refused(path: Path) -> None:
    torch.save({"a": torch.zeros(1).expand(2**30)}, path)
    assert "repeats the 1 numbers in the file" in refusal(path)
    torch.save({1: torch.zeros(1)}, path)
    assert "must hold a state dict" in refusal(path)
