"""Is the warning of vanishing gradients right? Radii from small to absurd, with and without it, beside accuracies.

    python benchmarks/vanishing_warning.py [--datasets cora citeseer polblogs] [--split 1] [--seeds 3] [--device cuda]

Trains a GCN with AWP, W-AWP, T-AWP and WT-AWP at each radius through `fit_many`, and hands the lengths of both
gradients and the loss at every tenth epoch to the monitor that `WTAWP.backward` has. A run has failed if its test
accuracy is 10 points or more below the mean of plain training on the same data. In brackets: how many were warned of.
"""

import argparse
import warnings
from statistics import fmean

from wtawp import load
from wtawp.base import VanishingGradientWarning, rng
from wtawp.core import AwpConfig, VanishingGradientMonitor
from wtawp.graphs import stratified
from wtawp.models import GCN
from wtawp.training import Fit, fit_many

RHOS = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0)
METHODS = {"AWP": (1.0, "all"), "W-AWP": (0.5, "all"), "T-AWP": (1.0, "all-but-last"), "WT-AWP": (0.5, "all-but-last")}
FAILED = 0.10


def is_warned(result: Fit) -> bool:
    """Whether the monitor warns of this training."""
    monitor, history = VanishingGradientMonitor(), result.history
    rows = zip(history["gradient_norm"], history["perturbed_norm"], history["train_loss"], strict=True)
    return any(monitor.check(*row) for step, row in enumerate(rows, start=1) if monitor.is_due(step))


def main() -> None:
    """Measure and print."""
    warnings.simplefilter("ignore", VanishingGradientWarning)  # the table counts them
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["cora", "citeseer", "polblogs"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--split", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    counts = {(failed, warned): 0 for failed in (True, False) for warned in (True, False)}
    print("| data | method | " + " | ".join(f"rho={rho:g}" for rho in RHOS) + " |")
    print("|---" * (2 + len(RHOS)) + "|")
    for name in given.datasets:
        data = load(name)
        split, seeds = stratified(data.y, seed=given.split), range(given.seeds)

        def train(awp: AwpConfig | None) -> list[Fit]:
            num_classes = int(data.y.max()) + 1  # noqa: B023, called in this turn of the loop
            models = [GCN(data.num_features, num_classes, generator=rng("init", s)).to(given.device) for s in seeds]  # noqa: B023
            return fit_many(models, data, split, seeds=seeds, awp=awp, epochs=given.epochs)  # noqa: B023

        plain = fmean(one.accuracy["test"] for one in train(None))
        for method, (lam, layers) in METHODS.items():
            cells = []
            for rho in RHOS:
                fits = train(AwpConfig(rho=rho, lam=lam, layers=layers))
                for one in fits:
                    counts[one.accuracy["test"] < plain - FAILED, is_warned(one)] += 1
                warned = sum(map(is_warned, fits))
                cells.append(
                    f"{100 * fmean(one.accuracy['test'] for one in fits):.1f}" + (f" ({warned})" if warned else "")
                )
            print(f"| {name} | {method} | {' | '.join(cells)} |", flush=True)
        print(f"| {name} | plain | {100 * plain:.1f} |" + " |" * (len(RHOS) - 1))
    print(f"\nFailed: {counts[True, True]} warned of, {counts[True, False]} not. "
          f"Did not fail: {counts[False, True]} warned of, {counts[False, False]} not.")  # fmt: skip


if __name__ == "__main__":
    main()
