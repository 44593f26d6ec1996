"""Execution of plans: check them, build models, train and measure them in chunks on an engine, store the records.

This room imports `spec`, `store` and `measures`. It knows nothing of plans for particular tables, nor of figures.
"""

from typing import TYPE_CHECKING

from wtawp.base import lazy_exports

if TYPE_CHECKING:
    from wtawp.experiments.execution.checks import check_plan
    from wtawp.experiments.execution.engine_ray import ray_cluster
    from wtawp.experiments.execution.engines import Engine, EngineError, local
    from wtawp.experiments.execution.flip_export import save_flips
    from wtawp.experiments.execution.provenance import device_name, versions
    from wtawp.experiments.execution.runner import SweepCounts, run_plans
    from wtawp.experiments.execution.training import train, train_model, train_one, untrained_model

__all__ = [
    "Engine", "EngineError", "SweepCounts", "check_plan", "device_name", "local", "ray_cluster",
    "run_plans", "save_flips", "train", "train_model", "train_one", "untrained_model", "versions",
]  # fmt: skip
_HOMES = {
    "check_plan": "checks",
    "ray_cluster": "engine_ray",
    **dict.fromkeys(("Engine", "EngineError", "local"), "engines"),
    "save_flips": "flip_export",
    **dict.fromkeys(("device_name", "versions"), "provenance"),
    **dict.fromkeys(("SweepCounts", "run_plans"), "runner"),
    **dict.fromkeys(("train", "train_model", "train_one", "untrained_model"), "training"),
}
__getattr__ = lazy_exports(__name__, _HOMES)


def __dir__() -> list[str]:
    """The public names, also those that are not imported yet."""
    return sorted({*globals(), *__all__})
