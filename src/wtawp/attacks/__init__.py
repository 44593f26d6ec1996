"""Attacks on the edges of a graph: each takes a graph and a budget in undirected edges and returns `EdgeFlips`."""

from wtawp.attacks.dice import dice
from wtawp.attacks.random_flips import random_flips

__all__ = ["dice", "random_flips"]
