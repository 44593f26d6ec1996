"""Numbers in texts, held against the records: each is followed by a comment that says what it is.

    85.50<!-- = tab:natacc; GCN+WT-AWP; cora; mean -->

The comment names a plan, a row, a column and a statistic of the cell; or "first row -> second row" and a statistic of
the pair; or "fact" and the name of a number over several plans. The number is rounded as it is written.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from wtawp.base import write_atomic
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
        correction: Where the number stands in the text, from and to which character, and what should stand there; None
            if the records give no number for it.
    """

    path: Path
    line: int
    problem: str
    correction: tuple[int, int, str] | None = None

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
            text = _read(file)
            without = "a mark begins with an equals sign: <!-- = ... -->"
            wrong += [Mismatch(file, _line(text, mark), without) for mark in FORGOTTEN.finditer(text)]
            for mark in MARK.finditer(text):
                count += 1
                problem, correction = _problem(text[: mark.start()], mark[1].strip(), quantities)
                if problem:
                    wrong.append(Mismatch(file, _line(text, mark), problem, correction))
    return count, wrong


def correct(wrong: Iterable[Mismatch]) -> list[Mismatch]:
    """Write the numbers that the records give into the texts, in place of those that stand there.

    The sentences around them stay as they are: read each one again.

    Args:
        wrong: What `verify` found, with the texts unchanged since.

    Returns:
        What could not be corrected, because the records give no number for it.

    Raises:
        OSError: If a file cannot be read or written.
    """
    left, by_path = [], defaultdict[Path, list[tuple[int, int, str]]](list)
    for mismatch in wrong:
        if mismatch.correction is None:
            left.append(mismatch)
        else:
            by_path[mismatch.path].append(mismatch.correction)
    for path, corrections in by_path.items():
        text = _read(path)
        for start, end, number in sorted(corrections, reverse=True):
            text = text[:start] + number + text[end:]
        write_atomic(path, text.encode("utf-8", errors="surrogateescape"))
    return left


def _read(path: Path) -> str:
    """The text of a file, from which its bytes can be had again: ends of lines and bytes that are no UTF-8 stay."""
    return path.read_bytes().decode("utf-8", errors="surrogateescape")


def _line(text: str, mark: re.Match[str]) -> int:
    """The line in which a mark begins, counted from 1."""
    return text.count("\n", 0, mark.start()) + 1


def _problem(before: str, name: str, quantities: Quantities) -> tuple[str, tuple[int, int, str] | None]:
    """What is wrong with a marked number, "" if nothing is, and how to correct it."""
    written = NUMBER_BEFORE.search(before)
    if written is None:
        return f"no number stands before the mark of {name!r}", None
    try:
        value = quantities.value(name)
    except ValueError as error:
        return str(error), None
    number = written[1].replace("\u2212", "-")
    expected = _as_written(value, number)
    if expected == number:
        return "", None
    return f"{name!r} is {expected}, and the text says {number}", (*written.span(1), expected)


def _as_written(value: float, text: str) -> str:
    """A number in the form of another: as many decimals, with a sign or without, with thousands separated or not."""
    decimals = len(text.partition(".")[2])
    sign = "+" if text.startswith("+") or (text.startswith("-") and value > 0) else ""
    separator = "," if "," in text else ""
    rounded = round(value, decimals) + 0.0  # never -0
    return f"{rounded:{sign}{separator}.{decimals}f}"
