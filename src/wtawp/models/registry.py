"""The registry of models: what a name in a plan or on the command line stands for, and the defaults that belong to it.

Reading it imports neither torch nor any model: constructors are references, resolved when a model is built. Whoever
needs to know something about a model asks its `ModelSpec`; nobody compares names.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, cast

from wtawp.base import did_you_mean, is_reference, matching_name, resolve

if TYPE_CHECKING:
    import torch
    from torch import nn

Level = Literal["node", "graph"]
_FIXED = ("d_in", "d_out", "generator")  # what `build` passes to every constructor; the other parameters are options


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A model that can be named in plans and on the command line, with its defaults and abilities.

    Attributes:
        name: The name. Look-ups ignore case, so two names must differ by more than case.
        constructor: Class or function called as `constructor(d_in, d_out, **options)`; or a reference to it, of the
            form "package.module:name", which is imported when it is first needed. Where the second parameter is not the
            number of classes and another one is, by its name (`out_channels`, `num_classes`, ...), that one is passed
            by name. If there is a required parameter `generator`, it is passed a `torch.Generator` for the initial
            weights as well.
        level: "node" for `model(x, edge_index)`, which classifies nodes; "graph" for `model(x, edge_index, batch)`,
            which classifies whole graphs.
        weight_decay: Weight decay to train with; the default is the paper's.
        select_on: What selects the epoch, as `fit` takes it; the default is the released code's for nodes.
        layers: The layers that WT-AWP perturbs, as `AwpConfig` takes them.
        cost: Time of an epoch relative to a GCN's, to order the work of a sweep.
        is_perturbable: Whether WT-AWP can perturb the weights; False if they are distributions.
        is_defence: Whether the model was designed to withstand attacks on the graph.
        uses_edges: Whether the model uses the graph at all.
        needs_shared_features: Whether neighbours must have features in common, which identity features are not.
        is_user_code: Whether the model comes from outside this package. The registry sets it.
        surrogate_options: Options of the model where attacks find flips for others on it; None takes those of the model
            that is trained on the poisoned graph.
        surrogate_select_on: What selects the epoch there. By default the attacker selects nothing.
        description: One line for people.

    Raises:
        ValueError: If the name is empty, the constructor is neither callable nor a reference, the level is unknown, or
            a number is out of its range.

    Example:
        >>> model_spec("RGCN").is_perturbable
        False
    """

    name: str
    constructor: "str | Callable[..., nn.Module]"
    level: Level = "node"
    weight_decay: float = 5e-4
    select_on: str = "either"
    layers: str = "all-but-last"
    cost: float = 1.0
    is_perturbable: bool = True
    is_defence: bool = False
    uses_edges: bool = True
    needs_shared_features: bool = False
    is_user_code: bool = False
    surrogate_options: tuple[tuple[str, object], ...] | None = None
    surrogate_select_on: str = "last"
    description: str = ""

    def __post_init__(self) -> None:
        if not self.name or not isinstance(self.name, str):
            raise ValueError(f"name must be a text that is not empty, got {self.name!r}")
        if isinstance(self.constructor, str) and not is_reference(self.constructor):
            raise ValueError(f"constructor must be a callable or package.module:name, got {self.constructor!r}")
        if not isinstance(self.constructor, str) and not callable(self.constructor):
            raise ValueError(f"constructor must be a callable or package.module:name, got {self.constructor!r}")
        if self.level not in ("node", "graph"):
            raise ValueError(f"level must be 'node' or 'graph', got {self.level!r}")
        if ":" in self.name and self.name != self.constructor:
            raise ValueError(f"a name must not contain a colon, which marks references, got {self.name!r}")
        if not isinstance(self.weight_decay, int | float) or not 0 <= self.weight_decay < float("inf"):
            raise ValueError(f"weight_decay must be a finite number >= 0, got {self.weight_decay!r}")
        if not 0 < self.cost < float("inf"):
            raise ValueError(f"cost must be a finite number > 0, got {self.cost!r}")

    @property
    def reference(self) -> str:
        """Where the constructor is defined, as "package.module:name"."""
        if isinstance(self.constructor, str):
            return self.constructor
        named = getattr(self.constructor, "func", self.constructor)  # of a functools.partial, what it calls
        return f"{named.__module__}:{named.__qualname__}"

    @property
    def label(self) -> str:
        """The name for tables and files: for a reference, the name of the class without its module."""
        return self.name.rpartition(":")[2]

    def resolve(self) -> "Callable[..., nn.Module]":
        """Import the constructor.

        Returns:
            The class or function that builds the model.

        Raises:
            ImportError: If the reference names nothing.
            ValueError: If it names something that cannot be called.
        """
        if not isinstance(self.constructor, str):
            return self.constructor
        constructor = resolve(self.constructor)
        if not callable(constructor):
            raise ValueError(f"{self.constructor} must be a class or a function, got {type(constructor).__name__}")
        return cast("Callable[..., nn.Module]", constructor)

    def options(self) -> dict[str, object]:
        """List the options of the model, which are the parameters of its constructor.

        Returns:
            The default of each option, in the order of the parameters; `inspect.Parameter.empty` where there is none.

        Raises:
            ImportError: If the constructor is a reference that names nothing.

        Example:
            >>> model_spec("GCN").options()
            {'hidden': (64,), 'dropout': 0.5, 'norm': None, 'residual': False, 'linear': False}
        """
        parameters = inspect.signature(self.resolve()).parameters
        return {name: parameter.default for name, parameter in parameters.items() if name not in _FIXED}

    def build(self, d_in: int, d_out: int, options: Mapping[str, object], generator: "torch.Generator") -> "nn.Module":
        """Construct a model with initial weights.

        Args:
            d_in: Number of features of a node.
            d_out: Number of classes.
            options: Further arguments of the constructor, by name.
            generator: Draws the initial weights. A constructor without a required parameter `generator` draws from
                torch's global state, which is seeded with the generator's seed meanwhile and restored afterwards.

        Returns:
            The model, on the CPU.

        Raises:
            ImportError: If the constructor is a reference that names nothing.
            ValueError: If the constructor returns something other than a `torch.nn.Module`, or its parameters do not
                say which one is the number of classes.

        Example:
            >>> from wtawp.base import rng
            >>> model_spec("GCN").build(13, 3, {"hidden": (8,)}, rng("init")).convs[0].weight.shape
            torch.Size([13, 8])
        """
        import torch

        from wtawp.models.constructors import size_arguments

        constructor = self.resolve()
        sizes, named_sizes = size_arguments(constructor, d_in, d_out, options)
        if _takes_generator(constructor):
            model: object = constructor(*sizes, **named_sizes, **options, generator=generator)
        else:
            with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
                torch.manual_seed(generator.initial_seed())
                model = constructor(*sizes, **named_sizes, **options)
        if not isinstance(model, torch.nn.Module):
            raise ValueError(f"{self.name} must make a torch.nn.Module, got {type(model).__name__}")
        return model


