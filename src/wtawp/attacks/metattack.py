"""Metattack (Zuegner and Guennemann 2019): poison the edges along the gradient through the training of a surrogate.

The surrogate is a linear GCN, logits = S S X W1 W2 with S = D^-1/2 (A + I) D^-1/2, trained anew for each flip from
weights of its own; then the one pair of nodes whose flip raises the attack loss most, to first order, is flipped.

Because the surrogate is linear, training sees the graph only through M, the rows of S S X that belong to the k training
nodes, and gradient descent moves W1 only by M^T a, with `a` [k, h]. So the whole training and the way back through it
are recursions between matrices of k rows and M M^T [k, k]. The gradient with respect to M becomes one with respect to S
of rank 2 k, kept in factors; pairs are looked at in blocks of rows, and nothing of size n x n is kept.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp.base import AttackError, rng
from wtawp.graphs.flips import EdgeFlips, budget_of, undirected_pairs
from wtawp.graphs.normalisation import gcn_operator
from wtawp.graphs.operator import Operator
from wtawp.graphs.products import multiply
from wtawp.models.capabilities import Features
from wtawp.models.inputs import features

RATE, MOMENTUM = 0.1, 0.9  # of the training that is differentiated through
ADAM_RATE = 0.01  # of A-Metattack's
LEAST_DEGREE = 2  # from which on degrees are held to follow a power law
CPU_BLOCK, GPU_BLOCK = 1 << 20, 1 << 28  # entries of the gradient that are looked at together
Progress = Callable[[float, str], None]


@dataclass(frozen=True, kw_only=True)
class Options:
    """What all attacks of one call share."""

    lam: float
    approximate: bool
    likelihood_cutoff: float | None
    steps: int
    hidden: int

    def __post_init__(self) -> None:
        if not 0 <= self.lam <= 1:
            raise ValueError(f"lam must lie between 0 (Meta-Self) and 1 (Meta-Train), got {self.lam}")
        if self.steps < 1 or self.hidden < 1:
            raise ValueError(f"steps and hidden must be >= 1, got {self.steps} and {self.hidden}")
        if self.likelihood_cutoff is not None and not self.likelihood_cutoff > 0:
            raise ValueError(f"likelihood_cutoff must be positive, or None for no test, got {self.likelihood_cutoff}")


def metattack(
    data: Data,
    *,
    budget: float | int,
    train: Tensor,
    labels: Tensor,
    seed: int,
    unlabelled: Tensor | None = None,
    lam: float = 0.0,
    approximate: bool = False,
    likelihood_cutoff: float | None = None,
    steps: int = 100,
    hidden: int = 16,
    progress: Progress | None = None,
) -> EdgeFlips:
    """Flips that make a network trained on `train` (indices or a mask) afterwards do badly.

    `labels` [n] are true on the training nodes and guessed on the `unlabelled` ones (None: all others); see
    `self_training_labels`. The attack loss is lam times the loss on the training nodes plus (1 - lam) times that on the
    unlabelled ones: 0 is Meta-Self, 1 Meta-Train. `approximate` sums the gradients along a training by Adam instead of
    differentiating through one (A-Metattack). `likelihood_cutoff` (0.004 in the paper) forbids flips after which the
    degrees would fit the original power law badly. No node loses its last edge and no pair is flipped twice. The seed
    decides the surrogate's weights. `progress` is told the share of flips done and a text.
    """
    return metattack_many(
        data, budget=budget, trains=[train], labels=[labels], seeds=[seed],
        unlabelled=None if unlabelled is None else [unlabelled], lam=lam, approximate=approximate,
        likelihood_cutoff=likelihood_cutoff, steps=steps, hidden=hidden, progress=progress,
    )[0]  # fmt: skip


def metattack_many(
    data: Data,
    *,
    budget: float | int,
    trains: Sequence[Tensor],
    labels: Sequence[Tensor],
    seeds: Sequence[int],
    unlabelled: Sequence[Tensor] | None = None,
    lam: float = 0.0,
    approximate: bool = False,
    likelihood_cutoff: float | None = None,
    steps: int = 100,
    hidden: int = 16,
    progress: Progress | None = None,
) -> list[EdgeFlips]:
    """Independent attacks on one graph, such as one for each split: each as `metattack` alone, on a GPU all at once."""
    count, size = budget_of(data, budget), int(data.num_nodes)
    options = Options(lam=lam, approximate=approximate, likelihood_cutoff=likelihood_cutoff, steps=steps, hidden=hidden)
    others = [None] * len(trains) if unlabelled is None else unlabelled
    if not len(trains) == len(labels) == len(seeds) == len(others) or len(trains) == 0:
        raise ValueError(
            "trains, labels, seeds and unlabelled must be of one length, one or more each, got"
            f" {len(trains)}, {len(labels)}, {len(seeds)}, {len(others)}"
        )
    x, classes = _features(data), _num_classes(data, labels)
    members = [
        Member(data, x, train, rest, label, classes, seed, lam)
        for train, rest, label, seed in zip(trains, others, labels, seeds, strict=True)
    ]
    together = len(members) if data.edge_index.device.type == "cuda" else 1  # a CPU is as fast one by one
    for first in range(0, len(members), together):

        def tell(flip: int, first: int = first) -> None:
            if progress is not None:
                done = (first * count + together * flip) / (len(members) * count)
                progress(done, f"flip {flip} of {count}, attacks {first + 1} to {first + together} of {len(members)}")

        attack_together(members[first : first + together], count, options, tell)
    shared = {"lam": lam, "approximate": approximate, "likelihood_cutoff": likelihood_cutoff}
    flips = []
    for member in members:
        origin = {"attack": "metattack", "budget": budget, "seed": member.seed, **shared, "steps": steps}
        provenance = tuple((name, str(value)) for name, value in {**origin, "hidden": hidden}.items())
        pairs = torch.stack([member.flipped // size, member.flipped % size])
        flips.append(EdgeFlips.of(pairs, size, provenance))
    return flips


def self_training_labels(logits: Tensor, labels: Tensor, train: Tensor) -> Tensor:  # [n, c], [n], [k] -> [n]
    """The true labels of the training nodes (indices or a mask), and what a model predicts for all others.

    >>> self_training_labels(torch.tensor([[2.0, 1.0], [0.0, 1.0]]), torch.tensor([1, 0]), torch.tensor([0]))
    tensor([1, 1])
    """
    if logits.dim() != 2 or labels.shape != logits.shape[:1]:
        raise ValueError(f"expected logits [n, c] and labels [n], got {list(logits.shape)} and {list(labels.shape)}")
    guessed = logits.argmax(1)
    guessed[train] = labels[train].to(guessed)
    return guessed


class Member:
    """One attack: whom it aims at, and the graph as its flips so far have left it."""

    def __init__(
        self,
        data: Data,
        x: Features,
        train: Tensor,
        unlabelled: Tensor | None,
        labels: Tensor,
        classes: int,
        seed: int,
        lam: float,
    ) -> None:
        self.size, self.seed, self.x = int(data.num_nodes), seed, x
        self.device = data.edge_index.device
        self.dtype = x.values.dtype if isinstance(x, Operator) else x.dtype
        self.train = _nodes(train, self.size, "train").to(self.device)
        rest = torch.ones(self.size, dtype=torch.bool, device=self.device)
        rest[self.train] = False
        if unlabelled is not None:
            chosen = _nodes(unlabelled, self.size, "unlabelled").to(self.device)
            if not bool(rest[chosen].all()):
                raise ValueError("unlabelled holds training nodes; their labels are known, so leave them out")
            rest = torch.zeros_like(rest)
            rest[chosen] = True
        if lam < 1 and not bool(rest.any()):
            raise ValueError("every node is in train: lam < 1 needs unlabelled nodes, use lam=1 (Meta-Train)")
        self.weight = (1 - lam) * rest.to(self.dtype)[:, None] / rest.sum().clamp_min(1)  # [n, 1], in the attack loss
        self.weight[self.train] = lam / len(self.train)
        matters = (self.weight > 0)[:, 0]
        matters[self.train] = True
        labels = labels.to(self.device).long()
        if int(labels[matters].min()) < 0 or int(labels[matters].max()) >= classes:
            found = f"{int(labels[matters].min())} to {int(labels[matters].max())}"
            raise ValueError(
                f"labels of training and unlabelled nodes must lie in 0 to {classes - 1}, got {found};"
                " where the true ones are not known, pass guesses (see self_training_labels)"
            )
        self.targets = F.one_hot(torch.where(matters, labels, 0), classes).to(self.dtype)  # [n, c]
        i, j = undirected_pairs(data).to(self.device)
        self.edges = i * self.size + j  # [m], codes, sorted
        self.flipped = self.edges[:0]  # in the order of the flips
        self.original_degree = self.degree

    @property
    def degree(self) -> Tensor:  # -> [n] int64
        """The number of neighbours."""
        return torch.bincount(torch.cat([self.edges // self.size, self.edges % self.size]), minlength=self.size)

    def first_weights(self, flip: int, hidden: int) -> tuple[Tensor, Tensor]:  # -> [d, h], [h, c]
        """Each flip's own draw, uniform in +-1 / sqrt(outputs)."""
        g, drawn = rng("attack", "metattack", self.seed, flip), []
        for shape in ((self.x.shape[1], hidden), (hidden, self.targets.shape[1])):
            uniform = 2 * torch.rand(shape, generator=g, dtype=self.dtype) - 1
            drawn.append((uniform / math.sqrt(shape[1])).to(self.device))
        return drawn[0], drawn[1]

    def build(self) -> Tensor:  # -> [k, d]
        """S of the graph as it is now; returns M, the training nodes' rows of S S X."""
        i, j = self.edges // self.size, self.edges % self.size
        both = torch.stack([torch.cat([i, j]), torch.cat([j, i])])
        self.operator = gcn_operator(both, None, self.size, self.dtype)
        self.chosen = torch.zeros(self.size, len(self.train), dtype=self.dtype, device=self.device)
        self.chosen[self.train, torch.arange(len(self.train), device=self.device)] = 1
        self.reach = multiply(self.operator, self.chosen)  # [n, k], the training nodes' columns of S
        return self.transposed(multiply(self.operator, self.reach)).mT

    def transposed(self, nodes: Tensor) -> Tensor:  # [n, w] -> [d, w]
        """X^T times a matrix."""
        return multiply(self.x.T if isinstance(self.x, Operator) else self.x.mT, nodes)

    def loss_factors(self, weights: Tensor) -> tuple[Tensor, Tensor]:  # [d, t, c] -> [n, 2 t c], [n, 2 t c]
        """U and V with U V^T the gradient of the attack losses of t surrogates, summed, with respect to S.

        The second half of U is S times the gradient with respect to the logits.
        """
        signal = multiply(self.x, weights.flatten(1))  # X W, [n, t c]
        once = multiply(self.operator, signal)
        logits = multiply(self.operator, once).view(self.size, *weights.shape[1:])
        to_logits = (self.weight[:, None] * (logits.softmax(2) - self.targets[:, None])).flatten(1)
        return torch.cat([to_logits, multiply(self.operator, to_logits)], 1), torch.cat([once, signal], 1)

    def training_factors(self, to_rows: Tensor) -> tuple[Tensor, Tensor]:  # [k, d] -> [n, 2 k], [n, 2 k]
        """U and V with U V^T the gradient with respect to S of what has the gradient `to_rows` with respect to M."""
        signal = multiply(self.x, to_rows.mT)
        return torch.cat([self.reach, self.chosen], 1), torch.cat([signal, multiply(self.operator, signal)], 1)

    def gradient(self, *factors: tuple[Tensor, Tensor]) -> "PairGradient":
        """With respect to any pair, from factors U, V whose U V^T, summed, are the gradient P with respect to S.

        S = s (A + I) s with s = d^-1/2, so dL/dA_ij + dL/dA_ji is s_i s_j (P_ij + P_ji) + t_i + t_j, where t = dL/dd is
        -1 / (2 d_i) times the sums of P * S over row i and over column i.
        """
        degree = self.degree.to(self.dtype)[:, None] + 1
        t = torch.zeros_like(degree)
        for u, v in factors:
            there, back = multiply(self.operator, v), multiply(self.operator, u)  # S is symmetric
            t -= (u * there + v * back).sum(1, keepdim=True) / (2 * degree)
        scale = degree.rsqrt()
        return PairGradient(t, [(scale * u, scale * v) for u, v in factors])

    def flip_best(self, slope: "PairGradient", cutoff: float | None) -> bool:
        """Flip the allowed pair that promises the steepest rise of the loss; False if no pair is allowed."""
        i, j, degree = self.edges // self.size, self.edges % self.size, self.degree
        removable = (degree[i] > 1) & (degree[j] > 1)
        likely = None if cutoff is None else LikelyDegrees(self.original_degree, degree, cutoff)
        if likely is not None:
            removable &= likely.removed(i, j)
        rows = max(1, (CPU_BLOCK if self.device.type == "cpu" else GPU_BLOCK) // self.size)
        values, codes = [], []
        for first in range(0, self.size, rows):
            block = slope.block(first, first + rows)
            here = (i >= first) & (i < first + rows)
            r, c = i[here] - first, j[here] - first
            of_edges = torch.where(removable[here], -block[r, c], -math.inf)  # an edge can only go
            if likely is not None:
                block.masked_fill_(~likely.added(first, first + rows), -math.inf)
            block[r, c] = of_edges
            r, c = self.flipped // self.size - first, self.flipped % self.size - first
            here = (r >= 0) & (r < rows)
            block[r[here], c[here]] = -math.inf
            square = block[:, : len(block)]
            square.masked_fill_(torch.ones_like(square, dtype=torch.bool).tril(), -math.inf)
            value, place = block.view(-1).max(0)
            width = block.shape[1]
            values.append(value)
            codes.append((first + place // width) * self.size + first + place % width)
        highest, best = torch.stack(values).max(0)
        rise = float(highest)
        if math.isnan(rise) or rise == math.inf:
            raise AttackError("the gradient is not finite: the surrogate's training diverges; scale the features down")
        if rise == 0 and len(self.flipped) == 0:
            raise AttackError("the gradient is zero: features or labels leave the surrogate nothing to learn")
        if rise > -math.inf:
            self.flip(torch.stack(codes)[best])
        return rise > -math.inf

    def flip(self, code: Tensor) -> None:
        """Add the edge, or take it away."""
        there = self.edges == code
        self.flipped = torch.cat([self.flipped, code[None]])
        without = self.edges[~there]
        self.edges = without if len(without) < len(there) else torch.cat([self.edges, code[None]]).sort().values


class PairGradient:
    """The gradient with respect to the adjacency of a pair, both directions together: t_i + t_j + u_i v_j + u_j v_i.

    On the CPU the zeros of `u` are left out where they are many.
    """

    def __init__(self, t: Tensor, factors: Sequence[tuple[Tensor, Tensor]]) -> None:  # [n, 1], [n, f] and [n, f] each
        kinds = [(features(u), v) for u, v in factors]
        self.sparse = [(u, v) for u, v in kinds if isinstance(u, Operator)]
        dense = [(t, torch.ones_like(t)), *((u, v) for u, v in kinds if not isinstance(u, Operator))]
        self.left = torch.cat([u for u, _ in dense] + [v for _, v in dense], 1)
        self.right = torch.cat([v for _, v in dense] + [u for u, _ in dense], 1)

    def block(self, first: int, last: int) -> Tensor:  # -> [last - first, n - first]
        """Of nodes `first` to `last` with those from `first` on."""
        block = self.left[first:last] @ self.right[first:].T
        for u, v in self.sparse:
            rows, columns = (torch.arange(count, device=v.device) for count in u.shape)
            block += multiply(u.select(rows[first:last], columns), v[first:].T)
            block += multiply(u, v[first:last].T)[first:].T
        return block


@torch.no_grad()
def attack_together(members: Sequence[Member], count: int, options: Options, tell: Callable[[int], None]) -> None:
    """All flips of some attacks, training their surrogates as one; a member with nothing left to flip stops."""
    active = list(members)
    for flip in range(count):
        active = [
            member
            for member, slope in zip(active, slopes(active, flip, options), strict=True)
            if member.flip_best(slope, options.likelihood_cutoff)
        ]
        tell(flip + 1)
        if not active:
            break
    if any(len(member.flipped) == 0 for member in members):
        raise AttackError("no flip is allowed: raise likelihood_cutoff, or attack a graph with more edges")


def slopes(members: Sequence[Member], flip: int, options: Options) -> list[PairGradient]:
    """The gradient that decides each member's next flip."""
    rows, targets, share = _stacked(members)
    drawn = [member.first_weights(flip, options.hidden) for member in members]
    first, second = (torch.stack(each) for each in zip(*drawn, strict=True))
    if options.approximate:
        path = weights_of_adam(rows, targets, share, first, second, options.steps)
        return [member.gradient(member.loss_factors(w)) for member, w in zip(members, path, strict=True)]
    training = Descent(rows, targets, share, first, second, options.steps)
    of_loss = [
        member.loss_factors(w[:, None]) for member, w in zip(members, training.first @ training.second, strict=True)
    ]
    to_weights = torch.stack(
        [
            member.transposed(multiply(member.operator, u[:, u.shape[1] // 2 :]))
            for member, (u, _) in zip(members, of_loss, strict=True)
        ]
    )  # [b, d, c]
    return [
        member.gradient(member.training_factors(to_rows[: len(member.train)]), direct)
        for member, direct, to_rows in zip(members, of_loss, training.gradient(to_weights), strict=True)
    ]


class Descent:
    """Gradient descent with momentum on W1 and W2, for a stack of b surrogates, and the way back through it.

    W1 is its start minus M^T moved, so a step needs no more than M W1 = M W1_0 - (M M^T) moved.
    """

    def __init__(self, rows: Tensor, targets: Tensor, share: Tensor, first: Tensor, second: Tensor, steps: int) -> None:
        # [b, k, d], [b, k, c], [b, k, 1], [b, d, h], [b, h, c]
        self.rows, self.share, self.start = rows, share, first
        self.kernel, hidden_start = rows @ rows.mT, rows @ first
        self.tape = []
        moved = torch.zeros_like(hidden_start)  # [b, k, h]
        speed, second_speed = torch.zeros_like(moved), torch.zeros_like(second)
        for _ in range(steps):
            hidden = torch.baddbmm(hidden_start, self.kernel, moved, alpha=-1)  # M W1
            likely = (hidden @ second).softmax(2)
            to_logits = share * (likely - targets)
            self.tape.append((moved, hidden, second, likely, to_logits))
            speed = torch.baddbmm(speed, to_logits, second.mT, beta=MOMENTUM)
            second_speed = torch.baddbmm(second_speed, hidden.mT, to_logits, beta=MOMENTUM)
            moved = moved.add(speed, alpha=RATE)
            second = second.sub(second_speed, alpha=RATE)
        self.moved, self.second = moved, second
        self.first = torch.baddbmm(first, rows.mT, moved, alpha=-1)

    def gradient(self, to_weights: Tensor) -> Tensor:  # [b, d, c] -> [b, k, d]
        """With respect to M, of what has the gradient `to_weights` with respect to the trained W1 W2.

        `to_x` is the gradient with respect to x; the two speeds' include what they do to all later steps.
        """
        to_first, to_second = to_weights @ self.second.mT, self.first.mT @ to_weights
        to_moved = -(self.rows @ to_first)
        to_speed, to_second_speed = torch.zeros_like(to_moved), torch.zeros_like(to_second)
        to_hiddens = []
        for _, hidden, second, likely, to_logits in reversed(self.tape):
            to_speed = (MOMENTUM * to_speed).add_(to_moved, alpha=RATE)
            to_second_speed = (MOMENTUM * to_second_speed).sub_(to_second, alpha=RATE)
            # of the step's gradients, to_logits second^T and hidden^T to_logits
            slope = torch.baddbmm(to_speed @ second, hidden, to_second_speed)  # [b, k, c]
            to_z = self.share * likely * (slope - (likely * slope).sum(2, keepdim=True))
            to_hidden = torch.baddbmm(to_logits @ to_second_speed.mT, to_z, second.mT)
            to_second = to_second + to_speed.mT @ to_logits + hidden.mT @ to_z
            to_moved = torch.baddbmm(to_moved, self.kernel, to_hidden, alpha=-1)
            to_hiddens.append(to_hidden)
        moves = torch.cat([moved for moved, *_ in reversed(self.tape)], 2)  # [b, k, steps h]
        to_kernel = -(torch.cat(to_hiddens, 2) @ moves.mT)  # [b, k, k]
        to_rows = (to_kernel + to_kernel.mT) @ self.rows - self.moved @ to_first.mT
        return to_rows + torch.stack(to_hiddens).sum(0) @ self.start.mT


def weights_of_adam(
    rows: Tensor, targets: Tensor, share: Tensor, first: Tensor, second: Tensor, steps: int
) -> Tensor:  # as of Descent -> [b, d, steps, c]
    """W1 W2 before each step of a training with Adam."""
    path, optimizer = [], torch.optim.Adam([first, second], lr=ADAM_RATE)
    for _ in range(steps):
        path.append(first @ second)
        to_weights = rows.mT @ (share * ((rows @ path[-1]).softmax(2) - targets))
        first.grad, second.grad = to_weights @ second.mT, first.mT @ to_weights
        optimizer.step()
    return torch.stack(path, 2)


class LikelyDegrees:
    """Which pairs may be flipped so that original and new degrees still look like drawn from one power law.

    The likelihood-ratio test of Nettack's and Metattack's appendices. With n degrees d >= 2 and s the sum of their
    logarithms, alpha = 1 + n / (s - n log 1.5) and l = n log alpha + n alpha log 2 + (alpha + 1) s; a flip is allowed
    if -2 l(both) + 2 (l(original) + l(new)) < cutoff. In a Pareto likelihood the last sign of l is a minus; the plus is
    that of the released implementations, to which the cutoff of 0.004 belongs. A flip changes two degrees by one, so
    the answer is a table over pairs of degrees.
    """

    def __init__(self, original: Tensor, degree: Tensor, cutoff: float) -> None:
        self.cutoff = cutoff
        self.original = [part.sum() for part in _tail(original)]
        self.now = [part.sum() for part in _tail(degree)]
        self.degrees, self.which = torch.unique(degree, return_inverse=True)
        self.add_table, self.remove_table = self._table(1), self._table(-1)

    def _table(self, change: int) -> Tensor:  # -> [r, r] bool, r different degrees
        before, after = _tail(self.degrees), _tail(self.degrees + change)
        gains = [new - old for new, old in zip(after, before, strict=True)]
        n, s = (now + gain[:, None] + gain for now, gain in zip(self.now, gains, strict=True))
        ratio = 2 * (_likelihood(*self.original) + _likelihood(n, s))
        ratio = ratio - 2 * _likelihood(self.original[0] + n, self.original[1] + s)
        return ratio < self.cutoff

    def added(self, first: int, last: int) -> Tensor:  # -> [last - first, n - first] bool
        """For new edges between nodes `first` to `last` and those from `first` on."""
        return self.add_table[self.which[first:last]][:, self.which[first:]]

    def removed(self, i: Tensor, j: Tensor) -> Tensor:  # [m], [m] -> [m] bool
        """For the edges between i and j."""
        return self.remove_table[self.which[i], self.which[j]]


def _tail(degree: Tensor) -> tuple[Tensor, Tensor]:
    """Of each degree what it adds to the number and to the sum of logarithms of those that count."""
    counts = (degree >= LEAST_DEGREE).double()
    return counts, counts * degree.clamp_min(1).double().log()


def _likelihood(n: Tensor, s: Tensor) -> Tensor:
    some = n.clamp_min(1)  # without degrees that count there is nothing to be likely
    alpha = 1 + some / (s - n * math.log(LEAST_DEGREE - 0.5)).clamp_min(1e-12)
    return torch.where(n > 0, n * alpha.log() + n * alpha * math.log(LEAST_DEGREE) + (alpha + 1) * s, 0)


def _stacked(members: Sequence[Member]) -> tuple[Tensor, Tensor, Tensor]:  # -> [b, k, d], [b, k, c], [b, k, 1]
    """M, labels and each row's share in the training loss; rows that fill up a smaller training set have none."""
    most = max(len(member.train) for member in members)

    def filled(parts: list[Tensor]) -> Tensor:
        return torch.stack([F.pad(part, (0, 0, 0, most - len(part))) for part in parts])

    targets = [member.targets[member.train] for member in members]
    shares = [torch.full_like(target[:, :1], 1 / len(target)) for target in targets]
    return filled([member.build() for member in members]), filled(targets), filled(shares)


def _num_classes(data: Data, labels: Sequence[Tensor]) -> int:
    """Of the graph, or if it has no labels of its own, of those given; these are checked."""
    size = int(data.num_nodes)
    for each in labels:
        if each.shape != (size,) or each.is_floating_point() or each.dtype == torch.bool:
            found = f"{each.dtype} {list(each.shape)}"
            raise ValueError(f"labels must be whole numbers, one a node, [{size}]; got {found}")
    known = labels if data.y is None else [data.y]
    return 1 + max(int(each.max()) for each in known)


def _features(data: Data) -> Features:
    if data.x is None or data.x.dim() != 2 or not data.x.is_floating_point():
        found = "none" if data.x is None else f"{data.x.dtype} {list(data.x.shape)}"
        raise ValueError(f"Metattack needs features data.x, floats of shape [n, d] (an identity will do), got {found}")
    x: Features = features(data.x)
    if not bool(torch.isfinite(x.values if isinstance(x, Operator) else x).all()):
        raise ValueError("data.x holds NaN or infinite features; a surrogate cannot be trained on them")
    return x


def _nodes(nodes: Tensor, size: int, name: str) -> Tensor:  # -> [k] int64, sorted
    if nodes.dtype == torch.bool and nodes.shape == (size,):
        nodes = nodes.nonzero()[:, 0]
    if nodes.dim() != 1 or nodes.dtype != torch.int64 or len(nodes) == 0:
        found = f"{nodes.dtype} {list(nodes.shape)}"
        raise ValueError(f"{name} must be one or more nodes, as indices or a mask of all {size}, got {found}")
    if int(nodes.min()) < 0 or int(nodes.max()) >= size:
        raise ValueError(f"{name} must name nodes 0 to {size - 1}, got {int(nodes.min())} to {int(nodes.max())}")
    distinct: Tensor = torch.unique(nodes)
    return distinct
