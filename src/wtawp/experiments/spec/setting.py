"""Everything about a training but its seeds."""

import hashlib
import json
import sys
from dataclasses import InitVar, asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, get_args

from wtawp.attacks.registry import attack_names, attack_spec, is_user_attack
from wtawp.base import is_reference, matching_name
from wtawp.core.config import AwpConfig
from wtawp.experiments.spec.measure import MeasureRequest, Option, is_option, options_from_json
from wtawp.experiments.spec.sources import MEASURE_REFERENCES, source_digest
from wtawp.experiments.spec.split_rule import SplitRule
from wtawp.graphs.composed_names import composed_name, files_of_name
from wtawp.graphs.registry import dataset_names, dataset_spec
from wtawp.models.registry import model_names, model_spec
from wtawp.training.options import Average, SelectOn, check_average

Keep = Literal["history", "saturation", "scores", "sharpness"]
SURROGATE = "GCN"  # the model on which attacks find flips for others, unless they name another
SURROGATE_CODE = "surrogate_code"  # the option of a poisoning with the hash of a surrogate that is the user's
ITSELF = "itself"  # in place of the name of a surrogate: the model that is poisoned, with its own options


@dataclass(frozen=True, kw_only=True, eq=False)
class Setting:
    """Everything about a training, and what is measured after it, but its seeds.

    Settings are equal if their content as JSON is, as their keys are: to Python, 1, 1.0 and true are equal, and a
    budget of 1 edge is none of 100 %.

    With `hash_sources=False`, which is no attribute, neither `digest` nor `code` is computed if not given: for that,
    files are read.

    Attributes:
        dataset: The name of a data set, or the path of a graph in a file, or both combined ("cora@attacked.npz").
        model: The name of a model, or "package.module:Class" for one of the user.
        options: Options of the model, in the order of their names.
        awp: How weights are perturbed in training; None trains plainly.
        epochs: Epochs of training.
        lr: The learning rate.
        weight_decay: The weight decay; by default that of the model in the registry.
        select_on: What of the validation set selects the epoch; by default that of the model in the registry.
        keep: What is recorded beside accuracies: curves over epochs, the prediction score of every node.
        digest: The hash of the data set's files, or of the source of the function that loads it, where it is one of the
            user; computed if not given.
        code: The hash of the source of the user's model and of what it imports of the user's; computed if not given.
        poison: The attack that flips edges of the graph before the training. The hash of the source of an attack or a
            surrogate of the user is added to its options.
        measures: What is measured on the trained models, likewise with the hash of a measure or an attack of the user.
        noise: The flips that are drawn anew in each epoch of the training, as those of a certificate.
        features: The features of lists of graphs, as `load` takes them.
        batch_size: Graphs in a step of the optimiser; None takes all at once.
        split: How the data are divided into training, validation and test parts; None: at random.
        average: What weights are averaged over, as `fit` takes it; None keeps those of an epoch.
        inductive: Whether test nodes are absent from the graph in training, see `wtawp.graphs.inductive`. Accuracies of
            the test part, and measures, are of the full graph.
        weights: The hash of a checkpoint whose weights are measured in place of trained ones; None trains.

    Raises:
        ValueError: If a value is out of its range, or there is no such model.
    """

    dataset: str
    model: str = "GCN"
    options: tuple[tuple[str, Option], ...] = ()
    awp: AwpConfig | None = None
    epochs: int = 200
    lr: float = 0.01
    weight_decay: float = None  # type: ignore[assignment]  # a number once it is built
    select_on: SelectOn = None  # type: ignore[assignment]  # likewise
    keep: tuple[Keep, ...] = ()
    digest: str | None = None
    code: str | None = None
    poison: MeasureRequest | None = None
    measures: tuple[MeasureRequest, ...] = ()
    noise: MeasureRequest | None = None
    features: str | None = None
    batch_size: int | None = None
    split: SplitRule | None = None
    average: Average | None = None
    inductive: bool = False
    weights: str | None = None
    hash_sources: InitVar[bool] = True

    def __post_init__(self, hash_sources: bool) -> None:
        spec = model_spec(self.model)
        self._spell_names()
        for name in ("weight_decay", "select_on"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, getattr(spec, name))
        if not isinstance(self.epochs, int) or self.epochs < 1:
            raise ValueError(f"epochs must be a whole number >= 1, got {self.epochs!r}")
        if self.batch_size is not None and (not isinstance(self.batch_size, int) or self.batch_size < 1):
            raise ValueError(f"batch_size must be a whole number >= 1 or None, got {self.batch_size!r}")
        for name in ("lr", "weight_decay"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not 0 <= value <= sys.float_info.max:
                raise ValueError(f"{name} must be a finite number >= 0, got {value!r}")
        if self.select_on not in get_args(SelectOn):
            raise ValueError(f"select_on must be one of {get_args(SelectOn)}, got {self.select_on!r}")
        check_average(self.average)
        if self.awp is not None and self.batch_size is None and self.awp.start >= self.epochs:
            raise ValueError(f"start={self.awp.start} leaves no perturbed epoch of {self.epochs}; choose a smaller one")
        if self.awp is not None and self.awp.needs_fit and self.batch_size is not None:
            name = "direction" if self.awp.direction != "gradient" else "perturbed_gradient"
            raise ValueError(
                f"{name}={getattr(self.awp, name)!r} belongs to full-batch training; leave out batch_size, or {name}"
            )
        if self.average is not None and self.batch_size is not None:
            raise ValueError("average belongs to full-batch training; leave out batch_size or average")
        if type(self.inductive) is not bool:
            raise ValueError(f"inductive must be true or false, got {self.inductive!r}")
        if self.inductive and (self.poison is not None or self.batch_size is not None):
            raise ValueError(
                "with inductive, test nodes are absent from the graph in training; there is no such protocol for"
                " poisoning or for batches of graphs, so leave out inductive, or poison and batch_size"
            )
        if unknown := set(self.keep) - set(get_args(Keep)):
            raise ValueError(f"keep must be among {get_args(Keep)}, got {sorted(unknown)}")
        for name, value in self.options:
            if not is_option(value):
                raise ValueError(f"option {name} must be a finite number, text or whole numbers, got {value!r}")
        if type(self.poison_draws) is not int or self.poison_draws < 1:
            raise ValueError(f"draws of a poisoning must be a whole number >= 1, got {self.poison_draws!r}")
        object.__setattr__(self, "options", tuple(sorted(dict(self.options).items())))
        object.__setattr__(self, "keep", tuple(sorted(set(self.keep))))
        for name in ("lr", "weight_decay"):
            object.__setattr__(self, name, float(getattr(self, name)))
        if self.awp is not None:  # 1 and 1.0 are one number, and must be one key
            numbers: dict[str, Any] = {n: getattr(self.awp, n) for n in ("rho", "lam", "step_size", "balance")}
            numbers = {n: float(v) if isinstance(v, int | float) else v for n, v in numbers.items()}
            object.__setattr__(self, "awp", replace(self.awp, **numbers))
        if hash_sources and self.digest is None:
            object.__setattr__(self, "digest", data_digest(self.dataset))
        if hash_sources and self.code is None and spec.is_user_code:
            object.__setattr__(self, "code", source_digest(spec.reference))
        if hash_sources:
            object.__setattr__(self, "measures", tuple(map(_with_code, self.measures)))
        if hash_sources and self.poison is not None:
            object.__setattr__(self, "poison", _with_surrogate_code(_with_code(self.poison), self.model))

    def _spell_names(self) -> None:
        """Replace names by their registered spelling, so that a run has one key however the user wrote its names."""
        object.__setattr__(self, "model", model_spec(self.model).name)
        object.__setattr__(self, "dataset", matching_name(self.dataset, dataset_names()) or self.dataset)
        if self.poison is not None:
            object.__setattr__(self, "poison", _with_surrogate(_with_registered_names(self.poison)))
        object.__setattr__(self, "measures", tuple(map(_with_registered_names, self.measures)))

    @property
    def is_redrawn(self) -> bool:
        """Whether every split draws the points anew, as it does for the toys, so that no lucky draw decides."""
        known = self.digest is None and self.dataset in dataset_names()
        return known and dataset_spec(self.dataset).is_redrawn

    @property
    def split_rule(self) -> SplitRule:
        """How the data are divided: `split`, or at random if that is None."""
        return SplitRule() if self.split is None else self.split

    @property
    def content(self) -> dict[str, Any]:
        """The setting as plain data for JSON; newer fields are left out at their defaults, so that old keys stay."""
        later = {"digest": None, "code": None, "poison": None, "measures": (), "noise": None, "features": None,
                 "batch_size": None, "split": None, "average": None, "inductive": False, "weights": None}  # fmt: skip
        content = {k: v for k, v in asdict(self).items() if k not in later or v != later[k]}
        if self.awp is not None:
            awp = self.awp.content
            content["awp"] = {k: v for k, v in awp.items() if (k, v) not in (("every", 1), ("start", 0))}
        if self.split == SplitRule():
            del content["split"]
        return content

    @cached_property
    def content_json(self) -> str:
        """The content as the text that content keys are made of."""
        return json.dumps(self.content, sort_keys=True, separators=(",", ":"), allow_nan=False)

    def __eq__(self, other: object) -> bool:
        return self.content_json == other.content_json if isinstance(other, Setting) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.content_json)

    @staticmethod
    def from_content(content: dict[str, Any]) -> "Setting":
        """Build a setting from plain data. No file is read and nothing is imported: hashes are those of the content.

        Args:
            content: The `content` of a setting, also after a round trip through JSON.

        Returns:
            The setting.

        Raises:
            KeyError: If a field is missing.
            TypeError: If a field is unknown, or of the wrong kind.
            ValueError: If a value is out of its range, or there is no such model.
        """
        awp, poison, noise = content["awp"], content.get("poison"), content.get("noise")
        split, measures = content.get("split"), tuple(map(MeasureRequest.from_content, content.get("measures", ())))
        return Setting(**{**content, "options": options_from_json(content["options"]), "keep": tuple(content["keep"]),
                          "hash_sources": False, "split": None if split is None else SplitRule(**split),
                          "awp": None if awp is None else AwpConfig.from_content(awp),
                          "poison": None if poison is None else MeasureRequest.from_content(poison),
                          "noise": None if noise is None else MeasureRequest.from_content(noise),
                          "measures": measures})  # fmt: skip

    @property
    def surrogate(self) -> "Setting | None":
        """The training of the model on which the attack finds the flips that poison this one; None if nothing does.

        By default it is a GCN with 16 hidden units, whatever model is trained afterwards, so that the rows of a table
        share the flips. It is trained to the last epoch, as DeepRobust's surrogates for PGD are: the attacker selects
        nothing. The registry of models may say otherwise. An attack that unrolls trainings attacks the model itself,
        with its options.
        """
        if self.poison is None:
            return None
        attack = dict(self.poison.options)
        named = str(attack.pop("surrogate", SURROGATE))
        attack.pop("draws", None)
        code = attack.pop(SURROGATE_CODE, None)
        model = self.model if named == ITSELF else named
        spec = model_spec(model)
        keeps_options = named == ITSELF or spec.surrogate_options is None
        return Setting(dataset=self.dataset, model=model, digest=self.digest,
                       options=self.options if keeps_options else spec.surrogate_options,  # type: ignore[arg-type]
                       code=self.code if model == self.model else code,  # type: ignore[arg-type]  # text
                       epochs=self.epochs, split=self.split,
                       select_on=spec.surrogate_select_on,  # type: ignore[arg-type]
                       measures=(MeasureRequest("poison", tuple(attack.items())),))  # fmt: skip

    @property
    def poison_draws(self) -> int:
        """The number of surrogates, with different initialisations, that find flips for each split; 1 by default."""
        return 1 if self.poison is None else dict(self.poison.options).get("draws", 1)  # type: ignore[return-value]

    def __str__(self) -> str:
        shown = ("dataset", "model", "awp", "options", "keep", "digest", "code", "poison", "measures", "noise", "split")
        defaults = {f.name: f.default for f in fields(self)}
        defaults |= {name: getattr(model_spec(self.model), name) for name in ("weight_decay", "select_on")}
        others = [f for f in fields(self) if f.name not in shown and getattr(self, f.name) != defaults[f.name]]
        details = [*self.options, *((f.name, getattr(self, f.name)) for f in others)]
        plain = "plain" if self.weights is None else "given weights"
        method = plain if self.awp is None else str(self.awp)
        graph = self.dataset if self.poison is None else f"{self.dataset} after {self.poison}"
        later = (*(() if self.noise is None else (self.noise,)), *self.measures)
        parts = [f"{self.model} on {graph}", method, *(f"{k}={v!r}" for k, v in details)]
        parts += [f"split: {self.split}"] * (self.split_rule != SplitRule()) + list(map(str, later))
        return ", ".join(parts)


