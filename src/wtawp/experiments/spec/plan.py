"""What is to be trained: settings, runs with a name made of their content, and plans that unroll into them.

A run's random numbers follow from its split and initialisation numbers alone, so two settings share both: pairs with
and without WT-AWP start from the same weights on the same split.
"""

import hashlib
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from importlib import invalidate_caches
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

from wtawp.core.config import AwpConfig
from wtawp.training.options import SelectOn

MODELS = (  # names only: reports read plans, and train nothing
    "GCN", "GAT", "PPNP", "MLP", "GraphSAGE", "GIN", "GCNJaccard", "GCNSVD", "RGCN", "SimPGCN",
    "GNNGuard", "SoftMedianGCN", "PooledGCN", "PooledGIN", "PooledSAGE",
)  # fmt: skip
Keep = Literal["history", "saturation", "scores", "sharpness"]  # of the logits, of the loss: in the history
LAST = ", last epoch"  # how columns say that no epoch was selected
CURVES = frozenset(("history", "saturation", "sharpness"))  # of these, what asks for a history
Scale = Literal["smoke", "quick", "full"]
Option = bool | int | float | str | None | tuple[int, ...]
MAX_INITS = 1000  # of one split; keeps the seeds of (split, initialisation) apart
MAX_TOGETHER = 200  # runs in one stack on a GPU
FORMAT = 1  # of a run's content; a change of what the numbers mean must change it


