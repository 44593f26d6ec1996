"""How the constructor of a model is given the number of features and the number of classes.

Constructors are called as `Class(num_features, num_classes)`. Those whose second parameter is something else, as in
PyTorch Geometric's `GCN(in_channels, hidden_channels, num_layers, out_channels)`, get the number of classes by name.
"""

import inspect
from collections.abc import Callable, Mapping

INPUT_NAMES = {
    "c_in", "d_in", "dim_in", "in_channels", "in_dim", "in_feats", "in_features", "in_size", "input_channels",
    "input_dim", "input_size", "n_feats", "n_features", "n_in", "nfeat", "nfeats", "num_feats", "num_features",
    "num_inputs", "num_node_features",
}  # fmt: skip
OUTPUT_NAMES = {
    "c_out", "classes", "d_out", "dim_out", "n_class", "n_classes", "n_labels", "n_out", "nclass", "nclasses", "nout",
    "num_class", "num_classes", "num_labels", "num_outputs", "out", "out_channels", "out_dim", "out_feats",
    "out_features", "out_size", "output", "output_channels", "output_dim", "output_size", "outputs",
}  # fmt: skip
OTHER_WORDS = ("hid", "layer", "width", "depth", "heads", "dropout", "embed")  # in names that mean neither of them


def size_arguments(
    constructor: Callable[..., object], d_in: int, d_out: int, options: Mapping[str, object]
) -> tuple[tuple[int, ...], dict[str, int]]:
    """Decide how a constructor is given the numbers of features and of classes, from the names of its parameters.

    Args:
        constructor: A class, or a function that makes a model.
        d_in: The number of features of a node.
        d_out: The number of classes.
        options: The other arguments, by name.

    Returns:
        The positional arguments, and those that are passed by name. By position where the second parameter is the
        number of classes, and where nothing says that it is not.

    Raises:
        ValueError: If the second parameter is something else and no parameter is the number of classes; if an option
            has the name of one of both; or if a parameter without default has no option.

    Example:
        >>> def build(in_channels, hidden_channels=64, out_channels=7): ...
        >>> size_arguments(build, 13, 3, {})
        ((13,), {'out_channels': 3})
    """
    parameters = _parameters(constructor)
    if parameters is None:
        return (d_in, d_out), {}
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    positions = [p.name for p in parameters if p.kind in kinds]
    by_name = [p.name for p in parameters if p.kind in (inspect.Parameter.KEYWORD_ONLY, kinds[1])]
    second = positions[1].lower() if len(positions) > 1 else ""
    numbers = {p.name for p in parameters if not isinstance(p.default, str | bool)}
    outputs = next((name for name in by_name if name.lower() in OUTPUT_NAMES and name in numbers), None)
    takes_any = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters)
    is_other = any(word in second for word in OTHER_WORDS)
    sounds_like_it = (second.startswith("out") or "class" in second) and outputs is None and not is_other
    has_default = {p.name for p in parameters if p.default is not inspect.Parameter.empty}
    is_letter = len(second) == 1 and positions[1] not in has_default and outputs in has_default  # (d, c, output=None)
    if second in OUTPUT_NAMES or sounds_like_it or is_letter or (takes_any and not second):
        return (d_in, d_out), {}
    if outputs is None:
        if is_other:
            raise ValueError(
                f"a model is made as {_name_of(constructor)}(num_features, num_classes), but the parameters are"
                f" {_call_of(constructor)}: the second one is {positions[1]}, and none is called num_classes or"
                f" out_channels. Rename it if it is the number of classes. {_factory_advice(constructor)}"
            )
        return (d_in, d_out), {}
    inputs = next((name for name in by_name if name.lower() in INPUT_NAMES and name not in positions[:1]), None)
    named = {outputs: d_out} if inputs is None else {inputs: d_in, outputs: d_out}
    _check_options(constructor, parameters, named, () if inputs else tuple(positions[:1]), options)
    return ((d_in,), named) if inputs is None else ((), named)


def _check_options(
    constructor: Callable[..., object],
    parameters: list[inspect.Parameter],
    named: Mapping[str, int],
    taken: tuple[str, ...],
    options: Mapping[str, object],
) -> None:
    """Refuse options that repeat what is passed anyway, and a missing option that the constructor requires."""
    if twice := [name for name in (*named, *taken) if name in options]:
        raise ValueError(f"{twice[0]} of {_call_of(constructor)} is given by the data; leave out the option {twice[0]}")
    required = [p.name for p in parameters if p.default is inspect.Parameter.empty and p.kind not in _ANY]
    missing = [name for name in required if name not in (*named, *taken, *options, "generator")]
    if missing:
        raise ValueError(
            f"{_call_of(constructor)} needs {' and '.join(missing)}, without default: pass"
            f" {' '.join(f'--option {name}=...' for name in missing)}. {_factory_advice(constructor)}"
        )


_ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _parameters(constructor: Callable[..., object]) -> list[inspect.Parameter] | None:
    """The parameters of a constructor; None for a callable written in C, which has no signature."""
    try:
        return list(inspect.signature(constructor).parameters.values())
    except (TypeError, ValueError):
        return None


def _call_of(constructor: Callable[..., object]) -> str:
    """The constructor with the names of its parameters, as in "Net(in_channels, hidden)"."""
    parameters = _parameters(constructor) or []
    return (
        f"{_name_of(constructor)}({', '.join(str(p).partition(':')[0].partition('=')[0].strip() for p in parameters)})"
    )


def _name_of(constructor: Callable[..., object]) -> str:
    """The name of a class or function, or of what a functools.partial calls."""
    named = getattr(constructor, "func", constructor)
    return str(getattr(named, "__name__", type(named).__name__))


def _factory_advice(constructor: Callable[..., object]) -> str:
    """How to write the function that calls the constructor in the right way."""
    return (
        "Or write a function in a module of yours and name it instead of the class: def build(num_features,"
        f" num_classes): return {_name_of(constructor)}(...)"
    )