def _with_registered_names(measure: MeasureRequest) -> MeasureRequest:
    """A measure whose options name attacks and surrogates as the registries spell them; unknown names stay."""
    options = dict(measure.options)
    for option, registered in (("attack", attack_names()), ("surrogate", model_names())):
        if isinstance(written := options.get(option), str):
            options[option] = matching_name(written, registered) or written
    return measure if options == dict(measure.options) else MeasureRequest(measure.name, tuple(options.items()))


def _with_surrogate(poison: MeasureRequest) -> MeasureRequest:
    """A poisoning that names the model itself as its surrogate, if the attack unrolls trainings and names no other.

    It is written into the options because the attack may not be registered where records are read.
    """
    options = dict(poison.options)
    attack = options.get("attack")
    if "surrogate" in options or attack not in attack_names() or not attack_spec(str(attack)).unrolls_training:
        return poison
    return MeasureRequest(poison.name, (*poison.options, ("surrogate", ITSELF)))


def _with_code(request: MeasureRequest) -> MeasureRequest:
    """A request with the hash of the user's measure or attack that it names; others stay as they are."""
    options = dict(request.options)
    attack = str(options.get("attack"))
    if "code" in options:
        return request
    if request.name in MEASURE_REFERENCES:
        code = source_digest(MEASURE_REFERENCES[request.name])
    elif is_reference(attack) or (attack in attack_names() and is_user_attack(attack)):
        code = source_digest(attack_spec(attack).reference)
    else:
        return request
    return request if code is None else request.with_options(code=code)


