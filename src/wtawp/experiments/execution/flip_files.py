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
        The files. Their names consist of the key of the run, the kind of device, the index of the measure, and the
        target of an attack on a single node; `load_flips` reads them, with the provenance of the flips.
    """
    surrogates = {run.key for trained in plan.runs() if (run := surrogate_of(trained)) is not None}
    keys = surrogates | {run.key for run in plan.runs()}
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for record in store.records(keys, status="done"):
        for index, result in enumerate(record.measured or []):
            device = re.sub(r"[^a-z0-9]+", "-", record.device.lower())
            targets = {f"-node{each['node']}": each for each in result.get("targets", []) if "flips" in each}
            for suffix, each in {**({"": result} if "flips" in result else {}), **targets}.items():
                path = folder / f"{record.key}-{device}-{index}{suffix}.npz"
                flips_from_result(each).save(path)
                written.append(path)
    return written
