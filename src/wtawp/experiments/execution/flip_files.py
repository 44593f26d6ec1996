"""Export of the flips that attacks found: from records to files, to be applied elsewhere."""

import re
from pathlib import Path

from wtawp.experiments.execution.runner import surrogate_of
from wtawp.experiments.measures.shared.flips import flips_from_result
from wtawp.experiments.spec import Plan
from wtawp.experiments.store import Store


def save_flips(plan: Plan, store: Store, folder: Path) -> list[Path]:
    """Write the flips of all finished runs of a plan, including those that poisoned its graphs.

    Args:
        plan: The plan.
        store: The store with the records of the plan.
        folder: The folder, which is created if it does not exist.

    Returns:
        The files. Their names consist of the key of the run, the kind of device and the index of the measure;
        `EdgeFlips.load` reads them, with the provenance of the flips.
    """
    surrogates = {run.key for trained in plan.runs() if (run := surrogate_of(trained)) is not None}
    keys = surrogates | {run.key for run in plan.runs()}
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for record in store.records(keys, status="done"):
        for index, result in enumerate(record.measured or []):
            if "flips" in result:
                device = re.sub(r"[^a-z0-9]+", "-", record.device.lower())
                path = folder / f"{record.key}-{device}-{index}.npz"
                flips_from_result(result).save(path)
                written.append(path)
    return written
