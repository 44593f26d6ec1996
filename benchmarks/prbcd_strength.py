"""How much accuracy PRBCD and GRBCD take from a GCN and from two defences, beside random flips and PGD.

    python benchmarks/prbcd_strength.py [--dataset cora] [--steps 125] [--block-size 250000]

Evasion of the test nodes with their true labels, one split. A defence is attacked twice: with the flips that were found
on the GCN, and with flips found through the defence itself, which is what counts.
"""

import argparse
import time
from collections.abc import Callable

import torch
from torch import nn

from wtawp.attacks import grbcd, pgd, prbcd, random_flips
from wtawp.base import rng
from wtawp.graphs import EdgeFlips, load, stratified
from wtawp.models import GCN, GNNGuard, SoftMedianGCN
from wtawp.training import evaluate, fit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--budget", type=float, default=0.05)
    parser.add_argument("--steps", type=int, default=125)
    parser.add_argument("--block-size", type=int, default=250_000)
    parser.add_argument("--hidden", type=int, default=16)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    data = load(chosen.dataset)
    split = stratified(data.y, seed=0)
    common = {"budget": chosen.budget, "nodes": split.test, "labels": data.y, "seed": 0}
    block = {**common, "steps": chosen.steps, "block_size": chosen.block_size}

    def trained(kind: Callable[..., nn.Module]) -> nn.Module:
        model = kind(data.num_features, int(data.y.max()) + 1, hidden=(chosen.hidden,), generator=rng("init", 0))
        fit(model, data, split, seed=0)
        return model

    def tell(model: nn.Module, what: str, find: Callable[[], EdgeFlips]) -> EdgeFlips:
        start = time.process_time()
        flips = find()
        seconds = time.process_time() - start
        clean, after = (100 * evaluate(model, d, split.test)[1] for d in (data, flips.apply(data)))
        print(f"{type(model).__name__:14} {what:20} {clean:6.2f} -> {after:6.2f}  {seconds:6.1f} s", flush=True)
        return flips

    gcn = trained(GCN)
    tell(gcn, "random", lambda: random_flips(data, budget=chosen.budget, seed=0))
    found = tell(gcn, "PRBCD", lambda: prbcd(data, gcn, **block))
    for kind in (GNNGuard, SoftMedianGCN):
        defence = trained(kind)
        tell(defence, "PRBCD on the GCN", lambda: found)
        tell(defence, "PRBCD, adaptive", lambda model=defence: prbcd(data, model, **block))
    tell(gcn, "PRBCD, ce", lambda: prbcd(data, gcn, loss="ce", **block))
    tell(gcn, "GRBCD", lambda: grbcd(data, gcn, **block))
    tell(gcn, "PGD, ce, 200 steps", lambda: pgd(data, gcn, **common))


if __name__ == "__main__":
    main()
