"""Tables, figures and claims as data: cells that name settings, and how often each is trained."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from wtawp.base import WtawpError, did_you_mean, matching_name
from wtawp.experiments.spec.measure import MeasureRequest
from wtawp.experiments.spec.run import MAX_INITS, Run, RunId
from wtawp.experiments.spec.setting import Setting

Scale = Literal["smoke", "quick", "full"]
LAST = ", last epoch"  # how columns say that no epoch was selected


class PlanError(WtawpError):
    """A plan that cannot be run: data that are not there, or options that nothing takes."""


@dataclass(frozen=True)
class Cell:
    """A place in a table: a setting, how often it is trained, and what the paper prints there.

    Attributes:
        row: The label of the row.
        column: The label of the column.
        setting: What is trained.
        splits: The number of splits.
        inits: The number of initialisations of each split, at most MAX_INITS.
        printed: The paper's mean and standard deviation, in per cent; None where it prints nothing.
        judged: Whether the difference to the paper gets a verdict, or is only reported.
        measure: The position, among the setting's measures, of the one whose accuracy is shown; None shows the test
            accuracy of the training.

    Raises:
        ValueError: If there are no splits or initialisations, or too many initialisations.
    """

    row: str
    column: str
    setting: Setting
    splits: int = 20
    inits: int = 10
    printed: tuple[float, float | None] | None = None
    judged: bool = True
    measure: int | None = None

    def __post_init__(self) -> None:
        if self.splits < 1 or not 1 <= self.inits <= MAX_INITS:
            raise ValueError(f"a cell needs splits >= 1 and 1 to {MAX_INITS} inits, got {self.splits} and {self.inits}")

    def runs(self) -> Iterator[Run]:
        """Unroll the cell into runs.

        Returns:
            The runs, split by split.
        """
        return self._runs_of(self.setting)

    @property
    def attack(self) -> MeasureRequest | None:
        """The attack under which the accuracy is measured, after the training or before it; None without an attack.

        Also None where the accuracy is that of chosen targets, which no test accuracy can be compared with.
        """
        measured = None if self.measure is None else self.setting.measures[self.measure]
        options = {} if measured is None else dict(measured.options)
        return measured if "attack" in options and "targets" not in options else self.setting.poison

    def clean_runs(self) -> Iterator[Run]:
        """Unroll the trainings that the attack of the cell is compared with.

        Returns:
            For each run of `runs`, in the same order, the one on the graph without poison: the run itself if the attack
            follows the training.
        """
        # The hashes of files and source code stay those of the setting.
        return self._runs_of(replace(self.setting, poison=None, hash_sources=False))

    def _runs_of(self, setting: Setting) -> Iterator[Run]:
        """The runs of a setting in the splits and initialisations of the cell."""
        return (Run(setting, split, init) for split in range(self.splits) for init in range(self.inits))


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper that measurements can contradict.

    Attributes:
        text: The sentence.
        check: The name of the function in `results.claims` that holds it against the measurements.
    """

    text: str
    check: str


@dataclass(frozen=True)
class Contender:
    """A method of a league. In each column, the row with the best validation accuracy counts.

    Attributes:
        name: The name of the method.
        rows: The rows of its trials, as many as every other method of the league has.
    """

    name: str
    rows: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """A table, a figure or a claim of the paper, or a comparison of the user.

    Attributes:
        name: The LaTeX label, for plans of the paper.
        title: What the plan shows, for people.
        cells: The cells of the table.
        pairs: Pairs of rows, without and with the method, that are compared in every column.
        figures: The names of the figures that show the plan.
        claims: Sentences of the paper that the plan checks.
        league: Methods that are tuned with equally many trials and then compared; the first one is the reference.
        repeats: The label of the table whose printed cells are measured once more here, by another protocol; None if
            the cells are the plan's own. Counts over all plans leave repeated cells out.
        unset: Which of "splits" and "inits" nobody chose, so that masks, which describe some splits, may decide.
    """

    name: str
    title: str
    cells: tuple[Cell, ...]
    pairs: tuple[tuple[str, str], ...] = ()
    figures: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()
    league: tuple[Contender, ...] = ()
    repeats: str | None = None
    unset: tuple[str, ...] = ()

    def runs(self) -> tuple[Run, ...]:
        """Unroll the plan into runs.

        Returns:
            Every run once, in the order of the cells.
        """
        return tuple({run.key: run for cell in self.cells for run in cell.runs()}.values())

    def clean_runs(self) -> tuple[Run, ...]:
        """Unroll the trainings on clean graphs that the attacks of the plan are compared with.

        Returns:
            Every run once, in the order of the cells; cells without an attack add none.
        """
        attacked = (cell for cell in self.cells if cell.attack is not None)
        return tuple({run.key: run for cell in attacked for run in cell.clean_runs()}.values())

    @property
    def num_runs(self) -> int:
        """How many different runs there are, without making their keys."""
        run_ids: dict[Setting, set[RunId]] = {}
        for cell in self.cells:
            of_cell = ((split, init) for split in range(cell.splits) for init in range(cell.inits))
            run_ids.setdefault(cell.setting, set()).update(of_cell)
        return sum(map(len, run_ids.values()))

    def only(self, rows: Sequence[str] = (), columns: Sequence[str] = ()) -> "Plan":
        """Select a part of the plan.

        Args:
            rows: The labels of the rows to keep, in upper or lower case; none means all.
            columns: The labels of the columns to keep, likewise; none means all.

        Returns:
            The part, with the pairs and the methods of a league that are whole. Claims are dropped, since they need the
            whole plan.

        Raises:
            ValueError: If there is no such row or column.
        """
        known = {"row": {c.row for c in self.cells}, "column": {c.column for c in self.cells}}
        for kind, wanted in (("row", rows), ("column", columns)):
            if missing := [name for name in wanted if matching_name(name, known[kind]) is None]:
                hint = did_you_mean(missing[0], known[kind])
                it_has = f"{hint} It has" if hint else "; it has"
                raise ValueError(f"{self.name} has no {kind} {missing[0]!r}{it_has} {sorted(known[kind])}")
        rows = [matching_name(name, known["row"]) or name for name in rows]
        columns = [matching_name(name, known["column"]) or name for name in columns]
        if not rows and not columns:
            return self
        cells = tuple(
            c for c in self.cells if c.row in (rows or known["row"]) and c.column in (columns or known["column"])
        )
        left = {c.row for c in cells}
        pairs = tuple(pair for pair in self.pairs if left.issuperset(pair))
        league = tuple(contender for contender in self.league if left.issuperset(contender.rows))
        if league[:1] != self.league[:1]:  # without the reference there is nothing to compare with
            league = ()
        return replace(self, cells=cells, pairs=pairs, claims=(), league=league)
