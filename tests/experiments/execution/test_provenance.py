import platform
import re

import pytest
import torch

from wtawp.experiments.execution import provenance
from wtawp.experiments.execution.provenance import device_name, versions
from wtawp.experiments.spec import PlanError
from wtawp.graphs.kernels import HAS_NUMBA


def test_versions_name_what_numbers_depend_on() -> None:
    known = versions()
    assert known["torch"] == torch.__version__
    assert set(known) - {"commit"} == {"wtawp", "torch", "python", "source"} | ({"numba"} if HAS_NUMBA else set())
    assert len(known["source"]) == 12
    if HAS_NUMBA:
        assert re.fullmatch(r"\d+\.\d+\.\d+\S* for [\w.-]+", known["numba"])


def test_a_cpu_is_named_by_what_determines_the_last_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "HAS_NUMBA", True)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    names = []
    for capability, has_numba in (("AVX2", True), ("AVX512", True), ("AVX2", False)):
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda name=capability: name)
        monkeypatch.setattr(provenance, "HAS_NUMBA", has_numba)
        names.append(device_name("cpu", tf32=False))
    assert names == ["cpu (x86_64 AVX2, numba)", "cpu (x86_64 AVX512, numba)", "cpu (x86_64 AVX2, no numba)"]


def test_a_device_that_is_not_here_is_refused() -> None:
    assert device_name("cpu", tf32=True).startswith("cpu (")
    with pytest.raises(PlanError, match="the device must be cpu or cuda, got 'tpu'"):
        device_name("tpu", tf32=False)
