"""What a search says at its end: the best settings, a sentence, command lines, data for machines, and a page."""

import shlex
from dataclasses import asdict, dataclass
from typing import Any

from markupsafe import Markup

from wtawp.core import AwpConfig
from wtawp.experiments.report.answers import answers
from wtawp.experiments.report.drawing import embed
from wtawp.experiments.report.export import export_data
from wtawp.experiments.report.html import Figure, Part, render_html
from wtawp.experiments.report.tables import NOTHING, Entry, Table, number
from wtawp.experiments.results.summary import PlanReport
from wtawp.experiments.spec import RunId, Setting
from wtawp.experiments.tuning.figures import CAPTION, response_map
from wtawp.experiments.tuning.space import Arm
from wtawp.experiments.tuning.study import Study

PARAMETERS = ("lr", "weight_decay", "dropout", "rho", "lam", "layers", "balance", "start", "average")  # as in the table


@dataclass(frozen=True)
class TuningReport:
    """The result of a search and of the comparison after it.

    Attributes:
        study: The trials.
        base: What all trials share.
        run_ids: The splits and initialisations of a trial.
        comparison: The comparison on other splits.
    """

    study: Study
    base: Setting
    run_ids: tuple[RunId, ...]
    comparison: PlanReport

    @property
    def tuned(self) -> dict[Arm, Setting]:
        """The best setting of each arm."""
        return best_settings(self.study, self.base)

    @property
    def commands(self) -> dict[Arm, str]:
        """The command line that trains with the best setting of each arm."""
        return {arm: command_line(setting) for arm, setting in self.tuned.items()}

    def best_table(self) -> Table:
        """Make the table of the best setting of each arm.

        Returns:
            The table.
        """
        names = [name for name in PARAMETERS if any(name in _values(setting) for setting in self.tuned.values())]
        rows = []
        for arm in self.study.spaces:
            trials = self.study.trials(arm)
            values = _values(self.tuned[arm])
            cells = [_entry(values[name]) if name in values else Entry(NOTHING) for name in names]
            num_pruned = sum(trial.accuracy is None for trial in trials)
            accuracy = number(100 * _accuracy(self.study, arm))
            rows.append((Entry(arm), accuracy, *cells, number(len(trials), "d"), number(num_pruned, "d")))
        headers = ("training", "validation accuracy", *names, "trials", "pruned")
        caption = (
            f"The best trial of each way to train, by its mean validation accuracy in per cent over {self.searched}. "
            "The best of many trials looks better than it is; the comparison on other splits tells what it is worth."
        )
        return Table(caption, headers, tuple(rows))

    @property
    def searched(self) -> str:
        """Where the trials were trained."""
        splits = ", ".join(dict.fromkeys(str(split) for split, _ in self.run_ids))
        inits = ", ".join(dict.fromkeys(str(init) for _, init in self.run_ids))
        return f"splits {splits}, initialisations {inits}"

    @property
    def compared(self) -> str:
        """Where the comparison was trained, and that the search did not see it."""
        cell = self.comparison.cells[0].cell
        splits, inits = (f"0 to {n - 1}" if n > 1 else "0" for n in (cell.splits, cell.inits))
        shared = {split for split, _ in self.run_ids} & set(range(cell.splits))
        fresh = "initialisations" if shared else "splits"
        return (
            f"Compared on splits {splits}, initialisations {inits}: {fresh} that the search ({self.searched}) did not "
            "use."
        )

    def sentences(self) -> list[str]:
        """Say what the comparison shows.

        Returns:
            Which rows are not tuned in spite of their names, if there are such; the answer on tuned WT-AWP against
            tuned plain training, then those on the other rows; and on which splits they were measured.
        """
        return [*self.untuned, *answers(self.comparison), self.compared]

    @property
    def untuned(self) -> list[str]:
        """A sentence on the arms of which only the setting without tuning was tried; nothing if there are none."""
        spaces = self.study.spaces
        arms = [arm for arm in spaces if spaces[arm].start is not None and len(self.study.trials(arm)) == 1]
        if not arms:
            return []
        return [
            f"Nothing was tuned for {', '.join(arms)}: the time was enough for one trial, which is the setting without "
            'tuning, so rows that are called "tuned" have that setting. More --minutes or --trials make a search.'
        ]

    def to_data(self) -> dict[str, Any]:
        """Collect the numbers as data that JSON can hold.

        Returns:
            The file and the trials of the search, the best settings with their command lines, and the comparison.
        """
        arms = {
            arm: {
                "accuracy": _accuracy(self.study, arm),
                "setting": self.tuned[arm].content,
                "command": self.commands[arm],
                "trials": [asdict(trial) for trial in self.study.trials(arm)],
            }
            for arm in self.study.spaces
        }
        return {
            "study": str(self.study.path),
            "places": [list(run_id) for run_id in self.run_ids],
            "arms": arms,
            "answers": self.sentences(),
            "comparison": export_data(self.comparison),
        }

    def to_html(self) -> str:
        """Write the page: the answer, the search with its heat map, and the comparison.

        Returns:
            The page, which requests nothing from the network.
        """
        svg = response_map(self.study.trials("WT-AWP"), self.study.spaces["WT-AWP"])
        part = Part(
            title=f"Search: {self.base.model} on {self.base.dataset}",
            paragraphs=(
                *self.untuned,
                self.compared,
                *(f"To train with the best setting of {a}: {c}" for a, c in self.commands.items()),
            ),
            tables=(self.best_table(),),
            figures=(Figure("response", Markup(embed(svg, prefix="search", label=CAPTION)), CAPTION),),  # from numbers
        )
        return render_html([self.comparison], parts=[part])


