"""Export of the flips that attacks found: from records to files, to be applied elsewhere."""

import re
from collections import Counter
from pathlib import Path

from wtawp.experiments.execution.runner import surrogate_of
from wtawp.experiments.measures.shared.flips import flips_from_result
from wtawp.experiments.measures.shared.interface import Result
from wtawp.experiments.spec import Plan, Record, Setting
from wtawp.experiments.store import Store
from wtawp.graphs.composed_names import short_name
from wtawp.models.registry import model_spec


def save_flips(plan: Plan, store: Store, folder: Path) -> list[Path]:
    """Write the flips of all finished runs of a plan, including those that poisoned its graphs.

    Args:
        plan: The plan.
        store: The store with the records of the plan.
        folder: The folder, which is created if it does not exist.

    Returns:
        The files, named by data set, model, attack, budget, split and initialisation, as in
        `wine-GCN-pgd-0.05-split0-init0.npz`, and by the target of an attack on a single node. Names that would be the
        same, as of runs on two devices, end with the key of the run, the kind of device and the index of the measure.
        `load_flips` reads the files, with the provenance of the flips.
    """
    surrogates = {run.key for trained in plan.runs() if (run := surrogate_of(trained)) is not None}
    keys = surrogates | {run.key for run in plan.runs()}
    folder.mkdir(parents=True, exist_ok=True)
    found = [
        (_name(record, index) + suffix, record, index, each)
        for record in store.records(keys, status="done")
        for index, result in enumerate(record.measured or [])
        for suffix, each in _flips_of(result).items()
    ]
    counts, written = Counter(name for name, *_ in found), []
    for name, record, index, each in found:
        if counts[name] > 1:
            name = _as_file_name(f"{name}-{record.key}-{record.device.lower()}-{index}")
        path = folder / f"{name}.npz"
        flips_from_result(each).save(path)
        written.append(path)
    return written


def _name(record: Record, index: int) -> str:
    """What identifies the flips of a measure for people."""
    setting = Setting.from_content(record.setting)
    options = dict(setting.measures[index].options)
    model = model_spec(setting.model).label + "+WT-AWP" * (setting.awp is not None)
    budget = "default" if options["budget"] is None else options["budget"]
    parts = (short_name(setting.dataset), model, options["attack"], budget)
    return _as_file_name("-".join(map(str, (*parts, f"split{record.split}", f"init{record.init}"))))


def _flips_of(result: Result) -> dict[str, Result]:
    """The flips in the result of a measure: under no name, and under those of its targets."""
    targets = {f"-node{each['node']}": each for each in result.get("targets", []) if "flips" in each}
    return {**({"": result} if "flips" in result else {}), **targets}


def _as_file_name(text: str) -> str:
    """A text without characters that file systems treat as their own."""
    return re.sub(r"[^A-Za-z0-9.+_-]+", "-", text)
