"""Plans of the user, in TOML. Every mistake is found before anything is trained, and named with file and key.

name = "my sweep"
splits = 5
inits = 2

[base]                      # what all cells share
dataset = "cora"
model = "GCN"

[[cell]]
row = "GCN"

[[cell]]
row = "GCN + WT-AWP"
compare_with = "GCN"
awp = { rho = 1.0, lam = 0.7 }

[[cell]]
row = "GCN, attacked"       # after training; `poison = { ... }` attacks before it
evasion = { attack = "pgd", budget = 0.05 }

[[cell]]
row = "GCN, how flat"       # any measure by its name, with its options
measures = [{ name = "sharpness", rho = 0.1 }, { name = "spectrum", top = 1 }]
"""

import tomllib
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from wtawp.attacks.registry import attack_names
from wtawp.core import AwpConfig
from wtawp.experiments.measures.shared.registry import measure_names, measure_spec
from wtawp.experiments.plans.robustness import evading, poisoning
from wtawp.experiments.spec import Cell, Measure, Plan, PlanError, Setting

TOP = {"name": str, "title": str, "splits": int, "inits": int, "base": dict, "cell": list}
CELL = {"row": str, "column": str, "compare_with": str}
SETTING = {"dataset": str, "model": str, "options": dict, "awp": dict, "epochs": int, "lr": float,
           "weight_decay": float, "select_on": str, "keep": list, "features": str, "batch_size": int,
           "poison": dict, "evasion": dict, "measures": list}  # fmt: skip
AWP = {"rho": float, "lam": float, "layers": (str, list), "radius": str, "projection": str, "steps": int,
       "step_size": float, "balance": float, "exact": bool}  # fmt: skip


def read_plan(path: Path) -> Plan:
    """The plan in a TOML file, checked as far as it can be without data."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PlanError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PlanError(f"{path} is not TOML: {error}") from error
    return _Reader(path).plan(content)


class _Reader:
    """Knows the file, for its errors."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def plan(self, content: dict[str, Any]) -> Plan:
        self.check(content, TOP, "")
        base = content.get("base", {})
        self.check(base, SETTING, "base.")
        if not content.get("cell"):
            raise self.error("cell", "at least one [[cell]]", "none")
        size = {name: content.get(name, default) for name, default in (("splits", 20), ("inits", 10))}
        for name, number in size.items():
            if number < 1:
                raise self.error(name, "a whole number >= 1", repr(number))
        cells, pairs = [], {}
        for i, given in enumerate(content["cell"]):
            where = f"cell[{i}]."
            if not isinstance(given, dict):
                raise self.error(f"cell[{i}]", "a table", type(given).__name__)
            self.check(given, {**CELL, **SETTING}, where)
            setting = self.setting({**base, **{k: v for k, v in given.items() if k in SETTING}}, where)
            row = given.get("row", str(setting))
            shown = 0 if "evasion" in {**base, **given} else None  # the accuracy that the cell shows
            cells.append(Cell(row, given.get("column", setting.dataset), setting, measure=shown, **size))
            if "compare_with" in given:
                pairs[given["compare_with"], row] = where
        rows, places = {c.row for c in cells}, [(c.row, c.column) for c in cells]
        if twice := {place for place in places if places.count(place) > 1}:
            raise self.error("cell", "every row and column once", f"{sorted(twice)} twice")
        for (before, after), where in pairs.items():
            columns = [{c.column for c in cells if c.row == row} for row in (before, after)]
            if before not in rows or before == after:
                raise self.error(f"{where}compare_with", f"one of the other rows of {sorted(rows)}", repr(before))
            if not columns[0] & columns[1]:
                raise self.error(f"{where}compare_with", "a row with a cell in the same column", repr(before))
        name = content.get("name", self.path.stem)
        return Plan(name, content.get("title", name), tuple(cells), tuple(pairs))

    def setting(self, content: dict[str, Any], where: str) -> Setting:
        if "dataset" not in content:
            raise self.error(f"{where}dataset", "the name or file of a graph", "nothing")
        options = content.get("options", {})
        awp = content.get("awp")
        try:
            config = None if awp is None else self.awp(awp, f"{where}awp.")
            fixed = {"awp": config, "keep": tuple(content.get("keep", ())), "options": tuple(
                (k, tuple(v) if isinstance(v, list) else v) for k, v in options.items())}  # fmt: skip
            poison = self.attack(content, "poison", where)
            evasion = self.attack(content, "evasion", where)
            measures = [] if evasion is None else [evasion]
            measures += [
                self.measure(one, f"{where}measures[{i}]") for i, one in enumerate(content.get("measures", []))
            ]
            attacks = {"poison": poison, "measures": tuple(measures)}
            plain = {k: v for k, v in content.items() if k != "evasion"}
            return Setting(**{**plain, **fixed, **attacks})
        except (ValueError, TypeError) as error:
            raise PlanError(f"{self.path}: {where.rstrip('.')}: {error}") from error

    def attack(self, content: dict[str, Any], kind: str, where: str) -> Measure | None:
        """Options are those of the attack; what is not given is as in the paper's protocol."""
        if kind not in content:
            return None
        options, names = content[kind], f"one of {', '.join(attack_names())}"
        for name, expected in (("attack", names), ("budget", "a share or a number of edges")):
            if name not in options:
                raise self.error(f"{where}{kind}.{name}", expected, "nothing")
        attack = options["attack"]
        if not isinstance(attack, str) or (attack not in attack_names() and ":" not in attack):
            raise self.error(f"{where}{kind}.attack", names, repr(attack))
        return (poisoning if kind == "poison" else evading)(**options)

    def measure(self, content: object, where: str) -> Measure:
        """A measure by its name; the other keys are its options."""
        if not isinstance(content, dict) or content.get("name") not in measure_names():
            got = content.get("name") if isinstance(content, dict) else content
            raise self.error(where, f"a table with a name, one of {', '.join(measure_names())}", repr(got))
        options = tuple((k, tuple(v) if isinstance(v, list) else v) for k, v in content.items() if k != "name")
        measure_spec(content["name"]).parse(dict(options))
        return Measure(content["name"], options)

    def awp(self, content: dict[str, Any], where: str) -> AwpConfig:
        self.check(content, AWP, where)
        for f in fields(AwpConfig):
            if f.default is MISSING and f.name not in content:
                raise self.error(f"{where}{f.name}", "a number", "nothing")
        return AwpConfig(**content)

    def check(self, content: dict[str, Any], known: dict[str, Any], where: str) -> None:
        for key, value in content.items():
            if key not in known:
                raise self.error(f"{where}{key}", f"one of the keys {sorted(known)}", "an unknown one")
            kinds = known[key] if isinstance(known[key], tuple) else (known[key],)
            fits = (*kinds, int) if float in kinds else kinds
            if not isinstance(value, fits) or (isinstance(value, bool) and bool not in kinds):
                names = " or ".join(kind.__name__ for kind in kinds)
                raise self.error(f"{where}{key}", names, f"{value!r}")

    def error(self, key: str, expected: str, got: str) -> PlanError:
        return PlanError(f"{self.path}: {key}: expected {expected}, got {got}")
