"""A test of certificates: attack within the certified radius, vote again with new noise, and compare the predictions.

The theorem needs no experiment, but the program does. Nodes that are certified for the same radius are attacked in
small groups; additions and deletions have separate budgets.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Data

from wtawp.attacks import dice, pgd
from wtawp.base import rng
from wtawp.certificates import Certificate, Noise, certificate_of, vote
from wtawp.graphs import EdgeFlips, undirected_pairs
from wtawp.models.evaluation import evaluating

Radius = tuple[int, int]  # additions, deletions
# A perturbation of data, by the model, the attacked nodes, the predictions of all nodes, the radius and a seed.
Perturb = Callable[[Data, nn.Module, Tensor, Tensor, Radius, int], Data]


def check_soundness(
    data: Data,
    model: nn.Module,
    *,
    on: str,
    noise: Noise,
    pairs: int,
    samples: int,
    seed: int,
    alpha: float = 1e-6,
    group: int = 10,
    progress: Callable[[float, str], None] | None = None,
) -> dict[str, Any]:
    """Try to break the guarantees of a certificate, each for a pair of a node and a radius.

    A guarantee is broken if after the attack another class has most votes, with certainty at the level `alpha`.

    Args:
        data: The graph.
        model: The model.
        on: "features" or "edges", which are flipped.
        noise: The noise of the certificate.
        pairs: The number of guarantees to try.
        samples: Noisy copies of the graph that vote, before and after an attack.
        seed: The seed of the noise; votes after an attack use other noise.
        alpha: The probability that a guarantee is wrong; small, since many guarantees are tried.
        group: The number of nodes that share a perturbation.
        progress: Called with the share that is done, and a description, after each group.

    Returns:
        Plain data for JSON: the arguments, the number of "broken" guarantees, every attempt, and the "margin", the
        smallest lead of a certified class over the next one after an attack, as a share of all votes.

    Raises:
        ValueError: If there are fewer guarantees than `pairs`.
    """
    parts: dict[str, Any] = {on: noise}
    votes = vote(data, model, **parts, samples=samples, seed=seed)
    certificate = certificate_of(votes, alpha=alpha)
    prediction = torch.from_numpy(certificate.prediction).to(data.y.device)
    attacks = FEATURE_ATTACKS if on == "features" else EDGE_ATTACKS
    attempts: list[dict[str, Any]] = []
    tried = 0
    for number, (radius, nodes) in enumerate(_groups(certificate, group, seed)):
        nodes = nodes[: pairs - tried]
        name = list(attacks)[number % len(attacks)]
        targets = torch.from_numpy(nodes).to(data.y.device)
        changed = attacks[name](data, model, targets, prediction, radius, number)
        votes_after = vote(changed, model, **parts, samples=samples, seed=seed + 1 + number)
        after = certificate_of(votes_after, alpha=alpha)
        is_broken = (after.prediction != certificate.prediction) & ~after.abstained
        shares = votes_after.counts[nodes] / samples
        certified = shares.gather(1, prediction.cpu()[nodes][:, None])[:, 0]
        others = shares.scatter(1, prediction.cpu()[nodes][:, None], -1.0).amax(1)
        attempts.append({
            "attack": name, "radius": list(radius), "nodes": nodes.tolist(), "broken": nodes[is_broken[nodes]].tolist(),
            "margin": round(float((certified - others).min()), 4),
        })  # fmt: skip
        tried += len(nodes)
        if progress is not None:
            progress(tried / pairs, f"{tried} of {pairs} pairs")
        if tried >= pairs:
            break
    if tried < pairs:
        raise ValueError(
            f"only {tried} guarantees could be tried, fewer than the {pairs} requested; use more samples or fewer pairs"
        )
    return {
        "on": on, "p_add": noise.p_add, "p_del": noise.p_del, "samples": samples, "alpha": alpha, "seed": seed,
        "pairs": tried, "broken": sum(len(a["broken"]) for a in attempts),
        "margin": min(a["margin"] for a in attempts), "attempts": attempts,
    }  # fmt: skip


def _groups(certificate: Certificate, size: int, seed: int) -> Iterator[tuple[Radius, np.ndarray]]:
    """Groups of nodes with a radius at the boundary of what is certified for them, one group of each radius in turn."""
    stairs = certificate.deletions()
    buckets: dict[Radius, list[int]] = {}
    for node, steps in enumerate(stairs):
        for r_add, r_del in enumerate(steps.tolist()):
            if r_del >= 0 and (r_add, r_del) != (0, 0):
                buckets.setdefault((r_add, r_del), []).append(node)
    order = torch.randperm(len(stairs), generator=rng("soundness", seed)).numpy()
    waiting = {radius: order[np.isin(order, nodes)] for radius, nodes in sorted(buckets.items())}
    while waiting:
        for radius in list(waiting):
            chosen, waiting[radius] = waiting[radius][:size], waiting[radius][size:]
            if len(chosen) == 0:
                del waiting[radius]
                continue
            yield radius, chosen


def _random_features(data: Data, _: nn.Module, nodes: Tensor, __: Tensor, radius: Radius, number: int) -> Data:
    """Flip random features of the nodes and their neighbours."""
    near = torch.isin(data.edge_index[1], nodes)
    rows = torch.unique(torch.cat([nodes, data.edge_index[0][near]]))
    noise = torch.rand(len(rows), data.num_features, generator=rng("random features", number)).to(data.x.device)
    score = torch.zeros_like(data.x)
    score[rows] = noise.to(data.x.dtype)
    return _with_features(data, _flip_best(data.x, score, radius))


def _greedy_features(data: Data, model: nn.Module, nodes: Tensor, labels: Tensor, radius: Radius, _: int) -> Data:
    """Flip one feature after the other, each where the gradient of the loss is largest."""
    x, left = data.x, list(radius)
    while sum(left):
        variable = x.clone().requires_grad_()
        with evaluating(model), torch.enable_grad():
            loss = F.cross_entropy(model(variable, data.edge_index)[nodes], labels[nodes])
            (slope,) = torch.autograd.grad(loss, variable)
        rise = torch.where(x == 0, slope, -slope)
        spent = ((x == 0) & (left[0] == 0)) | ((x == 1) & (left[1] == 0))
        rise = torch.where((x != data.x) | spent, -torch.inf, rise)
        best = int(rise.argmax())
        x = x.clone()
        added = bool(x.view(-1)[best] == 0)
        x.view(-1)[best] = 1.0 if added else 0.0
        left[0 if added else 1] -= 1
    return _with_features(data, x)


def _flip_best(x: Tensor, score: Tensor, radius: Radius) -> Tensor:
    """Flip the zeros and the ones with the highest scores, as many of each as the radius allows."""
    out = x.clone().view(-1)
    for count, value in zip(radius, (1.0, 0.0), strict=True):
        candidates = torch.where(x.view(-1) == 1 - value, score.view(-1), -torch.inf)
        out[candidates.topk(count).indices] = value
    return out.view_as(x)


def _with_features(data: Data, x: Tensor) -> Data:
    """The graph with other features."""
    return Data(x=x, edge_index=data.edge_index, y=data.y)


def _dice_near(data: Data, _: nn.Module, nodes: Tensor, labels: Tensor, radius: Radius, number: int) -> Data:
    """Attack with DICE among the nodes, their neighbours and 30 random nodes."""
    size = int(data.num_nodes)
    near = torch.cat([nodes, data.edge_index[0][torch.isin(data.edge_index[1], nodes)]])
    others = torch.randperm(size, generator=rng("dice", number))[:30].to(nodes.device)
    known = torch.full_like(labels, -1)
    known[near], known[others] = labels[near], labels[others]
    return _within(data, dice(data, budget=_large_budget(data, radius), labels=known, seed=number), nodes, radius)


def _pgd_on(data: Data, model: nn.Module, nodes: Tensor, labels: Tensor, radius: Radius, number: int) -> Data:
    """Attack the predictions of the nodes with PGD."""
    flips = pgd(data, model, budget=_large_budget(data, radius), nodes=nodes, labels=labels, seed=number, steps=40)
    return _within(data, flips, nodes, radius)


def _large_budget(data: Data, radius: Radius) -> int:
    """More flips than the radius allows, so that there are enough additions and deletions among them."""
    return min(4 * sum(radius) + 20, undirected_pairs(data).shape[1])


def _within(data: Data, flips: EdgeFlips, nodes: Tensor, radius: Radius) -> Data:
    """Apply as many additions and deletions as the radius allows, those at the attacked nodes first."""
    size, present = flips.num_nodes, undirected_pairs(data)
    is_edge = torch.isin(flips.pairs[0] * size + flips.pairs[1], present[0] * size + present[1])
    touches = torch.isin(flips.pairs, nodes.cpu()).any(0)
    chosen = []
    for count, kind in ((radius[0], ~is_edge), (radius[1], is_edge)):
        of_kind = kind.nonzero()[:, 0]
        order = torch.argsort(touches[of_kind].int(), descending=True, stable=True)
        chosen.append(of_kind[order][:count])
    return EdgeFlips.of(flips.pairs[:, torch.cat(chosen)], size).apply(data)


FEATURE_ATTACKS: dict[str, Perturb] = {"random": _random_features, "greedy": _greedy_features}
EDGE_ATTACKS: dict[str, Perturb] = {"dice": _dice_near, "pgd": _pgd_on}
