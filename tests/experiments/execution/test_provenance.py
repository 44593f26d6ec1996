import pytest
import torch

from wtawp.experiments.execution.provenance import device_name, versions
from wtawp.experiments.spec import PlanError


def test_versions_name_what_numbers_depend_on() -> None:
    known = versions()
    assert known["torch"] == torch.__version__
    assert set(known) - {"commit"} == {"wtawp", "torch", "python", "source"}
    assert len(known["source"]) == 12


def test_a_device_that_is_not_here_is_refused() -> None:
    assert device_name("cpu", tf32=True) == "cpu"
    with pytest.raises(PlanError, match="the device must be cpu or cuda, got 'tpu'"):
        device_name("tpu", tf32=False)
