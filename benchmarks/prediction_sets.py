"""Prediction sets from votes on features: coverage and size without and with flips that they withstand.

    python benchmarks/prediction_sets.py [citeseer] [--samples 10000] [--repeats 20]

Trains a GCN, and one under the noise of the votes; half of the test nodes, chosen at random, calibrate, and coverage and
size are measured on the others, as means over random choices. Sets are for the clean graph with flips that a later
attack may make, calibrated before it; in brackets, the size of sets that are calibrated after the attack.
"""

import argparse

import numpy as np
import torch

from wtawp import Noise, fit, load, rng, stratified
from wtawp.certificates import conformal_sets, noisy_training, vote
from wtawp.models import GCN

NOISE = Noise(p_add=0.01, p_del=0.6)
ALPHA = 0.1
RADII = ((0, 0), (0, 1), (0, 3), (0, 5), (1, 0), (2, 0), (1, 3))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dataset", nargs="?", default="citeseer")
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=20)
    args = parser.parse_args()
    torch.set_num_threads(1)
    data = load(args.dataset)
    split, labels = stratified(data.y, seed=0), data.y.numpy()
    for is_noisy in (False, True):
        model = GCN(data.num_features, int(data.y.max()) + 1, generator=rng("certified"))
        fit(model, data, split, seed=0, augment=noisy_training(features=NOISE, seed=0) if is_noisy else None)
        votes = vote(data, model, features=NOISE, samples=args.samples, seed=0)
        accuracy = 100 * float((votes.prediction == data.y)[split.test].double().mean())
        print(f"{args.dataset}, GCN{', under noise' * is_noisy}: smoothed accuracy {accuracy:.1f} %, alpha {ALPHA}")
        for radius in RADII:
            covered, sizes, after = [], [], []
            for repeat in range(args.repeats):
                order = np.random.default_rng(repeat).permutation(split.test.numpy())
                calibration, rest = np.array_split(order, 2)
                sets = conformal_sets(votes, labels, calibration, alpha=ALPHA, clean=votes, features=radius)
                seen_late = conformal_sets(votes, labels, calibration, alpha=ALPHA, features=radius)
                covered.append(sets.coverage(labels, rest))
                sizes.append(sets.sizes[rest].mean())
                after.append(seen_late.sizes[rest].mean())
            share, size, late = (float(np.mean(values)) for values in (covered, sizes, after))
            print(f"  withstand {radius}: coverage {100 * share:.1f} %, size {size:.2f} ({late:.2f})", flush=True)


if __name__ == "__main__":
    main()
