"""Plans: the tables and figures of the paper, robustness, geometry, the plans of users in TOML, and default settings.

This room imports `spec`, and from `measures` the registry, for the names and options of measures. A plan is data: it
knows neither the store nor how it is run.
"""

from typing import TYPE_CHECKING

from wtawp.base import lazy_exports

if TYPE_CHECKING:
    from wtawp.experiments.plans.catalogue import plan, plans
    from wtawp.experiments.plans.defaults import default_awp
    from wtawp.experiments.plans.robustness import (
        attack_plan,
        certificate_plan,
        certifying,
        certifying_together,
        evading,
        noise_of,
        poisoning,
    )
    from wtawp.experiments.plans.scale import at_scale
    from wtawp.experiments.plans.toml_plan import read_plan

__all__ = [
    "at_scale", "attack_plan", "certificate_plan", "certifying", "certifying_together", "default_awp", "evading",
    "noise_of", "plan", "plans", "poisoning", "read_plan",
]  # fmt: skip
_HOMES = {
    "default_awp": "defaults",
    **dict.fromkeys(("plan", "plans"), "catalogue"),
    **dict.fromkeys(
        ("attack_plan", "certificate_plan", "certifying", "certifying_together", "evading", "noise_of", "poisoning"),
        "robustness",
    ),
    "at_scale": "scale",
    "read_plan": "toml_plan",
}
__getattr__ = lazy_exports(__name__, _HOMES)


def __dir__() -> list[str]:
    """The public names, also those that are not imported yet."""
    return sorted({*globals(), *__all__})
