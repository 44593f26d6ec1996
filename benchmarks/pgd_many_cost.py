"""PGD on many GCNs at once: seconds a victim and a step, against the same attacks one after another.

    python benchmarks/pgd_many_cost.py [--dataset cora] [--victims 43] [--steps 200] [--alone 2] [--device cuda]

The victims are GCNs with 64 hidden units trained on splits of their own, each attacked on its test nodes. The losses
that both ways reach are printed beside each other.
"""

import argparse
import time

import torch

from wtawp import fit_many, load
from wtawp.attacks import pgd, pgd_many
from wtawp.base import rng
from wtawp.graphs import stratified
from wtawp.models import GCN
from wtawp.training import evaluate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--budget", type=float, default=0.05)
    parser.add_argument("--victims", type=int, default=43)
    parser.add_argument("--alone", type=int, default=2, help="how many of them are attacked alone as well")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    chosen = parser.parse_args()
    if chosen.device == "cpu":
        torch.set_num_threads(1)
    data = load(chosen.dataset).to(chosen.device)
    splits = [stratified(data.y.cpu(), seed=seed) for seed in range(chosen.victims)]
    victims = [
        GCN(data.num_features, int(data.y.max()) + 1, generator=rng("init", s)).to(chosen.device)
        for s in range(chosen.victims)
    ]
    fit_many(victims, data, splits, seeds=list(range(chosen.victims)), epochs=chosen.epochs)
    options = {"budget": chosen.budget, "steps": chosen.steps}

    def timed(count: int) -> tuple[list[float], float]:
        seeds = list(range(count))
        start = time.perf_counter()
        if count == chosen.victims:
            nodes, labels = [s.test for s in splits], [data.y] * count
            found = pgd_many(data, victims, nodes=nodes, labels=labels, seeds=seeds, **options)
        else:
            found = [pgd(data, victims[i], nodes=splits[i].test, labels=data.y, seed=i, **options) for i in seeds]
        seconds = (time.perf_counter() - start) / count
        return [evaluate(victims[i], f.apply(data), splits[i].test)[0] for i, f in enumerate(found)], seconds

    pgd(
        data, victims[0], nodes=splits[0].test, labels=data.y, seed=0, budget=chosen.budget, steps=2
    )  # compiled kernels
    together, each = timed(chosen.victims)
    print(
        f"together {each:8.3f} s a victim, {1000 * each * chosen.victims / chosen.steps:.1f} ms a step for all", end=""
    )
    print(f"; 800 attacks take {800 * each / 60:.1f} minutes")
    if chosen.alone:
        alone, each_alone = timed(chosen.alone)
        print(f"alone    {each_alone:8.3f} s a victim: {each_alone / each:.1f} times as long")
        pairs = ", ".join(f"{a:.4f} / {b:.4f}" for a, b in zip(together, alone, strict=False))
        print(f"losses reached together / alone: {pairs}")


if __name__ == "__main__":
    main()
