"""Choosing: data, seeds, settings, paths. Everything below is handed them."""

from wtawp.experiments.demo import Demo, run_demo
from wtawp.experiments.page import demo_page
from wtawp.experiments.statistics import PairedDifference, paired_difference

__all__ = ["Demo", "PairedDifference", "demo_page", "paired_difference", "run_demo"]
