"""How many single nodes Nettack, FGA and PGD mislead a GCN about, with the degree plus 2 flips each, and how fast.

    python benchmarks/nettack_strength.py [--dataset cora] [--targets 40] [--poison] [--attacks nettack fga ...]

Targets are test nodes that the GCN classifies correctly: a quarter with the largest margin, a quarter with the
smallest, the others random, as in Nettack's paper. Each has an attack of its own on the original graph. Evasion asks
the same GCN on the attacked graph; --poison trains another one on the attacked graph of each target, from the same
initialisation and with the same split.
"""

import argparse
import time
from collections.abc import Callable

import torch
from torch import nn

from wtawp.attacks import fga, nettack, nettack_many, pgd, random_flips
from wtawp.base import rng
from wtawp.experiments.measures.targeted import chosen_targets
from wtawp.graphs import Flips, load, stratified
from wtawp.models import GCN
from wtawp.training import fit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--targets", type=int, default=40)
    parser.add_argument("--hidden", type=int, default=16)
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--poison", action="store_true")
    parser.add_argument("--attacks", nargs="*", help="the names of the attacks to run; all by default")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    data = load(chosen.dataset)
    split = stratified(data.y, seed=chosen.split)

    def trained(graph: object) -> nn.Module:
        model = GCN(data.num_features, int(data.y.max()) + 1, hidden=(chosen.hidden,), generator=rng("init", 0))
        fit(model, graph, split, seed=0)
        return model.eval()

    victim = trained(data)
    with torch.no_grad():
        logits = victim(data.x, data.edge_index)
    targets = chosen_targets(logits, data.y, split.test, chosen.targets, rng("targets", chosen.dataset, chosen.split))
    degree = torch.bincount(data.edge_index[0], minlength=data.num_nodes)
    paper = {"labels": data.y, "seed": 0, "train": split.train}
    one = {"labels": data.y, "seed": 0}

    def each(find: Callable[..., Flips], **more: object) -> Callable[[], list[Flips]]:
        return lambda: [find(data, victim, nodes=v[None], budget=int(degree[v]) + 2, **one, **more) for v in targets]

    attacks: dict[str, Callable[[], list[Flips]]] = {
        "random edges": lambda: [random_flips(data, budget=int(degree[v]) + 2, seed=int(v)) for v in targets],
        "nettack": lambda: nettack_many(data, targets=targets, **paper),
        "nettack, imitating the victim": lambda: nettack_many(data, victim, targets=targets, **one),
        "nettack, one call a node": lambda: [nettack(data, nodes=v[None], **paper) for v in targets],
        "nettack, edges and features": lambda: nettack_many(data, targets=targets, flip_features=True, **paper),
        "nettack, influence": lambda: nettack_many(data, targets=targets, direct=False, **paper),
        "fga": each(fga),
        "pgd, 20 steps": each(pgd, steps=20),
    }
    for name, find in attacks.items():
        if chosen.attacks is not None and name not in chosen.attacks:
            continue
        start = time.process_time()
        flips = find()
        seconds = (time.process_time() - start) / len(targets)
        misled = poisoned = 0
        for v, changes in zip(targets.tolist(), flips, strict=True):
            graph = changes.apply(data)
            models = [victim, trained(graph)] if chosen.poison else [victim]
            with torch.no_grad():
                wrong = [int(model(graph.x, graph.edge_index)[v].argmax()) != int(data.y[v]) for model in models]
            misled, poisoned = misled + wrong[0], poisoned + wrong[-1]
        retrained = f", {poisoned} after training" if chosen.poison else ""
        total = sum(map(len, flips))
        print(
            f"{name:30} {misled} of {len(targets)} misled{retrained}  {seconds:6.3f} s a node, {total} flips",
            flush=True,
        )


if __name__ == "__main__":
    main()
