"""The data: graphs by name, splits, and the operators that models multiply with. It knows no model."""

from wtawp.graphs.datasets import NAMES, load
from wtawp.graphs.generate import citation, knn_edges, toy
from wtawp.graphs.operators import gcn_operator
from wtawp.graphs.splits import Split, stratified

__all__ = ["NAMES", "Split", "citation", "gcn_operator", "knn_edges", "load", "stratified", "toy"]
