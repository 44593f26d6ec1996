"""A defence against poisoned graphs: learn a cleaner graph, as Pro-GNN does, and then train any model on it.

Pro-GNN (Jin et al., KDD 2020) learns a matrix S near the adjacency matrix A together with the weights of a GCN. It
lowers |S - A|_F + the GCN's loss + smoothness * tr(X^T L X), where L is the normalised Laplacian of S, by gradient
steps, and sparsity * |S|_1 + nuclear * |S|_* by proximal steps, with entries between 0 and 1. The norm of S - A is not
squared, as in the authors' code and unlike their paper. Here S is symmetric throughout, so that its singular values
are the absolute eigenvalues, and it is returned as a graph with edge weights.
"""

import copy

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp.base import DataError, checked_seed, isolated_rng, part_of_progress, report_progress, rng
from wtawp.graphs import Split, is_collection, undirected_pairs
from wtawp.models.capabilities import Features
from wtawp.models.gcn import GCN
from wtawp.models.inputs import features
from wtawp.training.checks import checked_split, splits_of, targets_of
from wtawp.training.loop import LR, WEIGHT_DECAY, fit
from wtawp.training.objective import Objective

MOST_NODES = 5_000  # S is dense, and its eigenvectors take time that grows with the cube of the number of nodes
MOMENTUM = 0.9
WEIGHT_STEPS = 2  # of the GCN, for each step of S
LEAST_DEGREE = 1e-3  # is added to degrees in the Laplacian, so that isolated nodes have one


def learn_structure(
    data: Data,
    split: Split | None = None,
    *,
    seed: int,
    epochs: int = 64,
    lr: float = 0.05,
    sparsity: float = 5e-4,
    nuclear: float = 1.5,
    smoothness: float = 0.005,
    every: int = 8,
    prune: float = 0.01,
    hidden: int = 16,
) -> Data:
    """Learn a graph with fewer adversarial edges, on which any model that takes edge weights can then be trained.

    Flips of a poisoning attack raise the rank of the adjacency matrix and join nodes with different features, and both
    are penalised. After every `every` epochs a GCN is trained from new weights on S without its small entries; the
    graph whose GCN has the lowest validation loss is returned, which may be the graph that was passed. Of the
    labels, only those of training and validation nodes are learned from; the others say how many classes there are.

    Args:
        data: An undirected graph without edge weights, of 5,000 nodes at most, since S is dense. Its labels `y` are
            class numbers of any whole-number type, or booleans. It is not changed.
        split: The training nodes, with which the GCN learns, and the validation nodes, which select. None uses the
            masks of the graph.
        seed: Determines initial weights and dropout.
        epochs: The number of steps of S, each followed by two of the GCN. The authors take 400 with `lr=0.01`; larger
            steps reach the same with fewer.
        lr: The step size of S.
        sparsity: The weight of the sum of entries, alpha of Pro-GNN.
        nuclear: The weight of the nuclear norm, beta of Pro-GNN, which makes the rank low.
        smoothness: The weight of the differences between the features of neighbours, lambda of Pro-GNN.
        every: The eigenvectors of S, which take long, are computed once in so many steps only; the proximal step of the
            nuclear norm is then as many times as large.
        prune: Entries of S up to this value are dropped from the graph that is returned.
        hidden: The width of the GCN.

    Returns:
        A copy of the graph with other edges, in both directions, and `edge_weight` between 0 and 1.

    Raises:
        ValueError: If an option is out of its range.
        DataError: If `data` is not one undirected graph without edge weights, is too large, or has no dense features
            or no class numbers.

    Example:
        >>> from wtawp.graphs import citation, stratified
        >>> data = citation(seed=0, num_nodes=140, num_words=20)
        >>> cleaned = learn_structure(data, stratified(data.y, seed=0), seed=0, epochs=16)
        >>> cleaned.num_nodes, bool((cleaned.edge_weight <= 1).all())
        (140, True)
    """
    seed = checked_seed(seed)
    _check_options(epochs=epochs, every=every, hidden=hidden)
    _check_weights(lr=lr, sparsity=sparsity, nuclear=nuclear, smoothness=smoothness, prune=prune)
    adjacency = _dense_adjacency(data)
    chosen = splits_of(data, split, None)
    assert isinstance(chosen, Split)
    graph = _with_class_numbers(data)
    chosen = checked_split(chosen, graph.y, has_classes=True, samples="nodes")

    def new_gcn(*names: str | int) -> GCN:
        width, classes = data.x.shape[1], int(graph.y.max()) + 1
        return GCN(width, classes, hidden=(hidden,), generator=rng("structure", *names, seed)).to(data.x.device)

    with isolated_rng("structure", "dropout", seed):
        learner = _Learner(graph, chosen, adjacency, new_gcn("joint"), lr, smoothness)
        with part_of_progress(0.0, 0.0):  # a training of its own, which reports its own share
            lowest = _validation_loss(new_gcn("check"), _as_graph(graph, adjacency, prune), chosen, seed)
        best = adjacency
        for epoch in range(epochs):
            report_progress(epoch / epochs)
            learner.step_structure(sparsity, every * nuclear if (epoch + 1) % every == 0 else 0.0)
            learner.step_weights()
            if (epoch + 1) % every == 0 or epoch + 1 == epochs:
                with part_of_progress(epoch / epochs, (epoch + 1) / epochs):
                    loss = _validation_loss(new_gcn("check"), _as_graph(graph, learner.s, prune), chosen, seed)
                if loss < lowest:
                    best, lowest = learner.s, loss
    return _as_graph(data, best, prune)


