"""Smaller versions of plans: fewer runs for a first answer, or just enough to check that everything works."""

from dataclasses import replace

from wtawp.experiments.measures.shared.registry import measure_spec
from wtawp.experiments.spec import MeasureRequest, Plan, Scale, Setting

_SIZES = {"quick": (5, 2, None), "smoke": (2, 1, 30)}  # splits, initialisations, epochs (None: unchanged)


def at_scale(plan: Plan, scale: Scale) -> Plan:
    """Make a smaller version of a plan.

    Args:
        plan: The plan.
        scale: "full" is the plan itself; "quick" has fewer runs; "smoke" also has fewer epochs and smaller measures,
            which only show that everything works, so that nothing is judged.

    Returns:
        The plan in that size.
    """
    if scale == "full":
        return plan
    splits, inits, epochs = _SIZES[scale]
    cells = tuple(
        replace(
            c,
            splits=min(c.splits, splits),
            inits=min(c.inits, inits),
            setting=_smoke(c.setting, epochs) if epochs else c.setting,
            judged=c.judged and scale != "smoke",
        )
        for c in plan.cells
    )
    return replace(plan, cells=cells, claims=plan.claims if scale != "smoke" else ())


def _smoke(setting: Setting, epochs: int) -> Setting:
    """A setting with fewer epochs, and with the measures' options for smoke tests."""
    return replace(setting, epochs=min(setting.epochs, epochs), measures=tuple(map(_smaller, setting.measures)),
                   poison=None if setting.poison is None else _smaller(setting.poison))  # fmt: skip


def _smaller(measure: MeasureRequest) -> MeasureRequest:
    """A measure with its options for smoke tests, where it has others."""
    smoke = measure_spec(measure.name).smoke_options
    return measure.with_options(**{name: value for name, value in smoke.items() if name in dict(measure.options)})
