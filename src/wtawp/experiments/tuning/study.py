"""The trials of a search in one SQLite file, which Optuna writes: a search that was killed continues from it.

What trial n tries depends on the seed and on the finished trials before it alone, because the sampler of each trial has
a seed of its own. A search that was stopped and continued therefore makes the same trials as one that was not.
"""

import json
import math
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wtawp.base import WtawpError, seed_of, shortened
from wtawp.experiments.tuning.dimensions import Choice, Parameters, Range
from wtawp.experiments.tuning.space import Arm, Space

if TYPE_CHECKING:
    import optuna
    from filelock import BaseFileLock

APPLICATION = 0x77747475  # in `PRAGMA application_id`: distinguishes our files from databases of other programs
IDENTITY = "search"  # the attribute of a study that says what it belongs to
RANDOM_TRIALS = 10  # before the sampler follows the results
FIRST_STAGE = 1  # the number of the stage that every trial has
TRIALS_BEFORE_PRUNING = 4  # that are finished and not pruned


class StudyError(WtawpError):
    """Raised if the file of a search cannot be read or written, is damaged, or belongs to another search."""


@dataclass(frozen=True)
class Trial:
    """A finished trial.

    Attributes:
        parameters: The values of what is varied.
        first_accuracy: The mean validation accuracy of its first stage, between 0 and 1, which every trial has.
        accuracy: The mean over all trainings; None if the trial was pruned.
        seconds: The time that it took.
    """

    parameters: Parameters
    first_accuracy: float
    accuracy: float | None
    seconds: float


class Study:
    """An open file of trials. Use `open_study` to get one.

    Args:
        path: The file.
        spaces: What each arm varies.
        seed: The seed of the search.
        storage: Optuna's connection to the file.
    """

    def __init__(
        self, path: Path, spaces: Mapping[Arm, Space], seed: int, storage: "optuna.storages.BaseStorage"
    ) -> None:
        self.path, self.spaces = path, spaces
        self._seed, self._storage = seed, storage
        self._trials: dict[Arm, list[Trial]] = {arm: [] for arm in spaces}
        with explain_study_errors(path):
            for arm in spaces:
                self._discard_unfinished(arm)
            self._trials = {arm: self._read(arm) for arm in spaces}

    def trials(self, arm: Arm) -> list[Trial]:
        """List the finished trials of an arm.

        Args:
            arm: The arm.

        Returns:
            The trials in the order in which they were made.
        """
        return list(self._trials[arm])

    def best(self, arm: Arm) -> Trial | None:
        """Find the best trial of an arm.

        Args:
            arm: The arm.

        Returns:
            The first of the trials with the highest accuracy, of those that were not pruned; None if there is none.
        """
        complete = [trial for trial in self._trials[arm] if trial.accuracy is not None]
        return max(complete, key=lambda trial: trial.accuracy or 0.0, default=None)

    def begin(self, arm: Arm) -> "ActiveTrial":
        """Begin a trial: the first has the values that are used without tuning, later ones are sampled.

        Args:
            arm: The arm.

        Returns:
            The trial, which must be finished or discarded.

        Raises:
            StudyError: If the file cannot be read or written.
        """
        with explain_study_errors(self.path):
            import optuna

            space, study = self.spaces[arm], self._study(arm)
            waiting = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.WAITING,))
            if not self._trials[arm] and not waiting and space.start is not None:
                study.enqueue_trial(dict(space.start))
            asked = study.ask({name: _distribution(d) for name, d in space.dimensions.items()})
            return ActiveTrial(self, arm, study, asked)

    def add(self, arm: Arm, trial: Trial) -> None:
        """Remember a trial that was written to the file.

        Args:
            arm: The arm.
            trial: The trial.
        """
        self._trials[arm].append(trial)

    def _study(self, arm: Arm) -> "optuna.Study":
        """Optuna's study of an arm, with the sampler of its next trial."""
        import optuna

        seed = seed_of("tune", self._seed, arm, len(self._trials[arm])) % 2**32
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=RANDOM_TRIALS)
        pruner = optuna.pruners.MedianPruner(n_startup_trials=TRIALS_BEFORE_PRUNING)
        return optuna.load_study(study_name=arm, storage=self._storage, sampler=sampler, pruner=pruner)

    def _discard_unfinished(self, arm: Arm) -> None:
        """Mark the trials as failed that were in flight when a process was killed; they are made again."""
        import optuna

        study = self._study(arm)
        for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
            study.tell(trial.number, state=optuna.trial.TrialState.FAIL)

    def _read(self, arm: Arm) -> list[Trial]:
        """Read the finished trials of an arm from the file, and check their values."""
        import optuna

        states = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)
        read = self._study(arm).get_trials(deepcopy=False, states=states)
        return [_checked(frozen, self.spaces[arm]) for frozen in sorted(read, key=lambda trial: trial.number)]


