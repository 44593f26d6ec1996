"""Every public name is documented: its docstring has the sections that its signature and body call for.

The names are those in the `__all__` of each package. Type aliases, constants and members of protocols are exempt.
"""

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import NoReturn, get_origin

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "wtawp"
SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises|Example|Examples|Note):\s*$")
ENTRY = re.compile(r"^\*{0,2}(\w+)(?: \(.*?\))?:")


def packages_with_public_names() -> Iterator[str]:
    """The front door, and each package below it that has an `__all__`; the command line is documented by its help."""
    for path in sorted(SOURCE.rglob("__init__.py")):
        parts = path.parent.relative_to(SOURCE).parts
        if parts[:1] != ("cli",) and "__all__" in path.read_text(encoding="utf-8"):
            yield ".".join(("wtawp", *parts))


def sections_of(docstring: str) -> dict[str, list[str]]:
    """The lines of each section of a Google-style docstring, dedented."""
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in inspect.cleandoc(docstring).splitlines():
        if heading := SECTION.match(line):
            lines = sections.setdefault(heading[1], [])
        elif line and not line.startswith(" "):
            lines = []  # prose after a section
        else:
            lines.append(line)
    return {name: textwrap.dedent("\n".join(body)).strip("\n").splitlines() for name, body in sections.items()}


def entries_of(docstring: str, *sections: str) -> set[str]:
    """The names that sections such as Args describe."""
    lines = [line for name, body in sections_of(docstring).items() if name in sections for line in body]
    return {entry[1] for line in lines if (entry := ENTRY.match(line))}


def parameters_of(function: Callable[..., object]) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]


def returns_something(function: Callable[..., object]) -> bool:
    annotation = inspect.signature(function).return_annotation
    return annotation not in (None, "None", NoReturn, "NoReturn", inspect.Signature.empty)


def raises_directly(function: Callable[..., object]) -> bool:
    """Whether the body of a function raises, apart from the bodies of functions inside it and from re-raising."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    todo: list[ast.AST] = [*tree.body[0].body] if isinstance(tree.body[0], ast.FunctionDef) else []
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Raise) and node.exc is not None:
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            todo += ast.iter_child_nodes(node)
    return False


def quoted(names: list[str]) -> str:
    return ", ".join(repr(name) for name in names)


def argument_problems(parameters: list[str], docstring: str, *, sections: tuple[str, ...] = ("Args",)) -> list[str]:
    described, problems = entries_of(docstring, *sections), []
    if missing := [name for name in parameters if name not in described]:
        problems.append(f"{' or '.join(sections)} does not name {quoted(missing)}")
    if unknown := sorted(entries_of(docstring, "Args") - set(parameters)):
        problems.append(f"Args names {quoted(unknown)}, which it does not take")
    return problems


def function_problems(function: Callable[..., object], docstring: str | None) -> list[str]:
    """What the docstring of a function or method lacks."""
    if not docstring:
        return ["has no docstring"]
    problems = argument_problems(parameters_of(function), docstring)
    sections = sections_of(docstring)
    if returns_something(function) and not {"Returns", "Yields"} & set(sections):
        problems.append("returns something and has no Returns")
    if raises_directly(function) and "Raises" not in sections:
        problems.append("raises an error and has no Raises")
    return problems


def ancestors(cls: type) -> list[type]:
    """The class and those of its bases that are not somebody else's."""
    return [base for base in cls.__mro__ if base.__module__.startswith(cls.__module__.split(".")[0])]


def docstring_of_method(cls: type, name: str) -> str | None:
    """That of the method which it implements counts for a method without a docstring, or with one that refers to it."""
    docstrings = {
        base.__name__: doc for base in ancestors(cls) if (doc := getattr(vars(base).get(name), "__doc__", None))
    }
    own = next(iter(docstrings.values()), None)
    return next((doc for base, doc in docstrings.items() if own and f"See `{base}.{name}`." in own), own)


def constructor_problems(cls: type) -> list[str]:
    own_init = next((vars(base)["__init__"] for base in ancestors(cls) if "__init__" in vars(base)), None)
    if own_init is None:  # that of an exception, or of somebody else's class
        return []
    if dataclasses.is_dataclass(cls):
        parameters = [field.name for field in dataclasses.fields(cls) if field.init]
        makers = [vars(base)["__post_init__"] for base in ancestors(cls) if "__post_init__" in vars(base)]
        docstrings = [base.__doc__ for base in ancestors(cls)]
    else:
        parameters, makers, docstrings = parameters_of(own_init), [own_init], [cls.__doc__, own_init.__doc__]
    docstring = "\n\n".join(inspect.cleandoc(doc) for doc in docstrings if doc)
    problems = argument_problems(parameters, docstring, sections=("Args", "Attributes"))
    if any(raises_directly(make) for make in makers) and "Raises" not in sections_of(docstring):
        problems.append("raises an error when it is built and has no Raises")
    return problems


def method_problems(cls: type) -> Iterator[tuple[str, str]]:
    """Name of each public method or property that the class itself defines, and what its docstring lacks."""
    for name, member in vars(cls).items():
        if name.startswith("_") and name != "__call__":
            continue
        docstring = docstring_of_method(cls, name)
        if isinstance(member, property | cached_property):
            yield from [(name, "has no docstring")] if not docstring else []
            continue
        function = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        if not isinstance(inspect.unwrap(function) if callable(function) else function, FunctionType):
            continue
        if name == "__call__" and not parameters_of(function):
            continue
        yield from ((name, problem) for problem in function_problems(function, docstring))


