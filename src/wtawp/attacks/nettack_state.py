"""The state of one Nettack: the graph as its flips so far have left it, and the exact score of every next flip.

The surrogate's logits of the target t are those of A_hat^2 H with H = X W. With d the degrees plus one, s = d^-1/2,
N[k] the neighbours of k and k itself, and G_k = sum over l in N[k] of s_l H_l, they are

    Z_t = s_t  sum over k in N[t] of s_k^2 G_k.

A flip of the pair (a, b) changes the degrees of a and b and the two neighbourhoods alone, so the new Z_t of all
candidates follows from G, from R_x = sum over k in N[t] of s_k^2 A_kx, and from values at a and b: no row of A_hat^2 is
computed anew.
"""

import torch
from torch import Tensor
from torch_geometric.data import Data

from wtawp.attacks.degree_test import LikelyDegrees
from wtawp.graphs.flips import undirected_pairs


class NettackState:
    """One attack on one node."""

    def __init__(self, data: Data, products: Tensor, weights: Tensor, target: int, label: int) -> None:
        # [n, c] is X W, [d, c] is W
        self.size, self.target, self.label = int(data.num_nodes), target, label
        self.products, self.weights = products.double().clone(), weights.double()
        pairs = undirected_pairs(data).to(products.device)
        self.edges = torch.cat([pairs, pairs.flip(0)], 1)  # [2, 2 m], both directions
        self.original_degree = self.degree
        self.flipped_pairs: list[tuple[int, int]] = []
        self.flipped_entries: list[tuple[int, int]] = []
        self._update()

    @property
    def degree(self) -> Tensor:  # -> [n] int64
        """The number of neighbours of each node."""
        return torch.bincount(self.edges[0], minlength=self.size)

    def neighbours(self, node: int) -> Tensor:  # -> [n] bool
        """Which nodes are joined to a node."""
        joined = torch.zeros(self.size, dtype=torch.bool, device=self.edges.device)
        joined[self.edges[1, self.edges[0] == node]] = True
        return joined

    def _update(self) -> None:
        """Compute what the scores of all candidates share."""
        (i, j), h = self.edges, self.products
        self.scale = (self.degree + 1).double().rsqrt()[:, None]  # s, [n, 1]
        scaled = self.scale * h
        self.sums = scaled.index_add(0, i, scaled[j])  # G, [n, c]
        self.near = self.neighbours(self.target)  # N[t]
        self.near[self.target] = True
        inner = self.near[i]
        self.reach = torch.zeros_like(self.scale).index_add(0, j[inner], self.scale[i[inner]].square())  # R, [n, 1]
        self.inside = (self.scale.square() * self.sums)[self.near].sum(0)  # Z_t / s_t, [c]

    @property
    def logits(self) -> Tensor:  # -> [c]
        """The surrogate's logits of the target."""
        return self.scale[self.target] * self.inside

    def margin(self, logits: Tensor) -> Tensor:  # [..., c] -> [...]
        """The loss that the attack raises: the best other class less the target's own."""
        others = logits.clone()
        others[..., self.label] = -torch.inf
        return others.amax(-1) - logits[..., self.label]

    def edge_scores(self, a: int) -> Tensor:  # -> [n]
        """The loss after the flip of (a, b), for each node b; what it is for b = a or b = t means nothing."""
        h, g, s, degree = self.products, self.sums, self.scale, self.degree
        joined = self.neighbours(a)[:, None]
        change = torch.where(joined, -1, 1)  # of both degrees
        new_a = (degree[a] + 1 + change).double().rsqrt()  # s' of a, [n, 1]
        new_b = (degree[:, None] + 1 + change).double().clamp_min(1).rsqrt()  # s' of each b, [n, 1]
        near_a, near_b = self.near[a].double(), self.near[:, None].double()
        g_a = g[a] + (new_a - s[a]) * h[a] + torch.where(joined, -s * h, new_b * h)  # G'_a
        g_b = g + (new_b - s) * h + torch.where(joined, -s[a] * h[a], new_a * h[a])  # G'_b
        inside = self.inside - near_a * s[a].square() * g[a] - near_b * s.square() * g  # without k = a and k = b
        inside = inside + (new_a - s[a]) * h[a] * (self.reach[a] - near_b * s.square() * joined)
        inside = inside + (new_b - s) * h * (self.reach - near_a * s[a].square() * joined)
        if a == self.target:  # the flip changes N[t] too
            near_b, scale = (~joined).double(), new_a
        else:
            scale = s[self.target]
        logits = scale * (inside + near_a * new_a.square() * g_a + near_b * new_b.square() * g_b)
        return self.margin(logits)

    def allowed_edges(self, a: int, cutoff: float | None) -> Tensor:  # -> [n] bool
        """Which nodes b make (a, b) a pair that may be flipped: once, with no node left alone, with likely degrees."""
        joined, degree = self.neighbours(a), self.degree
        allowed = ~joined | ((degree > 1) & bool(degree[a] > 1))
        if cutoff is not None:
            likely = LikelyDegrees(self.original_degree, degree, cutoff)
            nodes = torch.arange(self.size, device=degree.device)
            allowed &= likely.allowed(torch.full_like(nodes, a), nodes, joined)
        allowed[a] = False
        if a != self.target:
            allowed[self.target] = False  # an edge of the target is not the attacker's to change
        for pair in self.flipped_pairs:
            if a in pair:
                allowed[sum(pair) - a] = False
        return allowed

    def entry_scores(self, node: int, features: Tensor) -> Tensor:  # [d] -> [d]
        """The loss after the flip of each feature of a node; `features` are those it has now."""
        joined = self.near & (self.neighbours(node) | (torch.arange(self.size, device=self.near.device) == node))
        path = self.scale[self.target] * self.scale[node] * self.scale[joined].square().sum()  # A_hat^2 at (t, node)
        signed = torch.where(features[:, None] > 0, -self.weights, self.weights)
        return self.margin(self.logits + path * signed)

    def flip_edge(self, a: int, b: int) -> None:
        """Add the edge if it is absent, else remove it."""
        i, j = self.edges
        is_pair = ((i == a) & (j == b)) | ((i == b) & (j == a))
        added = torch.tensor([[a, b], [b, a]], device=self.edges.device)
        self.edges = self.edges[:, ~is_pair] if bool(is_pair.any()) else torch.cat([self.edges, added], 1)
        self.flipped_pairs.append((a, b))
        self._update()

    def flip_entry(self, node: int, feature: int, *, is_present: bool) -> None:
        """Remove the feature if it is present, else add it."""
        self.products[node] += -self.weights[feature] if is_present else self.weights[feature]
        self.flipped_entries.append((node, feature))
        self._update()


def cooccurring(x: Tensor, node: int) -> Tensor:  # [n, d] -> [d] bool
    """Which features co-occur often enough with those of a node for their addition to be unnoticeable.

    Features are joined where some node has both. A random walk that starts at one of the node's features, all of them
    equally likely, and makes one step, must arrive at the new feature with more than half of the greatest probability
    that any feature could have: that of one that is joined to all features of the node.
    """
    present = (x[node] > 0).nonzero()[:, 0]
    together = x[:, present].float().mT @ x.float() > 0  # [k, d]
    together[torch.arange(len(present), device=x.device), present] = False
    inverse = together.sum(1).double().reciprocal().nan_to_num(posinf=0.0)  # of the number of partners
    return inverse @ together.double() > 0.5 * inverse.sum()