def _check_options(**options: object) -> None:
    """Refuse numbers that are not whole and positive."""
    for name, value in options.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a whole number >= 1, got {value!r}")


def _check_weights(**options: float) -> None:
    """Refuse weights that are negative or not finite, steps of 0, and a threshold that prunes everything."""
    for name, value in options.items():
        if not 0 <= value < float("inf") or (name == "lr" and value == 0) or (name == "prune" and value >= 1):
            allowed = {"lr": "above 0", "prune": "in [0, 1)"}.get(name, ">= 0")
            raise ValueError(f"{name} must be a number {allowed}, got {value!r}")


def _with_class_numbers(data: Data) -> Data:
    """A copy of a graph whose labels are int64, which cross-entropy needs; targets of another kind are refused."""
    y = targets_of(data)
    Objective().check_targets(y)
    graph = copy.copy(data)
    graph.y = y.long()
    return graph


def _dense_adjacency(data: object) -> Tensor:  # -> [n, n]
    """The adjacency matrix of a graph that is small enough, without self-loops."""
    if not isinstance(data, Data) or is_collection(data):
        raise DataError(f"learn_structure takes one graph, a PyG Data, got {type(data).__name__}")
    size = int(data.num_nodes or 0)
    if size > MOST_NODES:
        raise DataError(
            f"learn_structure learns a dense matrix of all pairs of nodes, for graphs of at most {MOST_NODES:,} nodes;"
            f" this one has {size:,}. GNNGuard, GCNJaccard and SoftMedianGCN are defences for larger graphs"
        )
    if not isinstance(data.x, Tensor) or data.x.layout != torch.strided or data.x.dim() != 2:
        raise DataError("learn_structure compares the features of nodes: data.x must be a dense matrix [n, d]")
    if extra := [key for key in data.keys() if key != "edge_index" and data.is_edge_attr(key)]:  # noqa: SIM118
        raise DataError(
            "learn_structure learns a weight for every pair of nodes, and starts from a graph whose edges all count"
            f" alike, without edge weights or attributes; this one has {', '.join(extra)}. Drop them from a copy:"
            f" data = data.clone(); del data.{extra[0]}"
        )
    i, j = undirected_pairs(data).to(data.x.device)
    adjacency = data.x.new_zeros(size, size)
    adjacency[i, j] = adjacency[j, i] = 1
    return adjacency