@dataclass(frozen=True)
class Measure:
    """Something done with trained models: the name of a function of `measures`, and its options.

    Two of them are attacks: "evasion" of the models themselves, and "poison", which finds flips for others to train on.
    """

    name: str
    options: tuple[tuple[str, Option], ...] = ()  # in the order of their names

    def __post_init__(self) -> None:
        for name, value in self.options:
            if not _is_option(value):
                raise ValueError(f"option {name} must be a finite number, text or whole numbers, got {value!r}")
        object.__setattr__(self, "options", tuple(sorted(dict(self.options).items())))

    def with_options(self, **changed: Option) -> "Measure":
        """The same with other options."""
        return Measure(self.name, tuple({**dict(self.options), **changed}.items()))

    @staticmethod
    def from_content(content: dict[str, Any]) -> "Measure":
        """The measure that `asdict` made `content` of, also after a way through JSON."""
        return Measure(content["name"], _options(content["options"]))

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(f'{k}={v!r}' for k, v in self.options)})"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Everything about a training, and what is measured after it, but its seeds."""

    dataset: str
    model: str = "GCN"
    options: tuple[tuple[str, Option], ...] = ()  # of the model, in the order of their names
    awp: AwpConfig | None = None
    epochs: int = 200
    lr: float = 0.01
    weight_decay: float = 5e-4
    select_on: SelectOn = "either"
    keep: tuple[Keep, ...] = ()  # beside accuracies: curves over epochs, the prediction score of every node
    digest: str | None = None  # of the files, where the data set is a graph of one's own; found out if not given
    code: str | None = None  # of the module's source, where the model is one's own; likewise
    poison: Measure | None = None  # who flips edges of the graph before the training
    measures: tuple[Measure, ...] = ()  # what is done with the trained models
    noise: Measure | None = None  # flips drawn anew in each epoch of the training, as a certificate's are
    features: str | None = None  # of lists of graphs, as `load` takes it
    batch_size: int | None = None  # graphs in a step of the optimiser; None: all at once

    def __post_init__(self) -> None:
        if self.model not in MODELS and not _is_place(self.model):
            raise ValueError(f"model must be one of {', '.join(MODELS)}, or package.module:Class, got {self.model!r}")
        if not isinstance(self.epochs, int) or self.epochs < 1:
            raise ValueError(f"epochs must be a whole number >= 1, got {self.epochs!r}")
        if self.batch_size is not None and (not isinstance(self.batch_size, int) or self.batch_size < 1):
            raise ValueError(f"batch_size must be a whole number >= 1 or None, got {self.batch_size!r}")
        for name in ("lr", "weight_decay"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value < float("inf"):
                raise ValueError(f"{name} must be a finite number >= 0, got {value!r}")
        if self.select_on not in get_args(SelectOn):
            raise ValueError(f"select_on must be one of {get_args(SelectOn)}, got {self.select_on!r}")
        if unknown := set(self.keep) - set(get_args(Keep)):
            raise ValueError(f"keep must be among {get_args(Keep)}, got {sorted(unknown)}")
        for name, value in self.options:
            if not _is_option(value):
                raise ValueError(f"option {name} must be a finite number, text or whole numbers, got {value!r}")
        object.__setattr__(self, "options", tuple(sorted(dict(self.options).items())))
        object.__setattr__(self, "keep", tuple(sorted(set(self.keep))))
        for name in ("lr", "weight_decay"):
            object.__setattr__(self, name, float(getattr(self, name)))
        if self.awp is not None:  # 1 and 1.0 are one number, and must be one key
            numbers: dict[str, Any] = {n: getattr(self.awp, n) for n in ("rho", "lam", "step_size", "balance")}
            numbers = {n: None if v is None else float(v) for n, v in numbers.items()}
            object.__setattr__(self, "awp", replace(self.awp, **numbers))
        if self.digest is None:
            object.__setattr__(self, "digest", _digest(self.dataset))
        if self.code is None and self.model not in MODELS:
            object.__setattr__(self, "code", _code(self.model))

    @property
    def is_redrawn(self) -> bool:
        """Whether every split draws the points anew: so it is with the toys, lest one lucky draw decide."""
        return self.dataset.startswith("toy-") and self.digest is None

    @property
    def content(self) -> dict[str, Any]:
        """As plain data, for JSON. What came into settings later is left out where there is none: keys stay."""
        later = {"digest": None, "code": None, "poison": None, "measures": (), "noise": None, "features": None,
                 "batch_size": None}  # fmt: skip
        return {k: v for k, v in asdict(self).items() if k not in later or v != later[k]}

    @staticmethod
    def from_content(content: dict[str, Any]) -> "Setting":
        """The setting that `content` came from, also after a way through JSON."""
        awp, poison, noise = content["awp"], content.get("poison"), content.get("noise")
        return Setting(**{**content, "options": _options(content["options"]), "keep": tuple(content["keep"]),
                          "awp": None if awp is None else AwpConfig(**awp),
                          "poison": None if poison is None else Measure.from_content(poison),
                          "noise": None if noise is None else Measure.from_content(noise),
                          "measures": tuple(map(Measure.from_content, content.get("measures", ())))})  # fmt: skip

    @property
    def surrogate(self) -> "Setting | None":
        """Who is trained for the attack that poisons this training, and attacked; None where nobody poisons it.

        By default a GCN with 16 hidden units, whoever is trained afterwards, so that a table's rows share the flips.
        It is trained to the last epoch, as DeepRobust's surrogates are: the attacker selects nothing.
        """
        if self.poison is None:
            return None
        told = dict(self.poison.options)
        options: tuple[tuple[str, Option], ...] = (("hidden", (16,)),)
        if (model := told.pop("surrogate", "GCN")) != "GCN":
            options = self.options
        return Setting(dataset=self.dataset, model=str(model), options=options, digest=self.digest,
                       weight_decay=0.0 if model == "RGCN" else 5e-4, select_on="last",
                       epochs=self.epochs, measures=(Measure("poison", tuple(told.items())),))  # fmt: skip

    def __str__(self) -> str:
        told = ("dataset", "model", "awp", "options", "keep", "digest", "code", "poison", "measures", "noise")
        others = [f for f in fields(self) if f.name not in told and getattr(self, f.name) != f.default]
        details = [*self.options, *((f.name, getattr(self, f.name)) for f in others)]
        method = "plain" if self.awp is None else str(self.awp)
        graph = self.dataset if self.poison is None else f"{self.dataset} after {self.poison}"
        later = (*(() if self.noise is None else (self.noise,)), *self.measures)
        parts = [f"{self.model} on {graph}", method, *(f"{k}={v!r}" for k, v in details), *map(str, later)]
        return ", ".join(parts)


def _options(content: Sequence[Sequence[Any]]) -> tuple[tuple[str, Option], ...]:
    """Options after a way through JSON, which knows no tuples."""
    return tuple((k, tuple(v) if isinstance(v, list) else v) for k, v in content)


def _is_place(model: str) -> bool:
    """Whether it names a class of somebody's own, as package.module:Class."""
    module, _, name = model.partition(":")
    return name.isidentifier() and all(part.isidentifier() for part in module.split("."))


def _is_option(value: object) -> bool:
    if isinstance(value, tuple):
        return all(isinstance(item, int) for item in value)
    return value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value))


def _digest(dataset: str) -> str | None:
    """Names the content of a graph in files, as its path does not; None for graphs by name."""
    path = Path(dataset).expanduser()
    files = [path, path.with_name(f"{path.stem}.labels.csv")] if path.suffix == ".csv" else [path]
    if not path.suffix or not all(file.is_file() for file in files):
        return None  # what is not there is refused when the plan is checked
    return hashlib.sha256(b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files)).hexdigest()[:16]


def add_cwd_to_sys_path() -> None:
    """Let modules of the working folder be found, as `python -m` does and a command does not."""
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    invalidate_caches()  # of files that came while we run


def _code(model: str) -> str | None:
    """Names the source of the module that has somebody's own model: another source is another model."""
    add_cwd_to_sys_path()
    try:
        spec = find_spec(model.partition(":")[0])
    except ImportError:
        return None  # what is not there is refused when the plan is checked
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        return None
    return hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()[:16]


