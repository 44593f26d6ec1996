"""Export of the flips that attacks found: from records to files, to be applied elsewhere."""

import re
from collections import Counter
from pathlib import Path

from wtawp.experiments.execution.runner import surrogate_of
from wtawp.experiments.measures.shared.flips import flips_from_result
from wtawp.experiments.spec import Plan, Record, Setting
from wtawp.experiments.store import Store
from wtawp.models.registry import model_spec


def save_flips(plan: Plan, store: Store, folder: Path) -> list[Path]:
    """Write the flips of all finished runs of a plan, including those that poisoned its graphs.

    Args:
        plan: The plan.
        store: The store with the records of the plan.
        folder: The folder, which is created if it does not exist.

    Returns:
        The files, named by data set, model, attack, budget, split and initialisation, as in
        `wine-GCN-pgd-0.05-split0-init0.npz`. Names that would be the same, as of runs on two devices, end with the key
        of the run, the kind of device and the index of the measure. `EdgeFlips.load` reads the files, with the
        provenance of the flips.
    """
    surrogates = {run.key for trained in plan.runs() if (run := surrogate_of(trained)) is not None}
    keys = surrogates | {run.key for run in plan.runs()}
    folder.mkdir(parents=True, exist_ok=True)
    found = [
        (_name(record, index), record, index)
        for record in store.records(keys, status="done")
        for index, result in enumerate(record.measured or [])
        if "flips" in result
    ]
    counts, written = Counter(name for name, _, _ in found), []
    for name, record, index in found:
        if counts[name] > 1:
            name = _as_file_name(f"{name}-{record.key}-{record.device.lower()}-{index}")
        path = folder / f"{name}.npz"
        flips_from_result((record.measured or [])[index]).save(path)
        written.append(path)
    return written


def _name(record: Record, index: int) -> str:
    """What identifies the flips of a measure for people."""
    setting = Setting.from_content(record.setting)
    options = dict(setting.measures[index].options)
    model = model_spec(setting.model).label + "+WT-AWP" * (setting.awp is not None)
    parts = (Path(setting.dataset).stem, model, options["attack"], options["budget"])
    return _as_file_name("-".join(map(str, (*parts, f"split{record.split}", f"init{record.init}"))))


def _as_file_name(text: str) -> str:
    """A text without characters that file systems treat as their own."""
    return re.sub(r"[^A-Za-z0-9.+_-]+", "-", text)
