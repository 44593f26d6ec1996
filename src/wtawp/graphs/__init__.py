"""The data: graphs by name, splits, and the operators that models multiply with. It knows no model."""

from wtawp.graphs.datasets import NAMES, load
from wtawp.graphs.generate import citation, knn_edges, toy
from wtawp.graphs.operators import Operator, gcn_operator, ppr_rows, receptive_field, sparse_features, spmm
from wtawp.graphs.splits import Split, stratified

__all__ = [
    "NAMES",
    "Operator",
    "Split",
    "citation",
    "gcn_operator",
    "knn_edges",
    "load",
    "ppr_rows",
    "receptive_field",
    "sparse_features",
    "spmm",
    "stratified",
    "toy",
]
