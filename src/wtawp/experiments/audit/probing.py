"""Find out by short trials what can be measured of a model, and how long it takes.

Every measurement is tried at a tiny size: one that the model cannot take part in is left out with the reason, and two
sizes of the others give their time as a line.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from torch import nn
from torch_geometric.data import Data

from wtawp.attacks.registry import attack_names, attack_spec
from wtawp.attacks.spec import AttackSpec
from wtawp.base import WtawpError, shortened
from wtawp.certificates import Noise, vote
from wtawp.experiments.audit.subject import Subject
from wtawp.experiments.execution.building import build_model
from wtawp.experiments.execution.training import one_thread, untrained_model
from wtawp.experiments.measures.shared.interface import TrainedModels
from wtawp.experiments.measures.shared.registry import run_measure
from wtawp.experiments.plans.geometry import LANDSCAPES, SHARPNESS, SMOOTHNESS, SPECTRUM
from wtawp.experiments.plans.robustness import PAPER_NOISE, evading, poisoning
from wtawp.experiments.spec import MeasureRequest, Option, Run
from wtawp.graphs import Split
from wtawp.models.calls import is_out_of_memory
from wtawp.training import fit

PROBE_BUDGET = 0.05  # share of the edges
FLATNESS = {  # by what the page calls it
    "sharpness": SHARPNESS["layer"].with_options(steps=20),
    "loss landscape": LANDSCAPES["layer"],
    "curvature": SPECTRUM.with_options(probes=10),
    "smoothness by edges": SMOOTHNESS["A, paper"].with_options(samples=20),
    "smoothness by features": SMOOTHNESS["X, paper"].with_options(samples=20),
}
REFUSALS = (WtawpError, RuntimeError, ValueError, TypeError, NotImplementedError)  # of a measure, or of a user's module


@dataclass(frozen=True)
class Line:
    """Seconds as a linear function of a size.

    Attributes:
        fixed: Seconds at size 0.
        each: Seconds for each unit of the size.
    """

    fixed: float
    each: float = 0.0

    def at(self, size: float) -> float:
        """The seconds at a size.

        Args:
            size: The size.

        Returns:
            The seconds.

        Example:
            >>> Line(1.0, 0.5).at(4)
            3.0
        """
        return self.fixed + self.each * size


@dataclass(frozen=True, kw_only=True)
class Abilities:
    """What can be measured of a model, and how long that takes on one core.

    Attributes:
        num_edges: The undirected edges of the graph, of which budgets are shares.
        training: One plain training, by its epochs.
        evasions: Attacks on trained models by name: the time by the effort, and whether they see the model itself.
        poisons: Attacks on the training by name: the time to find flips, by their number.
        votes: Votes for a certificate, by what it is about.
        flatness: The measures of flatness and smoothness that work, by their names in FLATNESS.
        left_out: What does not work, and why.
    """

    num_edges: int = 0
    training: Line = Line(0.0)
    evasions: dict[str, tuple[Line, bool]] = field(default_factory=dict)
    poisons: dict[str, Line] = field(default_factory=dict)
    votes: dict[str, Line] = field(default_factory=dict)
    flatness: dict[str, Line] = field(default_factory=dict)
    left_out: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def from_json(content: dict[str, Any]) -> "Abilities":
        """Restore abilities after a round trip through JSON.

        Args:
            content: What `dataclasses.asdict` makes of them.

        Returns:
            The abilities.
        """
        lines = {name: {k: Line(**v) for k, v in content[name].items()} for name in ("poisons", "votes", "flatness")}
        return Abilities(
            num_edges=content["num_edges"],
            training=Line(**content["training"]),
            evasions={name: (Line(**line), adaptive) for name, (line, adaptive) in content["evasions"].items()},
            left_out=tuple((what, why) for what, why in content["left_out"]),
            **lines,
        )

    def to_json(self) -> dict[str, Any]:
        """The abilities as plain data.

        Returns:
            What `from_json` restores.
        """
        return asdict(self)


def audited_attacks(stage: str) -> tuple[AttackSpec, ...]:
    """List the attacks of an audit: for evasion all that say so, for poisoning those that train a model themselves.

    Args:
        stage: "evasion" or "poisoning".

    Returns:
        Their entries in the registry.

    Example:
        >>> [spec.label for spec in audited_attacks("poisoning")]
        ['Metattack']
    """
    specs = (attack_spec(name) for name in attack_names())
    return tuple(s for s in specs if s.in_audit and stage in s.stages and (stage == "evasion" or s.trains_surrogate))


def probe(subject: Subject, *, device: str, progress: Callable[[float, str], None] | None = None) -> Abilities:
    """Try every measurement of an audit at a tiny size.

    Args:
        subject: What is audited.
        device: "cpu" or "cuda".
        progress: Called with the share that is done, and a description.

    Returns:
        What works, what does not and why, and how long it takes.

    Raises:
        PlanError: If the model cannot be trained on the data.
    """
    setting = replace(subject.base, weights=None)
    run = Run(setting, 0, 0)
    model, data, split = untrained_model(run, device=device)
    with one_thread():
        training = _time_training(model, data, split, run) if not subject.is_checkpoint else Line(0.0)
        prober = _Prober(TrainedModels([model], data, setting.dataset, [split], [(0, 0)], setting.model), progress)
        for name, measure in FLATNESS.items():
            prober.try_flatness(name, measure)
        for spec in audited_attacks("evasion"):
            prober.try_evasion(spec)
        for part in PAPER_NOISE:
            prober.try_votes(part)
        for spec in () if subject.is_checkpoint else audited_attacks("poisoning"):
            prober.try_poison(spec, replace(setting, poison=poisoning(spec.name, PROBE_BUDGET)))
    left_out = prober.left_out
    if subject.is_checkpoint:
        left_out.append(("poisoning", "the weights are given, and nothing is trained that could be poisoned"))
    return Abilities(
        num_edges=int(data.num_edges) // 2, training=training, evasions=prober.evasions, poisons=prober.poisons,
        votes=prober.votes, flatness=prober.flatness, left_out=tuple(left_out),
    )  # fmt: skip


def _time_training(model: nn.Module, data: Data, split: Split, run: Run) -> Line:
    """The time of a plain training by its epochs; the model is left after a few of them."""
    setting = run.setting

    def train(epochs: int) -> None:
        fit(model, data, split, seed=0, epochs=epochs, lr=setting.lr, weight_decay=setting.weight_decay)

    return _time(train, 2, 6)


def _time(run: Callable[[int], object], small: int, large: int) -> Line:
    """The time of a function of a size; a first call, which imports and compiles, does not count."""
    run(small)
    seconds = []
    for size in (small, large):
        start = time.perf_counter()
        run(size)
        seconds.append(time.perf_counter() - start)
    each = max((seconds[1] - seconds[0]) / (large - small), seconds[1] / large / 100)
    return Line(max(seconds[0] - each * small, 0.0), each)


class _Prober:
    """Collects what works for one model, and what does not."""

    def __init__(self, trained: TrainedModels, progress: Callable[[float, str], None] | None) -> None:
        self.trained, self.progress = trained, progress
        self.evasions: dict[str, tuple[Line, bool]] = {}
        self.poisons: dict[str, Line] = {}
        self.votes: dict[str, Line] = {}
        self.flatness: dict[str, Line] = {}
        self.left_out: list[tuple[str, str]] = []
        self._num_tried = 0

    @contextmanager
    def _trying(self, what: str) -> Iterator[None]:
        """Note the reason if something does not work."""
        total = len(FLATNESS) + len(audited_attacks("evasion")) + len(PAPER_NOISE) + len(audited_attacks("poisoning"))
        if self.progress is not None:
            self.progress(min(self._num_tried / total, 1.0), f"trying {what}")
        self._num_tried += 1
        try:
            yield
        except REFUSALS as error:
            if is_out_of_memory(error):  # what fits another time must not be left out for good
                error.add_note(f"wtawp audit: memory was exhausted while trying {what} at a tiny size")
                raise
            self.left_out.append((what, shortened(str(error), 400)))

    def try_flatness(self, name: str, measure: MeasureRequest) -> None:
        """Try a measure of flatness or smoothness, which takes a few seconds at most."""
        with self._trying(name):
            start = time.perf_counter()
            run_measure(measure, self.trained)
            self.flatness[name] = Line(time.perf_counter() - start)

    def try_evasion(self, spec: AttackSpec) -> None:
        """Try an attack on the model itself and, if that does not work, by flips that mislead a plain GCN."""
        with self._trying(spec.label):
            self.evasions[spec.name] = (self._time_evasion(spec, adaptive=True), True)
        if spec.name not in self.evasions and spec.uses_gradient:
            what, reason = self.left_out.pop()
            with self._trying(f"{spec.label}, also on a plain GCN"):
                self.evasions[spec.name] = (self._time_evasion(spec, adaptive=False), False)
                explained = "the attack cannot follow the gradient of this model, so its flips mislead a plain GCN"
                self.left_out.append((f"{what} on the model itself", f"{explained}, which is weaker. {reason}"))

    def _time_evasion(self, spec: AttackSpec, *, adaptive: bool) -> Line:
        """The time of an attack by its effort, or by nothing if it does not search."""
        options: dict[str, Option] = {**dict(spec.audit_options), **({} if adaptive else {"adaptive": False})}

        def run(effort: int) -> object:
            searching: dict[str, Option] = {} if spec.effort is None else {spec.effort: effort}
            return run_measure(evading(spec.name, PROBE_BUDGET, **{**options, **searching}), self.trained)

        if spec.effort is None:
            start = time.perf_counter()
            run(0)
            return Line(time.perf_counter() - start)
        return _time(run, 1, 3)

    def try_votes(self, part: str) -> None:
        """Try votes under the noise of a certificate."""
        noise = Noise(p_add=PAPER_NOISE[part][0], p_del=PAPER_NOISE[part][1])
        with self._trying(f"certificate on {part}"):
            parts: dict[str, Any] = {part: noise}
            model = self.trained.models[0].eval()
            cast = partial(vote, self.trained.data, model, **parts, seed=0)
            self.votes[part] = _time(lambda samples: cast(samples=samples), 2, 10)

    def try_poison(self, spec: AttackSpec, poisoned: Any) -> None:
        """Try to find a few flips before a training, on the surrogate that finds them in the audit."""
        surrogate, data = poisoned.surrogate, self.trained.data
        with self._trying(f"poisoning with {spec.label}"):
            victim = build_model(Run(surrogate, 0, 0), data).to(data.x.device)
            trained = replace(self.trained, models=[victim], model=surrogate.model)

            def run(flips: int) -> object:
                return run_measure(poisoning(spec.name, flips), trained)

            self.poisons[spec.name] = _time(run, 1, 3)