def _as_graph(data: Data, s: Tensor, prune: float) -> Data:
    """The graph with the entries of S above a threshold as edges; self-loops are left to the models."""
    kept = torch.where(s > prune, s, 0).fill_diagonal_(0)
    changed = copy.copy(data)
    changed.edge_index = kept.nonzero().T.contiguous()
    changed.edge_weight = kept[changed.edge_index[0], changed.edge_index[1]]
    return changed


def _validation_loss(model: GCN, graph: Data, split: Split, seed: int) -> float:
    """The validation loss that a GCN reaches on a graph."""
    return fit(model, graph, split, seed=seed).loss["val"]


class _DenseOperator:
    """A dense normalised adjacency matrix, in the form that models take."""

    def __init__(self, matrix: Tensor) -> None:
        self.matrix = matrix

    def __matmul__(self, dense: Tensor) -> Tensor:
        return self.matrix @ dense


def _normalised(s: Tensor) -> Tensor:  # [n, n] -> [n, n]
    """D^-1/2 (S + I) D^-1/2, as a GCN normalises."""
    with_loops = s + torch.eye(len(s), dtype=s.dtype, device=s.device)
    scale = with_loops.sum(1).rsqrt()
    return scale[:, None] * with_loops * scale


def _roughness(s: Tensor, products: Tensor) -> Tensor:  # [n, n], [n, n] -> []
    """tr(X^T L X) with the normalised Laplacian of S, from the products X X^T of features."""
    degrees = s.sum(1)
    scale = (degrees + LEAST_DEGREE).rsqrt()
    return (degrees * scale.square() * products.diagonal()).sum() - (s * (scale[:, None] * products * scale)).sum()


def _shrunk_spectrum(s: Tensor, threshold: float) -> Tensor:  # [n, n] -> [n, n]
    """The proximal step of the nuclear norm of a symmetric matrix: all singular values shrink by the threshold."""
    values, vectors = torch.linalg.eigh(s)
    values = values.sign() * (values.abs() - threshold).clamp_min(0)
    kept = values != 0
    product: Tensor = (vectors[:, kept] * values[kept]) @ vectors[:, kept].T
    return product


class _Learner:
    """The matrix S and the GCN, which learn in turns."""

    def __init__(self, data: Data, split: Split, adjacency: Tensor, model: GCN, lr: float, smoothness: float) -> None:
        self.adjacency, self.s, self.velocity = adjacency, adjacency, torch.zeros_like(adjacency)
        self.model, self.lr, self.smoothness = model.train(), lr, smoothness
        self.x: Features = features(data.x)
        self.products = data.x @ data.x.T if smoothness else None
        self.train = split.train.to(data.x.device)
        self.y = data.y[self.train]
        self.optimizer = torch.optim.Adam(model.parameters(), lr=LR, weight_decay=WEIGHT_DECAY)

    def step_structure(self, sparsity: float, nuclear: float) -> None:
        """One gradient step of S with momentum, and its proximal steps; that of the nuclear norm only if it is > 0."""
        with torch.enable_grad():
            s = self.s.detach().requires_grad_()
            loss = self._loss(_normalised(s))
            if self.products is not None:
                loss = loss + self.smoothness * _roughness(s, self.products)
            (gradient,) = torch.autograd.grad(loss, s)
        change = self.s - self.adjacency
        gradient = gradient + change / change.norm().clamp_min(1e-12)
        self.velocity = MOMENTUM * self.velocity + (gradient + gradient.T) / 2
        s = self.s - self.lr * self.velocity
        if nuclear > 0:
            s = _shrunk_spectrum(s, self.lr * nuclear)
        self.s = ((s + s.T) / 2 - self.lr * sparsity).clamp(0, 1)

    def step_weights(self) -> None:
        """Some steps of Adam on the GCN's loss."""
        operator = _normalised(self.s)
        for _ in range(WEIGHT_STEPS):
            self.optimizer.zero_grad()
            self._loss(operator).backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()

    def _loss(self, operator: Tensor) -> Tensor:  # [n, n] -> []
        """The GCN's loss on the training nodes, with dropout."""
        logits: Tensor = self.model(self.x, _DenseOperator(operator))
        return F.cross_entropy(logits[self.train], self.y)
