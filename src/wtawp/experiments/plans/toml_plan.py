"""Plans of users, in TOML. Every mistake is reported with file and key before anything is trained.

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
row = "GCN, more labels"    # or split = "masks", or split = { kind = "k-fold", folds = 5 }
split = { train = 0.5, val = 0.1 }

[[cell]]
row = "GCN, how flat"       # any measure by its name, with its options
measures = [{ name = "sharpness", rho = 0.1 }, { name = "spectrum", top = 1 }]
"""

import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from wtawp.attacks.registry import attack_names, is_user_attack
from wtawp.base import DataError, did_you_mean, is_reference, matching_name
from wtawp.core import AwpConfig
from wtawp.experiments.measures.shared.registry import measure_names, measure_spec
from wtawp.experiments.plans.robustness import evading, poisoning
from wtawp.experiments.spec import Cell, MeasureRequest, Plan, PlanError, Setting, SplitRule
from wtawp.experiments.spec.run import MAX_INITS
from wtawp.experiments.spec.sources import user_sources
from wtawp.graphs.composed_names import composed_name
from wtawp.graphs.registry import SUFFIXES, dataset_spec
from wtawp.models.registry import model_names, model_spec

MAX_BYTES = 2**20  # of a plan: thousands of cells
MAX_SPLITS = 100_000
TOP = {"name": str, "title": str, "splits": int, "inits": int, "base": dict, "cell": list}
CELL = {"row": str, "column": str, "compare_with": str}
SETTING = {"dataset": str, "model": str, "options": dict, "awp": dict, "epochs": int, "lr": float,
           "weight_decay": float, "select_on": str, "keep": list, "features": str, "batch_size": int,
           "average": (float, str), "split": (str, dict), "poison": dict, "evasion": dict,
           "measures": list, "inductive": bool}  # fmt: skip
SPLIT = {"kind": str, "train": float, "val": float, "folds": int}
AWP = {"rho": float, "lam": (float, str), "layers": (str, list), "radius": str, "projection": str, "steps": int,
       "step_size": float, "balance": (float, str), "exact": bool, "every": int, "start": int,
       "direction": str, "perturbed_gradient": str}  # fmt: skip


def read_plan(path: Path) -> Plan:
    """Read the plan in a TOML file, and check it as far as possible without data.

    Args:
        path: The file; the module's docstring shows an example.

    Returns:
        The plan.

    Raises:
        PlanError: If the file cannot be read, or has a mistake; the message names the file and the key.
    """
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise PlanError(f"{path} cannot be read: {error.strerror}") from error
    if len(text) > MAX_BYTES:
        raise PlanError(f"{path} has more than {MAX_BYTES:,} bytes; split the plan into several files")
    try:
        content = tomllib.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # the latter: arrays in arrays, a thousand deep
        raise PlanError(f"{path} is not TOML: {error}") from error
    return _Reader(path).plan(content)


