"""The PGD topology attack (Xu et al. 2019): projected gradient ascent on edges between 0 and 1, then sampling.

The relaxed flips p in [0, 1] of all n (n - 1) / 2 pairs move along the gradient of the victim's loss and are projected
onto a sum of at most the budget, which leaves most of them 0; they are kept as a sparse list.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.attacks.gradient import BlackBoxVictim, FactoredVictims, attacked_by_gradient, victims_at_once
from wtawp.attacks.losses import Loss, loss_spec
from wtawp.attacks.relaxed import RelaxedFlips, target_of
from wtawp.attacks.spec import AttackRequest
from wtawp.base import AttackError, checked_seed, report_progress, rng
from wtawp.graphs.flips import EdgeFlips, budget_of
from wtawp.models.evaluation import evaluating


def pgd(
    data: Data,
    victim: nn.Module,
    *,
    budget: float | int,
    nodes: Tensor,
    labels: Tensor,
    seed: int,
    steps: int = 200,
    loss: Loss = "ce",
    samples: int = 20,
    step_size: float | None = None,
) -> EdgeFlips:
    """Find flips that raise a victim's loss by projected gradient ascent on relaxed flips.

    The victim is attacked in evaluation mode; its weights and their gradients are left as they are.

    Args:
        data: The graph.
        victim: The model, called as `victim(x, edge_index, edge_weight)`. One that does not support factored gradients
            (see `SupportsFactoredGradient`) can be attacked on small graphs only.
        budget: The number of flips allowed: undirected edges (int) or a share of the graph's edges (float).
        nodes: The nodes whose loss is to rise, as indices or a mask.
        labels: The labels of all nodes, [n], true or guessed; those of `nodes` are used.
        seed: The seed of the final draws.
        steps: The number of steps of gradient ascent. 200 is the released code's.
        loss: "ce", the cross-entropy, as in the paper's protocol; it goes on rewarding flips near nodes that are lost
            already, which makes it weak. "tanh_margin", the tanh of the margin of log-probabilities, is the strongest;
            "masked_ce" is the cross-entropy of the nodes that are still classified correctly, "margin" the margin until
            a node is misclassified, "prob_margin" the margin of probabilities. See `loss_spec`.
        samples: The number of sets of flips drawn at the end, with the relaxed flips as probabilities. Of these sets,
            and of the set of the largest relaxed flips, the one with the highest loss is returned for "ce" and
            "margin", and for other losses the one that leaves the lowest accuracy.
        step_size: Step t is `step_size` / sqrt(t + 1) times the gradient. None: 200 for "ce" and "masked_ce", 50 for
            "tanh_margin" and "prob_margin", 20 for "margin".

    Returns:
        The flips.

    Raises:
        ValueError: If nodes, labels or options are not what they must be.
        AttackError: If the victim ignores the graph, its outputs are not finite, or no flip raises the loss.

    Example:
        >>> from wtawp.graphs import citation
        >>> from wtawp.models import GCN
        >>> data, victim = citation(seed=0, num_nodes=60, num_words=20), GCN(20, 7, generator=rng("victim"))
        >>> len(pgd(data, victim, budget=5, nodes=torch.arange(10), labels=data.y, seed=0, steps=3))
        5
    """
    seed = checked_seed(seed)
    return pgd_many(
        data, [victim], budget=budget, nodes=[nodes], labels=[labels], seeds=[seed], steps=steps, loss=loss,
        samples=samples, step_size=step_size,
    )[0]  # fmt: skip


def pgd_many(
    data: Data,
    victims: Sequence[nn.Module],
    *,
    budget: float | int,
    nodes: Sequence[Tensor],
    labels: Sequence[Tensor],
    seeds: Sequence[int],
    steps: int = 200,
    loss: Loss = "ce",
    samples: int = 20,
    step_size: float | None = None,
    progress: Callable[[float, str], None] | None = None,
) -> list[EdgeFlips]:
    """Run `pgd` on each of several victims of one architecture, many at once where memory allows.

    On a GPU dozens of victims are attacked at once, on a CPU one at a time unless the graph is small. Victims that do
    not support factored gradients (see `SupportsFactoredGradient`) are always attacked one at a time. A victim's flips
    are those of `pgd` up to the rounding of sums: of two pairs or two draws that are equally good to the last digits,
    the other one may be chosen.

    Args:
        data: The graph.
        victims: The models.
        budget: The number of flips allowed for each victim: undirected edges (int) or a share of the edges (float).
        nodes: The nodes whose loss is to rise, as indices or a mask, for each victim.
        labels: The labels of all nodes, [n], for each victim.
        seeds: The seed of the final draws, for each victim.
        steps: The number of steps of gradient ascent.
        loss: The loss to raise, as for `pgd`.
        samples: The number of sets of flips drawn at the end.
        step_size: Step t is `step_size` / sqrt(t + 1) times the gradient. None: that of the loss, as for `pgd`.
        progress: Called with the share of victims that are done and a text, after each group of victims.

    Returns:
        The flips for each victim, in their order.

    Raises:
        ValueError: If the victims differ in architecture, or nodes, labels or options are not what they must be.
        AttackError: If a victim ignores the graph, its outputs are not finite, or no flip raises its loss.
    """
    seeds = [checked_seed(seed, f"seeds[{i}]") for i, seed in enumerate(seeds)]
    count, size = budget_of(data, budget), int(data.num_nodes)
    step_size = checked_step_size(steps, loss, samples, step_size)
    _check_victims(victims, nodes, labels, seeds)
    origin = {"attack": "pgd", "budget": budget, "steps": steps, "loss": loss, "samples": samples}
    origin["step_size"] = step_size
    together = victims_at_once(victims[0], size, data.edge_index.device)
    found_flips: list[EdgeFlips] = []
    for first in range(0, len(victims), together):
        part = slice(first, first + together)
        with evaluating(victims[first]):
            first_victim = first if len(victims) > 1 else None
            target = target_of(data, nodes[part], labels[part], loss, first_victim, victim=victims[first])
            attacked, flips = attacked_by_gradient(target, victims[part]), target.no_flips()
            for t in range(steps):
                flips = ascent_step(attacked, flips, step_size / math.sqrt(t + 1), count, is_first=t == 0)
                report_progress((first + len(victims[part]) * (t + 1) / steps) / len(victims))
            chosen = round_by_sampling(
                attacked, flips, count, samples, [rng("attack", "pgd", seed) for seed in seeds[part]]
            )
        for codes, seed in zip(chosen, seeds[part], strict=True):
            provenance = tuple((name, str(value)) for name, value in {**origin, "seed": seed}.items())
            found_flips.append(EdgeFlips.of(torch.stack([codes // size % size, codes % size]), size, provenance))
        if progress is not None:
            done = len(found_flips)
            progress(done / len(victims), f"{done} of {len(victims)} attacks")
    return found_flips


def run_pgd(request: AttackRequest, **options: Any) -> list[EdgeFlips]:
    """PGD on a request, for the registry."""
    return pgd_many(
        request.data, request.victims, budget=request.given_budget, nodes=request.nodes, labels=request.labels,
        seeds=request.seeds, **options,
    )  # fmt: skip


def ascent_step(
    attacked: FactoredVictims | BlackBoxVictim, flips: RelaxedFlips, step: float, budget: int, *, is_first: bool
) -> RelaxedFlips:
    """One step of projected gradient ascent; a gradient that is zero at the first step is an error."""
    gradient = attacked.gradient(flips)
    if is_first and bool((is_zero := gradient.is_zero()).any()):
        raise AttackError(
            f"the gradient is zero for every pair of nodes: {attacked.target.describe(is_zero)} ignores the graph (or"
            " edge_weight), or its loss is flat here, as a margin is once all attacked nodes are misclassified"
        )
    return gradient.ascend(flips, step, budget)


def round_by_sampling(
    attacked: FactoredVictims | BlackBoxVictim,
    flips: RelaxedFlips,
    budget: int,
    samples: int,
    generators: Sequence[torch.Generator],
) -> list[Tensor]:  # -> codes of each copy
    """For each copy the best set of flips: the largest relaxed ones, or one of `samples` draws by their amounts.

    A draw with more flips than the budget allows is cut down to those drawn with the widest margin. The loss says
    whether accuracy or the loss itself decides which set is best.
    """
    target, codes = attacked.target, flips.codes
    selects_by_accuracy = loss_spec(target.loss).selects_by_accuracy
    copy, position = target.positions(codes)
    counts = torch.bincount(copy, minlength=target.copies).tolist()
    draws = [torch.rand(samples, k, generator=g) for k, g in zip(counts, generators, strict=True)]
    uniforms = torch.cat([torch.zeros(1, len(codes)), torch.cat(draws, 1)]).to(flips.amounts)
    best = torch.zeros_like(codes, dtype=torch.bool)
    highest, most = uniforms.new_full((target.copies,), -math.inf), uniforms.new_zeros(target.copies)
    for uniform in uniforms:
        rows = target.padded(flips.amounts - uniform, codes)
        top = rows.topk(min(budget, rows.shape[1]))
        chosen = torch.zeros_like(rows, dtype=torch.bool).scatter(1, top.indices, top.values > 0)
        taken = chosen[copy, position]
        logits = attacked.flipped_logits(RelaxedFlips(codes[taken], torch.ones_like(uniform[taken])))
        values = target.losses(logits)
        lost = target.lost(logits).to(most) if selects_by_accuracy else torch.zeros_like(most)
        better = chosen.any(1) & ((lost > most) | ((lost == most) & (values > highest)))
        highest, most = torch.where(better, values, highest), torch.where(better, lost, most)
        best = torch.where(better[copy], chosen[copy, position], best)
    missed = ~torch.isfinite(highest)
    if bool(missed.any()):
        raise AttackError(
            f"PGD found no flip that raises the loss of {target.describe(missed)}; try a larger step_size or more steps"
        )
    parts = torch.bincount(copy[best], minlength=target.copies).tolist()
    return list(torch.split(codes[best], parts))


def checked_step_size(steps: int, loss: str, samples: int, step_size: float | None) -> float:
    """The step size, or the default one for this loss, after a check of all options."""
    spec = loss_spec(loss)
    if steps < 1 or samples < 0:
        raise ValueError(f"steps must be >= 1 and samples >= 0, got {steps} and {samples}")
    step_size = spec.step_size if step_size is None else step_size
    if not 0 < step_size < math.inf:
        raise ValueError(f"step_size must be positive and finite, got {step_size}")
    return step_size


def _check_victims(victims: Sequence[nn.Module], *arguments: Sequence[object]) -> None:
    """Refuse sequences of different lengths and victims of different architectures."""
    if not victims or any(len(each) != len(victims) for each in arguments):
        lengths = ", ".join(str(len(each)) for each in arguments)
        raise ValueError(
            f"each victim needs nodes, labels and a seed of its own: {len(victims)} victims, got {lengths}"
        )
    for number, other in enumerate(victims):
        if _architecture(other) != _architecture(victims[0]):
            raise ValueError(
                f"victims attacked together must be of one architecture, but number {number}, {type(other).__name__},"
                f" differs from number 0, {type(victims[0]).__name__}, in its layers, their widths or their settings"
            )


def _architecture(victim: nn.Module) -> list[object]:
    """All modules, the shapes of their parameters and their settings: attributes that are numbers, texts or tuples."""
    parts: list[object] = []
    for module in victim.modules():
        settings = {
            k: v for k, v in vars(module).items() if k != "training" and isinstance(v, int | float | str | tuple)
        }
        parts += [type(module), settings, [(n, p.shape, p.dtype) for n, p in module.named_parameters(recurse=False)]]
    return parts