def is_protocol(cls: type) -> bool:
    return bool(getattr(cls, "_is_protocol", False))


def problems_of(name: str, value: object) -> list[str]:
    """One line for each problem with the documentation of a public name; none for aliases and constants."""
    if inspect.isclass(value) and get_origin(value) is None:
        where = f"{value.__module__}.{name}"
        if not vars(value).get("__doc__") or value.__doc__.startswith(f"{value.__name__}("):  # made by @dataclass
            return [f"{where}: has no docstring"]
        if is_protocol(value):
            return []
        lines = [f"{where}: {problem}" for problem in constructor_problems(value)]
        return lines + [f"{where}.{method}: {problem}" for method, problem in method_problems(value)]
    if callable(value) and isinstance(inspect.unwrap(value), FunctionType):
        return [f"{value.__module__}.{name}: {problem}" for problem in function_problems(value, value.__doc__)]
    return []


@pytest.mark.parametrize("package", list(packages_with_public_names()))
def test_every_public_name_is_documented(package: str) -> None:
    if package == "wtawp.integrations":
        pytest.importorskip("lightning", reason="INTEGRATIONS NOT CHECKED: pip install 'wtawp[lightning]'")
    module = import_module(package)
    problems = [line for name in module.__all__ for line in problems_of(name, getattr(module, name))]
    assert not problems, "\n" + "\n".join(problems)


def test_the_packages_that_are_checked_include_all_that_compute() -> None:
    packages = ("core", "graphs", "models", "training", "attacks", "certificates", "analysis", "experiments")
    assert {"wtawp", *(f"wtawp.{name}" for name in packages)} <= set(packages_with_public_names())


def scale(values: list[float], *, factor: float = 2.0) -> list[float]:
    """Multiply numbers.

    Args:
        values: The numbers; a line of the description may be long
            note: and may go on below it.
        factor: What they are multiplied with, above 0.

    Returns:
        The products.

    Raises:
        ValueError: If the factor is not above 0.
    """
    if factor <= 0:
        raise ValueError("no")
    return [factor * value for value in values]


def undocumented(values: list[float]) -> list[float]:
    return values


def lacks_everything(values: list[float], factor: float) -> list[float]:  # noqa: D417, on purpose
    """Multiply numbers.

    Args:
        values: The numbers.
        exponent: There is none.
    """
    if factor <= 0:
        raise ValueError("no")
    return [factor * value for value in values]


def raises_inside(values: list[float]) -> None:
    """Make a function that raises, and raise again what another one raised.

    Args:
        values: The numbers.
    """

    def inner() -> None:
        raise ValueError("not by the outer function")

    try:
        values.append(1.0)
    except ValueError:
        raise


@dataclasses.dataclass(frozen=True, kw_only=True)
class Documented:
    """A record.

    Attributes:
        size: How many, at least 1.

    Raises:
        ValueError: If the size is below 1.
    """

    size: int

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError("no")

    @property
    def double(self) -> int:
        """Twice the size."""
        return 2 * self.size

    def grow(self, by: int) -> int:
        """Add to the size.

        Args:
            by: How much.

        Returns:
            The sum.
        """
        return self.size + by

    def __len__(self) -> int:
        return self.size


class Grows(Documented):
    """A record that inherits the documentation of a method.

    Attributes:
        size: How many.
    """

    def grow(self, by: int) -> int:
        return self.size + 2 * by


class Refers(Grows):
    """A record that refers to the documentation of a method, and says what differs.

    Attributes:
        size: How many.
    """

    def grow(self, by: int) -> int:
        """See `Documented.grow`. It adds three times as much."""
        return self.size + 3 * by


class RefersToOthers(Grows):
    """A record that refers to the documentation of another method than that which it implements.

    Attributes:
        size: How many.
    """

    def grow(self, by: int) -> int:
        """See `Documented.double`."""
        return self.size + 2 * by


@dataclasses.dataclass
class Bare:
    size: int


class Poor:
    """A class."""

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError("no")
        self.size = size

    def __call__(self, by: int) -> int:
        """Add."""
        return self.size + by

    @property
    def double(self) -> int:
        return 2 * self.size

    @staticmethod
    def of(size: int) -> "Poor":
        """Build one.

        Args:
            size: How many.
        """
        return Poor(size)


@pytest.mark.parametrize("value", [scale, raises_inside, Documented, Grows, Refers, list[int], 3, Callable[[], int]])
def test_the_check_accepts_what_is_documented_or_exempt(value: object) -> None:
    assert problems_of("it", value) == []


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (undocumented, ["it: has no docstring"]),
        (Bare, ["it: has no docstring"]),
        (
            RefersToOthers,
            ["it.grow: Args does not name 'by'", "it.grow: returns something and has no Returns"],
        ),
        (
            lacks_everything,
            [
                "it: Args does not name 'factor'",
                "it: Args names 'exponent', which it does not take",
                "it: returns something and has no Returns",
                "it: raises an error and has no Raises",
            ],
        ),
        (
            Poor,
            [
                "it: Args or Attributes does not name 'size'",
                "it: raises an error when it is built and has no Raises",
                "it.__call__: Args does not name 'by'",
                "it.__call__: returns something and has no Returns",
                "it.double: has no docstring",
                "it.of: returns something and has no Returns",
            ],
        ),
    ],
)
def test_the_check_notices_what_is_missing(value: object, expected: list[str]) -> None:
    assert [line.removeprefix(f"{__name__}.") for line in problems_of("it", value)] == expected