def model_names(level: Level | None = None) -> tuple[str, ...]:
    """List the names of all registered models: ours first, then those of users in the order of their registration.

    Args:
        level: "node" or "graph" for models of this level only; None for all.

    Returns:
        The names.

    Example:
        >>> model_names("graph")
        ('PooledGCN', 'PooledGIN', 'PooledSAGE')
    """
    return tuple(spec.name for spec in _SPECS.values() if level in (None, spec.level))


def model_spec(name: str) -> ModelSpec:
    """Look up a model.

    Args:
        name: A registered name, in upper or lower case; or "package.module:Class" for a class of the user's own, which
            gets the defaults of `ModelSpec` and is not imported here.

    Returns:
        The specification, whose `name` is the registered spelling.

    Raises:
        ValueError: If the name is not registered and has not the form of a reference.

    Example:
        >>> model_spec("gcn").name
        'GCN'
        >>> model_spec("my_package.my_module:MyGNN").is_user_code
        True
    """
    if (registered := matching_name(name, _SPECS)) is not None:
        return _SPECS[registered]
    if is_reference(name):
        return ModelSpec(name=name, constructor=name, is_user_code=True)
    hint = did_you_mean(name, _SPECS)
    raise ValueError(f"model must be one of {', '.join(_SPECS)}, or package.module:Class, got {name!r}{hint}")


def register_model(spec: ModelSpec) -> None:
    """Add a model of the user's own, so that plans and the command line know its name.

    A registration lasts as long as the process; sweeps send it along to their workers. "package.module:Class" as the
    name of a model needs no registration.

    Args:
        spec: The model. It counts as user code, whatever its `is_user_code` says.

    Raises:
        ValueError: If the name is taken.

    Example:
        >>> spec = ModelSpec(name="MyGNN", constructor="my_package.my_module:MyGNN", weight_decay=1e-3)
        >>> register_model(spec)  # doctest: +SKIP
    """
    if (taken := matching_name(spec.name, _SPECS)) is not None:
        raise ValueError(f"there is a model called {taken} already; choose another name")
    _SPECS[spec.name] = replace(spec, is_user_code=True)


