"""Attacks on the edges of a graph: each takes a graph and a budget in undirected edges and returns `EdgeFlips`."""

from wtawp.attacks.attack import attack
from wtawp.attacks.dice import dice
from wtawp.attacks.metattack import metattack, metattack_many, self_training_labels
from wtawp.attacks.minmax import minmax
from wtawp.attacks.pgd import pgd, pgd_many
from wtawp.attacks.prbcd import grbcd, prbcd
from wtawp.attacks.projection import project_onto_budget
from wtawp.attacks.random_flips import random_flips

__all__ = [
    "attack", "dice", "grbcd", "metattack", "metattack_many", "minmax", "pgd", "pgd_many", "prbcd",
    "project_onto_budget", "random_flips", "self_training_labels",
]  # fmt: skip
