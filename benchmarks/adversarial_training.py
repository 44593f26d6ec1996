"""Whether adversarial training raises the accuracy under attack where test nodes are unseen in training.

    python benchmarks/adversarial_training.py [--dataset cora] [--splits 3] [--models GCN,PPNP]

Gosch et al. (2023, arXiv 2306.15427) find that it does in a fully inductive setting, with flexible propagation. Here
models are trained without the test nodes: plainly, with WT-AWP, against PRBCD in training, and with both. Then PRBCD on
the tanh margin attacks each on the full graph, at its test nodes with their true labels. Differences from the plain
training are paired over splits, with 95 % intervals.
"""

import argparse
import time
from statistics import mean

import torch
from torch_geometric.data import Data

from wtawp.attacks import attacked_by_prbcd, prbcd
from wtawp.base import rng
from wtawp.experiments.plans.defaults import default_awp
from wtawp.experiments.results.statistics import paired_difference
from wtawp.graphs import Split, inductive, load, stratified
from wtawp.models.registry import model_spec
from wtawp.training import evaluate, fit

METHODS = {  # by name: with WT-AWP, with adversarial training
    "plain": (False, False), "WT-AWP": (True, False), "adversarial": (False, True), "both": (True, True),
}  # fmt: skip
BUDGETS = (0.05, 0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--models", default="GCN,PPNP", help="names of models, separated by commas")
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--budget", type=float, default=0.1, help="of the attacks in training, a share of the edges")
    parser.add_argument("--every", type=int, default=4, help="epochs between two attacks in training")
    parser.add_argument("--training-steps", type=int, default=5, help="steps of each attack in training")
    parser.add_argument("--steps", type=int, default=40, help="steps of the attacks that are measured")
    parser.add_argument("--block-size", type=int, default=50_000)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    data, start = load(chosen.dataset), time.process_time()
    for name in chosen.models.split(","):
        accuracies: dict[str, list[list[float]]] = {method: [] for method in METHODS}
        for number in range(chosen.splits):
            split = stratified(data.y, seed=number, train=0.4, val=0.1)
            for method in METHODS:
                accuracies[method].append(measured(data, split, name, method, number, chosen))
                shown = "  ".join(f"{each:.2f}" for each in accuracies[method][-1])
                print(f"# {name}, split {number}, {method}: {shown}", flush=True)
        print_rows(name, accuracies)
    print(f"{time.process_time() - start:.0f} s of one thread")


def measured(data: Data, split: Split, name: str, method: str, seed: int, chosen: argparse.Namespace) -> list[float]:
    """Test accuracies in per cent of one model: on the clean graph, and under attack at each budget."""
    with_awp, with_attacks = METHODS[method]
    known, known_split = inductive(data, split)
    model = model_spec(name).build(data.num_features, int(data.y.max()) + 1, {}, rng("init", seed))
    augment = None
    if with_attacks:
        augment = attacked_by_prbcd(
            model, budget=chosen.budget, nodes=known_split.train, labels=known.y, seed=seed, every=chosen.every,
            steps=chosen.training_steps, block_size=chosen.block_size,
        )  # fmt: skip
    awp = default_awp(name, chosen.dataset) if with_awp else None
    fit(model, known, known_split, seed=seed, awp=awp, epochs=chosen.epochs, augment=augment)
    common = {"nodes": split.test, "labels": data.y, "seed": seed, "steps": chosen.steps}
    attacks = [prbcd(data, model, budget=b, block_size=chosen.block_size, **common) for b in BUDGETS]
    return [100 * evaluate(model, graph, split.test)[1] for graph in (data, *(flips.apply(data) for flips in attacks))]


def print_rows(name: str, accuracies: dict[str, list[list[float]]]) -> None:
    """Print the rows of a table: means, and differences from plain training with their intervals."""
    for method, rows in accuracies.items():
        cells = []
        for column in range(1 + len(BUDGETS)):
            plain, treated = ([row[column] for row in each] for each in (accuracies["plain"], rows))
            cells.append(f"{mean(treated):.2f}")
            if method != "plain" and len(treated) > 1:
                difference = paired_difference(plain, treated)
                cells[-1] += f" ({difference.mean:+.2f}, {difference.interval('+.2f')})"
        print(f"| {name}, {method} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
