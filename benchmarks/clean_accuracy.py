"""The clean-accuracy table of the paper (tab:natacc): 20 splits x 10 initialisations a cell, with and without WT-AWP.

    python benchmarks/clean_accuracy.py --device cuda --out results/natacc.jsonl

One JSON line a cell: the setting, every run's test and validation accuracy and selected epoch, seconds, versions.
Seconds are those of `fit_many` alone, after a few epochs that let compilers and devices warm up.
Splits and initialisations are shared by the two sides of a pair. Data: `wtawp data get cora citeseer polblogs`.
"""

import argparse
import json
import platform
import time
from pathlib import Path
from statistics import mean, stdev

import torch

from wtawp.base import rng
from wtawp.core import AwpConfig
from wtawp.graphs import load, stratified
from wtawp.models import APPNP, GAT, GCN
from wtawp.training import fit_many

MODELS = {"GCN": GCN, "GAT": GAT, "PPNP": APPNP}
SETTINGS = {  # (lam, rho), sec:cleanaccuracy
    "cora": dict.fromkeys(MODELS, (0.7, 1.0)),
    "citeseer": dict.fromkeys(MODELS, (0.7, 2.5)),
    "polblogs": {"GCN": (0.3, 1.0), "GAT": (0.3, 2.0), "PPNP": (0.3, 2.0)},
}


def cell(name: str, dataset: str, with_awp: bool, options: argparse.Namespace) -> dict[str, object]:
    data = load(dataset)
    num_classes = int(data.y.max()) + 1
    lam, rho = SETTINGS[dataset][name]
    splits = [stratified(data.y, seed=s) for s in range(options.splits)]
    runs = [(s, i) for s in range(options.splits) for i in range(options.inits)]
    models = [
        MODELS[name](data.num_features, num_classes, generator=rng("init", s, i)).to(options.device) for s, i in runs
    ]
    start = time.perf_counter()
    fits = fit_many(
        models,
        data,
        [splits[s] for s, _ in runs],
        seeds=[s * 1000 + i for s, i in runs],
        awp=AwpConfig(rho=rho, lam=lam) if with_awp else None,
        epochs=options.epochs,
        tf32=options.tf32,
        select_on=options.select_on,
    )
    seconds = time.perf_counter() - start
    return {
        "table": "tab:natacc",
        "model": name,
        "dataset": dataset,
        "method": "WT-AWP" if with_awp else "plain",
        "lam": lam if with_awp else None,
        "rho": rho if with_awp else None,
        "epochs": options.epochs,
        "select_on": options.select_on,
        "runs": [f"split {s}, init {i}" for s, i in runs],
        "test_accuracy": [round(100 * f.accuracy["test"], 4) for f in fits],
        "val_accuracy": [round(100 * f.accuracy["val"], 4) for f in fits],
        "epoch": [f.epoch for f in fits],
        "seconds": round(seconds, 2),
        "tf32": options.tf32,
        "device": torch.cuda.get_device_name() if options.device == "cuda" else platform.machine(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--datasets", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--inits", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--select-on", default="either", choices=["either", "loss", "accuracy"])
    parser.add_argument("--tf32", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    with options.out.open("w", encoding="utf-8") as out:
        for name in options.models:
            for dataset in options.datasets:
                cell(name, dataset, True, argparse.Namespace(**{**vars(options), "epochs": 5}))  # warm up
                for with_awp in (False, True):
                    record = cell(name, dataset, with_awp, options)
                    out.write(json.dumps(record) + "\n")
                    out.flush()
                    accuracies = record["test_accuracy"]
                    print(
                        f"{name} {dataset} {record['method']}: {mean(accuracies):.2f} ± {stdev(accuracies):.2f}"
                        f" ({len(accuracies)} runs, {record['seconds']} s)",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