def user_models() -> tuple[ModelSpec, ...]:
    """The models that `register_model` added, for other processes to register as well.

    Returns:
        Their specifications.
    """
    return tuple(spec for spec in _SPECS.values() if spec.is_user_code)


def _takes_generator(constructor: "Callable[..., object]") -> bool:
    """Tell whether a constructor cannot be called without a generator."""
    try:
        parameter = inspect.signature(constructor).parameters.get("generator")
    except (TypeError, ValueError):  # a callable written in C has no signature
        return False
    return parameter is not None and parameter.default is inspect.Parameter.empty


_SPECS: dict[str, ModelSpec] = {
    spec.name: spec
    for spec in (
        ModelSpec(
            name="GCN",
            constructor="wtawp.models.gcn:GCN",
            cost=1.0,
            surrogate_options=(("hidden", (16,)),),
            description="graph convolutional network",
        ),
        ModelSpec(name="GAT", constructor="wtawp.models.gat:GAT", cost=3.5, description="graph attention network"),
        ModelSpec(
            name="PPNP",
            constructor="wtawp.models.ppnp:PPNP",
            cost=2.2,
            description="predictions spread by personalised PageRank, ten power iterations (APPNP) by default",
        ),
        ModelSpec(
            name="MLP",
            constructor="wtawp.models.mlp:MLP",
            cost=0.5,
            uses_edges=False,
            description="multi-layer perceptron, which ignores the graph",
        ),
        ModelSpec(
            name="GraphSAGE",
            constructor="wtawp.models.sage:GraphSAGE",
            cost=1.5,
            description="GraphSAGE with the mean aggregator",
        ),
        ModelSpec(
            name="GIN", constructor="wtawp.models.gin:GIN", cost=1.5, description="graph isomorphism network, for nodes"
        ),
        ModelSpec(
            name="GCNJaccard",
            constructor="wtawp.models.jaccard:GCNJaccard",
            cost=1.0,
            is_defence=True,
            needs_shared_features=True,
            description="GCN without the edges that join dissimilar nodes",
        ),
        ModelSpec(
            name="GCNSVD",
            constructor="wtawp.models.svd:GCNSVD",
            cost=2.0,
            is_defence=True,
            description="GCN on a low-rank approximation of the graph",
        ),
        ModelSpec(
            name="RGCN",
            constructor="wtawp.models.rgcn:RGCN",
            weight_decay=0.0,
            cost=3.0,
            is_perturbable=False,
            is_defence=True,
            description="robust GCN, whose hidden layers are normal distributions",
        ),
        ModelSpec(
            name="SimPGCN",
            constructor="wtawp.models.simpgcn:SimPGCN",
            cost=3.0,
            is_defence=True,
            description="GCN that also aggregates the nodes with the most similar features",
        ),
        ModelSpec(
            name="GNNGuard",
            constructor="wtawp.models.gnnguard:GNNGuard",
            cost=4.0,
            is_defence=True,
            needs_shared_features=True,
            description="GCN whose edges count by the similarity of their nodes",
        ),
        ModelSpec(
            name="ElasticGNN",
            constructor="wtawp.models.elastic:ElasticGNN",
            cost=4.0,
            is_defence=True,
            description="predictions smoothed by an l1 and an l2 penalty on differences between neighbours",
        ),
        ModelSpec(
            name="SoftMedianGCN",
            constructor="wtawp.models.soft_median:SoftMedianGCN",
            cost=9.0,
            is_defence=True,
            description="GCN that weights neighbours by their distance to the median",
        ),
        ModelSpec(
            name="LinearGCN",
            constructor="wtawp.models.gcn:linear_gcn",
            weight_decay=0.0,
            cost=1.0,
            surrogate_options=(("hidden", (16,)),),
            surrogate_select_on="either",
            description="GCN without ReLU, biases and dropout, the surrogate of Metattack's released code",
        ),
        ModelSpec(
            name="PooledGCN",
            constructor="wtawp.models.pooled:PooledGCN",
            level="graph",
            select_on="accuracy",
            layers="first",
            cost=6.0,
            description="the paper's classifier of whole graphs: two graph convolutions and the mean over nodes",
        ),
        ModelSpec(
            name="PooledGIN",
            constructor="wtawp.models.pooled:PooledGIN",
            level="graph",
            select_on="accuracy",
            layers="first",
            cost=20.0,
            description="classifier of whole graphs with the convolutions of a GIN",
        ),
        ModelSpec(
            name="PooledSAGE",
            constructor="wtawp.models.pooled:PooledSAGE",
            level="graph",
            select_on="accuracy",
            layers="first",
            cost=20.0,
            description="classifier of whole graphs with the convolutions of GraphSAGE",
        ),
    )
}
