"""No code asks whether a model or an attack has a certain name: what depends on it stands in the registries.

A comparison with a name is a second list of names, which a new model or attack would have to be added to by hand.
Tables that list names as data, such as the plans of the paper, compare nothing.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from wtawp.attacks.registry import attack_names
from wtawp.models.registry import model_names

SOURCE = Path(__file__).parents[1] / "src" / "wtawp"
MODULES = sorted(SOURCE.rglob("*.py"))
DATA = ("models/registry.py", "attacks/registry.py", "experiments/plans/")  # may look up a name in a table of names
NAMES = {name.casefold() for name in (*model_names(), *attack_names(), "Pooled")}
OTHER_MEANINGS = {("line", "random")}  # variables whose values only look like names: a random line of a landscape


def names_in(node: ast.AST | None, tables: dict[str, list[str]]) -> list[str]:
    """The names of models and attacks in a literal: a string, a collection of strings, or a variable that holds one."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) and node.value.casefold() in NAMES else []
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return [name for element in node.elts for name in names_in(element, tables)]
    if isinstance(node, ast.Dict):
        return [name for key in node.keys for name in names_in(key, tables)]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("set", "frozenset", "tuple"):
        return [name for argument in node.args for name in names_in(argument, tables)]
    if isinstance(node, ast.Name):
        return tables.get(node.id, [])
    return []


def tables_of(tree: ast.Module) -> dict[str, list[str]]:
    """The variables of a module that hold names of models or attacks."""
    tables: dict[str, list[str]] = {}
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            if isinstance(target, ast.Name) and (names := names_in(node.value, tables)):
                tables[target.id] = names
    return tables


def without_annotations(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node, but those of annotations: a string there is a type."""
    todo = [tree]
    while todo:
        node = todo.pop()
        yield node
        for field, value in ast.iter_fields(node):
            if field not in ("annotation", "returns"):
                todo += [
                    child for child in (value if isinstance(value, list) else [value]) if isinstance(child, ast.AST)
                ]


def compared_names(source: str, *, is_data: bool = False) -> list[str]:
    """Each comparison with the name of a model or an attack, as "line: name"; `is_data` allows lookups in tables."""
    tree = ast.parse(source)
    tables, compared = tables_of(tree), []
    for node in without_annotations(tree):
        operands: list[ast.AST] = []
        if isinstance(node, ast.Compare) and any(
            isinstance(op, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for op in node.ops
        ):
            operands = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            is_lookup = node.func.attr in ("get", "pop") and not is_data
            operands = node.args[:1] if node.func.attr in ("startswith", "endswith") or is_lookup else []
        elif isinstance(node, ast.MatchValue):
            operands = [node.value]
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and not is_data:
            is_type = isinstance(node.value, ast.Name) and node.value.id in ("Literal", "Annotated")
            operands = [] if is_type else [node.slice]
        variables = {operand.id for operand in operands if isinstance(operand, ast.Name)}
        names = [name for operand in operands for name in names_in(operand, tables)]
        names = [name for name in names if not any((variable, name) in OTHER_MEANINGS for variable in variables)]
        if names:
            compared.append((node.lineno if hasattr(node, "lineno") else 0, ", ".join(names)))
    return [f"{line}: {names}" for line, names in sorted(compared)]


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_no_name_of_a_model_or_an_attack_is_compared(path: Path) -> None:
    relative = path.relative_to(SOURCE).as_posix()
    assert compared_names(path.read_text(encoding="utf-8"), is_data=relative.startswith(DATA)) == []


@pytest.mark.parametrize(
    "statement",
    [
        'if model == "RGCN": pass',
        'if "RGCN" != setting.model: pass',
        'wd = 0.0 if model in ("GCN", "RGCN") else 5e-4',
        'assert model not in {"MLP"}',
        'assert model in {"GCN": 1.0}',
        'assert model.lower() == "gcn"',
        'assert model.startswith("Pooled")',
        'assert model.endswith(("GIN", "SAGE"))',
        'match attack:\n    case "pgd" | "prbcd":\n        pass',
        'cost = table["metattack"]',
        'cost = table.get("metattack", 0)',
        'SLOW = frozenset({"metattack"})\ndef f(attack):\n    return attack in SLOW',
        'COST = {"GAT": 2.0}\nassert model in COST',
    ],
)
def test_the_check_notices_every_form_of_a_comparison(statement: str) -> None:
    assert compared_names(statement)


@pytest.mark.parametrize(
    "statement",
    [
        'ROWS = {"GCN": 1, "GAT": 2}\nfor row in ROWS: pass',
        'Setting(model="GCN")',
        'if model == "something else": pass',
        'if line == "random": pass',
        'Method = Literal["pgd"]\ndef f(model: "GCN", others: list["GCN"]) -> "GCN": ...',
        'import_module("wtawp.models.gcn")',
    ],
)
def test_the_check_lets_data_and_types_pass(statement: str) -> None:
    assert compared_names(statement) == []


def test_tables_of_data_may_look_a_name_up_and_not_compare_it() -> None:
    assert compared_names('row = PRINTED["GCN"]', is_data=True) == []
    assert compared_names('if row == "GCN": pass', is_data=True) == ["1: GCN"]
