"""Options of a model from the command line, as name=value."""

from collections.abc import Sequence

from wtawp.experiments.spec import Option
from wtawp.models.registry import model_spec


def options_of(model: str, texts: Sequence[str]) -> tuple[tuple[str, Option], ...]:
    """Read options of a model; where one of our models takes several numbers, a single one is enough.

    Args:
        model: The name of the model, or "package.module:Class", which may take any option.
        texts: Options as "name=value".

    Returns:
        Names and values.

    Raises:
        ValueError: If a text is no option, an option is given twice, or the model has no such option.

    Example:
        >>> options_of("GCN", ["hidden=8", "dropout=0.2"])
        (('hidden', (8,)), ('dropout', 0.2))
    """
    options = parse_options(texts)
    spec = model_spec(model)
    if spec.is_user_code:
        return tuple(options.items())
    known = spec.options()
    if unknown := [name for name in options if name not in known]:
        raise ValueError(f"{model} has no option {unknown[0]!r}; it has {', '.join(known)}")
    return tuple((name, _fitting(name, value, known[name])) for name, value in options.items())


def parse_options(texts: Sequence[str]) -> dict[str, Option]:
    """Read "name=value" texts, whatever model they are for; raises ValueError for one that is none, or comes twice."""
    options: dict[str, Option] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name.isidentifier() or not value:
            raise ValueError(f"an option is name=value, as in hidden=8 or dropout=0.2, got {text!r}")
        if name in options:
            raise ValueError(f"the option {name} is given twice")
        options[name] = _value(value)
    return options


def _fitting(name: str, value: Option, default: object) -> Option:
    """As one of our models takes it, judged by its default: sizes are whole numbers from 1 on."""
    if isinstance(default, tuple) and isinstance(value, int):
        value = (value,)
    sizes = value if isinstance(value, tuple) else (value,)
    counts = isinstance(default, int | tuple) and not isinstance(default, bool)
    if counts and not all(type(size) is int and size >= 1 for size in sizes):
        raise ValueError(f"the option {name} must be whole numbers >= 1, got {value!r}")
    return value


def _value(text: str) -> Option:
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
