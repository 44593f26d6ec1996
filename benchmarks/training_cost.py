"""What one training and one cell of trainings cost, against a sequential loop over PyTorch Geometric's layers.

    python benchmarks/training_cost.py [--device cuda] [--splits 20] [--json FILE]

The baseline is written here, in the structure of the paper's released code: the whole graph in every pass, one run
after another; WT-AWP with a proxy copy of the model and three forward and backward passes an epoch. It starts from our
initial weights, on our splits, and gets features and edges in the form that is fastest for it (see `inputs`). Ours:
`fit` alone, and `fit_many` over a cell of splits x inits. CPU seconds of one thread on the CPU, wall clock on CUDA;
both sides are warm, and data are loaded and models built before.
"""

import argparse
import copy
import json
import os
import platform
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import mean
from typing import TypeVar

import torch
import torch_geometric
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric import nn as pyg
from torch_geometric.data import Data
from torch_geometric.utils import to_torch_csr_tensor

from wtawp.base import rng
from wtawp.core import AwpConfig
from wtawp.graphs import Split, load, stratified
from wtawp.models import GAT, GCN, PPNP
from wtawp.training import fit, fit_many

T = TypeVar("T")
LAM, RHO = 0.7, 1.0
RELEASED = {  # seconds of one 200-epoch training with the paper's released code on Cora, one core: plain, WT-AWP
    "GCN": (2.6, 6.4),
    "GAT": (22.0, 63.0),
    "PPNP": (18.0, 61.0),
}


class BaselineGCN(nn.Module):
    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList([pyg.GCNConv(d_in, 64, cached=True), pyg.GCNConv(64, d_out, cached=True)])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = F.dropout(self.convs[0](x, edge_index).relu(), 0.5, self.training)
        return self.convs[1](hidden, edge_index)


class BaselineGAT(nn.Module):
    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList([pyg.GATConv(d_in, 8, heads=8, dropout=0.5), pyg.GATConv(64, d_out, dropout=0.5)])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = F.elu(self.convs[0](F.dropout(x, 0.5, self.training), edge_index))
        return self.convs[1](F.dropout(hidden, 0.5, self.training), edge_index)


class BaselinePPNP(nn.Module):
    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.lin1, self.lin2 = nn.Linear(d_in, 64), nn.Linear(64, d_out)
        self.propagate = pyg.APPNP(K=10, alpha=0.1, cached=True)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = self.lin1(F.dropout(x, 0.5, self.training)).relu()
        return self.propagate(self.lin2(F.dropout(hidden, 0.5, self.training)), edge_index)


MODELS = {"GCN": (GCN, BaselineGCN), "GAT": (GAT, BaselineGAT), "PPNP": (PPNP, BaselinePPNP)}


def same_start(baseline: nn.Module, ours: nn.Module) -> nn.Module:
    """`baseline` with our initial weights; names differ by `lin.`, and our matrices lie the other way round."""
    source = ours.state_dict()
    with torch.no_grad():
        for name, weight in baseline.named_parameters():
            found = source[name] if name in source else source[name.replace("lin.", "")]
            weight.copy_(found.T if name.endswith("weight") else found.view_as(weight))
    return baseline


def inputs(name: str, data: Data) -> tuple[Tensor, Tensor]:
    """Features and edges as the baseline gets them. GAT and PPNP drop out of dense features, as the released code does.

    On one core, 200 plain epochs on Cora: GCN about 6 s from dense features and edges, 3 s from CSR; PPNP 19 and 18.5.
    """
    if data.x.is_cuda or name == "GAT":
        return data.x, data.edge_index
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # torch calls its CSR a beta
        adjacency = to_torch_csr_tensor(data.edge_index, size=(data.num_nodes, data.num_nodes))
        return data.x.to_sparse_csr() if name == "GCN" else data.x, adjacency