def key_of(setting: dict[str, Any], split: int, init: int, *, form: int = FORMAT) -> str:
    """The name of a run whose setting is plain data, before or after a way through JSON; `form` is a FORMAT."""
    content = {"format": form, "setting": setting, "split": split, "init": init}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Run:
    """One training. Its `key` names its content: the same key, the same training, wherever it ran."""

    setting: Setting
    split: int
    init: int

    @cached_property
    def key(self) -> str:
        """16 hexadecimal digits."""
        return key_of(self.setting.content, self.split, self.init)


@dataclass(frozen=True)
class Cell:
    """A place in a table: a setting, how often it is trained, and what the paper prints there."""

    row: str
    column: str
    setting: Setting
    splits: int = 20
    inits: int = 10
    printed: tuple[float, float | None] | None = None  # mean and standard deviation, in per cent
    judged: bool = True  # False: reported beside the paper's number, without a verdict
    measure: int | None = None  # the place, among the setting's measures, of the accuracy shown; None: the training's

    def __post_init__(self) -> None:
        if self.splits < 1 or not 1 <= self.inits <= MAX_INITS:
            raise ValueError(f"a cell needs splits >= 1 and 1 to {MAX_INITS} inits, got {self.splits} and {self.inits}")

    def runs(self) -> Iterator[Run]:
        """Split by split."""
        return (Run(self.setting, split, init) for split in range(self.splits) for init in range(self.inits))


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper that measurements can contradict; `check` names a function of the report."""

    text: str
    check: str


@dataclass(frozen=True)
class Plan:
    """A table, a figure or a claim of the paper, or somebody's own comparison."""

    name: str  # the LaTeX label, for those of the paper
    title: str
    cells: tuple[Cell, ...]
    pairs: tuple[tuple[str, str], ...] = ()  # rows without and with: compared in every column
    figures: tuple[str, ...] = ()  # how to draw it; names of functions of the report
    claims: tuple[Claim, ...] = ()

    def runs(self) -> tuple[Run, ...]:
        """Every run once, in the order of the cells."""
        return tuple({run.key: run for cell in self.cells for run in cell.runs()}.values())

    def only(self, rows: Sequence[str] = (), columns: Sequence[str] = ()) -> "Plan":
        """The part with some rows and columns; none given means all. Claims are dropped: they need the whole."""
        known = {"row": {c.row for c in self.cells}, "column": {c.column for c in self.cells}}
        for kind, wanted in (("row", rows), ("column", columns)):
            if missing := [name for name in wanted if name not in known[kind]]:
                raise ValueError(f"{self.name} has no {kind} {missing[0]!r}; it has {sorted(known[kind])}")
        if not rows and not columns:
            return self
        cells = tuple(
            c for c in self.cells if c.row in (rows or known["row"]) and c.column in (columns or known["column"])
        )
        left = {c.row for c in cells}
        return replace(self, cells=cells, pairs=tuple(p for p in self.pairs if left.issuperset(p)), claims=())

    def at(self, scale: Scale) -> "Plan":
        """Smaller: "quick" has fewer runs, "smoke" also fewer epochs and only shows that everything works."""
        if scale == "full":
            return self
        splits, inits, epochs = {"quick": (5, 2, None), "smoke": (2, 1, 30)}[scale]
        cells = tuple(
            replace(
                c,
                splits=min(c.splits, splits),
                inits=min(c.inits, inits),
                setting=_smoke(c.setting, epochs) if epochs else c.setting,
                judged=c.judged and scale != "smoke",
            )
            for c in self.cells
        )
        return replace(self, cells=cells, claims=self.claims if scale != "smoke" else ())


def _smoke(setting: Setting, epochs: int) -> Setting:
    """Fewer epochs, attacks of few flips and steps, certificates of few votes."""
    small = {"budget": 4, "steps": 10, "samples": 100, "directions": 2, "probes": 2}

    def smaller(measure: Measure) -> Measure:
        few = {**small, "samples": 2} if measure.name == "smoothness" else small
        return measure.with_options(**{k: v for k, v in few.items() if k in dict(measure.options)})

    return replace(setting, epochs=min(setting.epochs, epochs), measures=tuple(map(smaller, setting.measures)),
                   poison=None if setting.poison is None else smaller(setting.poison))  # fmt: skip


def chunks(runs: tuple[Run, ...], *, together: bool) -> list[tuple[Run, ...]]:
    """The runs that are trained as one stack: those of one setting and, unless `together` (on a GPU), of one split.

    Splits with a graph of their own, drawn anew or poisoned, are never together. A function of the runs alone: the same
    chunks on every machine, with any number of workers, and after a restart.
    """
    groups: dict[tuple[Setting, int | None], list[Run]] = {}
    for run in runs:
        has_own_graph = run.setting.is_redrawn or run.setting.poison is not None
        split = None if together and not has_own_graph else run.split
        groups.setdefault((run.setting, split), []).append(run)
    stacks = (group[i : i + MAX_TOGETHER] for group in groups.values() for i in range(0, len(group), MAX_TOGETHER))
    return [tuple(stack) for stack in stacks]
