"""Cells and pairs of several tables, each once: the paper prints some of them in two tables."""

from collections.abc import Iterator, Mapping, Sequence

from wtawp.experiments.results.summary import CellReport, PairReport, PlanReport

ROBUSTNESS = ("tab:poison", "tab:dicepoison", "tab:evasion")


def distinct_judged(reports: Mapping[str, PlanReport], names: Sequence[str], *, attacked: bool) -> list[CellReport]:
    """List the cells that the paper prints and we judge.

    Args:
        reports: Plans with their measurements, by name.
        names: The plans to look at.
        attacked: Whether to leave out the cells without an attack.

    Returns:
        The cells, each once.
    """
    cells: dict[tuple[str, int | None], CellReport] = {}
    for name in names:
        for c in reports[name].cells:
            if c.verdict in ("agrees", "differs") and (c.cell.attack is not None or not attacked):
                cells.setdefault((c.cell.setting.content_json, c.cell.measure), c)
    return list(cells.values())


def distinct_pairs(reports: Mapping[str, PlanReport], names: Sequence[str]) -> Iterator[tuple[PairReport, bool]]:
    """List the pairs of several tables.

    Args:
        reports: Plans with their measurements, by name.
        names: The plans to look at.

    Yields:
        Each pair once, and whether it is under attack.
    """
    seen = set()
    for name in names:
        cells = {(c.cell.row, c.cell.column): c.cell for c in reports[name].cells}
        for pair in reports[name].pairs:
            both = [cells[row, pair.column] for row in (pair.before, pair.after)]
            place = tuple((cell.setting.content_json, cell.measure) for cell in both)
            if place not in seen:
                seen.add(place)
                yield pair, both[1].attack is not None
