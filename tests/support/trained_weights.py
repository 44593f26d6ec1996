"""Train small models and print their weights: `python trained_weights.py [--without-numba]`, for test_determinism."""

import importlib.util
import json
import sys
from typing import Any


def main() -> None:
    if "--without-numba" in sys.argv:
        find = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *rest: None if name == "numba" else find(name, *rest)  # type: ignore[assignment]
    import torch

    from wtawp.base import rng
    from wtawp.core import AwpConfig
    from wtawp.experiments.execution.provenance import device_name
    from wtawp.graphs import citation, stratified
    from wtawp.models import GAT, GCN
    from wtawp.training import fit

    data = citation(seed=0, num_nodes=300, num_words=64)
    report: dict[str, Any] = {"device": device_name("cpu", tf32=False), "threads": {}}
    for threads in (1, 2):
        torch.set_num_threads(threads)
        weights: list[float] = []
        for kind in (GCN, GAT):
            model = kind(64, int(data.y.max()) + 1, generator=rng("init"))
            fit(model, data, stratified(data.y, seed=0), seed=0, awp=AwpConfig(rho=0.5, lam=0.5), epochs=5)
            weights += [w for p in model.parameters() for w in p.detach().flatten().tolist()]
        report["threads"][threads] = weights
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