def _with_surrogate_code(poison: MeasureRequest, model: str) -> MeasureRequest:
    """A poisoning with the hash of a surrogate of the user, unless that is the model, whose hash the setting has."""
    options = dict(poison.options)
    surrogate = str(options.get("surrogate", SURROGATE))
    is_known = is_reference(surrogate) or surrogate in model_names()
    if SURROGATE_CODE in options or surrogate == model or not is_known or not model_spec(surrogate).is_user_code:
        return poison
    code = source_digest(model_spec(surrogate).reference)
    return poison if code is None else poison.with_options(**{SURROGATE_CODE: code})


def user_loader(dataset: str) -> str | None:
    """Find the function of the user that loads a data set.

    Args:
        dataset: The name of a data set, the path of a graph, or a composed name.

    Returns:
        The reference to the function; None for a file, and for data sets of ours.
    """
    composed = composed_name(dataset)
    base = dataset if composed is None else composed.base
    if is_reference(base):
        return base
    is_of_user = base in dataset_names() and dataset_spec(base).source == "user"
    return dataset_spec(base).reference if is_of_user else None


def data_digest(dataset: str) -> str | None:
    """Compute the hash of data of the user.

    Args:
        dataset: The name of a data set, the path of a graph, or a composed name.

    Returns:
        The hash of the files, or of the source of the function that loads the data, or of both; None for data sets of
        ours, and for files that cannot be read.
    """
    loader = user_loader(dataset)
    source = None if loader is None else source_digest(loader)
    if loader is not None and composed_name(dataset) is None:
        return source
    try:
        files = files_of_name(dataset)
        if not files or not all(file.is_file() for file in files):
            return None  # a missing file is refused when the plan is checked
        hashes = [hashlib.sha256(file.read_bytes()).digest() for file in files]
    except (OSError, ValueError):  # no name of a file, or not readable: refused then, too
        return None
    return hashlib.sha256(b"".join(hashes) + (source or "").encode()).hexdigest()[:16]
