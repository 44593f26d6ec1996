"""Certified accuracies from records: the grids of all radii, two methods compared radius by radius, their limits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wtawp.base import WtawpError
from wtawp.experiments.results.statistics import SIGNIFICANCE_LEVEL, PairedDifference, holm, paired_difference
from wtawp.experiments.results.summary import CellReport, PlanReport
from wtawp.graphs.registry import dataset_spec

Grids = NDArray[np.float64]  # [runs, additions, deletions], per cent
Radius = tuple[int, int]  # additions, deletions
FEWEST_CLASSES = 2  # that data can have: where their number is not known, the limit is that of these


@dataclass(frozen=True)
class RadiusComparison:
    """The certified accuracies of two methods at one radius, paired over splits.

    Attributes:
        radius: The numbers of additions and deletions.
        gain: The second method less the first, in points.
        holm_p_value: The p-value of the gain, corrected over all radii of the comparison.
    """

    radius: Radius
    gain: PairedDifference
    holm_p_value: float

    @property
    def is_higher(self) -> bool:
        """Whether the second method certifies significantly more."""
        return self.gain.mean > 0 and self.holm_p_value < SIGNIFICANCE_LEVEL

    @property
    def is_lower(self) -> bool:
        """Whether the second method certifies significantly less."""
        return self.gain.mean < 0 and self.holm_p_value < SIGNIFICANCE_LEVEL


def certificate_results(cell: CellReport) -> list[dict[str, Any]]:
    """The results of the certificate that a cell shows.

    Args:
        cell: A cell with its measurements.

    Returns:
        A result for each finished run; none where the cell shows no certificate.
    """
    index = cell.cell.measure
    results = [] if index is None else [(record.measured or [])[index] for record in cell.records]
    return [result for result in results if "certified" in result]


def certified_grids(report: PlanReport, column: str) -> dict[str, Grids]:
    """Certified accuracies of each row of a column, in per cent.

    Args:
        report: A plan with its measurements.
        column: The name of the column.

    Returns:
        For each row [runs, additions, deletions], one larger than the grid of any run, as nothing is certified beyond;
        empty where nothing was certified.
    """
    by_row = {c.cell.row: [np.array(r["certified"]) for r in certificate_results(c)] for c in report.column(column)}
    by_row = {row: grids for row, grids in by_row.items() if grids}
    sizes = [grid.shape for grids in by_row.values() for grid in grids]
    shape = tuple(np.max(sizes, axis=0) + 1) if sizes else (0, 0)
    return {row: np.stack([100 * _padded(grid, shape) for grid in grids]) for row, grids in by_row.items()}


def _padded(grid: Grids, shape: Sequence[int]) -> Grids:
    """The grid with zeros at the end, up to a shape."""
    return np.pad(grid, [(0, larger - size) for larger, size in zip(shape, grid.shape, strict=True)])


def at_radius(runs: Grids, radius: Radius) -> Grids:
    """Certified accuracies at one radius.

    Args:
        runs: The grids of all runs, [runs, additions, deletions].
        radius: The numbers of additions and deletions.

    Returns:
        One value for each run; 0 outside the grid.
    """
    inside = radius[0] < runs.shape[1] and radius[1] < runs.shape[2]
    return runs[:, radius[0], radius[1]] if inside else np.zeros(len(runs))


def compare_certified(report: PlanReport, column: str) -> tuple[RadiusComparison, ...]:
    """Compare the two rows of a column at every radius at which either certifies anything.

    Args:
        report: A plan with its measurements; one run of a split counts for it, several are averaged.
        column: The name of the column.

    Returns:
        A comparison for each radius; none where the column has other than two rows, or fewer than two splits.
    """
    grids = certified_grids(report, column)
    if len(grids) != 2:
        return ()
    cells = {c.cell.row: c for c in report.column(column)}
    one, two = (_split_means(cells[row], runs) for row, runs in grids.items())
    shared = sorted(one.keys() & two.keys())
    if len(shared) < 2:
        return ()
    before, after = (np.stack([side[split] for split in shared]) for side in (one, two))
    radii = [(int(a), int(d)) for a, d in np.argwhere((before.mean(0) > 0) | (after.mean(0) > 0))]
    gains = [paired_difference(at_radius(before, r).tolist(), at_radius(after, r).tolist()) for r in radii]
    corrected = holm([gain.p_value for gain in gains])
    return tuple(map(RadiusComparison, radii, gains, corrected))


def _split_means(cell: CellReport, runs: Grids) -> dict[int, Grids]:
    """The mean grid of each split, over its initialisations."""
    index = cell.cell.measure
    splits = [r.split for r in cell.records if index is not None and "certified" in (r.measured or [])[index]]
    return {split: runs[[s == split for s in splits]].mean(0) for split in dict.fromkeys(splits)}


def largest_radii(cell: CellReport) -> Radius | None:
    """The radii that as many votes as a cell has can certify at most, if a node gets all of them for one class.

    Confidence bounds keep a distance from certainty, which more votes reduce; beyond these radii nothing is certified,
    whatever the model.

    Args:
        cell: A cell that shows a certificate.

    Returns:
        The largest number of additions alone and of deletions alone; None where nothing was certified, or the records
        do not say how.
    """
    from wtawp.certificates import Noise, certificate_of  # here, because it imports torch

    results = certificate_results(cell)
    if not results or not {"alpha", "kind", "on", "p_add", "p_del", "samples"} <= results[0].keys():
        return None
    how = results[0]
    try:
        classes = dataset_spec(cell.cell.setting.dataset).classes or FEWEST_CLASSES
    except WtawpError:  # a file of the user's
        classes = FEWEST_CLASSES
    votes = np.zeros((1, classes), dtype=np.int64)
    votes[0, 0] = how["samples"]
    noise = {how["on"]: Noise(p_add=how["p_add"], p_del=how["p_del"])}
    additions, deletions = certificate_of(votes, noise, alpha=how["alpha"], kind=how["kind"]).radii[0]
    return int(additions), int(deletions)