class ActiveTrial:
    """A trial that is being trained.

    Args:
        study: The study.
        arm: The arm.
        optuna_study: Optuna's study of the arm.
        optuna_trial: Optuna's trial.
    """

    def __init__(
        self, study: Study, arm: Arm, optuna_study: "optuna.Study", optuna_trial: "optuna.trial.Trial"
    ) -> None:
        self.arm = arm
        self.parameters: Parameters = dict(optuna_trial.params)
        self._study, self._optuna_study, self._optuna_trial = study, optuna_study, optuna_trial
        self._first_accuracy = math.nan

    def is_hopeless(self, accuracy: float, stage: int) -> bool:
        """Report the result of a stage and ask whether the trial should be pruned.

        Args:
            accuracy: The mean validation accuracy of all trainings until now.
            stage: The number of the stage, from 1.

        Returns:
            Whether it is below the median of the trials that were finished before.

        Raises:
            StudyError: If the file cannot be read or written.
        """
        if stage == FIRST_STAGE:
            self._first_accuracy = accuracy
        with explain_study_errors(self._study.path):
            self._optuna_trial.report(accuracy, stage)
            is_hopeless: bool = self._optuna_trial.should_prune()
            return is_hopeless

    def finish(self, accuracy: float | None, seconds: float) -> None:
        """Write the result to the file.

        Args:
            accuracy: The mean validation accuracy of all trainings; None if the trial was pruned.
            seconds: The time that it took.

        Raises:
            StudyError: If the file cannot be written.
        """
        with explain_study_errors(self._study.path):
            import optuna

            self._optuna_trial.set_user_attr("seconds", seconds)
            state = optuna.trial.TrialState.PRUNED if accuracy is None else optuna.trial.TrialState.COMPLETE
            self._optuna_study.tell(self._optuna_trial, accuracy, state=state)
        self._study.add(self.arm, Trial(self.parameters, self._first_accuracy, accuracy, seconds))


@contextmanager
def open_study(path: Path, identity: Mapping[str, Any], spaces: Mapping[Arm, Space], *, seed: int) -> Iterator[Study]:
    """Open the file of a search, or create it. No other process can use it at the same time.

    Args:
        path: The file. Its folder must exist.
        identity: What the search belongs to, as plain data; a file of another search is refused.
        spaces: What each arm varies.
        seed: The seed of the search.

    Yields:
        The study.

    Raises:
        StudyError: If the file is damaged, belongs to another search or program, is in use, or cannot be written; or if
            Optuna is not installed.
    """
    try:
        import optuna
        from filelock import FileLock, Timeout
    except ImportError as error:
        raise StudyError(f"a search needs Optuna ({error}): pip install 'wtawp[tune]'") from error
    if not path.parent.is_dir():  # a lock would create it
        raise StudyError(f"cannot write {path}: there is no folder {path.parent}; create it, or choose another --study")
    lock: BaseFileLock = FileLock(path.with_name(path.name + ".lock"))
    verbosity = optuna.logging.get_verbosity()
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise StudyError(
            f"another process searches with {path}; wait until it has ended, or choose another --study"
        ) from error
    except OSError as error:
        raise StudyError(f"cannot write beside {path}: {error.strerror}; choose another --study") from error
    try:
        optuna.logging.set_verbosity(optuna.logging.CRITICAL)  # errors are raised, and have our words
        content = json.loads(json.dumps(identity))
        if not path.exists():
            _create(path, content, spaces)
        _check(path, content, len(spaces))
        with explain_study_errors(path):
            storage = _storage(path)
        try:
            yield Study(path, spaces, seed, storage)
        finally:
            storage.engine.dispose()
    finally:
        optuna.logging.set_verbosity(verbosity)
        lock.release()  # its file stays: if it were removed, two processes could lock two files of that name


@contextmanager
def explain_study_errors(path: Path) -> Iterator[None]:
    """Turn whatever Optuna, SQLAlchemy and SQLite raise for a file into a StudyError that says what to do.

    Args:
        path: The file.

    Returns:
        A context manager, for code that does nothing else than reading and writing the file.

    Raises:
        StudyError: In place of any other exception.
    """
    try:
        yield
    except StudyError:
        raise
    except Exception as error:  # damaged content can raise anything
        reason = shortened(str(error.__cause__ or error))
        raise StudyError(
            f"cannot use the trials in {path} ({type(error).__name__}: {reason}); if it is damaged, move it away or"
            " choose another --study; if the disk is full, make room: the same command continues"
        ) from error