class _Reader:
    """Turns the content of a file into a plan; its errors name the file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def plan(self, content: dict[str, Any]) -> Plan:
        """The plan of the whole file."""
        self.check(content, TOP, "")
        base = content.get("base", {})
        self.check(base, SETTING, "base.")
        if not content.get("cell"):
            raise self.error("cell", "at least one [[cell]]", "none")
        size = {name: content.get(name, default) for name, default in (("splits", 20), ("inits", 10))}
        for (name, number), most in zip(size.items(), (MAX_SPLITS, MAX_INITS), strict=True):
            if not 1 <= number <= most:
                raise self.error(name, f"a whole number from 1 to {most}", repr(number)[:100])
        unset = tuple(key for key in ("splits", "inits") if key not in content)
        cells, pairs = [], {}
        for i, table in enumerate(content["cell"]):
            where = f"cell[{i}]."
            if not isinstance(table, dict):
                raise self.error(f"cell[{i}]", "a table", type(table).__name__)
            self.check(table, {**CELL, **SETTING}, where)
            shared = dict.fromkeys(base, "base.")
            content_of_cell = {**base, **{k: v for k, v in table.items() if k in SETTING}}
            self.check_names(content_of_cell, {**shared, **dict.fromkeys(table, where)})
            setting = self.setting(content_of_cell, where)
            row = table.get("row", str(setting))
            measure = 0 if "evasion" in {**base, **table} else None  # whose accuracy the cell shows
            cells.append(Cell(row, table.get("column", setting.dataset), setting, measure=measure, **size))
            if "compare_with" in table:
                pairs[table["compare_with"], row] = where
        rows, places = {c.row for c in cells}, [(c.row, c.column) for c in cells]
        if repeated := {place for place, count in Counter(places).items() if count > 1}:
            raise self.error("cell", "every row and column once", f"{sorted(repeated)} twice")
        for (before, after), where in pairs.items():
            columns = [{c.column for c in cells if c.row == row} for row in (before, after)]
            if before not in rows or before == after:
                raise self.error(f"{where}compare_with", f"one of the other rows of {sorted(rows)}", repr(before))
            if not columns[0] & columns[1]:
                raise self.error(f"{where}compare_with", "a row with a cell in the same column", repr(before))
        name = content.get("name", self.path.stem)
        return Plan(name, content.get("title", name), tuple(cells), tuple(pairs), unset=unset)

    def setting(self, content: dict[str, Any], where: str) -> Setting:
        """The setting of a cell; `where` is the prefix of its keys in messages."""
        if "dataset" not in content:
            raise self.error(f"{where}dataset", "the name or file of a graph", "nothing")
        options = content.get("options", {})
        awp = content.get("awp")
        try:
            config = None if awp is None else self.awp(awp, f"{where}awp.")
            fixed: dict[str, Any] = {"awp": config, "keep": tuple(content.get("keep", ())), "options": tuple(
                (k, tuple(v) if isinstance(v, list) else v) for k, v in options.items())}  # fmt: skip
            poison = self.attack(content, "poison", where)
            evasion = self.attack(content, "evasion", where)
            measures = [] if evasion is None else [evasion]
            measures += [
                self.measure(table, f"{where}measures[{i}]") for i, table in enumerate(content.get("measures", []))
            ]
            attacks = {"poison": poison, "measures": tuple(measures)}
            if "split" in content:
                fixed["split"] = self.split(content["split"], f"{where}split.")
            plain = {k: v for k, v in content.items() if k != "evasion"}
            return Setting(**{**plain, **fixed, **attacks})
        except (ValueError, TypeError, ImportError) as error:
            raise PlanError(f"{self.path}: {where.rstrip('.')}: {error}") from error

    def attack(self, content: dict[str, Any], kind: str, where: str) -> MeasureRequest | None:
        """The attack under the key "poison" or "evasion"; options that are not given are the paper's."""
        if kind not in content:
            return None
        options, names = content[kind], f"one of {', '.join(attack_names())}"
        for name, expected in (("attack", names), ("budget", "a share or a number of edges")):
            if name not in options:
                raise self.error(f"{where}{kind}.{name}", expected, "nothing")
        attack = options["attack"]
        if not isinstance(attack, str) or not (matching_name(attack, attack_names()) or ":" in attack):
            raise self.error(f"{where}{kind}.attack", names, f"{attack!r}{did_you_mean(attack, attack_names())}")
        if is_reference(attack):
            self.check_module(attack, f"{where}{kind}.attack")
        budget = options["budget"]
        if isinstance(budget, float) and (budget <= 0 or budget > 1):
            raise self.error(f"{where}{kind}.budget", "a share in (0, 1] or a whole number of edges", f"{budget!r}")
        return (poisoning if kind == "poison" else evading)(**options)

    def measure(self, content: object, where: str) -> MeasureRequest:
        """The measure of a table: its name, and its options under the other keys."""
        if not isinstance(content, dict) or content.get("name") not in measure_names():
            got = content.get("name") if isinstance(content, dict) else content
            raise self.error(where, f"a table with a name, one of {', '.join(measure_names())}", repr(got))
        options: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in content.items() if k != "name"}
        attack = options.get("attack")
        if isinstance(attack, str) and is_reference(attack):
            self.check_module(attack, f"{where}.attack")
        measure_spec(content["name"]).parse(options)
        if content["name"] == "evasion" and is_user_attack(str(attack)):
            return evading(**options)  # the same request as under the key "evasion"
        return MeasureRequest(content["name"], tuple(options.items()))

    def check_module(self, attack: str, where: str) -> None:
        """Refuse the reference to an attack in a module that does not exist."""
        if not user_sources(attack.partition(":")[0]):
            raise self.error(where, "package.module:function", f"{attack!r}; there is no such module")

    def split(self, content: str | dict[str, Any], where: str) -> SplitRule:
        """How the data are divided: a kind, or a table of it with its shares or folds."""
        if isinstance(content, str):
            return SplitRule(kind=content)  # type: ignore[arg-type]  # it is checked there
        self.check(content, SPLIT, where)
        return SplitRule(**content)

    def awp(self, content: dict[str, Any], where: str) -> AwpConfig:
        """The perturbation of a table."""
        self.check(content, AWP, where)
        for f in fields(AwpConfig):
            if f.default is MISSING and f.name not in content:
                raise self.error(f"{where}{f.name}", "a number", "nothing")
        return AwpConfig(**content)

    def check(self, content: dict[str, Any], known: dict[str, Any], where: str) -> None:
        """Refuse unknown keys, and values of another type."""
        for key, value in content.items():
            if key not in known:
                raise self.error(f"{where}{key}", f"one of the keys {sorted(known)}", "an unknown one")
            kinds = known[key] if isinstance(known[key], tuple) else (known[key],)
            accepted = (*kinds, int) if float in kinds else kinds
            if not isinstance(value, accepted) or (isinstance(value, bool) and bool not in kinds):
                names = " or ".join(kind.__name__ for kind in kinds)
                raise self.error(f"{where}{key}", names, f"{value!r}")

    def check_names(self, content: dict[str, Any], where: Mapping[str, str]) -> None:
        """Refuse data sets, models and options of our models that do not exist; `where` has the prefix of each key."""
        dataset, model = content.get("dataset"), content.get("model", Setting.model)
        if dataset is not None:
            parts = composed_name(dataset)
            name = dataset if parts is None else parts.base
            try:
                if not name.endswith(SUFFIXES):
                    dataset_spec(name)
            except DataError as error:
                raise PlanError(f"{self.path}: {where['dataset']}dataset: {error}") from error
        if is_reference(model):
            if not user_sources(model.partition(":")[0]):
                raise self.error(
                    f"{where['model']}model", "package.module:Class", f"{model!r}; there is no such module"
                )
        elif matching_name(model, model_names()) is not None:  # Setting refuses others
            known = model_spec(model).options()
            for option in content.get("options", {}):
                if option not in known:
                    expected = f"one of the options of {model}, {', '.join(known)}"
                    hint = did_you_mean(option, known)
                    raise self.error(f"{where['options']}options.{option}", expected, f"an unknown one{hint}")

    def error(self, key: str, expected: str, got: str) -> PlanError:
        """The error for a key with a wrong value."""
        return PlanError(f"{self.path}: {key}: expected {expected}, got {got}")
