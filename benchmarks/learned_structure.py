"""Accuracy of models on poisoned graphs, as they are and after `learn_structure` (Cora and Metattack by default).

    python benchmarks/learned_structure.py --splits 2

For each budget, Metattack poisons each split; a GCN without and with WT-AWP (rho 1, lam 0.7) is then trained on the
poisoned graph and on the graph that `learn_structure` makes of it. A line holds mean test accuracies.
"""

import argparse
import time

import torch
from torch_geometric.data import Data

from wtawp.attacks import metattack, self_training_labels
from wtawp.base import rng
from wtawp.core import AwpConfig
from wtawp.graphs import Split, load, stratified
from wtawp.models import GCN
from wtawp.training import evaluate, fit, learn_structure


def new_gcn(data: Data, *key: str | int) -> GCN:
    return GCN(data.num_features, int(data.y.max()) + 1, hidden=(16,), generator=rng("gcn", *key))


def poisoned(data: Data, split: Split, budget: float, seed: int) -> Data:
    """The graph after Metattack, which knows what a GCN predicts; the graph itself for a budget of 0."""
    if budget == 0:
        return data
    surrogate = new_gcn(data, "surrogate", seed)
    fit(surrogate, data, split, seed=seed)
    with torch.no_grad():
        labels = self_training_labels(surrogate.eval()(data.x, data.edge_index), data.y, split.train)
    return metattack(data, budget=budget, train=split.train, labels=labels, seed=seed).apply(data)


def accuracy(graph: Data, split: Split, awp: AwpConfig | None, inits: int) -> float:
    """The mean test accuracy, in per cent, of some models trained on a graph."""
    accuracies = []
    for init in range(inits):
        model = new_gcn(graph, "trained", init)
        fit(model, graph, split, seed=init, awp=awp)
        accuracies.append(100 * evaluate(model, graph, split.test)[1])
    return sum(accuracies) / inits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--budgets", nargs="+", type=float, default=[0.0, 0.05, 0.2])
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--inits", type=int, default=3)
    parser.add_argument("--smoothness", type=float, default=0.005)
    options = parser.parse_args()
    data, awp = load(options.dataset), AwpConfig(rho=1.0, lam=0.7)
    for budget in options.budgets:
        rows, seconds = [], 0.0
        for seed in range(options.splits):
            split = stratified(data.y, seed=seed)
            graph, start = poisoned(data, split, budget, seed), time.process_time()
            learned = learn_structure(graph, split, seed=seed, smoothness=options.smoothness)
            seconds += time.process_time() - start
            rows.append([accuracy(each, split, way, options.inits) for each in (graph, learned) for way in (None, awp)])
        means = [sum(column) / len(column) for column in zip(*rows, strict=True)]
        shown = ", ".join(
            f"{name} {mean:.2f}"
            for name, mean in zip(("GCN", "+ WT-AWP", "learned: GCN", "+ WT-AWP"), means, strict=True)
        )
        print(f"{budget:5.0%}  {shown}  ({seconds / options.splits:.0f} s of CPU time, {rows})", flush=True)


if __name__ == "__main__":
    main()
