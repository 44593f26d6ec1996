"""Attacks on the edges of a graph: each takes a graph and a budget in undirected edges and returns `EdgeFlips`."""

from wtawp.attacks.dice import dice
from wtawp.attacks.minmax import minmax
from wtawp.attacks.pgd import pgd, pgd_many
from wtawp.attacks.projection import project_onto_budget
from wtawp.attacks.random_flips import random_flips

__all__ = ["dice", "minmax", "pgd", "pgd_many", "project_onto_budget", "random_flips"]
