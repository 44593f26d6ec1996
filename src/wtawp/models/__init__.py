"""Plain modules, called as `model(x, edge_index, edge_weight=None) -> logits`. They neither fit nor optimise.

Those that classify whole graphs are called as `model(x, edge_index, batch)`.
"""

from wtawp.models.appnp import APPNP
from wtawp.models.gat import GAT
from wtawp.models.gcn import GCN
from wtawp.models.gin import GIN
from wtawp.models.gnnguard import GNNGuard
from wtawp.models.jaccard import GCNJaccard
from wtawp.models.mlp import MLP
from wtawp.models.pooled import Pooled, PooledGCN, PooledGIN, PooledSAGE
from wtawp.models.rgcn import RGCN
from wtawp.models.sage import GraphSAGE
from wtawp.models.simpgcn import SimPGCN
from wtawp.models.soft_median import SoftMedianGCN
from wtawp.models.svd import GCNSVD

__all__ = ["APPNP", "GAT", "GCN", "GCNSVD", "GIN", "MLP", "RGCN", "GCNJaccard", "GraphSAGE", "SimPGCN"]
__all__ += ["GNNGuard", "Pooled", "PooledGCN", "PooledGIN", "PooledSAGE", "SoftMedianGCN"]
