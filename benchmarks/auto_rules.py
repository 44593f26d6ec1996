"""Compare rules for lam="auto" on the graphs it was developed on, beside plain training and fixed values.

    python benchmarks/auto_rules.py cora:GCN cora:GraphSAGE --rule MAX_RISE=8 --rule FLOOR=0,SLOPE=1 --fixed 0.7:1

A rule changes constants of `wtawp.core.auto` by their names; `RHO` and `BALANCE` are options of the method. The rule of
the package is always among the rows. The differences to plain training are paired over splits.
"""

import argparse
from collections.abc import Iterator
from contextlib import ExitStack
from unittest import mock

import torch
from scipy import stats

from wtawp import AwpConfig, fit_many, load, rng, stratified
from wtawp.core import auto
from wtawp.models import model_spec

CONSTANTS = (
    "FLOOR", "SLOPE", "MAX_LAM", "RATE", "NEARLY_PLAIN_LAM", "MAX_PLAIN_GAP", "LIMIT", "MAX_RISE", "SHRINK", "GROW",
)  # fmt: skip


def rules_of(texts: list[str], fixed: list[str]) -> Iterator[tuple[str, AwpConfig | None, dict[str, float]]]:
    """The rows: a name, the options of the method, and the constants to change."""
    yield "plain", None, {}
    for pair in fixed:
        lam, rho = map(float, pair.split(":"))
        yield f"lam={lam:g}, rho={rho:g}", AwpConfig(lam=lam, rho=rho), {}
    for text in ["", *texts]:
        values = {name: float(value) for name, value in (part.split("=") for part in text.split(",") if part)}
        unknown = values.keys() - {*CONSTANTS, "RHO", "BALANCE"}
        if unknown:
            raise SystemExit(f"--rule takes {', '.join(CONSTANTS)}, RHO and BALANCE, got {', '.join(sorted(unknown))}")
        awp = AwpConfig(lam="auto", rho=values.pop("RHO", 1.0), balance=values.pop("BALANCE", "auto"))
        yield f"auto {text}".strip(), awp, values


def accuracies(
    dataset: str, model: str, awp: AwpConfig | None, splits: int, inits: int, device: str, lr: float
) -> tuple[torch.Tensor, float]:
    """The test accuracies in per cent [splits, inits], and the mean of lam at the end."""
    data, build = load(dataset), model_spec(model).build
    rows, lams = [], []
    together = splits if device == "cuda" else 1  # a GPU trains the members of all splits at once
    for first in range(0, splits, together):
        runs = [(split, init) for split in range(first, first + together) for init in range(inits)]
        parts = {split: stratified(data.y, seed=split) for split, _ in runs}
        models = [build(data.num_features, int(data.y.max()) + 1, {}, rng("init", *run)).to(device) for run in runs]
        seeds = [1000 * split + init for split, init in runs]
        fits = fit_many(models, data, [parts[split] for split, _ in runs], seeds=seeds, awp=awp, lr=lr)
        rows += [100 * fit.accuracy["test"] for fit in fits]
        lams += [fit.history["lam"][-1] for fit in fits if "lam" in fit.history]
    return torch.tensor(rows).reshape(splits, inits), sum(lams) / len(lams) if lams else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", nargs="+", metavar="DATASET:MODEL")
    parser.add_argument("--rule", action="append", default=[], metavar="NAME=VALUE,...")
    parser.add_argument("--fixed", action="append", default=[], metavar="LAM:RHO")
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--inits", type=int, default=3)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    print("| data | model | rule | accuracy | gain | 95 % | lam at the end |")
    print("| --- | --- | --- | ---: | ---: | --- | ---: |")
    for pair in options.pairs:
        dataset, model = pair.split(":")
        plain = None
        for name, awp, constants in rules_of(options.rule, options.fixed):
            with ExitStack() as changed:
                for constant, value in constants.items():
                    changed.enter_context(mock.patch.object(auto, constant, value))
                runs, lam = accuracies(dataset, model, awp, options.splits, options.inits, options.device, options.lr)
            by_split = runs.double().mean(1)
            plain = by_split if plain is None else plain
            gains = by_split - plain
            spread = stats.t.ppf(0.975, len(gains) - 1) * float(gains.std()) / len(gains) ** 0.5
            interval = f"{gains.mean() - spread:+.2f} to {gains.mean() + spread:+.2f}"
            row = (dataset, model, name, f"{by_split.mean():.2f}", f"{gains.mean():+.2f}", interval, f"{lam:.2f}")
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
