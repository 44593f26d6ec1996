"""Numbers in texts, held against the records: each is followed by a comment that says what it is.

    85.50<!-- = tab:natacc; GCN+WT-AWP; cora; mean -->

The comment names a plan, a row, a column and a statistic of the cell; or "first row -> second row" and a statistic of
the pair; or "fact" and the name of a number over several plans. The number is rounded as it is written.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from wtawp.experiments.report.quantities import Quantities
from wtawp.experiments.results.summary import PlanReport

MARK = re.compile(r"<!--\s*=(.*?)-->", re.DOTALL)
FORGOTTEN = re.compile(r"<!--\s*(fact|tab:|fig:|claim:|extra:|deviation:|released:)")  # marks without their equals sign
NUMBER_BEFORE = re.compile(r"([-+\u2212]?\d[\d,]*(?:\.\d+)?)[*_ %]*\Z")


@dataclass(frozen=True)
class Mismatch:
    """A number that the records do not give.

    Attributes:
        path: The file.
        line: The number of the line, counted from 1.
        problem: What is wrong.
    """

    path: Path
    line: int
    problem: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.problem}"


def verify(paths: Iterable[Path], reports: Iterable[PlanReport]) -> tuple[int, list[Mismatch]]:
    """Recompute every marked number of texts.

    Args:
        paths: Markdown files, and folders of them.
        reports: Plans with their measurements.

    Returns:
        How many numbers are marked, and those that the records do not give.

    Raises:
        OSError: If a file cannot be read.
    """
    quantities, count, wrong = Quantities(reports), 0, []
    for path in paths:
        for file in sorted(path.glob("**/*.md")) if path.is_dir() else [path]:
            text = file.read_text(encoding="utf-8", errors="replace")
            without = "a mark begins with an equals sign: <!-- = ... -->"
            wrong += [Mismatch(file, _line(text, mark), without) for mark in FORGOTTEN.finditer(text)]
            for mark in MARK.finditer(text):
                count += 1
                line = _line(text, mark)
                if problem := _problem(text[: mark.start()], mark[1].strip(), quantities):
                    wrong.append(Mismatch(file, line, problem))
    return count, wrong


def _line(text: str, mark: re.Match[str]) -> int:
    """The line in which a mark begins, counted from 1."""
    return text.count("\n", 0, mark.start()) + 1


def _problem(before: str, name: str, quantities: Quantities) -> str:
    """What is wrong with a marked number; "" if nothing is."""
    written = NUMBER_BEFORE.search(before)
    if written is None:
        return f"no number stands before the mark of {name!r}"
    try:
        value = quantities.value(name)
    except ValueError as error:
        return str(error)
    number = written[1].replace("\u2212", "-")
    expected = _as_written(value, number)
    return "" if expected == number else f"{name!r} is {expected}, and the text says {number}"


def _as_written(value: float, text: str) -> str:
    """A number in the form of another: as many decimals, with a sign or without, with thousands separated or not."""
    decimals = len(text.partition(".")[2])
    sign = "+" if text.startswith("+") or (text.startswith("-") and value > 0) else ""
    separator = "," if "," in text else ""
    rounded = round(value, decimals) + 0.0  # never -0
    return f"{rounded:{sign}{separator}.{decimals}f}"
