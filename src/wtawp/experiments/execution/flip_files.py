"""The flips that attacks found, out of records into files of their own, to be applied elsewhere."""

import re
from pathlib import Path

from wtawp.experiments.execution.runner import surrogate_of
from wtawp.experiments.measures.shared.flips import flips_from_result
from wtawp.experiments.spec import Plan
from wtawp.experiments.store.database import Store


def save_flips(plan: Plan, store: Store, folder: Path) -> list[Path]:
    """Write the flips of all finished runs of a plan, those that poisoned it included; returns the files.

    A file is named after its run's key, the kind of device and the measure's place; `EdgeFlips.load` reads it, and its
    provenance says the rest.
    """
    surrogates = {run.key for one in plan.runs() if (run := surrogate_of(one)) is not None}
    keys = surrogates | {run.key for run in plan.runs()}
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for record in store.records(keys, status="done"):
        for place, result in enumerate(record.measured or []):
            if "flips" in result:
                device = re.sub(r"[^a-z0-9]+", "-", record.device.lower())
                path = folder / f"{record.key}-{device}-{place}.npz"
                flips_from_result(result).save(path)
                written.append(path)
    return written