def best_settings(study: Study, base: Setting) -> dict[Arm, Setting]:
    """Find the best setting of each arm.

    Args:
        study: The trials, at least one of each arm that was not pruned.
        base: What all trials share.

    Returns:
        The settings.

    Raises:
        ValueError: If an arm has no such trial.
    """
    settings: dict[Arm, Setting] = {}
    for arm in study.spaces:
        best = study.best(arm)
        if best is None:
            raise ValueError(f"no trial of {arm} is finished")
        settings[arm] = study.spaces[arm].setting(base, best.parameters)
    return settings


def command_line(setting: Setting) -> str:
    """Write the command that trains one model with a setting.

    Args:
        setting: The setting.

    Returns:
        The command for a POSIX shell; a call of `fit` where no command has the options of the perturbation.

    Example:
        >>> command_line(Setting(dataset="wine"))
        'wtawp train wine --model GCN --lr 0.01 --weight-decay 0.0005 --plain --epochs 200 ...'
    """
    if setting.awp is not None and _needs_python(setting.awp):
        return _call_of_fit(setting)
    arguments = ["wtawp", "train", setting.dataset, "--model", setting.model]
    for name, value in setting.options:
        text = "".join(f"{size}," for size in value) if isinstance(value, tuple) else str(value)
        arguments += ["--option", f"{name}={text}"]
    arguments += ["--lr", repr(setting.lr), "--weight-decay", repr(setting.weight_decay)]
    arguments += ["--plain"] if setting.awp is None else _perturbation_arguments(setting.awp)
    rule = setting.split_rule
    shares = {"--train": rule.train, "--val": rule.val}
    arguments += ["--epochs", str(setting.epochs), "--select-on", setting.select_on, "--split", rule.kind]
    arguments += [text for name, share in shares.items() if share is not None for text in (name, repr(share))]
    arguments += [] if setting.average is None else ["--average", str(setting.average)]
    return shlex.join(arguments)


def _perturbation_arguments(awp: AwpConfig) -> list[str]:
    """The options of a perturbation on the command line."""
    balance = [] if awp.balance in (None, "auto") else ["--balance", repr(awp.balance)]
    return ["--rho", repr(awp.rho), "--lam", str(awp.lam), "--layers", str(awp.layers), *balance]


def _needs_python(awp: AwpConfig) -> bool:
    """Whether a perturbation has options that the command line does not take."""
    return awp != AwpConfig(rho=awp.rho, lam=awp.lam, layers=awp.layers, balance=awp.balance)


def _call_of_fit(setting: Setting) -> str:
    """The call that trains one model with a setting."""
    names = ["awp", "epochs", "lr", "weight_decay", "select_on"] + ["average"] * (setting.average is not None)
    values = {name: getattr(setting, name) for name in names} | {"awp": f"AwpConfig({setting.awp})"}
    arguments = ", ".join(f"{name}={value if name == 'awp' else repr(value)}" for name, value in values.items())
    model = ", ".join([setting.model, *(f"{name}={value!r}" for name, value in setting.options)])
    return f"fit(model, data, split, seed=0, {arguments})  # model: {model}"


def _values(setting: Setting) -> dict[str, object]:
    """The hyper-parameters of a setting by name."""
    values: dict[str, object] = {"lr": setting.lr, "weight_decay": setting.weight_decay}
    values |= {name: value for name, value in setting.options if name == "dropout"}
    if setting.awp is not None:
        values |= {name: getattr(setting.awp, name) for name in ("rho", "lam", "layers", "balance")}
        values |= {"start": setting.awp.start} if setting.awp.start else {}
    return values if setting.average is None else {**values, "average": setting.average}


def _entry(value: object) -> Entry:
    """A hyper-parameter in a table."""
    if isinstance(value, int | float):
        return Entry(f"{value:g}", float(value))
    return Entry("none" if value is None else str(value))


def _accuracy(study: Study, arm: Arm) -> float:
    """The mean validation accuracy of the best trial of an arm; 0 if none is finished."""
    best = study.best(arm)
    return 0.0 if best is None or best.accuracy is None else best.accuracy
