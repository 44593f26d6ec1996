"""The options of every command that trains: the data and their split, the model, the perturbation, the optimiser.

They are checked before torch is imported, as far as that is possible.
"""

import inspect
from collections.abc import Callable
from copy import copy
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from wtawp.base import DataError, is_reference
from wtawp.cli.option_values import parse_model_options, parse_options
from wtawp.cli.options import Dataset, Device, Epochs, Lam, Model, Rho, as_bad_parameter, read_average, read_lam
from wtawp.cli.shared import errors_without_traceback, import_torch_geometric
from wtawp.experiments.spec.split_rule import RANDOM, SplitKind, SplitRule
from wtawp.graphs.composed_names import ComposedName, composed_name, files_of_name
from wtawp.graphs.registry import SUFFIXES, dataset_spec, level_of
from wtawp.models.registry import model_names, model_spec

if TYPE_CHECKING:
    from wtawp.core import AwpConfig
    from wtawp.experiments.spec import Setting

SPLIT_KINDS: dict[str, SplitKind] = {"masks": "masks", "public": "masks", RANDOM: RANDOM, "k-fold": "k-fold",
                                     "released": "released"}  # fmt: skip


def _check_options(options: list[str] | None) -> list[str] | None:
    """A callback that refuses texts that are not of the form name=value."""
    with as_bad_parameter():
        parse_options(options or [])
    return options


Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        callback=_check_options,
        help="An option of the model, as hidden=8 (or 8,8) or dropout=0.2; may be repeated.",
        show_default=False,
    ),
]
SelectOn = Annotated[
    Literal["either", "loss", "accuracy", "last"] | None,
    typer.Option(help="What of the validation part selects the epoch; last selects none.",
                 show_default="either; for whole graphs, accuracy"),
]  # fmt: skip
AverageOption = Annotated[
    str | None,
    typer.Option("--average", metavar="[swa|DECAY]",
                 help="Keep an average of the weights over epochs: swa, the mean of the last quarter, or the decay of a"
                 " moving average.", show_default="no average"),
]  # fmt: skip
PerturbedLayers = Annotated[
    Literal["all", "all-but-last", "first", "last"] | None,
    typer.Option(help="Layers that WT-AWP perturbs in training.", show_default="all-but-last; for whole graphs, first"),
]
LearningRate = Annotated[float, typer.Option(help="Learning rate of Adam.")]
WeightDecay = Annotated[
    float | None, typer.Option(help="Weight decay of Adam.", show_default="that of the model, 0.0005 for a GCN")
]
Balance = Annotated[
    float | None,
    typer.Option(help="Largest norm of the perturbed gradient, in norms of the natural one.", show_default="no limit"),
]
SplitOption = Annotated[
    str | None,
    typer.Option(
        "--split",
        metavar=f"[{'|'.join(SPLIT_KINDS)}]",
        help="Where training, validation and test parts come from: the masks of the graph, which public names for data "
        "sets of ours; random stratified parts; folds; or random parts as in the paper's released code.",
        show_default="masks, where a graph of yours has them; else random",
    ),
]
GraphFile = Annotated[
    str | None,
    typer.Option("--graph", metavar="FILE.npz",
                 help="Take the edges from this file, the adjacency matrix of an attacked graph as written by"
                 " scipy.sparse.save_npz; features and labels are those of the data set.", show_default=False),
]  # fmt: skip
SplitFile = Annotated[
    str | None,
    typer.Option("--split-file", metavar="FILE.json",
                 help="Take the split from this file: JSON with the lists idx_train, idx_val and idx_test.",
                 show_default=False),
]  # fmt: skip
TrainShare = Annotated[
    float | None, typer.Option(help="Share of a random split for training.", show_default="0.1; of whole graphs, 0.8")
]
ValShare = Annotated[float | None, typer.Option(help="Share of a random split for validation.", show_default="0.1")]
Inductive = Annotated[
    bool, typer.Option("--inductive", help="Leave test nodes out of the graph in training; test on the full graph.")
]
SplitSeed = Annotated[
    int, typer.Option(min=0, help="Seed of a random split, or number of the split that the masks describe.")
]
Init = Annotated[int, typer.Option(help="Seed of the initial weights and of dropout.")]
Splits = Annotated[
    int | None,
    typer.Option(min=1, help="Number of splits, or of folds, paired with and without WT-AWP.", show_default="5"),
]
Inits = Annotated[int | None, typer.Option(min=1, help="Number of initialisations of each split.", show_default="2")]


