"""The sections of an audit as plans, with the time that each of their runs takes."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from wtawp.attacks.registry import attack_spec
from wtawp.experiments.audit.probing import FLATNESS, Abilities
from wtawp.experiments.audit.sizes import Sizes
from wtawp.experiments.audit.subject import Subject
from wtawp.experiments.plans.robustness import budget_name, certifying, evading, poisoning
from wtawp.experiments.spec import Cell, MeasureRequest, Option, Plan, Run, Setting

POISON_BUDGET = 0.05  # share of the edges
ACCURACY, EVASION, POISONING, CERTIFICATE, FLAT = "accuracy", "evasion", "poisoning", "certificate", "flatness"
PERTURBED_PASSES = 2.0  # a step with WT-AWP takes as long as so many plain ones


@dataclass(frozen=True)
class Section:
    """One question of an audit, and the plan that answers it.

    Attributes:
        kind: What the section is about: accuracy, evasion, poisoning, certificate or flatness.
        key: The id of its heading, which no other section has.
        title: Its heading.
        tells: What its numbers say, and what they do not.
        plan: What is trained and measured.
        seconds: The time of a run of each setting of the plan, on one core.
    """

    kind: str
    key: str
    title: str
    tells: str
    plan: Plan
    seconds: Mapping[Setting, float]

    def total(self) -> float:
        """The time of all runs, one after another.

        Returns:
            The seconds, with those of the surrogates that find flips for a poisoning.
        """
        runs = self.plan.runs()
        surrogates = {
            (s, run.split) for run in runs if (s := run.setting.surrogate) is not None
        }  # one for each split, whatever the row
        return sum(self.seconds[run.setting] for run in runs) + sum(self.seconds[s] for s, _ in surrogates)


def make_sections(subject: Subject, sizes: Sizes, abilities: Abilities) -> list[Section]:
    """Build the sections of an audit, the most important ones first.

    Args:
        subject: What is audited.
        sizes: How often and how long.
        abilities: What can be measured of the model, and how long it takes.

    Returns:
        The sections.
    """
    maker = _Maker(subject, sizes, abilities)
    sections = [maker.accuracy(), *maker.flatness()]
    sections += [maker.evasion(name) for name in abilities.evasions if maker.budgets(name)]
    sections += [maker.certificate(part) for part in sizes.certified if part in abilities.votes]
    return sections + [maker.poisoning(name) for name in abilities.poisons if sizes.poisoned_splits]


def total_seconds(sections: Sequence[Section]) -> float:
    """The time of all sections on one core.

    Args:
        sections: The sections.

    Returns:
        The seconds.
    """
    return sum(section.total() for section in sections)


def chunk_seconds(sections: Sequence[Section], chunk: tuple[Run, ...]) -> float:
    """The time of a chunk, for the progress.

    Args:
        sections: The sections that it may belong to.
        chunk: Runs of one setting.

    Returns:
        The seconds, never 0.
    """
    known = [section.seconds[chunk[0].setting] for section in sections if chunk[0].setting in section.seconds]
    return len(chunk) * max(known[0] if known else 1.0, 1e-3)


class _Maker:
    """Builds sections of one audit."""

    def __init__(self, subject: Subject, sizes: Sizes, abilities: Abilities) -> None:
        self.subject, self.sizes, self.abilities = subject, sizes, abilities

    def _training(self, setting: Setting) -> float:
        """The time of a training of a row."""
        passes = 1.0 if setting.awp is None else PERTURBED_PASSES
        return self.abilities.training.fixed + passes * self.abilities.training.each * setting.epochs

    def accuracy(self) -> Section:
        """Accuracy without any attack; all other sections measure the models that are trained here."""
        grid = self.subject.grid(self.sizes.splits)
        rows = self.subject.rows
        cells = tuple(Cell(row, "clean", setting, *grid) for row, setting in rows.items())
        return Section(
            ACCURACY, "accuracy", "Accuracy on clean data",
            "The share of test nodes whose class is right, on the graph as it is. It says nothing about an adversary.",
            self._plan("clean accuracy", cells), {setting: self._training(setting) for setting in rows.values()},
        )  # fmt: skip

    def budgets(self, name: str) -> tuple[float, ...]:
        """The budgets of an attack of at least one edge."""
        searches = attack_spec(name).uses_victim
        wanted = self.sizes.searched_budgets if searches else self.sizes.budgets
        return tuple(budget for budget in wanted if math.floor(budget * self.abilities.num_edges + 1e-9) >= 1)

    def evasion(self, name: str) -> Section:
        """Accuracy over budget under an attack on the trained models."""
        spec, (line, adaptive) = attack_spec(name), self.abilities.evasions[name]
        effort, budgets = self._effort(name), self.budgets(name)
        options: dict[str, Option] = {**dict(spec.audit_options), **({} if adaptive else {"adaptive": False})}
        options |= {} if spec.effort is None else {spec.effort: effort}
        measures = tuple(evading(name, budget, **options) for budget in budgets)
        columns = [("no attack", None), *((budget_name(b), i) for i, b in enumerate(budgets))]
        label = f"{spec.label[0].upper()}{spec.label[1:]}"
        sees = {"nothing": "sees the graph alone and flips edges at random", "labels": "knows the true labels"}.get(
            spec.needs, "sees what the model predicts" if not spec.uses_gradient else "follows the model's gradient"
        )
        if not adaptive:
            sees = "follows the gradient of a plain GCN, because it cannot follow that of this model"
        searched = "" if spec.effort is None else f" and made {effort} of its usual {spec.options[spec.effort]} steps"
        return self._measured(
            EVASION, f"attack-{name}", f"Under attack: {spec.label}", measures, columns,
            len(budgets) * line.at(effort),
            f"Accuracy after edges were added or removed once the models were trained. {label} {sees}{searched}. An "
            "attack that searches longer or is cleverer may take more: these curves bound the worst case from above.",
        )  # fmt: skip

    def _effort(self, name: str) -> int:
        """The steps of an attack that fit the time that it has, up to its default; 0 for one that does not search."""
        spec, (line, _) = attack_spec(name), self.abilities.evasions[name]
        if spec.effort is None:
            return 0
        steps = int((self.sizes.attack_seconds - line.fixed) / max(line.each, 1e-9))
        return max(1, min(steps, int(str(spec.options[spec.effort]))))

    def certificate(self, part: str) -> Section:
        """Certified accuracy of the smoothed models."""
        seconds = self.abilities.votes[part].at(self.sizes.votes)
        columns = [("not smoothed", None), ("smoothed", 0)]
        return self._measured(
            CERTIFICATE, f"certificate-{part}", f"What is guaranteed against changes of {part}",
            (certifying(part, self.sizes.votes),), columns, seconds,
            f"A majority vote of {self.sizes.votes:,} noisy copies of the graph makes a smoothed model. For each test "
            "node, a certificate gives the numbers of additions and deletions that no attacker, however clever, can "
            "use to change its class; each guarantee may be wrong with probability 1 %. It is about the smoothed model,"
            " whose clean accuracy may be lower, and the models were not trained under that noise.",
        )  # fmt: skip

    def flatness(self) -> Iterator[Section]:
        """Sharpness, loss landscape and curvature in the weights; smoothness in the inputs."""
        works = self.abilities.flatness
        by_weights = {name: m for name, m in FLATNESS.items() if name in works and not name.startswith("smoothness")}
        by_inputs = {name: m for name, m in FLATNESS.items() if name in works and name.startswith("smoothness")}
        if by_weights:
            yield self._measured(
                FLAT, "flatness", "How flat the training loss is around the weights", tuple(by_weights.values()),
                [("clean", None)], sum(works[name].fixed for name in by_weights),
                "How far the training loss rises if the weights move: at most, inside a ball (sharpness); on average, "
                "along random lines (landscape); and to second order (curvature). A flat loss is neither accuracy nor "
                "robustness, and a lower loss alone makes these numbers smaller.",
            )  # fmt: skip
        if by_inputs:
            yield self._measured(
                FLAT, "smoothness", "How smooth the training loss is in its inputs", tuple(by_inputs.values()),
                [("clean", None)], sum(works[name].fixed for name in by_inputs),
                "The mean length of the gradient of the training loss by the edges or by the features, at slightly "
                "noisy inputs. It is about small changes; attacks make large ones.",
            )  # fmt: skip

    def poisoning(self, name: str) -> Section:
        """Accuracy after a training on a poisoned graph."""
        spec = attack_spec(name)
        flips = math.floor(POISON_BUDGET * self.abilities.num_edges)
        poison = poisoning(name, POISON_BUDGET)
        grid = self.subject.grid(self.sizes.poisoned_splits)
        cells: list[Cell] = []
        seconds: dict[Setting, float] = {}
        for row, setting in self.subject.rows.items():
            poisoned = replace(setting, poison=poison)
            cells += [Cell(row, "no attack", setting, *grid), Cell(row, budget_name(POISON_BUDGET), poisoned, *grid)]
            seconds |= {setting: 0.0, poisoned: self._training(setting)}
            assert poisoned.surrogate is not None
            seconds[poisoned.surrogate] = self.abilities.poisons[name].at(flips)
        return Section(
            POISONING, f"poisoning-{name}", f"Trained on a poisoned graph: {spec.label}",
            f"Before the training, {spec.label} changed {budget_name(POISON_BUDGET)} of the edges, with a plain GCN in "
            "mind; the same changed graph is given to all rows.", self._plan(f"poisoning with {name}", tuple(cells)),
            seconds,
        )  # fmt: skip

    def _measured(
        self, kind: str, key: str, title: str, measures: tuple[MeasureRequest, ...],
        columns: Sequence[tuple[str, int | None]], seconds: float, tells: str,
    ) -> Section:  # fmt: skip
        """A section that measures the trained models of every row."""
        grid = self.subject.grid(self.sizes.splits)
        settings = {row: replace(setting, measures=measures) for row, setting in self.subject.rows.items()}
        cells = tuple(
            Cell(row, column, setting, *grid, measure=index)
            for row, setting in settings.items()
            for column, index in columns
        )
        return Section(kind, key, title, tells, self._plan(title, cells), dict.fromkeys(settings.values(), seconds))

    def _plan(self, title: str, cells: tuple[Cell, ...]) -> Plan:
        """The plan of a section."""
        return Plan("audit", f"{self.subject.label} on {self.subject.base.dataset}: {title}", cells, self.subject.pairs)