def _storage(path: Path) -> "optuna.storages.RDBStorage":
    """Optuna's connection to a file."""
    import optuna
    from sqlalchemy.engine import URL

    url = URL.create("sqlite", database=str(path.absolute()))
    return optuna.storages.RDBStorage(url.render_as_string(hide_password=False))


def _create(path: Path, identity: Mapping[str, Any], arms: Iterable[Arm]) -> None:
    """Create the file with a study for each arm; it has its name only when it is complete."""
    import optuna

    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.unlink(missing_ok=True)
        with explain_study_errors(path):
            storage = _storage(part)
            for arm in arms:
                study = optuna.create_study(study_name=arm, storage=storage, direction="maximize")
                study.set_user_attr(IDENTITY, identity)
            storage.engine.dispose()
            with closing(sqlite3.connect(part)) as db:
                db.execute(f"PRAGMA application_id = {APPLICATION}")
        os.replace(part, path)
    except OSError as error:
        raise StudyError(f"cannot write {path}: {error.strerror}; choose another --study") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _check(path: Path, identity: Mapping[str, Any], num_arms: int) -> None:
    """Refuse a file that is no intact study of this search with so many arms, before Optuna reads it."""
    if not path.is_file():
        raise StudyError(f"{path} is not a file; choose another --study")
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)) as db:
            application = db.execute("PRAGMA application_id").fetchone()[0]
            problems = [line for (line,) in db.execute("PRAGMA integrity_check(1)")]
            kinds = {kind for (kind,) in db.execute("SELECT type FROM sqlite_master")}
            query = "SELECT value_json FROM study_user_attributes WHERE key = ?"
            stored = [text for (text,) in db.execute(query, (IDENTITY,))] if application == APPLICATION else []
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise StudyError(
            f"{path} is no study of `wtawp tune`, or is damaged (SQLite says: {error}); choose another --study, or move"
            " the file away"
        ) from error
    if application != APPLICATION:
        raise StudyError(f"{path} is a database of another program; choose another --study")
    damaged = StudyError(
        f"{path} is damaged, or was changed by another program; move it away or choose another --study"
    )
    if problems != ["ok"] or not kinds <= {"table", "index"} or not stored:
        raise damaged
    with explain_study_errors(path):
        known = [json.loads(text) for text in stored]
    for each in known:
        differences = [] if each == identity else _differences(each, identity)
        if differences:
            raise StudyError(
                f"{path} belongs to another search: {'; '.join(differences)}. Choose another --study, or repeat the"
                " command that made it"
            )
    if len(stored) != num_arms:
        raise damaged


def _differences(stored: object, wanted: Mapping[str, Any]) -> list[str]:
    """Say in which points two searches differ."""
    if not isinstance(stored, dict):
        return ["it does not say to which"]
    names = dict.fromkeys([*wanted, *stored])
    return [
        f"its {name} is {shortened(json.dumps(stored.get(name)), 80)}, here it is"
        f" {shortened(json.dumps(wanted.get(name)), 80)}"
        for name in names
        if stored.get(name) != wanted.get(name)
    ]


def _distribution(dimension: Range | Choice) -> "optuna.distributions.BaseDistribution":
    """A range or a choice as Optuna takes it."""
    import optuna

    if isinstance(dimension, Choice):
        return optuna.distributions.CategoricalDistribution(dimension.values)
    return optuna.distributions.FloatDistribution(dimension.low, dimension.high, log=dimension.is_log)


def _checked(frozen: "optuna.trial.FrozenTrial", space: Space) -> Trial:
    """A trial of the file as plain data; raises an error if a value is impossible."""
    if set(frozen.params) != set(space.dimensions):
        raise ValueError(f"trial {frozen.number} has the parameters {sorted(frozen.params)}")
    for name, dimension in space.dimensions.items():
        if not dimension.contains(frozen.params[name]):
            raise ValueError(f"trial {frozen.number} has {name}={frozen.params[name]!r}")
    first, accuracy = frozen.intermediate_values[FIRST_STAGE], frozen.value if frozen.state.name == "COMPLETE" else None
    seconds = frozen.user_attrs["seconds"]
    if not all(0 <= share <= 1 for share in (first, 0.0 if accuracy is None else accuracy)) or not seconds >= 0:
        raise ValueError(f"trial {frozen.number} has the accuracies {first!r} and {accuracy!r}")
    return Trial(dict(frozen.params), first, accuracy, float(seconds))
