"""The collective certificate against the certificates of the nodes one by one, from the same votes on features.

    python benchmarks/collective_certificate.py [citeseer] [--samples 10000] [--figure FILE.svg] [--png FILE.png]

Trains a GCN and a GCN with WT-AWP, both also under the noise of the certificate, votes, and prints for deletions and
for additions the average number of flips in the whole graph that a test node certifiably withstands, one by one and
together; the size of the linear program; and the seconds from given votes (certificate, receptive fields, and all
budgets), wall-clock and CPU. For the first model also by how much the relaxation exceeds the integer program at a few
budgets, as far as HiGHS solves the latter in the given time.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.optimize import Bounds, LinearConstraint, milp

from wtawp import AwpConfig, Noise, fit, load, rng, stratified
from wtawp.certificates import (
    Certificate,
    CollectiveCertificate,
    ReceptiveFields,
    certificate_of,
    collective,
    noisy_training,
    receptive_fields,
    vote,
)
from wtawp.certificates.collective_program import AttackProgram
from wtawp.experiments.measures.collective import stored_budgets
from wtawp.experiments.report.drawing import COLOURS, drawing, legend_beside
from wtawp.experiments.report.measures.collective import draw_curves
from wtawp.models import GCN

NOISE = Noise(p_add=0.01, p_del=0.6)
AXES: dict[str, dict[str, Any]] = {
    "deletions": {"additions": (0,), "deletions": None},
    "additions": {"additions": None, "deletions": (0,)},
}
AWP = AwpConfig(rho=1.0, lam=0.5)
METHODS = {  # how weights are perturbed in training, and whether it is under noise
    "GCN": (None, False),
    "GCN+WT-AWP": (AWP, False),
    "GCN, under noise": (None, True),
    "GCN+WT-AWP, under noise": (AWP, True),
}


def curve_of(result: CollectiveCertificate) -> dict[str, Any]:
    """A curve as the measure "collective" stores it, for `draw_curves`."""
    budgets = stored_budgets(result.ratio.size - 1)
    return {
        "budgets": budgets,
        "together": result.ratio.ravel()[budgets],
        "per_node": result.per_node_ratio.ravel()[budgets],
    }


def integer_gap(certificate: Certificate, fields: ReceptiveFields, labels: Any, nodes: Any, seconds: float) -> None:
    """Solve the integer program at a few budgets of deletions and print both bounds on the attacked nodes."""
    stairs = certificate.deletions("features")
    kept = nodes[(certificate.prediction[nodes] == labels[nodes]) & (stairs[nodes, 0] >= 0)]
    program = AttackProgram(fields.reach[kept], fields.zeros, fields.ones, stairs[kept])
    for flips in (5, 20, 100):
        limits = np.zeros(program.shape[0])
        limits[2 * program.num_groups : -2] = 1
        limits[-2:] = (0, flips)
        solved = milp(
            -program.weight, integrality=np.ones(program.shape[1]), bounds=Bounds(0, program.upper_bounds((0, flips))),
            constraints=LinearConstraint(program.matrix, ub=limits), options={"time_limit": seconds},
        )  # fmt: skip
        (relaxed,) = program.most_attacked([(0, flips)], [program.solve((0, flips))])
        attack = None if solved.x is None else round(-solved.fun)
        bound = program.num_nodes if solved.mip_dual_bound is None else int(np.floor(-solved.mip_dual_bound + 1e-6))
        print(f"  {flips:4d} deletions: at most {relaxed} attacked by the relaxation; integer: {attack} to {bound}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dataset", nargs="?", default="citeseer")
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=20.0, help="limit of each integer program; 0 leaves them out")
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--png", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    data = load(args.dataset)
    split, labels = stratified(data.y, seed=0), data.y.numpy()
    nodes = split.test.numpy()
    curves: dict[str, dict[str, Any]] = {flips: {} for flips in AXES}
    for name, (awp, is_noisy) in METHODS.items():
        model = GCN(data.num_features, int(data.y.max()) + 1, generator=rng("certified"))
        augment = noisy_training(features=NOISE, seed=0) if is_noisy else None
        fit(model, data, split, seed=0, awp=awp, augment=augment)
        votes = vote(data, model, features=NOISE, samples=args.samples, seed=0)
        start, cpu = time.perf_counter(), time.process_time()
        certificate = certificate_of(votes, over_nodes=True)
        fields = receptive_fields(data, model)
        results = {
            flips: collective(certificate, fields, labels=labels, nodes=nodes, **how) for flips, how in AXES.items()
        }
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu
        accuracy = (certificate.prediction == labels)[nodes].mean()
        print(f"{args.dataset}, {name}: smoothed accuracy {100 * accuracy:.1f} %, {args.samples:,} votes")
        for flips, result in results.items():
            gain = result.average / result.per_node_average if result.per_node_average else float("inf")
            print(
                f"  {flips}: {result.per_node_average:.2f} one by one, {result.average:.1f} together, {gain:.1f} times"
            )
            curves[flips][name] = curve_of(result)
        rows, columns = results["deletions"].program_shape
        print(
            f"  program: {rows:,} constraints, {columns:,} variables; both curves: {wall:.1f} s wall, {cpu:.1f} s CPU"
        )
        if name == "GCN" and args.seconds > 0:
            integer_gap(certificate, fields, labels, nodes, args.seconds)
    if args.figure:
        with drawing(1, 2, 11.0, 3.2, png=args.png) as (axes, out):
            for ax, (flips, by_name) in zip(axes, curves.items(), strict=True):
                for (name, curve), colour in zip(by_name.items(), COLOURS, strict=False):
                    draw_curves(ax, [curve], name, colour)
                ax.set(xlabel=f"{flips} in the whole graph", title=f"{args.dataset}: {flips} of features")
            axes[0].set_ylabel("correct and certified, %")
            legend_beside(axes[1], fontsize=8)
        args.figure.write_text(out[0], encoding="utf-8")


if __name__ == "__main__":
    main()
