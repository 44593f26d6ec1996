"""Options of models and attacks on the command line, written as name=value."""

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING

from wtawp.base import unknown_name
from wtawp.models.constructors import INPUT_NAMES, OUTPUT_NAMES
from wtawp.models.registry import model_spec

if TYPE_CHECKING:
    from wtawp.experiments.spec import Option
    from wtawp.models.registry import ModelSpec


def parse_model_options(model: str, texts: Sequence[str]) -> "tuple[tuple[str, Option], ...]":
    """Read the options of a model; a single number is accepted where one of our models takes several.

    Args:
        model: The name of the model, or "package.module:Class", whose values are taken as they are.
        texts: Options as "name=value".

    Returns:
        Names and values.

    Raises:
        ValueError: If a text is not of that form, an option is given twice, or the model has no such option.

    Example:
        >>> parse_model_options("GCN", ["hidden=8", "dropout=0.2"])
        (('hidden', (8,)), ('dropout', 0.2))
    """
    options = parse_options(texts)
    spec = model_spec(model)
    known = (_options_of_user(spec) if options else None) if spec.is_user_code else spec.options()
    if known is None:
        return tuple(options.items())
    if unknown := [name for name in options if name not in known]:
        names = [name for name in known if name not in INPUT_NAMES | OUTPUT_NAMES]  # these are given by the data
        sentence = f"{model} has no option {unknown[0]!r}"
        raise ValueError(unknown_name(sentence, unknown[0], names or ["none"], are="it has"))
    if spec.is_user_code:
        return tuple(options.items())
    return tuple((name, _converted(name, value, known[name])) for name, value in options.items())


def parse_options(texts: Sequence[str]) -> "dict[str, Option]":
    """Read options of any model or attack.

    Args:
        texts: Options as "name=value".

    Returns:
        Values by name: true, false, none, numbers, several whole numbers separated by commas, or text.

    Raises:
        ValueError: If a text is not of that form, or an option is given twice.

    Example:
        >>> parse_options(["hidden=8,4", "bias=false"])
        {'hidden': (8, 4), 'bias': False}
    """
    options: dict[str, Option] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name.isidentifier() or not value:
            raise ValueError(f"an option is name=value, as in hidden=8 or dropout=0.2, got {text!r}")
        if name in options:
            raise ValueError(f"the option {name} is given twice")
        options[name] = _value(value)
    return options


def _options_of_user(spec: "ModelSpec") -> dict[str, object] | None:
    """The parameters of a class of the user; None if it takes any option, or fails, which its building explains."""
    from wtawp.experiments.spec import add_cwd_to_sys_path

    add_cwd_to_sys_path()
    try:
        parameters = inspect.signature(spec.resolve()).parameters
    except Exception:  # of the user's module, which may raise anything
        return None
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return None
    return {name: p.default for name, p in parameters.items() if name != "generator"}


def _converted(name: str, value: "Option", default: object) -> "Option":
    """A value in the form of the option's default: sizes are whole numbers, at least 1, and may be several."""
    if isinstance(default, tuple) and isinstance(value, int):
        value = (value,)
    sizes = value if isinstance(value, tuple) else (value,)
    is_size = isinstance(default, int | tuple) and not isinstance(default, bool)
    if is_size and not all(type(size) is int and size >= 1 for size in sizes):
        raise ValueError(f"the option {name} must be whole numbers >= 1, got {value!r}")
    return value


def _value(text: str) -> "Option":
    """The value that a text stands for."""
    words: dict[str, Option] = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        if "," in text:
            return tuple(int(part) for part in text.rstrip(",").split(","))
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text
