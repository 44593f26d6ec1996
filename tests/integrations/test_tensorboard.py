"""The scalars that are written are those of the steps, at their numbers."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from wtawp.core import WTAWP
from wtawp.integrations import ScalarLogger

NAMES = [
    "natural_loss", "perturbed_loss", "gap", "natural_gradient_norm", "perturbed_gradient_norm", "lam",
    "relative_perturbation/0.weight",
]  # fmt: skip


class Rows:
    """A writer that keeps what it is given."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, float, int]] = []

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self.rows.append((tag, value, step))

    @property
    def steps(self) -> list[int]:
        return list(dict.fromkeys(step for _, _, step in self.rows))


def training(**options: Any) -> tuple[WTAWP, Any]:
    """A perturbation and a function that takes one step."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    awp = WTAWP(model, **{"rho": 0.5, "lam": 0.25, **options})
    return awp, lambda: awp.backward(lambda: model(torch.ones(5, 3)).square().mean())


def test_every_scalar_of_the_chosen_steps_is_written_once() -> None:
    (awp, step), writer, seen = training(), Rows(), []
    awp.register_step_hook(seen.append)
    with ScalarLogger(awp, writer, every=3, prefix="run"):
        for _ in range(8):
            step()
    assert writer.steps == [0, 3, 6]
    expected = [
        (f"run/{name}", value, number) for number in (0, 3, 6) for name, value in seen[number].as_floats().items()
    ]
    assert writer.rows == expected
    assert [tag for tag, _, _ in writer.rows[:7]] == [f"run/{name}" for name in NAMES]


def test_a_step_is_written_when_the_next_comes_or_when_it_is_asked_for() -> None:
    (awp, step), writer = training(), Rows()
    log = ScalarLogger(awp, writer, every=1)
    step()
    assert writer.steps == []
    step()
    assert writer.steps == [0]
    log.flush()
    log.flush()
    assert writer.steps == [0, 1]
    step()
    log.close()
    step()
    log.close()
    assert writer.steps == [0, 1, 2]
    assert len(writer.rows) == 3 * len(NAMES)


def test_after_an_exception_the_last_step_is_written_and_nothing_is_observed() -> None:
    (awp, step), writer = training(), Rows()
    with pytest.raises(RuntimeError, match="the data ended"), ScalarLogger(awp, writer, every=1):
        step()
        raise RuntimeError("the data ended")
    step()
    assert writer.steps == [0]


def test_a_resumed_training_continues_to_count() -> None:
    awp, step = training()
    for _ in range(4):
        step()
    (other, step), writer = training(), Rows()
    other.load_state_dict(awp.state_dict())
    with ScalarLogger(other, writer, every=1):
        step()
    assert writer.steps == [4]


def test_what_cannot_write_is_refused() -> None:
    awp, _ = training()
    with pytest.raises(ValueError, match="add_scalar"):
        ScalarLogger(awp, print)
    with pytest.raises(ValueError, match="positive integer"):
        ScalarLogger(awp, Rows(), every=0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_files_of_tensorboard_hold_the_scalars(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="TENSORBOARD NOT CHECKED: pip install 'wtawp[log]'")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    (awp, step), seen = training(), []
    awp.register_step_hook(seen.append)
    with SummaryWriter(str(tmp_path)) as writer, ScalarLogger(awp, writer, every=2):
        for _ in range(4):
            step()
    events = EventAccumulator(str(tmp_path)).Reload()
    assert set(events.Tags()["scalars"]) == {f"wtawp/{name}" for name in NAMES}
    for name in NAMES:
        found = [(event.step, event.value) for event in events.Scalars(f"wtawp/{name}")]
        assert found == [(n, pytest.approx(seen[n].as_floats()[name], rel=1e-6)) for n in (0, 2)]
