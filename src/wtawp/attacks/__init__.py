"""Attacks on a graph: those of the registry flip edges or features within a budget; `inject_nodes` adds nodes.

Names are imported when they are first used, so that reading the registry of attacks loads nothing that computes.
"""

from typing import TYPE_CHECKING

from wtawp.base import lazy_exports

if TYPE_CHECKING:
    from wtawp.attacks.adversarial_training import attacked_by_prbcd
    from wtawp.attacks.dice_attack import dice
    from wtawp.attacks.dispatch import attack
    from wtawp.attacks.eva_attack import eva
    from wtawp.attacks.feature_attack import pgd_features
    from wtawp.attacks.feature_block_attack import prbcd_features
    from wtawp.attacks.fga_attack import fga
    from wtawp.attacks.inject_attack import inject_at_random, inject_nodes
    from wtawp.attacks.linear_surrogate import surrogate_weights
    from wtawp.attacks.lrbcd_attack import lrbcd
    from wtawp.attacks.meta_attack import metattack, metattack_many, self_training_labels
    from wtawp.attacks.meta_pgd_attack import meta_pgd
    from wtawp.attacks.minmax_attack import minmax
    from wtawp.attacks.nettack_attack import nettack, nettack_many
    from wtawp.attacks.outcomes import AttackOutcome
    from wtawp.attacks.pgd_attack import pgd, pgd_many
    from wtawp.attacks.prbcd_attack import grbcd, prbcd
    from wtawp.attacks.projection import project_onto_budget
    from wtawp.attacks.random_attack import random_flips
    from wtawp.attacks.registry import attack_names, attack_spec, register_attack, unregister_attack
    from wtawp.attacks.spec import AttackRequest, AttackSpec
    from wtawp.attacks.strongest_attack import strongest

__all__ = [
    "AttackOutcome", "AttackRequest", "AttackSpec", "attack", "attack_names", "attack_spec", "attacked_by_prbcd",
    "dice", "eva", "fga", "grbcd", "inject_at_random", "inject_nodes", "lrbcd", "meta_pgd", "metattack",
    "metattack_many", "minmax", "nettack", "nettack_many", "pgd", "pgd_features", "pgd_many", "prbcd", "prbcd_features",
    "project_onto_budget", "random_flips", "register_attack", "self_training_labels", "strongest", "surrogate_weights",
    "unregister_attack",
]  # fmt: skip

_HOMES = {
    "AttackOutcome": "outcomes", "AttackRequest": "spec", "AttackSpec": "spec", "attack": "dispatch",
    "attack_names": "registry", "attack_spec": "registry",
    "attacked_by_prbcd": "adversarial_training", "dice": "dice_attack", "eva": "eva_attack",
    "fga": "fga_attack", "grbcd": "prbcd_attack", "inject_at_random": "inject_attack", "inject_nodes": "inject_attack",
    "lrbcd": "lrbcd_attack", "meta_pgd": "meta_pgd_attack", "metattack": "meta_attack", "metattack_many": "meta_attack",
    "minmax": "minmax_attack", "nettack": "nettack_attack", "nettack_many": "nettack_attack", "pgd": "pgd_attack",
    "pgd_features": "feature_attack", "pgd_many": "pgd_attack", "prbcd": "prbcd_attack",
    "prbcd_features": "feature_block_attack", "project_onto_budget": "projection", "random_flips": "random_attack",
    "register_attack": "registry", "self_training_labels": "meta_attack", "strongest": "strongest_attack",
    "surrogate_weights": "linear_surrogate", "unregister_attack": "registry",
}  # fmt: skip
__getattr__ = lazy_exports(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
