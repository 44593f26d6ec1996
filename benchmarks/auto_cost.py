"""Measure what lam="auto" costs where it does not perturb: the time of a training over that of plain training.

    python benchmarks/auto_cost.py --repeats 9

A large weight decay keeps the models from overfitting, so that lam stays 0. Trainings with and without are run in turn;
the table has the median of the ratios. The last column is the ratio where lam is as large as it can be.
"""

import argparse
import time
from statistics import median

import torch
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp import WTAWP, AwpConfig, fit, load, rng, stratified
from wtawp.models import GCN

AUTO = AwpConfig(rho=1.0, lam="auto")
EPOCHS = 100


def seconds_of_fit(data: Data, awp: AwpConfig | None, weight_decay: float) -> float:
    """The time of one training with `fit`; fails if lam has not stayed 0 under the large weight decay."""
    model = GCN(data.num_features, int(data.y.max()) + 1, generator=rng("init"))
    split = stratified(data.y, seed=0)
    start = time.perf_counter()
    result = fit(model, data, split, seed=0, awp=awp, epochs=EPOCHS, weight_decay=weight_decay)
    seconds = time.perf_counter() - start
    assert weight_decay < 0.1 or max(result.history.get("lam", [0.0])) == 0, "the model was to underfit"
    return seconds


def seconds_of_loop(data: Data, observes: bool, val_loss: float) -> float:
    """The time of a loop of one's own with `backward`, plain or with lam="auto" and this validation loss."""
    model = GCN(data.num_features, int(data.y.max()) + 1, generator=rng("init"))
    split, optimizer = stratified(data.y, seed=0), torch.optim.Adam(model.parameters(), lr=0.01)
    awp = WTAWP(model, rho=1.0, lam="auto")
    start = time.perf_counter()
    for _ in range(EPOCHS):
        optimizer.zero_grad()

        def loss() -> torch.Tensor:
            return F.cross_entropy(model(data.x, data.edge_index)[split.train], data.y[split.train])

        if observes:
            awp.backward(loss)
            awp.observe(train_loss=1.0, val_loss=val_loss)
        else:
            loss().backward()
        optimizer.step()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    print(
        "| training | data | seconds, plain | auto at rest / plain | auto at work / plain |\n|---|---|---:|---:|---:|"
    )
    for name in ("wine", "citation", "digits"):
        data = load(name)
        fits = [[seconds_of_fit(data, awp, decay) for awp, decay in ((None, 0.5), (AUTO, 0.5), (AUTO, 5e-4))]
                for _ in range(repeats + 1)][1:]  # fmt: skip
        loops = [[seconds_of_loop(data, *how) for how in ((False, 1.0), (True, 1.0), (True, 100.0))]
                 for _ in range(repeats + 1)][1:]  # fmt: skip
        for kind, times in (("fit", fits), ("own loop", loops)):
            rest, work = (median(row[i] / row[0] for row in times) for i in (1, 2))
            print(f"| {kind} | {name} | {median(row[0] for row in times):.2f} | {rest:.3f} | {work:.2f} |", flush=True)


if __name__ == "__main__":
    main()
