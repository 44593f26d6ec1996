"""The provenance in records: versions, the hash of this code, the commit, the device."""

import hashlib
import os
import platform
from functools import lru_cache
from pathlib import Path

import torch

from wtawp import __version__
from wtawp.experiments.spec import PlanError
from wtawp.graphs.kernels import HAS_NUMBA

_PACKAGE = Path(__file__).parents[2]


def device_name(device: str, *, tf32: bool) -> str:
    """The name of a device in records.

    Args:
        device: "cpu" or "cuda".
        tf32: Whether TF32 matrix products are allowed.

    Returns:
        The kind of CPU, as in "cpu (x86_64 AVX2, numba)", since other instructions, and kernels that are not compiled,
        round differently; or the GPU's name, with ", TF32" where that is allowed.

    Raises:
        PlanError: If the device is of another kind, or not available.
    """
    if device == "cpu":
        kernels = "numba" if HAS_NUMBA else "no numba"
        return f"cpu ({platform.machine()} {torch.backends.cpu.get_cpu_capability()}, {kernels})"
    if device != "cuda":
        raise PlanError(f"the device must be cpu or cuda, got {device!r}")
    if not torch.cuda.is_available():
        raise PlanError("there is no CUDA device here; use --device cpu")
    return torch.cuda.get_device_name() + (", TF32" if tf32 else "")


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Collect the versions on which measured numbers depend.

    Returns:
        The versions of wtawp, torch and Python; under "source" a hash of the code of this package, under "numba" its
        version and the processor that it compiles for, if it is installed, and under "commit" the commit of the
        checkout, if there is one.
    """
    code = hashlib.sha256()
    for file in sorted(_PACKAGE.rglob("*.py")):
        code.update(file.read_bytes())
    collected = {"wtawp": __version__, "torch": torch.__version__, "python": platform.python_version()}
    collected["source"] = code.hexdigest()[:12]
    if HAS_NUMBA:
        collected["numba"] = _numba_version()
    return collected | ({"commit": commit} if (commit := _commit()) else {})


def _numba_version() -> str:
    """The version of numba and the processor that it compiles for, both of which can change the last digits."""
    import numba
    from llvmlite import binding

    return f"{numba.__version__} for {os.environ.get('NUMBA_CPU_NAME') or binding.get_host_cpu_name()}"


def _commit() -> str | None:
    """The checkout's commit, read from the files in .git without running git."""
    folder = _PACKAGE.parents[1] / ".git"
    head = folder / "HEAD"
    if not head.is_file():
        return None
    text = head.read_text(encoding="utf-8").strip()
    if not text.startswith("ref: "):
        return text[:12]
    ref = text.removeprefix("ref: ")
    if (folder / ref).is_file():
        return (folder / ref).read_text(encoding="utf-8").strip()[:12]
    packed = folder / "packed-refs"
    lines = packed.read_text(encoding="utf-8").splitlines() if packed.is_file() else []
    return next((line[:12] for line in lines if line.endswith(f" {ref}")), None)
