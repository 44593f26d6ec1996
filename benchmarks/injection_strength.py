"""Strength of injected nodes on the test nodes of a trained model (a GCN on Cora by default).

    python benchmarks/injection_strength.py --splits 2

Each line is one attack: the test accuracy of a trained model after it (mean over splits), and the time of an attack.
Poisoning: a new model of the same architecture is trained on the graph with the injected nodes.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

from torch import nn
from torch_geometric.data import Data

from wtawp.attacks import inject_at_random, inject_nodes
from wtawp.base import rng
from wtawp.graphs import InjectedNodes, Split, injection_budget_of, load, stratified
from wtawp.models.registry import model_spec
from wtawp.training import evaluate, fit

Attack = Callable[[Data, nn.Module, Split, int, int], InjectedNodes]


def at_random(data: Data, _: nn.Module, __: Split, count: int, seed: int) -> InjectedNodes:
    return inject_at_random(data, budget=count, seed=seed)


def chosen_by(**options: Any) -> Attack:
    def attack(data: Data, victim: nn.Module, split: Split, count: int, seed: int) -> InjectedNodes:
        return inject_nodes(data, victim, budget=count, nodes=split.test, labels=data.y, seed=seed, **options)

    return attack


def random_edges(data: Data, victim: nn.Module, split: Split, count: int, seed: int) -> InjectedNodes:
    """The features of the attack on random edges, to see what each of the two is worth."""
    chosen, drawn = chosen_by()(data, victim, split, count, seed), inject_at_random(data, budget=count, seed=seed)
    return InjectedNodes.of(chosen.x, drawn.edges, int(data.num_nodes))


ATTACKS: dict[str, Attack] = {
    "random": at_random,
    "features of inject_nodes, random edges": random_edges,
    "inject_nodes, one round": chosen_by(rounds=1),
    "inject_nodes": chosen_by(),
    "inject_nodes, ce": chosen_by(loss="ce"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--model", default="GCN")
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--budget", type=int, default=50, help="number of injected nodes")
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--poison", action="store_true", help="also train a new model on the attacked graph")
    parser.add_argument("--attacks", nargs="+", choices=ATTACKS, default=list(ATTACKS))
    options = parser.parse_args()
    data = load(options.dataset)
    count, names = injection_budget_of(data, options.budget), ["none", *options.attacks]
    rows: dict[str, list[tuple[float, float, float]]] = {name: [] for name in names}  # evasion, poisoning, seconds

    def new_model(*key: str | int) -> nn.Module:
        classes = int(data.y.max()) + 1
        return model_spec(options.model).build(
            data.num_features, classes, {"hidden": (options.hidden,)}, rng("model", *key)
        )

    for seed in range(options.splits):
        split, victim = stratified(data.y, seed=seed), new_model("victim", seed)
        fit(victim, data, split, seed=seed)
        for name in names:
            start, changed = time.process_time(), data
            if name != "none":
                changed = ATTACKS[name](data, victim, split, count, seed).apply(data)
            seconds, retrained = time.process_time() - start, float("nan")
            if options.poison:
                fresh = new_model("fresh", seed)
                fit(fresh, changed, split, seed=seed)
                retrained = 100 * evaluate(fresh, changed, split.test)[1]
            rows[name].append((100 * evaluate(victim, changed, split.test)[1], retrained, seconds))
    for name, each in rows.items():
        evasion, poisoning, seconds = (sum(values) / len(values) for values in zip(*each, strict=True))
        print(f"{name:40} {evasion:6.2f} % right, {poisoning:6.2f} % trained anew, {seconds:6.1f} s of CPU time")


if __name__ == "__main__":
    main()
