"""The predictions of a victim on many flipped copies of one graph, for attacks that use predictions alone.

A set of flips is a row of codes, i n + j for the pair i < j; NO_FLIP fills up rows with fewer flips. Any callable
`victim(x, edge_index)` is called with several copies as one graph of separate components, if it treats them as it
treats each alone. For a stack of graph convolutions, such as our GCN, X W is computed once, and a flip is a correction
of the product with the clean graph: A' H = A H + (changed entries) H.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch_geometric.data import Data

from wtawp.base import AttackError
from wtawp.graphs.flips import undirected_pairs
from wtawp.graphs.normalisation import sum_operator
from wtawp.graphs.operator import sparse_features
from wtawp.graphs.products import spmm
from wtawp.models.capabilities import IsConvolutionStack

Victim = Callable[[Tensor, Tensor], Tensor]
NO_FLIP = -1
# About the most numbers of graphs that a victim is called with at once. On a CPU that saves calls, which matters for
# small graphs; large ones are faster one by one, in the cache: see benchmarks/eva_strength.py.
CELLS_AT_ONCE = {"cpu": 1 << 20, "cuda": 1 << 29}
CELLS_IN_CACHE = {"cpu": 1 << 20, "cuda": 1 << 27}  # of hidden features, for a stack of convolutions
AROUND = 32  # how many numbers a node or an edge needs: messages, indices
MOST_AT_ONCE = 64  # graphs
CLOSE = 1e-3  # of the largest output: more than rounding changes, also that of TF32


class FlippedGraphs:
    """A victim's outputs on copies of a graph, each with flips of its own.

    Args:
        data: The graph, undirected and without weights.
        victim: Called as `victim(x, edge_index)`; returns logits [n, c], or the predicted classes [n].

    Attributes:
        queries: How many flipped graphs the victim has been asked about.
        at_once: How many graphs are evaluated together.
    """

    def __init__(self, data: Data, victim: Victim) -> None:
        self.data, self.victim, self.size = data, victim, int(data.num_nodes)
        i, j = undirected_pairs(data)
        self.edges = i * self.size + j  # sorted, on the CPU as the codes of flips are
        self.loops = data.edge_index[:, data.edge_index[0] == data.edge_index[1]]
        self.queries, self.at_once = 0, 1
        self.stack = self._convolution_stack()
        device = "cuda" if data.edge_index.device.type == "cuda" else "cpu"
        if self.stack is not None:
            cells, room = self.size * max(weight.shape[1] for weight, _ in self.stack.layers), CELLS_IN_CACHE[device]
        else:
            cells, room = data.x.shape.numel() + AROUND * (self.size + data.edge_index.shape[1]), CELLS_AT_ONCE[device]
        if self.stack is not None or self._takes_graphs_together():
            self.at_once = max(1, min(MOST_AT_ONCE, room // max(cells, 1)))

    def outputs(self, codes: Tensor) -> Tensor:  # [s, k] on the CPU -> [s, n, c] or [s, n]
        """The victim's outputs for each set of flips, in as many parts as there is room for."""
        self.queries += len(codes)
        return torch.cat([self._outputs(part) for part in torch.split(codes, self.at_once)])

    def _outputs(self, codes: Tensor) -> Tensor:
        """The outputs for so many sets of flips as are evaluated together."""
        output = self._called(codes) if self.stack is None else self.stack.logits(codes, self.signs(codes))
        if output.is_floating_point() and bool(torch.isnan(output).any()):
            raise AttackError("the victim returns NaN for some nodes, which is no prediction; was it trained?")
        return output

    def signs(self, codes: Tensor) -> Tensor:  # [s, k] -> [s, k]
        """What a flip does to its entry: 1 adds an edge, -1 removes it, 0 is no flip."""
        position = torch.searchsorted(self.edges, codes).clamp_max(len(self.edges) - 1)
        return torch.where(self.edges[position] == codes, -1, 1) * (codes != NO_FLIP)

    def edge_index(self, codes: Tensor) -> Tensor:  # [s, k] -> [2, e]
        """The edges of the flipped graphs, both directions and self-loops, with nodes numbered graph after graph."""
        graph = torch.arange(len(codes))[:, None]
        signs, keys = self.signs(codes), codes + graph * self.size**2
        kept = torch.ones(len(codes), len(self.edges), dtype=torch.bool)
        which, at = (signs < 0).nonzero(as_tuple=True)
        kept[which, torch.searchsorted(self.edges, codes[which, at])] = False
        pairs = torch.cat([(self.edges + graph * self.size**2)[kept], keys[signs > 0]])
        first = pairs // self.size**2 * self.size
        i, j = first + pairs // self.size % self.size, first + pairs % self.size
        loops = (self.loops.cpu()[:, None] + graph * self.size).flatten(1)
        edges = torch.cat([torch.stack([torch.cat([i, j]), torch.cat([j, i])]), loops], 1)
        order = (edges[0] * (len(codes) * self.size) + edges[1]).argsort()  # as in `EdgeFlips.apply`
        return edges[:, order].to(self.data.edge_index.device)

    def _called(self, codes: Tensor) -> Tensor:  # -> [s, n, c] or [s, n]
        """The outputs of the victim itself."""
        count, x = len(codes), self.data.x
        output = self.victim(x if count == 1 else x.repeat(count, 1), self.edge_index(codes))
        is_tensor = isinstance(output, Tensor) and len(output) == count * self.size
        is_label = is_tensor and output.dim() == 1 and not output.is_floating_point()
        if not (is_label or (is_tensor and output.dim() == 2 and output.shape[1] > 1)):
            what = list(output.shape) if isinstance(output, Tensor) else type(output).__name__
            raise AttackError(
                f"the victim must return a row of 2 or more logits, or a class as a whole number, for each of"
                f" {count * self.size} nodes, got {what}"
            )
        return output.view(count, self.size, *output.shape[1:])

    def _takes_graphs_together(self) -> bool:
        """Whether the victim treats two graphs in one as it treats each alone: not if it averages over all nodes."""
        if self.data.x.layout != torch.strided:
            return False
        two = torch.stack([torch.full_like(self.edges[:1], NO_FLIP), self.edges[:1]])
        apart = torch.cat([self._called(two[:1]), self._called(two[1:])])
        try:
            together = self._called(two)
        except (RuntimeError, IndexError, ValueError, AttackError):  # it works for one number of nodes only
            return False
        return torch.allclose(together.double(), apart.double(), rtol=1e-3, atol=1e-5)

    def _convolution_stack(self) -> "_ConvolutionStack | None":
        """The fast form of a module that is a stack of graph convolutions and nothing else; None for any other."""
        model: object = self.victim
        if not isinstance(model, IsConvolutionStack) or len(torch.unique(self.loops[0])) < self.loops.shape[1]:
            return None
        layers = [(weight.detach(), bias.detach()) for weight, bias in model.convolution_weights()]
        if not layers:
            return None
        stack = _ConvolutionStack(self.data, layers)
        # A subclass of such a module may have another forward, and must not be attacked as if it had not.
        few = self.edges[None, :3]
        expected, logits = self._called(few), stack.logits(few, self.signs(few))
        is_close = logits.shape == expected.shape and bool(
            (logits - expected).abs().max() <= CLOSE * expected.abs().max()
        )
        return stack if is_close else None


