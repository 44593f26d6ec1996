"""The PGD topology attack (Xu et al. 2019): projected gradient ascent on edges between 0 and 1, then rounding by lot.

The relaxed flips p in [0, 1] of all n (n - 1) / 2 pairs move along the gradient of the victim's loss and are projected
onto a sum of at most the budget, which leaves most of them 0; they are kept as a sparse list.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.attacks.gradient import BlackBoxVictim, Traced, attacked_by_gradient, victims_at_once
from wtawp.attacks.relaxed import Loss, Relaxed, target_of
from wtawp.base import AttackError, rng
from wtawp.graphs.flips import EdgeFlips, budget_of
from wtawp.models.evaluation import evaluating

STEP_SIZE = {"ce": 200.0, "margin": 20.0}  # the first is the released code's


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
    """Flips that raise the victim's loss on `nodes` (indices or a mask) against `labels` [n], true or guessed.

    Step t is `step_size` / sqrt(t + 1) times the gradient. Of the `samples` flips drawn at the end with the relaxed
    ones as probabilities, and of the largest of these, the flips with the highest loss are returned: the seed decides
    that draw alone. The victim is attacked as in evaluation mode; its weights and their gradients are left alone.
    """
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
    """`pgd` on each of the victims, models of one architecture, with nodes, labels and a seed of its own.

    As many at once as fit into one block of the gradient: dozens on a GPU, one at a time on a CPU but for small graphs.
    Victims that show no factors (see `SupportsFactoredGradient`) always come one at a time.
    `progress(share, what)` is called after each block. A victim's flips are those it gets alone, up to the rounding of
    sums: two pairs or two draws that are equally
    good to the last digits may change places.
    """
    count, size = budget_of(data, budget), int(data.num_nodes)
    step_size = checked_step_size(steps, loss, samples, step_size)
    _check_victims(victims, nodes, labels, seeds)
    origin = {"attack": "pgd", "budget": budget, "steps": steps, "loss": loss, "samples": samples}
    origin["step_size"] = step_size
    together = victims_at_once(victims[0], size, data.edge_index.device)
    found: list[EdgeFlips] = []
    for first in range(0, len(victims), together):
        part = slice(first, first + together)
        with evaluating(victims[first]):
            number = first if len(victims) > 1 else None
            target = target_of(data, nodes[part], labels[part], loss, number)
            attacked, flips = attacked_by_gradient(target, victims[part]), target.nothing()
            for t in range(steps):
                flips = ascend(attacked, flips, step_size / math.sqrt(t + 1), count, is_first=t == 0)
            chosen = round_by_sampling(
                attacked, flips, count, samples, [rng("attack", "pgd", seed) for seed in seeds[part]]
            )
        for codes, seed in zip(chosen, seeds[part], strict=True):
            provenance = tuple((name, str(value)) for name, value in {**origin, "seed": seed}.items())
            found.append(EdgeFlips.of(torch.stack([codes // size % size, codes % size]), size, provenance))
        if progress is not None:
            progress(len(found) / len(victims), f"{len(found)} of {len(victims)} attacks")
    return found


def ascend(attacked: Traced | BlackBoxVictim, flips: Relaxed, step: float, budget: int, *, is_first: bool) -> Relaxed:
    """One step; a gradient that is zero from the first is said so."""
    slope = attacked.gradient(flips)
    if is_first and bool((flat := slope.is_zero()).any()):
        raise AttackError(
            f"the gradient is zero for every pair of nodes: {attacked.target.who(flat)} ignores the graph (or"
            " edge_weight), or its loss is flat here, as a margin is once all attacked nodes are misclassified"
        )
    return slope.climb(flips, step, budget)


def round_by_sampling(
    attacked: Traced | BlackBoxVictim, flips: Relaxed, budget: int, samples: int, generators: Sequence[torch.Generator]
) -> list[Tensor]:  # -> codes of each copy
    """The best of the largest amounts and of `samples` draws; what a draw has too many of goes, least likely first."""
    target, codes = attacked.target, flips.codes
    copy, place = target.places(codes)
    counts = torch.bincount(copy, minlength=target.copies).tolist()
    draws = [torch.rand(samples, k, generator=g) for k, g in zip(counts, generators, strict=True)]
    luck = torch.cat([torch.zeros(1, len(codes)), torch.cat(draws, 1)]).to(flips.amounts)
    best = torch.zeros_like(codes, dtype=torch.bool)
    highest = luck.new_full((target.copies,), -math.inf)
    for lot in luck:
        rows = target.padded(flips.amounts - lot, codes)
        top = rows.topk(min(budget, rows.shape[1]))
        chosen = torch.zeros_like(rows, dtype=torch.bool).scatter(1, top.indices, top.values > 0)
        values = attacked.losses(Relaxed(codes[chosen[copy, place]], torch.ones_like(lot[chosen[copy, place]])))
        better = chosen.any(1) & (values > highest)
        highest = torch.where(better, values, highest)
        best = torch.where(better[copy], chosen[copy, place], best)
    missed = ~torch.isfinite(highest)
    if bool(missed.any()):
        raise AttackError(
            f"PGD found no flip that raises the loss of {target.who(missed)}; try a larger step_size or more steps"
        )
    parts = torch.bincount(copy[best], minlength=target.copies).tolist()
    return list(torch.split(codes[best], parts))


def checked_step_size(steps: int, loss: str, samples: int, step_size: float | None) -> float:
    """The step size, or else the one for this loss, once all options are found to make sense."""
    if loss not in STEP_SIZE:
        raise ValueError(f"loss must be one of {', '.join(map(repr, STEP_SIZE))}, got {loss!r}")
    if steps < 1 or samples < 0:
        raise ValueError(f"steps must be >= 1 and samples >= 0, got {steps} and {samples}")
    step_size = STEP_SIZE[loss] if step_size is None else step_size
    if not 0 < step_size < math.inf:
        raise ValueError(f"step_size must be positive and finite, got {step_size}")
    return step_size


def _check_victims(victims: Sequence[nn.Module], *given: Sequence[object]) -> None:
    if not victims or any(len(each) != len(victims) for each in given):
        lengths = ", ".join(str(len(each)) for each in given)
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
    """Modules, the shapes of their parameters, and their settings: all that is a number, a word or several."""
    parts: list[object] = []
    for module in victim.modules():
        settings = {
            k: v for k, v in vars(module).items() if k != "training" and isinstance(v, int | float | str | tuple)
        }
        parts += [type(module), settings, [(n, p.shape, p.dtype) for n, p in module.named_parameters(recurse=False)]]
    return parts
