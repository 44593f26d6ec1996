"""The data: graphs by name, splits, and the operators that models multiply with. It knows no model."""

from wtawp.graphs.collection import batched, is_collection, mean_pooling, some_graphs
from wtawp.graphs.datasets import EMBEDDED, NAMES, PUBLISHED, files_of, get, load, place_of
from wtawp.graphs.describe import Description, describe
from wtawp.graphs.download import is_intact, locate
from wtawp.graphs.flips import EdgeFlips, budget_of, undirected_pairs
from wtawp.graphs.generate import citation, knn_edges, power_law, toy
from wtawp.graphs.low_rank import LowRank, low_rank_operator
from wtawp.graphs.operators import (
    Operator,
    gcn_operator,
    jaccard,
    jaccard_operator,
    mean_operator,
    ppr_rows,
    receptive_field,
    sparse_features,
    spmm,
    sum_operator,
)
from wtawp.graphs.similarity import cosine, extreme_pairs, knn_operator
from wtawp.graphs.splits import Split, check_split, k_fold, public, stratified

__all__ = [
    "EMBEDDED",
    "NAMES",
    "PUBLISHED",
    "Description",
    "LowRank",
    "Operator",
    "Split",
    "check_split",
    "citation",
    "cosine",
    "describe",
]
__all__ += [
    "files_of",
    "gcn_operator",
    "get",
    "is_intact",
    "jaccard",
    "jaccard_operator",
    "k_fold",
    "knn_edges",
    "knn_operator",
    "load",
    "locate",
    "low_rank_operator",
    "mean_operator",
    "place_of",
    "power_law",
    "ppr_rows",
]
__all__ += [
    "extreme_pairs",
    "public",
    "receptive_field",
    "sparse_features",
    "spmm",
    "stratified",
    "sum_operator",
    "toy",
]
__all__ += ["EdgeFlips", "batched", "budget_of", "is_collection", "mean_pooling", "some_graphs", "undirected_pairs"]
