"""Experiments: this level chooses data, seeds, settings and paths; every level below is given them.

Names are imported when they are used: a report reads plans and records without loading anything that trains.
"""

from typing import TYPE_CHECKING

from wtawp.base import lazy_exports

if TYPE_CHECKING:
    from wtawp.experiments.demo.page import demo_page
    from wtawp.experiments.demo.runner import Demo, run_demo
    from wtawp.experiments.results.statistics import PairedDifference, paired_difference
    from wtawp.experiments.store.database import Store
    from wtawp.experiments.store.errors import StoreError

__all__ = ["Demo", "PairedDifference", "Store", "StoreError", "demo_page", "paired_difference", "run_demo"]
_HOMES = {
    "Demo": "demo.runner",
    "PairedDifference": "results.statistics",
    "Store": "store.database",
    "StoreError": "store.errors",
    "demo_page": "demo.page",
    "paired_difference": "results.statistics",
    "run_demo": "demo.runner",
}
__getattr__ = lazy_exports(__name__, _HOMES)


def __dir__() -> list[str]:
    """The public names, also those that are not imported yet."""
    return sorted({*globals(), *__all__})
