"""Strength and memory of the attacks on features, on the test nodes of a trained GCN (Cora by default).

    python benchmarks/feature_strength.py --splits 3

Each line is one attack in a process of its own: the test accuracy after it (mean over splits), the most entries of X
that were relaxed at once, the peak of resident memory above that of the trained model, and the time of an attack.
"""

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from torch import nn
from torch_geometric.data import Data

from wtawp.attacks import pgd_features, prbcd_features
from wtawp.attacks.relaxed import target_of
from wtawp.base import rng
from wtawp.graphs import FeatureFlips, Split, feature_budget_of, load, stratified
from wtawp.models import GCN
from wtawp.training import evaluate, fit

Attack = Callable[[Data, nn.Module, Split, int, int], FeatureFlips]
ROUNDS = 20  # of the greedy attack, each of which flips a share of the budget


def as_flips(codes: torch.Tensor, data: Data) -> FeatureFlips:
    size, width = data.x.shape
    return FeatureFlips.of(torch.stack([codes // width, codes % width]), size, width)


def at_random(data: Data, _: nn.Module, __: Split, count: int, seed: int) -> FeatureFlips:
    return as_flips(torch.randperm(data.x.numel(), generator=rng("random entries", seed))[:count], data)


def greedy(data: Data, victim: nn.Module, split: Split, count: int, _: int) -> FeatureFlips:
    """Flip the entries with the largest gradient of the tanh margin, a share of the budget at a time."""
    target, x = target_of(data, [split.test], [data.y], "tanh_margin"), data.x.clone()
    victim.eval()
    flipped = torch.zeros(x.numel(), dtype=torch.bool)
    for number in range(ROUNDS):
        variable = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(target.losses(victim(variable, data.edge_index)[None])[0], variable)
        gain = ((1 - 2 * x) * gradient).flatten().masked_fill(flipped, -torch.inf)
        chosen = gain.topk(count * (number + 1) // ROUNDS - count * number // ROUNDS).indices
        flipped[chosen] = True
        x.view(-1)[chosen] = 1 - x.view(-1)[chosen]
    return as_flips(flipped.nonzero()[:, 0], data)


def dense(loss: str) -> Attack:
    def attack(data: Data, victim: nn.Module, split: Split, count: int, seed: int) -> FeatureFlips:
        how = {"budget": count, "nodes": split.test, "labels": data.y, "seed": seed}
        return pgd_features(data, victim, loss=loss, **how)  # type: ignore[arg-type]

    return attack


def blocks(block_size: int, step_size: float = 1000.0) -> Attack:
    def attack(data: Data, victim: nn.Module, split: Split, count: int, seed: int) -> FeatureFlips:
        how = {"budget": count, "nodes": split.test, "labels": data.y, "seed": seed}
        return prbcd_features(data, victim, block_size=block_size, step_size=step_size, **how)

    return attack


ATTACKS: dict[str, tuple[Attack | None, int | None]] = {  # with the entries relaxed at once; None: all
    "none": (None, 0),
    "random": (at_random, 0),
    "greedy": (greedy, None),
    "pgd-features, margin": (dense("margin"), None),
    "pgd-features, tanh_margin": (dense("tanh_margin"), None),
    "prbcd-features, 10,000": (blocks(10_000), 10_000),
    "prbcd-features, 50,000": (blocks(50_000), 50_000),
    "prbcd-features, 250,000": (blocks(250_000), 250_000),
    "prbcd-features, 250,000, step 100": (blocks(250_000, 100.0), 250_000),
    "prbcd-features, 250,000, step 10": (blocks(250_000, 10.0), 250_000),
}


def peak() -> float:
    """The peak of resident memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(name: str, chosen: argparse.Namespace) -> None:
    data, (attack, relaxed) = load(chosen.dataset), ATTACKS[name]
    count, accuracies, seconds, before, flipped = feature_budget_of(data, chosen.budget), [], 0.0, peak(), 0
    for seed in range(chosen.splits):
        split = stratified(data.y, seed=seed)
        victim = GCN(data.num_features, int(data.y.max()) + 1, generator=rng("victim", seed))
        fit(victim, data, split, seed=seed)
        changed, before = data, peak() if seed == 0 else before
        if attack is not None:
            start = time.process_time()
            flips = attack(data, victim, split, count, seed)
            seconds += time.process_time() - start
            changed, flipped = flips.apply(data), flipped + len(flips)
        accuracies.append(100 * evaluate(victim, changed, split.test)[1])
    entries = data.x.numel() if relaxed is None else relaxed
    mean, splits = sum(accuracies) / len(accuracies), chosen.splits
    print(
        f"{name:34} {mean:6.2f} % right, {flipped / splits:6.0f} flips, {entries:9,} entries relaxed,"
        f" {peak() - before:5.0f} MiB, {seconds / splits:6.1f} s of CPU time",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--budget", type=float, default=0.01, help="share of the ones in x")
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--attacks", nargs="+", choices=ATTACKS, default=list(ATTACKS))
    parser.add_argument("--here", action="store_true", help="measure in this process (for one attack)")
    chosen = parser.parse_args()
    if chosen.here:
        measure(chosen.attacks[0], chosen)
        return
    how = ["--dataset", chosen.dataset, "--budget", str(chosen.budget), "--splits", str(chosen.splits), "--here"]
    for name in chosen.attacks:
        subprocess.run([sys.executable, __file__, *how, "--attacks", name], check=True)


if __name__ == "__main__":
    main()
