"""Leaves modules that need a package which is not installed out of the doctests; their own tests say so."""

from importlib.util import find_spec

collect_ignore_glob = [
    pattern
    for package, pattern in {
        "triton": "*_triton.py",  # only CUDA builds of torch bring it
        "numba": "*_numba.py",
        "lightning": "wtawp/integrations/lightning.py",
        "tensorboard": "wtawp/integrations/tensorboard.py",
    }.items()
    if find_spec(package) is None
]
