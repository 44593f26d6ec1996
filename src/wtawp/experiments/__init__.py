"""Choosing: data, seeds, settings, paths. Everything below is handed them.

Names are found when they are used: a report reads plans and records without loading anything that trains.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wtawp.experiments.demo.demo import Demo, run_demo
    from wtawp.experiments.demo.page import demo_page
    from wtawp.experiments.results.statistics import PairedDifference, paired_difference
    from wtawp.experiments.store.database import Store, StoreError

_HOME = {
    "Demo": "demo.demo",
    "PairedDifference": "results.statistics",
    "Store": "store.database",
    "StoreError": "store.database",
    "demo_page": "demo.page",
    "paired_difference": "results.statistics",
    "run_demo": "demo.demo",
}
__all__ = ["Demo", "PairedDifference", "Store", "StoreError", "demo_page", "paired_difference", "run_demo"]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"wtawp.experiments.{_HOME[name]}"), name)
