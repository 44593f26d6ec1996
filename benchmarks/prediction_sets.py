"""Prediction sets from votes on features: coverage and size without and with flips that they withstand.

    python benchmarks/prediction_sets.py [citeseer] [--samples 10000] [--repeats 20] [--p-del 0.6]

Half of the test nodes of a GCN, chosen at random, calibrate; coverage and size are measured on the others, as means
over random choices. Sets are for the clean graph and withstand the flips of a later attack. In brackets: the size of
sets for which the calibration nodes, too, are only seen after the attack.
"""

import argparse

import numpy as np
import torch

from wtawp import Noise, fit, load, rng, stratified
from wtawp.certificates import conformal_sets, vote
from wtawp.models import GCN

ALPHAS = (0.1, 0.2, 0.3)
RADII = ((0, 0), (1, 0), (2, 0), (0, 1), (0, 3), (1, 3))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dataset", nargs="?", default="citeseer")
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--p-del", type=float, default=0.6)
    args = parser.parse_args()
    torch.set_num_threads(1)
    data = load(args.dataset)
    split, labels = stratified(data.y, seed=0), data.y.numpy()
    model = GCN(data.num_features, int(data.y.max()) + 1, generator=rng("certified"))
    fit(model, data, split, seed=0)
    votes = vote(data, model, features=Noise(p_add=0.01, p_del=args.p_del), samples=args.samples, seed=0)
    accuracy = 100 * float((votes.prediction == data.y)[split.test].double().mean())
    print(f"{args.dataset}, GCN: smoothed accuracy {accuracy:.1f} %, {args.samples:,} votes")
    for alpha in ALPHAS:
        for radius in RADII:
            covered, sizes, late = [], [], []
            for repeat in range(args.repeats):
                order = np.random.default_rng(repeat).permutation(split.test.numpy())
                calibration, rest = np.array_split(order, 2)
                sets = conformal_sets(votes, labels, calibration, alpha=alpha, clean=votes, features=radius)
                covered.append(sets.coverage(labels, rest))
                sizes.append(sets.sizes[rest].mean())
                seen_late = conformal_sets(votes, labels, calibration, alpha=alpha, features=radius)
                late.append(seen_late.sizes[rest].mean())
            share = 100 * float(np.mean(covered))
            size = f"{np.mean(sizes):.2f} ({np.mean(late):.2f})"
            print(f"  alpha {alpha}, withstand {radius}: coverage {share:.1f} %, size {size}", flush=True)


if __name__ == "__main__":
    main()
