"""How much accuracy EvA takes from a GCN, over the number of flipped graphs it asks about, beside PRBCD.

    python benchmarks/eva_strength.py [--dataset cora] [--splits 5] [--curves 2] [--figure docs/figures/eva.svg]

Evasion of the test nodes with their true labels at 5 %, one model a split. The first splits are also attacked by EvA
with hard labels and with uniform crossover, for the curves. Then the speed of the two ways to evaluate a population.
"""

import argparse
import math
import statistics
import time
from collections.abc import Callable

import torch
from torch_geometric.data import Data

from wtawp.attacks import eva, prbcd, random_flips
from wtawp.attacks.flipped_graphs import FlippedGraphs
from wtawp.base import rng
from wtawp.graphs import EdgeFlips, load, stratified
from wtawp.models import GCN
from wtawp.training import evaluate, fit

VARIANTS = {"EvA": {}, "EvA, hard labels": {"hard_labels": True}, "EvA, uniform crossover": {"crossover": "uniform"}}
Curve = list[tuple[int, float]]  # graphs asked about, accuracy in per cent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--budget", type=float, default=0.05)
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--curves", type=int, default=2)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--population", type=int, default=256)
    parser.add_argument("--prbcd-steps", type=int, default=40)
    parser.add_argument("--block-size", type=int, default=50_000)
    parser.add_argument("--figure")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    data = load(chosen.dataset)
    after: dict[str, list[float]] = {}
    curves: dict[str, list[Curve]] = {}
    for number in range(chosen.splits):
        split = stratified(data.y, seed=number)
        model = GCN(data.num_features, int(data.y.max()) + 1, generator=rng("init", number))
        fit(model, data, split, seed=number)
        common = {"budget": chosen.budget, "nodes": split.test, "labels": data.y, "seed": number}
        attacks: dict[str, Callable[[], EdgeFlips]] = {
            "random": lambda: random_flips(data, budget=chosen.budget, seed=number),  # noqa: B023
            "PRBCD": lambda: prbcd(data, model, steps=chosen.prbcd_steps, block_size=chosen.block_size, **common),  # noqa: B023
        }
        size = {"steps": chosen.steps, "population": chosen.population}
        for name, options in VARIANTS.items() if number < chosen.curves else [("EvA", VARIANTS["EvA"])]:
            curve: Curve = []
            curves.setdefault(name, []).append(curve)
            attacks[name] = lambda options=options, curve=curve: eva(
                data, model, **common, **size, **options,  # noqa: B023
                progress=lambda queries, value: curve.append((queries, 100 * value)),
            )  # fmt: skip
        after.setdefault("clean", []).append(100 * evaluate(model, data, split.test)[1])
        for name, find in attacks.items():
            start = time.process_time()
            accuracy = 100 * evaluate(model, find().apply(data), split.test)[1]
            after.setdefault(name, []).append(accuracy)
            print(f"split {number}  {name:24} {accuracy:6.2f}  {time.process_time() - start:6.1f} s", flush=True)
    _print_table(after)
    for name, some in curves.items():
        print(name, *(f"{q}: {statistics.mean(c[i][1] for c in some):.2f}" for i, q in _milestones(some[0])), sep="  ")
    _time_evaluation(data, model, chosen.budget)
    if chosen.figure:
        _draw(curves, after, chosen.figure, chosen.curves)


def _print_table(after: dict[str, list[float]]) -> None:
    """The mean of each attack, and its difference from PRBCD, paired over splits, with a 95 % interval."""
    for name, accuracies in after.items():
        differences = [a - b for a, b in zip(accuracies, after["PRBCD"], strict=False)]
        line = f"{name:24} {statistics.mean(accuracies):6.2f}  {statistics.mean(differences):+6.2f} against PRBCD"
        if len(differences) > 2:
            from scipy import stats

            half = (
                stats.t.ppf(0.975, len(differences) - 1) * statistics.stdev(differences) / math.sqrt(len(differences))
            )
            mean = statistics.mean(differences)
            line += f" ({mean - half:+.2f} to {mean + half:+.2f}), {len(differences)} splits"
        print(line)


def _milestones(curve: Curve) -> list[tuple[int, int]]:
    """Positions in a curve, and the numbers of graphs there: the generations 1, 5, 10, 20, 50 and the last."""
    return [(i - 1, curve[i - 1][0]) for i in (1, 5, 10, 20, 50, len(curve)) if i <= len(curve)]


def _time_evaluation(data: Data, model: GCN, budget: float) -> None:
    """Milliseconds for each flipped graph: as corrections of the clean graph, and by calling the model."""
    model.eval()
    flips = [random_flips(data, budget=budget, seed=seed).pairs for seed in range(24)]
    codes = torch.stack([pairs[0] * data.num_nodes + pairs[1] for pairs in flips])
    with torch.no_grad():
        fast, plain = FlippedGraphs(data, model), FlippedGraphs(data, lambda x, edges: model(x, edges))
        single = FlippedGraphs(data, lambda x, edges: model(x, edges))
        plain.at_once, single.at_once = 8, 1
        for name, graphs in (("corrections", fast), (f"{plain.at_once} in one", plain), ("one by one", single)):
            seconds = []
            for _ in range(3):
                start = time.process_time()
                graphs.outputs(codes)
                seconds.append(time.process_time() - start)
            print(f"{name:12} {1000 * min(seconds) / len(codes):6.2f} ms a graph")


def _draw(curves: dict[str, list[Curve]], after: dict[str, list[float]], path: str, count: int) -> None:
    """Accuracy over the number of graphs, means over the splits that have all curves."""
    import matplotlib.pyplot as plt

    fig, ax = plt.subplots(figsize=(5.5, 3.2))
    for name, some in curves.items():
        shown = some[:count]
        ax.plot(
            [q for q, _ in shown[0]],
            [statistics.mean(c[i][1] for c in shown) for i in range(len(shown[0]))],
            label=name,
        )
    for name, style in (("random", ":"), ("PRBCD", "--")):
        ax.axhline(statistics.mean(after[name][:count]), linestyle=style, color="0.4", label=name)
    ax.set_xscale("log")
    ax.set_xlabel("flipped graphs that the victim was asked about")
    ax.set_ylabel("test accuracy, %")
    ax.legend(fontsize=8)
    fig.savefig(path, bbox_inches="tight", metadata={"Date": None})


if __name__ == "__main__":
    main()
