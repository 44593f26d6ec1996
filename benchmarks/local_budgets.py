"""How much accuracy LR-BCD takes from a GCN under local budgets, beside PRBCD without them.

    python benchmarks/local_budgets.py [--dataset cora] [--steps 40] [--block-size 50000]

Evasion of the test nodes with their true labels at 5 %, one split. The last column is the largest share of a node's
degree that was flipped.
"""

import argparse
import time
from collections.abc import Callable

import torch

from wtawp.attacks import lrbcd, prbcd
from wtawp.base import rng
from wtawp.graphs import EdgeFlips, load, stratified, undirected_pairs
from wtawp.models import GCN
from wtawp.training import evaluate, fit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--block-size", type=int, default=50_000)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    data = load(chosen.dataset)
    split = stratified(data.y, seed=0)
    model = GCN(data.num_features, int(data.y.max()) + 1, generator=rng("init", 0))
    fit(model, data, split, seed=0)
    degrees = torch.bincount(undirected_pairs(data).flatten(), minlength=data.num_nodes)
    common = {"budget": 0.05, "nodes": split.test, "labels": data.y, "seed": 0, "steps": chosen.steps}
    common["block_size"] = chosen.block_size

    def tell(name: str, find: Callable[[], EdgeFlips]) -> None:
        start = time.process_time()
        flips = find()
        seconds = time.process_time() - start
        share = float((torch.bincount(flips.pairs.flatten(), minlength=data.num_nodes) / degrees).max())
        accuracy = 100 * evaluate(model, flips.apply(data), split.test)[1]
        print(f"{name:24} {accuracy:6.2f}  {len(flips):4} flips  {seconds:5.1f} s  {share:6.2f}", flush=True)

    print(f"clean {100 * evaluate(model, data, split.test)[1]:.2f}")
    tell("PRBCD", lambda: prbcd(data, model, **common))
    for share in (1.0, 0.5, 0.25):
        tell(f"LR-BCD, {share}", lambda share=share: lrbcd(data, model, local_budget=share, **common))


if __name__ == "__main__":
    main()
