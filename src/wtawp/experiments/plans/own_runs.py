"""Plans for the runs of users: the records that belong to no plan of the paper, as tables with and without WT-AWP."""

import json
from collections import Counter
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import cache

from wtawp.experiments.plans.catalogue import plans
from wtawp.experiments.plans.league import league_plans
from wtawp.experiments.plans.robustness import budget_name
from wtawp.experiments.plans.scale import at_scale
from wtawp.experiments.plans.without_tuning import auto_plans
from wtawp.experiments.spec import Cell, MeasureRequest, Plan, Record, Setting
from wtawp.experiments.spec.record_checks import wrong_setting_fields
from wtawp.graphs.composed_names import short_name

MIDSIZE = "extra:midsize"  # a study of default settings on many data sets, as those of `auto_plans` and the league are


def own_plans(records: Iterable[Record]) -> tuple[list[Plan], int]:
    """Build plans for the records that belong to no plan of the paper.

    Settings that differ only in the perturbation or in the attack before training share a plan, so that they are
    compared. Plans of the same text, of other code or data, name these versions and the time of their newest record. A
    cell asks for the smallest grid of splits and initialisations that contains its records.

    Args:
        records: Records, also of the paper's plans.

    Returns:
        The plans in the order of their first records, and how many records are left out because this program cannot
        read their settings, for example because a model that they name is not registered.
    """
    records = list(records)
    sizes: dict[Setting, tuple[int, int]] = {}
    newest: dict[Setting, str] = {}
    num_unreadable = 0
    by_setting: dict[str, list[Record]] = {}
    for record in records:
        by_setting.setdefault(_text_of(record), []).append(record)
    papers = _settings_of_the_paper(by_setting.keys())
    for same in (same for text, same in by_setting.items() if text not in papers):
        try:
            if wrong_setting_fields(same[0].setting):
                raise ValueError
            setting = Setting.from_content(same[0].setting)
        except (KeyError, TypeError, ValueError):
            num_unreadable += len(same)
            continue
        newest[setting] = max(r.created for r in same)
        sizes[setting] = max(r.split for r in same) + 1, max(r.init for r in same) + 1
    surrogates = {s for s in (setting.surrogate for setting in sizes) if s is not None}
    groups: dict[Setting, list[Setting]] = {}
    for setting in sizes:
        if setting not in surrogates:
            groups.setdefault(replace(setting, awp=None, poison=None, hash_sources=False), []).append(setting)
    plans_by_base = {base: _plan(base, group, sizes) for base, group in groups.items()}
    times = Counter((plan.name, plan.title) for plan in plans_by_base.values())
    named = []
    for base, plan in plans_by_base.items():
        if times[plan.name, plan.title] > 1:
            last = max(newest[setting] for setting in groups[base])
            plan = replace(plan, title=", ".join((plan.title, *versions_of(base), f"newest record {last[:16]}")))
        named.append(plan)
    return named, num_unreadable


def versions_of(setting: Setting) -> list[str]:
    """Name the versions of the user's code and data that a setting has, which its text leaves out.

    Args:
        setting: The setting.

    Returns:
        The first digits of the hashes, each with what it is of; nothing for models and data of ours.

    Example:
        >>> versions_of(Setting(dataset="mine.npz", digest="0123456789abcdef"))
        ['data 01234567']
    """
    hashes = {"code": setting.code, "data": setting.digest}
    return [f"{name} {digest[:8]}" for name, digest in hashes.items() if digest is not None]


def is_fragment(plan: Plan, records: Iterable[Record]) -> bool:
    """Whether a plan is a study of default settings on many data sets and the records cover only some of its settings.

    Such records are more likely a user's own comparisons than a part of the study.

    Args:
        plan: A plan.
        records: Records, also of other plans.

    Returns:
        True for such a study, if some of its settings have no record.
    """
    return plan.name in _study_names() and _lacks_settings(plan, {_text_of(record) for record in records})


@cache
def _study_names() -> frozenset[str]:
    """The names of the studies of default settings on many data sets."""
    return frozenset({MIDSIZE, *(study.name for study in (*auto_plans(), *league_plans()))})


def _lacks_settings(plan: Plan, texts: AbstractSet[str]) -> bool:
    """Whether a setting of a plan is not among those of records, in the form of `Setting.content_json`."""
    return not {cell.setting.content_json for cell in plan.cells} <= texts


def _text_of(record: Record) -> str:
    """The setting of a record in the form of `Setting.content_json`."""
    return json.dumps(record.setting, sort_keys=True, separators=(",", ":"))


def _settings_of_the_paper(texts: AbstractSet[str]) -> set[str]:
    """The settings of the paper's plans and of their surrogates, as text; the scale "quick" has those of "full".

    Studies of which `texts`, the settings of the records, are a part do not count.
    """
    sizes = [size for plan in plans().values() for size in (plan, at_scale(plan, "smoke"))]
    whole = [size for size in sizes if size.name not in _study_names() or not _lacks_settings(size, texts)]
    cells = [cell for size in whole for cell in size.cells]
    settings = dict.fromkeys(cell.setting for cell in cells)
    surrogates = [surrogate for setting in settings if (surrogate := setting.surrogate) is not None]
    return {setting.content_json for setting in (*settings, *surrogates)}


def _plan(base: Setting, group: list[Setting], sizes: dict[Setting, tuple[int, int]]) -> Plan:
    """The plan of the settings that differ from `base` in the perturbation and the attack before training alone."""
    cells: list[Cell] = []
    for setting in sorted(group, key=lambda s: (s.awp is not None, s.poison is not None)):  # plain first, attacks last
        row = base.model if setting.awp is None else f"{base.model}, {setting.awp}"
        attacks = [index for index, measure in enumerate(setting.measures) if "attack" in dict(measure.options)]
        cells += [Cell(row, "", setting, *sizes[setting], measure=index) for index in (None, *attacks)]
    attacks_by_name: dict[str, set[MeasureRequest]] = {}
    for cell in cells:
        if cell.attack is not None:
            attacks_by_name.setdefault(_attack_name(cell), set()).add(cell.attack)
    named = [replace(cell, column=_column(cell, base, attacks_by_name)) for cell in cells]
    rows = list(dict.fromkeys(cell.row for cell in cells))
    pairs = tuple((base.model, row) for row in rows if base.model in rows and row != base.model)
    data = base.dataset if base.digest is None else short_name(base.dataset, keeps_endings=True)
    name = f"{base.model} on {data}"
    details = str(base).removeprefix(f"{base.model} on {base.dataset}, plain").removeprefix(", ")
    return Plan(name, f"your own runs{', ' * bool(details)}{details}", tuple(named), pairs)


def _column(cell: Cell, base: Setting, attacks_by_name: dict[str, set[MeasureRequest]]) -> str:
    """The name of a cell's column: the data set, or the attack, with all its options where its name is not enough."""
    if cell.attack is None:
        return "no attack" if attacks_by_name else base.dataset
    name = _attack_name(cell)
    return name if len(attacks_by_name[name]) == 1 else f"{name}: {cell.attack}"


def _attack_name(cell: Cell) -> str:
    """The attack of a cell with its budget, and whether it comes before the training or after it."""
    assert cell.attack is not None
    options = dict(cell.attack.options)
    budget = options["budget"]
    size = budget_name(budget) if isinstance(budget, int | float) else str(budget)
    return f"{'under' if cell.measure is not None else 'poisoned by'} {options['attack']}, {size}"
