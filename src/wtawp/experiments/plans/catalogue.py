"""All plans by their labels: those of the paper, and those that check, explain and extend it.

Labels that begin with "claim:" are plans that check sentences of the text; "released:" plans follow the released code
where it differs from the text; "deviation:" plans explain a difference from the paper; "extra:" plans go beyond it.
"""

from functools import cache

from wtawp.base import WtawpError, matching_name, unknown_name
from wtawp.experiments.plans.claims import claim_plans
from wtawp.experiments.plans.extras import every_k_steps_plan, midsize_plan, strength_plan
from wtawp.experiments.plans.geometry import bounds_plan, flatness_plan, sharpness_plan, vanishing_plan
from wtawp.experiments.plans.graph_level import GRAPHS, baseline_search_plan, graph_variants_plan
from wtawp.experiments.plans.league import league_plans
from wtawp.experiments.plans.paper import CLEAN, paper_plans, printed, selection_plan
from wtawp.experiments.plans.released import released_plans
from wtawp.experiments.plans.without_tuning import auto_plans
from wtawp.experiments.spec import Plan

PAGES = {"tab:dataset": "Node-level data sets", "tab:cladataset": "Graph-level data sets"}  # nothing is trained


@cache
def plans() -> dict[str, Plan]:
    """Build all plans.

    Returns:
        The plans by label: tables and figures in the order of the paper, deviations, claims and extras, then tables as
        the released code makes them.
    """
    labelled = {
        **paper_plans(),
        "deviation:selection": selection_plan(),
        "deviation:graphclass": baseline_search_plan(printed()["graph_classification"]),
        "extra:attacks": strength_plan(),
        "extra:graphclass": graph_variants_plan(),
        **{claim.name: claim for claim in claim_plans()},
        "extra:flatness": flatness_plan({name: CLEAN[name]["GCN"] for name in ("cora", "citeseer")}),
        "extra:sharpness": sharpness_plan(),
        "extra:bounds": bounds_plan({name: CLEAN[name]["GCN"] for name in ("cora", "citeseer")}, GRAPHS),
        "extra:vanishing": vanishing_plan(),
        "extra:midsize": midsize_plan(),
        "extra:every": every_k_steps_plan(),
        **{each.name: each for each in auto_plans()},
        **{each.name: each for each in league_plans()},
    }  # fmt: skip
    return labelled | {each.name: each for each in released_plans(labelled)}


def plan(label: str) -> Plan:
    """Find the plan of a label.

    Args:
        label: A label of `plans`, such as "tab:natacc", in upper or lower case.

    Returns:
        The plan.

    Raises:
        WtawpError: If there is no such label.

    Example:
        >>> plan("tab:natacc").title
        'Clean accuracy'
    """
    known = plans()
    if (spelled := matching_name(label, known)) is None:
        raise WtawpError(unknown_name(f"there is no plan {label!r}", label, known))
    return known[spelled]
