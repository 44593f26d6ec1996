"""Names of registries and references "package.module:name", found, resolved and shown in messages."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from importlib import import_module


def shortened(text: str, length: int = 160) -> str:
    """Shorten a text of unknown length for a message.

    Args:
        text: Any text, for example from a file.
        length: The largest length that is shown whole.

    Returns:
        The text on one line, without its middle if it is long.

    Example:
        >>> shortened("a long text", 6)
        'a l ... ext'
    """
    line = " ".join(text.split())
    return line if len(line) <= length else f"{line[: length // 2]} ... {line[-(length // 2) :]}"


def matching_name(name: str, known: Collection[str]) -> str | None:
    """Find the spelling under which a name is registered; upper and lower case do not matter.

    Args:
        name: A name as the user wrote it.
        known: The registered names.

    Returns:
        The registered name that equals it but for case; None if there is none.

    Example:
        >>> matching_name("Cora", ["cora", "planetoid-cora"]), matching_name("core", ["cora"])
        ('cora', None)
    """
    if name in known:
        return name
    return {each.casefold(): each for each in known}.get(str(name).casefold())


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Suggest the registered name that is most similar to one that is not registered.

    Args:
        name: A name as the user wrote it.
        known: The registered names.

    Returns:
        A question for the end of a message, or nothing if no name is similar.

    Example:
        >>> did_you_mean("coar", ["cora", "wine"])
        '; did you mean cora?'
    """
    written, spelled = str(name).casefold(), {each.casefold(): each for each in known}
    nearest = get_close_matches(written, spelled, n=3)
    nearest.sort(key=lambda each: sorted(each) != sorted(written))  # first of all, one with two letters exchanged
    return f"; did you mean {spelled[nearest[0]]}?" if nearest else ""


def unknown_name(sentence: str, name: str, known: Iterable[str], *, are: str = "there are") -> str:
    """Say that there is no such name: first what was probably meant, then all names, which may be many.

    Args:
        sentence: That there is none, without a full stop.
        name: A name as the user wrote it.
        known: The registered names.
        are: What introduces the list of them.

    Returns:
        The message.

    Example:
        >>> unknown_name("there is no graph 'coar'", "coar", ["cora", "wine"])
        "there is no graph 'coar'; did you mean cora? There are cora, wine"
        >>> unknown_name("there is no graph 'x'", "x", ["cora", "wine"])
        "there is no graph 'x'; there are cora, wine"
    """
    known = list(known)
    hint = did_you_mean(name, known)
    listed = f"{are} {', '.join(known)}"
    return f"{sentence}{hint} {listed[0].upper()}{listed[1:]}" if hint else f"{sentence}; {listed}"


def resolve(reference: str) -> object:
    """Import what a reference of the form "package.module:name" names.

    Registries hold such references, so that reading a registry imports nothing that computes.

    Args:
        reference: Module and attribute, separated by a colon.

    Returns:
        The attribute of the module.

    Raises:
        ImportError: If the module does not exist, or has no such attribute.

    Example:
        >>> resolve("math:sqrt")(4.0)
        2.0
    """
    module_name, _, name = reference.partition(":")
    module = import_module(module_name)
    if not hasattr(module, name):
        hint = did_you_mean(name, [each for each in vars(module) if not each.startswith("_")]).removeprefix("; ")
        raise ImportError(f"module {module_name} has no attribute {name!r}" + f" ({hint})" * bool(hint))
    attribute: object = getattr(module, name)
    return attribute


def is_reference(text: object) -> bool:
    """Whether something has the form of a reference, "package.module:name".

    Args:
        text: Any value.

    Returns:
        True for a text of dotted identifiers, a colon and an identifier.

    Example:
        >>> is_reference("package.module:Class"), is_reference("C:/graphs/mine.npz")
        (True, False)
    """
    if not isinstance(text, str):
        return False
    module, _, name = text.partition(":")
    return name.isidentifier() and all(part.isidentifier() for part in module.split("."))