def sequential(
    model: nn.Module, x: Tensor, edges: Tensor, y: Tensor, split: Split, *, with_awp: bool, epochs: int
) -> float:
    """Train as the released code does; the test accuracy of the last epoch that improved on the validation set."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    first = next(n for n, w in model.named_parameters() if n.endswith("weight") and w.dim() == 2)
    weight = model.get_parameter(first)
    if with_awp:
        proxy = copy.deepcopy(model)
        proxy_optimizer = torch.optim.SGD(proxy.parameters(), lr=1.0)
    lowest, highest, best = float("inf"), 0.0, copy.deepcopy(model.state_dict())

    def loss_of(module: nn.Module) -> Tensor:
        return F.cross_entropy(module(x, edges)[split.train], y[split.train])

    for _ in range(epochs):
        model.train()
        optimizer.zero_grad()
        if with_awp:
            proxy.load_state_dict(model.state_dict())
            proxy.train()
            proxy_optimizer.zero_grad()
            (-loss_of(proxy)).backward()
            proxy_optimizer.step()
            with torch.no_grad():
                step = proxy.get_parameter(first) - weight
                delta = RHO * weight.norm() * step / (step.norm() + 1e-5)
            ((1 - LAM) * loss_of(model)).backward()
            with torch.no_grad():
                weight.add_(delta)
            (LAM * loss_of(model)).backward()
            with torch.no_grad():
                weight.sub_(delta)
        else:
            loss_of(model).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            logits = model(x, edges)[split.val]
            loss, accuracy = float(F.cross_entropy(logits, y[split.val])), accuracy_of(logits, y[split.val])
        if loss < lowest or accuracy > highest:
            lowest, highest = min(loss, lowest), max(accuracy, highest)
            best = copy.deepcopy(model.state_dict())
    model.load_state_dict(best)
    with torch.no_grad():
        return accuracy_of(model(x, edges)[split.test], y[split.test])


def accuracy_of(logits: Tensor, y: Tensor) -> float:
    return float((logits.argmax(1) == y).float().mean())


def timed(work: Callable[[], T], device: str) -> tuple[float, T]:
    """CPU seconds of the process, or the wall clock of the device, and the result."""
    if device == "cpu":
        start = time.process_time()
        result = work()
        return time.process_time() - start, result
    torch.cuda.synchronize()
    start = time.perf_counter()
    result = work()
    torch.cuda.synchronize()
    return time.perf_counter() - start, result


def measure(name: str, with_awp: bool, data: Data, options: argparse.Namespace) -> dict[str, object]:
    ours, baseline = MODELS[name]
    shape = data.num_features, int(data.y.max()) + 1
    x, edges = inputs(name, data)
    awp = AwpConfig(rho=RHO, lam=LAM) if with_awp else None
    splits = [stratified(data.y, seed=s) for s in range(max(options.splits, options.baseline_runs))]

    def new(s: int, i: int = 0) -> nn.Module:
        return ours(*shape, generator=rng("init", s, i)).to(options.device)

    def alone(s: int, epochs: int) -> tuple[float, float]:
        model = new(s)
        taken, run = timed(lambda: fit(model, data, splits[s], seed=s * 1000, awp=awp, epochs=epochs), options.device)
        return taken, run.accuracy["test"]

    def by_loop(s: int, epochs: int) -> tuple[float, float]:
        model = same_start(baseline(*shape).to(options.device), new(s))
        run = partial(sequential, model, x, edges, data.y, splits[s], with_awp=with_awp, epochs=epochs)
        return timed(run, options.device)

    alone(0, 5), by_loop(0, 5)  # compiles and warms up
    singles = [alone(s, options.epochs) for s in range(options.baseline_runs)]
    loops = [by_loop(s, options.epochs) for s in range(options.baseline_runs)]
    runs = [(s, i) for s in range(options.splits) for i in range(options.inits)]
    models = [new(s, i) for s, i in runs]
    cell, fits = timed(
        lambda: fit_many(
            models,
            data,
            [splits[s] for s, _ in runs],
            seeds=[s * 1000 + i for s, i in runs],
            awp=awp,
            epochs=options.epochs,
            tf32=options.tf32,
        ),
        options.device,
    )
    return {
        "model": name,
        "method": "WT-AWP" if with_awp else "plain",
        "dataset": options.dataset,
        "epochs": options.epochs,
        "baseline_seconds": [t for t, _ in loops],
        "baseline_accuracy": [100 * a for _, a in loops],
        "alone_seconds": [t for t, _ in singles],
        "alone_accuracy": [100 * a for _, a in singles],
        "cell_seconds": cell,
        "cell_accuracy": [100 * f.accuracy["test"] for f in fits],
    }


def row(record: dict[str, object], released: str) -> str:
    loop, alone = mean(record["baseline_seconds"]), mean(record["alone_seconds"])
    each = record["cell_seconds"] / len(record["cell_accuracy"])
    cells = [record["model"], record["method"], f"{loop:.2f}", released, f"{alone:.2f}", f"{each:.3f}"]
    cells += [f"{record['cell_seconds']:.1f}", f"{loop / alone:.1f}", f"{loop / each:.1f}"]
    cells += [f"{mean(record[f'{side}_accuracy']):.2f}" for side in ("baseline", "alone", "cell")]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--splits", type=int, default=20, help="of a cell; fewer give the same seconds per training")
    parser.add_argument("--inits", type=int, default=10)
    parser.add_argument("--baseline-runs", type=int, default=1, help="splits the baseline and `fit` alone are run on")
    parser.add_argument("--tf32", action="store_true", help="for our cells on CUDA")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = load(options.dataset).to(options.device)
    chip = torch.cuda.get_device_name() if options.device == "cuda" else f"1 of {os.cpu_count()} CPU cores"
    clock = "wall clock" if options.device == "cuda" else "CPU seconds"
    versions = f"torch {torch.__version__}, PyG {torch_geometric.__version__}, Python {platform.python_version()}"
    print(f"{chip} ({platform.machine()}), {clock}, {versions}; {options.dataset}, {options.epochs} epochs")
    print(f"Baseline and `fit`: {options.baseline_runs} run(s); a cell: {options.splits} x {options.inits} runs\n")
    print(
        "| model | method | loop, s | released code, s | `fit`, s | in a cell, s a run | cell, s | loop / `fit` |",
        end="",
    )
    print(" loop / in a cell | accuracy: loop | `fit` | cell |\n|---|---|" + "---:|" * 10)
    records: list[dict[str, object]] = []
    for name in options.models:
        for with_awp in (False, True):
            record = {"machine": chip, "versions": versions, **measure(name, with_awp, data, options)}
            records.append(record)
            known = options.device == "cpu" and options.dataset == "cora" and options.epochs == 200
            print(row(record, f"{RELEASED[name][with_awp]:.1f}" if known else "-"), flush=True)
            if options.json:
                options.json.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")


if __name__ == "__main__":
    main()