class _ConvolutionStack:
    """Graph convolutions on flipped graphs: D^-1/2 (A + I + flips) D^-1/2 with the degrees D after the flips."""

    def __init__(self, data: Data, layers: list[tuple[Tensor, Tensor]]) -> None:
        self.layers, self.size, weight = layers, int(data.num_nodes), layers[0][0]
        everybody = torch.arange(self.size, device=data.edge_index.device)
        edges = data.edge_index[:, data.edge_index[0] != data.edge_index[1]]
        edges = torch.cat([edges, everybody.expand(2, -1)], 1)
        self.operator = sum_operator(edges, None, self.size, weight.dtype)  # A + I
        self.degrees = torch.bincount(edges[0], minlength=self.size).to(weight.dtype)
        self.product = spmm(sparse_features(data.x.to(weight.dtype)), weight)  # X W, which no flip changes

    def logits(self, codes: Tensor, signs: Tensor) -> Tensor:  # [s, k], [s, k] -> [s, n, c]
        """The logits of all nodes for each set of flips."""
        count, device, dtype = len(codes), self.product.device, self.product.dtype
        flips = codes.clamp_min(0).to(device)
        i, j, signs = flips // self.size, flips % self.size, signs.to(device, dtype)
        degrees = self.degrees.repeat(count, 1).scatter_add(1, i, signs).scatter_add(1, j, signs)
        scale = degrees.rsqrt()[..., None]
        first = torch.arange(count, device=device)[:, None] * self.size
        left, right = (first + i).flatten(), (first + j).flatten()
        change = signs.flatten()[:, None]
        hidden = self.product.expand(count, -1, -1)
        for layer, (weight, bias) in enumerate(self.layers):
            scaled = scale * (hidden.relu() @ weight if layer else hidden)
            rows = scaled.reshape(-1, scaled.shape[-1])
            spread = spmm(self.operator, scaled).reshape_as(rows)
            spread = spread.index_add(0, left, change * rows[right]).index_add(0, right, change * rows[left])
            hidden = scale * spread.view_as(scaled) + bias
        return hidden
