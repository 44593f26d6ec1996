"""What is known about processes; training in several of them is in tests/test_distributed.py."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from wtawp.core.distributed import is_distributed, is_in_process_group, refuse_sharded


@pytest.fixture
def one_process(tmp_path: Path) -> Iterator[None]:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'meet'}", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def test_without_a_process_group_nothing_is_distributed() -> None:
    assert not is_in_process_group()
    assert not is_distributed()
    refuse_sharded(nn.Linear(2, 2))


@pytest.mark.usefixtures("one_process")
def test_a_group_of_one_process_is_a_group_but_not_distributed() -> None:
    assert is_in_process_group()
    assert not is_distributed()
