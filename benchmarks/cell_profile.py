"""What a cell of trainings spends its time on: seconds of whole cells, then a profile of a shorter one by kernels.

    python benchmarks/cell_profile.py [--device cuda] [--models GCN GAT PPNP] [--dataset cora] [--epochs 200] [--tf32]

On a GPU the profile shows kernels, those that a replayed CUDA graph launches included; on a CPU, torch's operators.
"""

import argparse
import time

import torch
from torch.profiler import ProfilerActivity, profile

from wtawp import AwpConfig, fit_many, load, rng, stratified
from wtawp.models import model_spec

WARM_UP, PROFILED, ROWS = 8, 60, 40  # epochs, epochs, rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--models", nargs="+", default=["GCN"])
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--inits", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--tf32", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    data = load(options.dataset).to(options.device)
    shape = data.num_features, int(data.y.max()) + 1
    splits = [stratified(data.y, seed=split) for split in range(options.splits)]
    runs = [(split, init) for split in range(options.splits) for init in range(options.inits)]

    def train(name: str, epochs: int) -> float:
        models = [model_spec(name).build(*shape, {}, rng("init", *run)).to(options.device) for run in runs]
        chosen, seeds = [splits[split] for split, _ in runs], list(range(len(runs)))
        start = time.perf_counter()
        fit_many(models, data, chosen, seeds=seeds, awp=AwpConfig(rho=1.0, lam=0.7), epochs=epochs, tf32=options.tf32)
        if options.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start

    for name in options.models:
        train(name, WARM_UP)
        whole, short = (", ".join(f"{train(name, n):.2f}" for _ in range(3)) for n in (options.epochs, WARM_UP))
        print(f"{name}, {len(runs)} models: {whole} s for {options.epochs} epochs, {short} s for {WARM_UP}", flush=True)
        activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if options.device == "cuda" else [])
        with profile(activities=activities) as profiler:
            train(name, PROFILED)
        sort_by = f"self_{options.device}_time_total"
        print(profiler.key_averages().table(sort_by=sort_by, row_limit=ROWS, max_name_column_width=110), flush=True)


if __name__ == "__main__":
    main()
