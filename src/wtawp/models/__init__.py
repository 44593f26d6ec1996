"""Plain modules, called as `model(x, edge_index, edge_weight=None) -> logits`, and the registry of their names.

Models that classify whole graphs are called as `model(x, edge_index, batch)`. No model trains itself: see
`wtawp.training`. Importing this package imports no model; each is imported when it is first used.
"""

from typing import TYPE_CHECKING

from wtawp.base import lazy_exports

if TYPE_CHECKING:
    from wtawp.models.elastic import ElasticGNN
    from wtawp.models.gat import GAT
    from wtawp.models.gcn import GCN
    from wtawp.models.gin import GIN
    from wtawp.models.gnnguard import GNNGuard
    from wtawp.models.jaccard import GCNJaccard
    from wtawp.models.mlp import MLP
    from wtawp.models.pooled import Pooled, PooledGCN, PooledGIN, PooledSAGE
    from wtawp.models.ppnp import PPNP
    from wtawp.models.registry import ModelSpec, model_names, model_spec, register_model
    from wtawp.models.rgcn import RGCN
    from wtawp.models.sage import GraphSAGE
    from wtawp.models.simpgcn import SimPGCN
    from wtawp.models.soft_median import SoftMedianGCN
    from wtawp.models.svd import GCNSVD

__all__ = [
    "GAT",
    "GCN",
    "GCNSVD",
    "GIN",
    "MLP",
    "PPNP",
    "RGCN",
    "ElasticGNN",
    "GCNJaccard",
    "GNNGuard",
    "GraphSAGE",
    "ModelSpec",
    "Pooled",
    "PooledGCN",
    "PooledGIN",
    "PooledSAGE",
    "SimPGCN",
    "SoftMedianGCN",
    "model_names",
    "model_spec",
    "register_model",
]

_HOMES = {
    "GAT": "gat",
    "GCN": "gcn",
    "GCNSVD": "svd",
    "GIN": "gin",
    "MLP": "mlp",
    "PPNP": "ppnp",
    "RGCN": "rgcn",
    "ElasticGNN": "elastic",
    "GCNJaccard": "jaccard",
    "GNNGuard": "gnnguard",
    "GraphSAGE": "sage",
    "SimPGCN": "simpgcn",
    "SoftMedianGCN": "soft_median",
    **dict.fromkeys(("Pooled", "PooledGCN", "PooledGIN", "PooledSAGE"), "pooled"),
    **dict.fromkeys(("ModelSpec", "model_names", "model_spec", "register_model"), "registry"),
}
__getattr__ = lazy_exports(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
