"""Try to break certificates of a GCN: attacks within the certified radius, votes again; a JSON file of all attempts.

    python benchmarks/certificate_soundness.py --out results/certificate_soundness.json [--dataset cora] [--pairs 1000]

Half of the pairs of a node and a radius are certified under noise on features (attacked by random and greedy flips),
half under noise on edges (DICE and PGD). Certificates are at alpha = 1e-6 each; a guarantee counts as broken if after
the attack another class wins for certain at that level. The exit status is 1 if any was broken.
"""

import argparse
import json
import sys
from pathlib import Path

import torch

from wtawp import fit, load
from wtawp.base import rng
from wtawp.certificates import Noise
from wtawp.experiments.execution import device_name, versions
from wtawp.experiments.inspection import check_soundness
from wtawp.experiments.plans.robustness import PAPER_NOISE
from wtawp.graphs import stratified
from wtawp.models import GCN


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    data = load(chosen.dataset).to(chosen.device)
    model = GCN(data.num_features, int(data.y.max()) + 1, generator=rng("init", 0, 0)).to(chosen.device)
    fit(model, data, stratified(data.y.cpu(), seed=0), seed=0)
    results = []
    for on, (p_add, p_del) in PAPER_NOISE.items():
        result = check_soundness(
            data, model, on=on, noise=Noise(p_add=p_add, p_del=p_del), pairs=chosen.pairs // 2,
            samples=chosen.samples, seed=0, progress=lambda _, text: print(f"\r{text}   ", end="", file=sys.stderr),
        )  # fmt: skip
        print(f"\n{on}: {result['broken']} of {result['pairs']} broken, smallest margin {result['margin']}")
        results.append(result)
    origin = {"dataset": chosen.dataset, "device": device_name(chosen.device, tf32=False), "versions": versions()}
    chosen.out.write_text(json.dumps({**origin, "results": results}) + "\n", encoding="utf-8")
    if any(result["broken"] for result in results):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