@dataclass(frozen=True, kw_only=True)
class Training:
    """What is trained, on what, and how.

    Names are those of the registries, whatever the case in which the user wrote them. With `--graph` or `--split-file`,
    the name of the data set becomes one that is composed with these files.

    Attributes:
        user_set: The names of the options that the user set; all others have their defaults.

    Raises:
        DataError: If there is no data set of that name.
        typer.BadParameter: If there is no such model.
    """

    dataset: Dataset
    model: Model = None  # type: ignore[assignment]  # a name once it is built
    option: Options = None
    rho: Rho = None
    lam: Lam = None
    layers: PerturbedLayers = None
    balance: Balance = None
    lr: LearningRate = 0.01
    weight_decay: WeightDecay = None
    select_on: SelectOn = None
    average: AverageOption = None
    epochs: Epochs = 200
    graph: GraphFile = None
    split_file: SplitFile = None
    split: SplitOption = None
    train: TrainShare = None
    val: ValShare = None
    inductive: Inductive = False
    device: Device = "cpu"
    user_set: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.graph is not None or self.split_file is not None:
            if composed_name(self.dataset) is not None:
                raise typer.BadParameter(f"{self.dataset} names its files already; leave out --graph and --split-file")
            composed = ComposedName(base=self.dataset, edges=self.graph, split=self.split_file)
            object.__setattr__(self, "dataset", str(composed))
        parts = composed_name(self.dataset)
        base = self.dataset if parts is None else parts.base
        base = base if base.endswith(SUFFIXES) else dataset_spec(base).name
        object.__setattr__(self, "dataset", base if parts is None else str(replace(parts, base=base)))
        if getattr(self, "model", None) is None:
            object.__setattr__(self, "model", model_names(level_of(base))[0])
        with as_bad_parameter("'--model'"):
            object.__setattr__(self, "model", model_spec(self.model).name)

    def check(self) -> None:
        """Refuse, before anything heavy is imported, data or a model that are not there, or a device without driver.

        Raises:
            DataError: If there is no such file.
            typer.BadParameter: If there is no such module, or `--split` is none of its words.
            PlanError: If the device is not available.
        """
        from wtawp.experiments.spec.sources import user_sources

        for file in files_of_name(self.dataset):
            is_of_home = str(file).startswith("~")  # of which user, if there is one, is found when it is loaded
            if not is_of_home and not file.name.endswith(".labels.csv") and not file.is_file():
                raise DataError(f"there is no file {file.absolute()}")
        reference = model_spec(self.model).constructor
        if is_reference(self.model) and reference == self.model and not user_sources(self.model.partition(":")[0]):
            raise typer.BadParameter(
                f"there is no module {self.model.partition(':')[0]}, looked for in the working folder and in what is "
                "installed; write package.module:Class",
                param_hint="'--model'",
            )
        self._check_split_words()
        if self.device != "cpu":
            from wtawp.experiments.execution.provenance import device_name

            device_name(self.device, tf32=False)

    def _check_split_words(self) -> None:
        """Refuse a text after --split that is no way to split, and another split beside that of a file."""
        composed = composed_name(self.dataset)
        is_other = SPLIT_KINDS.get(self.split or "masks") != "masks" or (self.train or self.val) is not None
        if composed is not None and composed.split is not None and is_other:
            raise typer.BadParameter(f"the split is that of {composed.split}; leave out --split, --train and --val")
        if self.split is not None and self.split not in SPLIT_KINDS:
            hint = f"; the number of a split is --split-seed {self.split}" * self.split.isdecimal()
            raise typer.BadParameter(
                f"it is one of {', '.join(SPLIT_KINDS)}, got {self.split!r}{hint}", param_hint="'--split'"
            )

    def awp(self) -> "AwpConfig | None":
        """The perturbation, with the defaults of the model and the data set.

        Returns:
            The perturbation; None for a model that cannot be perturbed.
        """
        from wtawp.experiments.plans.defaults import default_awp

        with as_bad_parameter():
            lam = None if self.lam is None else read_lam(self.lam)
            awp = default_awp(self.model, self.dataset, rho=self.rho, lam=lam, layers=self.layers)
            return awp if awp is None or self.balance is None else replace(awp, balance=self.balance)

    def split_rule(self, folds: int | None = None) -> SplitRule:
        """How the data are divided, which may need a look into their file.

        Args:
            folds: The number of folds of --split k-fold; None refuses it.

        Returns:
            The rule.

        Raises:
            typer.BadParameter: If the options contradict each other.
        """
        is_chosen = self.split is not None or self.train is not None or self.val is not None
        if is_chosen:
            kind = SPLIT_KINDS[self.split or RANDOM]
            if kind == "k-fold" and folds is None:
                raise typer.BadParameter("a single training has no folds; use --split random, or `wtawp compare`")
            with as_bad_parameter():
                return SplitRule(kind=kind, folds=folds if kind == "k-fold" else None, train=self.train, val=self.val)
        import_torch_geometric()
        from wtawp.experiments.execution.building import default_split

        return default_split(self.dataset)

    def setting(self, split: SplitRule, **others: Any) -> "Setting":
        """The setting of the training, without perturbation unless one is passed.

        Args:
            split: How the data are divided.
            **others: Further fields of the setting.

        Returns:
            The setting.
        """
        from wtawp.experiments.spec import Setting

        with as_bad_parameter():
            return Setting(
                dataset=self.dataset, model=self.model, options=parse_model_options(self.model, self.option or []),
                epochs=self.epochs, lr=self.lr, split=split,
                weight_decay=self.weight_decay,  # type: ignore[arg-type]  # None: that of the model
                select_on=self.select_on,  # type: ignore[arg-type]  # likewise
                average=None if self.average is None else read_average(self.average),
                inductive=self.inductive,
                **others,
            )  # fmt: skip

    def sizes(self, splits: int | None, inits: int | None, defaults: tuple[int, int]) -> tuple[SplitRule, int, int]:
        """How the data are divided, how often, and how often each split is trained.

        Masks that describe one split are trained as often as the splits of other data are in all, with other
        initialisations.

        Args:
            splits: The value of --splits; None if it is not given.
            inits: The value of --inits; None if it is not given.
            defaults: Their defaults.

        Returns:
            The rule, the number of splits, and that of initialisations.

        Raises:
            typer.BadParameter: If masks do not describe so many splits.
        """
        wanted, each = splits or defaults[0], inits or defaults[1]
        rule = self.split_rule(folds=wanted)
        if rule.kind != "masks":
            return rule, wanted, each
        from wtawp.experiments.execution.building import mask_splits_of

        available = mask_splits_of(self.dataset)
        if splits is not None and splits > available:
            raise typer.BadParameter(
                f"the masks of {self.dataset} describe {available} split{'s' * (available > 1)}, got {splits}; use "
                "--inits for more trainings of each, or --split random",
                param_hint="'--splits'",
            )
        if available == 1:
            return rule, 1, inits or defaults[0] * defaults[1]
        return rule, splits or available, each


