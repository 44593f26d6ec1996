"""What an attack is: how it is asked for (`AttackRequest`), and what is known of it (`AttackSpec`), which runs it.

Functions are named by references, which are imported when they are first used.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, Literal, cast

from wtawp.base import AttackError, part_of_progress, resolve

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch_geometric.data import Data

    from wtawp.graphs.graph_flips import Flips

Stage = Literal["evasion", "poisoning"]
Needs = Literal["nothing", "labels", "predictions", "gradient", "training"]
Changes = Literal["edges", "features", "edges and features"]
Option = bool | int | float | str | None
Options = tuple[tuple[str, Option], ...]
PASSED = ("data", "victim", "budget", "nodes", "labels", "seed", "train")  # what a function may take from a request
EFFORT_OPTIONS = ("steps", "generations", "iterations", "queries")  # names of the option that says how long to search
NOT_OPTIONS = (*PASSED, "unlabelled", "objective", "progress", "surrogate", "weights")  # hold no plain value


@dataclass(frozen=True, kw_only=True, eq=False)
class AttackRequest:
    """The input of one or more attacks on one graph; every sequence has one entry for each victim.

    Attributes:
        data: The graph to attack.
        victims: The models to mislead, of one architecture.
        budget: The number of flips allowed for each victim: undirected edges (int) or a share of the edges (float).
            None: the default of the attack's function, if it has one.
        nodes: The nodes whose loss is to rise, as indices or masks. For attacks on a training, the unlabelled nodes.
        labels: The labels of all nodes, true or guessed.
        seeds: The seed of each attack.
        split_seeds: The seeds of attacks that do not use a victim. They are run once for each different number here,
            and victims with the same number (those trained on one split) share the flips.
        trains: The training nodes, as indices or masks. Only attacks on a training need them.
        surrogates: A plain model for each victim, of which attacks that use surrogates may transfer flips.

    Raises:
        ValueError: If there is no victim, or the sequences do not all have one entry for each victim.
    """

    data: "Data"
    victims: "Sequence[nn.Module]"
    budget: float | int | None
    nodes: "Sequence[Tensor]"
    labels: "Sequence[Tensor]"
    seeds: Sequence[int]
    split_seeds: Sequence[int]
    trains: "Sequence[Tensor] | None" = None
    surrogates: "Sequence[nn.Module] | None" = None

    def __post_init__(self) -> None:
        lengths = [len(each) for each in (self.victims, self.nodes, self.labels, self.seeds, self.split_seeds)]
        lengths += [len(each) for each in (self.trains, self.surrogates) if each is not None]
        if len(set(lengths)) > 1 or lengths[0] == 0:
            raise ValueError(
                "an attack request needs one or more victims, and for each of them nodes, labels, a seed, a split seed"
                f" (and training nodes and a surrogate, if passed); got {', '.join(map(str, lengths))}"
            )

    @property
    def given_budget(self) -> float | int:
        """The budget, for attacks that have no default for it."""
        if self.budget is None:
            raise ValueError("this attack needs a budget: a share of the edges as in 0.05, or their number")
        return self.budget

    @staticmethod
    def single(
        data: "Data",
        victim: "nn.Module | Callable[[Tensor, Tensor], Tensor] | None",
        *,
        budget: float | int | None,
        nodes: "Tensor",
        labels: "Tensor",
        seed: int,
        train: "Tensor | None" = None,
        surrogate: "nn.Module | None" = None,
    ) -> "AttackRequest":
        """Build the request for an attack on one victim.

        Args:
            data: The graph to attack.
            victim: The model to mislead; any callable for attacks that use predictions alone; None for attacks that
                need no model.
            budget: The number of flips allowed: undirected edges (int) or a share of the edges (float). None: the
                default of the attack's function, if it has one.
            nodes: The nodes whose loss is to rise, as indices or a mask.
            labels: The labels of all nodes, true or guessed.
            seed: The seed of the attack, also of one that does not use a victim.
            train: The training nodes, for attacks on a training.
            surrogate: A plain model, for attacks that transfer flips.

        Returns:
            A request whose sequences have one entry.
        """
        trains = None if train is None else [train]
        victims = cast("list[nn.Module]", [victim])  # attacks that need no model do not look at it
        return AttackRequest(
            data=data, victims=victims, budget=budget, nodes=[nodes], labels=[labels], seeds=[seed],
            split_seeds=[seed], trains=trains, surrogates=None if surrogate is None else [surrogate],
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class AttackSpec:
    """One attack: its names, its function, and what plans and commands need to know about it.

    Attributes:
        name: The name in settings, plans and on the command line. Records are keyed by it, so it must not change.
        label: The name for people, in tables and figures.
        function: The attack on one victim, as a callable or as a reference "package.module:name". It returns
            `EdgeFlips`, or the flips that `changes` says. It takes by name those of data, victim, budget, nodes, labels
            and seed that it needs, and its options, which must have defaults:
            `(data, victim, *, budget, nodes, labels, seed, steps=10)`. It is also passed the training nodes if it has a
            parameter `train` without default.
        run_many: The attack on many victims at once, a callable or reference `(request, **options)` that returns one
            result for each victim. None: `function` is called for one victim after another.
        stages: Whether it can be used for "evasion" (of trained models), for "poisoning" (before training), or both.
        needs: What the attack uses: "nothing" but the graph, "labels", the victim's "predictions", the victim's
            "gradient", or a "training" of its own on the training nodes. Attacks that need nothing or labels do not
            use the victim, and are run once for each split.
        cost: The cost of one attack in units of one epoch of a plain GCN, for progress bars.
        poisoning_options: Which nodes and labels the attack sees, and its options, in the protocol of poisoning.
        evasion_options: The same in the protocol of evasion: by default, the test nodes with their true labels.
        changes: What it flips: "edges", binary "features", or "edges and features". Its function returns `EdgeFlips`,
            `FeatureFlips` or `GraphFlips`, respectively.
        has_one_target: Whether it attacks a single node, so that `nodes` must hold one. Plans and commands then attack
            some test nodes one after another.
        in_audit: Whether `wtawp audit` uses it; False for a variant of another attack that is in the audit, and for
            attacks whose budget is not one of edges of the whole graph.
        audit_options: Options of the function in an audit, such as smaller ones that leave time for more steps.
        is_user_code: Whether the attack is named by a reference and is not in the registry.
        strong_variants: The options of each variant of the attack that the attack "strongest" runs; the first option
            of a variant tells it from the others. Empty: it takes no part.
        searches_at_random: Whether it searches random pairs, so that another seed finds other flips.
        is_quadratic: Whether its time grows with the square of the number of nodes.
        unrolls_training: Whether it differentiates through a training of the victim's architecture on the training
            nodes, which it must be given. Plans and commands then poison a model by an attack on that model itself.
        uses_surrogate: Whether it transfers flips from plain models, `AttackRequest.surrogates`.
        weak_options: The values of options, which must be their defaults, with which the attack is weak under evasion.
        title: What the title of a table calls it; empty: its name.
        weakness: The sentence that tables say about it then; empty where nothing is to be said.

    Raises:
        ValueError: If the name or label is empty, a stage, need or change is unknown, or the function requires a
            parameter that no request holds.

    Example:
        >>> from wtawp.attacks import attack_spec
        >>> spec = attack_spec("pgd")
        >>> spec.label, spec.stages, spec.needs
        ('PGD', ('evasion', 'poisoning'), 'gradient')
        >>> spec.options["steps"]
        200
    """

    name: str
    label: str
    function: "str | Callable[..., Flips]"
    run_many: "str | Callable[..., list[Flips]] | None" = None
    stages: tuple[Stage, ...] = ("evasion", "poisoning")
    needs: Needs = "gradient"
    cost: float = 0.0
    poisoning_options: Options = (("nodes", "train"), ("labels", "true"))
    evasion_options: Options = (("nodes", "test"), ("labels", "true"))
    changes: Changes = "edges"
    has_one_target: bool = False
    in_audit: bool = True
    audit_options: Options = ()
    is_user_code: bool = False
    strong_variants: tuple[Options, ...] = ()
    searches_at_random: bool = False
    is_quadratic: bool = False
    unrolls_training: bool = False
    uses_surrogate: bool = False
    weak_options: Options = ()
    weakness: str = ""
    title: str = ""

    def __post_init__(self) -> None:
        if not self.name or not self.label:
            raise ValueError(f"an attack needs a name and a label, got {self.name!r} and {self.label!r}")
        for field, allowed, values in (
            ("stages", ("evasion", "poisoning"), self.stages),
            ("needs", ("nothing", "labels", "predictions", "gradient", "training"), (self.needs,)),
            ("changes", ("edges", "features", "edges and features"), (self.changes,)),
        ):
            if not values or not set(values) <= set(allowed):
                raise ValueError(f"{field} of attack {self.name!r} must be among {', '.join(allowed)}, got {values!r}")
        if callable(self.function):
            self._parameters()

    @property
    def reference(self) -> str:
        """Where the function is defined, as "package.module:name"."""
        if isinstance(self.function, str):
            return self.function
        return f"{self.function.__module__}:{self.function.__qualname__}"

    @property
    def uses_victim(self) -> bool:
        """Whether the flips depend on the victim, so that each victim needs an attack of its own."""
        return self.needs not in ("nothing", "labels")

    @property
    def uses_gradient(self) -> bool:
        """Whether the attack differentiates through the victim."""
        return self.needs == "gradient"

    @property
    def uses_predictions(self) -> bool:
        """Whether the attack uses the victim's predictions and nothing else of it, so that any callable can be one."""
        return self.needs == "predictions"

    @property
    def trains_surrogate(self) -> bool:
        """Whether the attack trains a model of its own, so that it must be given the training nodes."""
        return self.needs == "training"

    @property
    def attacks_training(self) -> bool:
        """Whether the attack is one on a training, a surrogate's or the victim's, and needs the training nodes."""
        return self.trains_surrogate or self.unrolls_training

    def weakness_with(self, options: Mapping[str, object]) -> str:
        """What a reader must know who judges robustness to evasion by this attack with these options.

        Args:
            options: Options as a plan gives them; others have their defaults.

        Returns:
            A sentence; empty where the attack is not known to be weak.
        """
        return self.weakness if all(options.get(n, value) == value for n, value in self.weak_options) else ""

    @property
    def has_default_budget(self) -> bool:
        """Whether the attack chooses a budget itself where none is given. Reading it imports the function."""
        parameters = self._parameters()
        return "budget" not in parameters or parameters["budget"].default is not Parameter.empty

    @property
    def takes_surrogate(self) -> bool:
        """Whether several attacks can share the `weights` of one linear surrogate. Reading it imports the function."""
        return "weights" in self._parameters()

    @property
    def effort(self) -> str | None:
        """The option that says how long the attack searches, such as "steps"; None if there is none."""
        options = self.options
        return next((name for name in EFFORT_OPTIONS if name in options), None)

    @property
    def options(self) -> Mapping[str, object]:
        """The options of the attack's function with their default values. Reading them imports the function."""
        return {name: p.default for name, p in self._parameters().items() if name not in NOT_OPTIONS}

    @property
    def option_types(self) -> Mapping[str, object]:
        """The annotations of the options of the attack's function. Reading them imports the function."""
        return {name: p.annotation for name, p in self._parameters().items() if name not in NOT_OPTIONS}

    def _parameters(self) -> dict[str, Parameter]:
        """The named parameters of the function; one that nobody could pass is an error."""
        kinds = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
        parameters = {n: p for n, p in signature(self._function()).parameters.items() if p.kind in kinds}
        required = [n for n, p in parameters.items() if p.default is Parameter.empty]
        unknown = [n for n in required if n not in PASSED]
        if unknown:
            raise ValueError(
                f"the function of attack {self.name!r} requires {', '.join(unknown)}: an attack takes"
                f" {', '.join(PASSED)} by these names, and every other parameter must have a default"
            )
        return parameters

    def _function(self) -> "Callable[..., Flips]":
        """The function itself."""
        if callable(self.function):
            return self.function
        return cast("Callable[..., Flips]", resolve(self.function))

    def run(self, request: AttackRequest, **options: Any) -> "list[Flips]":
        """Attack every victim of a request.

        Args:
            request: The graph, the victims, and nodes, labels and seeds for each of them.
            options: Options of the attack's function.

        Returns:
            One set of flips for each victim, in their order.

        Raises:
            ValueError: If the request holds no budget, and the attack has no default for it.
            AttackError: If the attack returns something other than flips, or more flips than the budget allows.
        """
        if request.budget is None and not self.has_default_budget:
            raise ValueError(f"attack {self.name!r} needs a budget: a share of the edges as in 0.05, or their number")
        flips = self._run(request, options)
        self._check_kind(request, flips)
        self._check_budget(request, flips)
        return flips

    def _check_kind(self, request: AttackRequest, results: object) -> None:
        """Refuse what is not one set of flips for each victim."""
        from wtawp.graphs.feature_flips import FeatureFlips
        from wtawp.graphs.flips import EdgeFlips
        from wtawp.graphs.graph_flips import GraphFlips

        victims = len(request.victims)
        if not isinstance(results, Sequence) or len(results) != victims:
            size = f" of {len(results)}" if isinstance(results, Sequence) else ""
            raise AttackError(
                f"run_many of attack {self.name!r} must return a list with flips for each of {victims} victims, got"
                f" {type(results).__name__}{size}"
            )
        for result in results:
            if not isinstance(result, EdgeFlips | FeatureFlips | GraphFlips):
                raise AttackError(
                    f"attack {self.name!r} must return EdgeFlips, FeatureFlips or GraphFlips, got"
                    f" {type(result).__name__}; build them with EdgeFlips.of(pairs, num_nodes), pairs of shape [2, k]"
                )

    def _check_budget(self, request: AttackRequest, flips: "Sequence[Flips]") -> None:
        """Refuse more flips than were allowed, which would pass for a strong attack."""
        from wtawp.graphs.feature_flips import feature_budget_of
        from wtawp.graphs.flips import budget_of

        if request.budget is None:
            return
        most = (feature_budget_of if self.changes == "features" else budget_of)(request.data, request.budget)
        largest = max(map(len, flips))
        if largest > most:
            raise AttackError(f"attack {self.name!r} returned {largest} flips, but its budget is {most}")

    def _run(self, request: AttackRequest, options: dict[str, Any]) -> "list[Flips]":
        """The flips for each victim, by the way that the attack offers."""
        if self.run_many is not None:
            run_many = self.run_many if callable(self.run_many) else resolve(self.run_many)
            return cast("Callable[..., list[Flips]]", run_many)(request, **options)
        if not self.uses_victim:
            return self._run_once_per_split(request, options)
        return [self._call(request, i, request.seeds[i], options) for i in range(len(request.victims))]

    def _run_once_per_split(self, request: AttackRequest, options: dict[str, Any]) -> "list[Flips]":
        """One set of flips for each split, shared by its victims and seeded by the split's number."""
        flips: dict[int, Flips] = {}
        for i, seed in enumerate(request.split_seeds):
            if seed not in flips:
                flips[seed] = self._call(request, i, seed, options)
        return [flips[seed] for seed in request.split_seeds]

    def _call(self, request: AttackRequest, i: int, seed: int, options: dict[str, Any]) -> "Flips":
        """The function on victim i, with those arguments that it takes."""
        parameters = self._parameters()
        available = {
            "data": request.data, "victim": request.victims[i], "budget": request.budget, "nodes": request.nodes[i],
            "labels": request.labels[i], "seed": seed,
        }  # fmt: skip
        if request.budget is None:
            del available["budget"]
        if "train" in parameters and parameters["train"].default is Parameter.empty:
            if request.trains is None:
                raise ValueError(f"attack {self.name!r} needs the training nodes, and the request holds none")
            available["train"] = request.trains[i]
        with part_of_progress(i / len(request.victims), (i + 1) / len(request.victims)):
            return self._function()(**{n: value for n, value in available.items() if n in parameters}, **options)
