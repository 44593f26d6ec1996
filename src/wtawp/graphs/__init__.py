"""The data: graphs by name, splits, and the operators that models multiply with. It knows no model.

Names are imported when they are first used, so that listing data sets loads neither torch nor PyG.
"""

from typing import TYPE_CHECKING

from wtawp.base import lazy_exports

if TYPE_CHECKING:
    from wtawp.graphs.attacked_files import load_attacked, load_split, load_targets, save_split
    from wtawp.graphs.blocks import Blocks, receptive_field
    from wtawp.graphs.collection import batched, is_collection, mean_pooling, select_graphs
    from wtawp.graphs.datasets import fetch_dataset, load, locate_dataset
    from wtawp.graphs.description import Description, describe
    from wtawp.graphs.download import RemoteFile, is_intact, locate
    from wtawp.graphs.feature_files import is_memory_mapped, memory_mapped
    from wtawp.graphs.feature_flips import FeatureFlips, binary_features, feature_budget_of
    from wtawp.graphs.flips import EdgeFlips, budget_of, undirected_pairs
    from wtawp.graphs.gcn_weights import GcnWeights
    from wtawp.graphs.generate import citation, knn_edges, power_law, toy
    from wtawp.graphs.graph_flips import Flips, GraphFlips, as_graph_flips, load_flips
    from wtawp.graphs.held_out import SplitWithoutTest, inductive
    from wtawp.graphs.injected_nodes import InjectedNodes, injection_budget_of
    from wtawp.graphs.low_rank import LowRank, low_rank_operator
    from wtawp.graphs.node_batches import NodeBatches
    from wtawp.graphs.normalisation import gcn_operator, mean_operator, sum_operator
    from wtawp.graphs.operator import Operator, sparse_features
    from wtawp.graphs.pagerank import ppr_rows
    from wtawp.graphs.products import spmm
    from wtawp.graphs.registry import DatasetSpec, dataset_names, dataset_spec, register_dataset
    from wtawp.graphs.sampling import NeighbourLists, Sample, sample_neighbours
    from wtawp.graphs.similarity import cosine, extreme_pairs, jaccard, jaccard_operator, knn_operator
    from wtawp.graphs.splits import (
        Split,
        check_split,
        has_masks,
        k_fold,
        num_mask_splits,
        public,
        released_split,
        split_from_masks,
        stratified,
    )

__all__ = [
    "Blocks",
    "DatasetSpec",
    "Description",
    "EdgeFlips",
    "FeatureFlips",
    "Flips",
    "GcnWeights",
    "GraphFlips",
    "InjectedNodes",
    "LowRank",
    "NeighbourLists",
    "NodeBatches",
    "Operator",
    "RemoteFile",
    "Sample",
    "Split",
    "SplitWithoutTest",
    "as_graph_flips",
    "batched",
    "binary_features",
    "budget_of",
    "check_split",
    "citation",
    "cosine",
    "dataset_names",
    "dataset_spec",
    "describe",
    "extreme_pairs",
    "feature_budget_of",
    "fetch_dataset",
    "gcn_operator",
    "has_masks",
    "inductive",
    "injection_budget_of",
    "is_collection",
    "is_intact",
    "is_memory_mapped",
    "jaccard",
    "jaccard_operator",
    "k_fold",
    "knn_edges",
    "knn_operator",
    "load",
    "load_attacked",
    "load_flips",
    "load_split",
    "load_targets",
    "locate",
    "locate_dataset",
    "low_rank_operator",
    "mean_operator",
    "mean_pooling",
    "memory_mapped",
    "num_mask_splits",
    "power_law",
    "ppr_rows",
    "public",
    "receptive_field",
    "register_dataset",
    "released_split",
    "sample_neighbours",
    "save_split",
    "select_graphs",
    "sparse_features",
    "split_from_masks",
    "spmm",
    "stratified",
    "sum_operator",
    "toy",
    "undirected_pairs",
]

_HOMES = {
    **dict.fromkeys(("load_attacked", "load_split", "load_targets", "save_split"), "attacked_files"),
    **dict.fromkeys(("Blocks", "receptive_field"), "blocks"),
    **dict.fromkeys(("batched", "is_collection", "mean_pooling", "select_graphs"), "collection"),
    **dict.fromkeys(("fetch_dataset", "load", "locate_dataset"), "datasets"),
    **dict.fromkeys(("Description", "describe"), "description"),
    **dict.fromkeys(("RemoteFile", "is_intact", "locate"), "download"),
    **dict.fromkeys(("is_memory_mapped", "memory_mapped"), "feature_files"),
    **dict.fromkeys(("EdgeFlips", "budget_of", "undirected_pairs"), "flips"),
    **dict.fromkeys(("FeatureFlips", "binary_features", "feature_budget_of"), "feature_flips"),
    **dict.fromkeys(("Flips", "GraphFlips", "as_graph_flips", "load_flips"), "graph_flips"),
    "GcnWeights": "gcn_weights",
    **dict.fromkeys(("citation", "knn_edges", "power_law", "toy"), "generate"),
    **dict.fromkeys(("SplitWithoutTest", "inductive"), "held_out"),
    **dict.fromkeys(("InjectedNodes", "injection_budget_of"), "injected_nodes"),
    **dict.fromkeys(("LowRank", "low_rank_operator"), "low_rank"),
    "NodeBatches": "node_batches",
    **dict.fromkeys(("gcn_operator", "mean_operator", "sum_operator"), "normalisation"),
    **dict.fromkeys(("Operator", "sparse_features"), "operator"),
    "ppr_rows": "pagerank",
    "spmm": "products",
    **dict.fromkeys(("DatasetSpec", "dataset_names", "dataset_spec", "register_dataset"), "registry"),
    **dict.fromkeys(("NeighbourLists", "Sample", "sample_neighbours"), "sampling"),
    **dict.fromkeys(("cosine", "extreme_pairs", "jaccard", "jaccard_operator", "knn_operator"), "similarity"),
    **dict.fromkeys(
        (
            "Split",
            "check_split",
            "has_masks",
            "k_fold",
            "num_mask_splits",
            "public",
            "released_split",
            "split_from_masks",
            "stratified",
        ),
        "splits",
    ),
}
__getattr__ = lazy_exports(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
