"""How much accuracy attacks take from a GCN, and PRBCD from two defences, beside random flips.

    python benchmarks/prbcd_strength.py [--dataset cora] [--steps 125] [--block-size 250000]
    python benchmarks/prbcd_strength.py --losses --splits 3 --hidden 64 [--dataset cora]

Evasion of the test nodes with their true labels. By default, one split: a defence is attacked twice, with the flips
that were found on the GCN, and with flips found through the defence itself, which is what counts. With --losses, a GCN
is attacked by PGD with losses of which the strongest of several does not make use, and by the strongest of several; a
row for each attack and for each member of the strongest, with its mean over the splits.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch_geometric.data import Data

from wtawp.attacks import AttackOutcome, grbcd, pgd, prbcd, random_flips, strongest
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
    parser.add_argument("--losses", action="store_true", help="compare losses and attacks on a GCN")
    parser.add_argument("--splits", type=int, default=3, help="with --losses: the number of splits")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    data = load(chosen.dataset)
    if chosen.losses:
        compare_losses(data, chosen.splits, chosen.hidden, chosen.budget)
        return
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


def compare_losses(data: Data, splits: int, hidden: int, budget: float) -> None:
    """Print, after each split, the mean accuracy so far that each attack leaves, and its seconds of CPU."""
    attacks: dict[str, Callable[..., EdgeFlips]] = {
        "PGD, margin, 200 steps": partial(pgd, loss="margin"),
        "PGD, masked_ce, 100 steps": partial(pgd, loss="masked_ce", steps=100),
        "strongest": strongest,
    }
    left: dict[str, list[float]] = {"no attack": []}
    seconds: dict[str, list[float]] = {name: [] for name in attacks}
    for seed in range(splits):
        split = stratified(data.y, seed=seed)
        model = GCN(data.num_features, int(data.y.max()) + 1, hidden=(hidden,), generator=rng("init", seed))
        fit(model, data, split, seed=seed)
        left["no attack"].append(100 * evaluate(model, data, split.test)[1])
        for name, find in attacks.items():
            start = time.process_time()
            flips = find(data, model, budget=budget, nodes=split.test, labels=data.y, seed=seed)
            seconds[name].append(time.process_time() - start)
            left.setdefault(name, []).append(100 * evaluate(model, flips.apply(data), split.test)[1])
            if (outcome := AttackOutcome.of(flips.provenance)) is not None:
                print(f"split {seed}: won by {outcome.winner}")
                for member, accuracy in outcome.accuracies.items():
                    left.setdefault(f"strongest: {member}", []).append(100 * accuracy)
        print(f"means of {seed + 1} splits")
        for name, values in left.items():
            spent = f"{sum(seconds[name]) / len(values):6.0f} s" if name in seconds else ""
            print(f"    {name:36} {sum(values) / len(values):6.2f}  {spent}", flush=True)


if __name__ == "__main__":
    main()