def takes(group: type, **defaults: object) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a decorator for a command whose first parameter is a group of options, such as `Training`.

    Typer reads the signature of a function and knows no groups of options, so that a signature with the options of the
    group and those of the command is put together here. Errors of this package end the command with their message.

    Args:
        group: A dataclass whose fields are options; a field that is such a dataclass itself stands for its options. Two
            fields are no options: `user_set`, for the names of the options that the user set, and `command_options`,
            for the values of the options that only the command has. Its method `check` is called before the command.
        **defaults: Defaults of options of the group that differ for this command.

    Returns:
        The decorator.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        specific = list(inspect.signature(command).parameters.values())[1:]
        shared = [
            inspect.Parameter(
                f.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=defaults.get(f.name, inspect.Parameter.empty if f.default is MISSING else f.default),
                annotation=_with_its_default_shown(f.type) if f.name in defaults else f.type,
            )
            for f in _options_in(group)
        ]

        @wraps(command)
        def with_group(context: typer.Context, **values: Any) -> None:
            sources = {name: context.get_parameter_source(name) for name in values}
            user_set = frozenset(name for name, source in sources.items() if source and source.name == "COMMANDLINE")
            values_of_group = {p.name: values.pop(p.name) for p in shared}
            options = {name: str(v) if isinstance(v, Path) else v for name, v in values.items() if v is not None}
            with errors_without_traceback():
                built = _build(group, {**values_of_group, "user_set": user_set, "command_options": options})
                built.check()
                command(built, **values)

        context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
        parameters = [context, *shared[:2], *specific, *shared[2:]]  # the order of the help
        vars(with_group)["__signature__"] = inspect.Signature(parameters)
        with_group.__annotations__ = {p.name: p.annotation for p in parameters}
        return with_group

    return decorate


def _with_its_default_shown(annotation: Any) -> Any:
    """The annotation of an option whose help shows the default that a command gives it, in place of a sentence."""
    kind, option = get_args(annotation)
    option = copy(option)
    option.show_default = True
    return Annotated[kind, option]


def _options_in(group: Any) -> "list[Field[Any]]":
    """The fields of a group that are options, with those of the groups inside of it."""
    options = []
    for f in fields(group):
        if is_dataclass(f.type):
            options += _options_in(f.type)
        elif f.name not in ("user_set", "command_options"):
            options.append(f)
    return options


def _build(group: Any, values: dict[str, Any]) -> Any:
    """An instance of a group with the values of its fields, and of those of the groups inside of it."""
    return group(**{f.name: _build(f.type, values) if is_dataclass(f.type) else values[f.name] for f in fields(group)})
