"""What the options of `fit_many` cost: checkpoints, optimizers of one's own, and losses of one's own.

Run from the root of the repository, on one core:

    OMP_NUM_THREADS=1 python benchmarks/fit_options_cost.py --dataset cora --models 10 --epochs 60

It trains GCNs with WT-AWP on one split and prints, for each option, the CPU time of an epoch over that of the default,
the smallest of some repeats that take turns.
"""

import argparse
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from wtawp import AwpConfig, fit_many, load, rng, stratified
from wtawp.base import VanishingGradientWarning
from wtawp.models import GCN


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="citation")
    parser.add_argument("--models", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore", VanishingGradientWarning)  # so few epochs say nothing about it
    data = load(options.dataset)
    split, num_classes = stratified(data.y, seed=0), int(data.y.max()) + 1

    def seconds(path: Path | None, given: dict[str, Any]) -> float:
        models = [GCN(data.num_features, num_classes, generator=rng("init", i)) for i in range(options.models)]
        given = {**given, "checkpoint": path, "awp": AwpConfig(rho=1.0, lam=0.7), "epochs": options.epochs}
        start = time.process_time()
        fit_many(models, data, split, seeds=range(options.models), **given)
        return time.process_time() - start

    def adam(parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.Adam(parameters, lr=0.01, weight_decay=5e-4, fused=True)

    def sgd(parameters: list[torch.nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)

    def accuracy(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output.argmax(1) == target).float().mean()

    cases: dict[str, dict[str, Any]] = {
        "default": {},
        "checkpoint, every 10 epochs": {"checkpoint_every": 10},
        "checkpoint, every epoch": {"checkpoint_every": 1},
        "optimizer=Adam": {"optimizer": adam},
        "optimizer=SGD": {"optimizer": sgd},
        "loss=, metric=": {"loss": F.cross_entropy, "metric": accuracy},
    }
    best = dict.fromkeys(cases, float("inf"))
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(options.repeats + 1):  # the first round warms up
            for number, (name, given) in enumerate(cases.items()):
                path = Path(folder) / f"{repeat}-{number}.pt" if "checkpoint_every" in given else None
                taken = seconds(path, given)
                best[name] = min(best[name], taken) if repeat else best[name]
    print(f"CPU milliseconds of an epoch of {options.models} models, and their ratio to the default")
    for name, taken in best.items():
        print(f"{name:30} {1e3 * taken / options.epochs:8.2f} {taken / best['default']:8.3f}")


if __name__ == "__main__":
    main()
