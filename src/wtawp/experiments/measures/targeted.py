"""Attacks on single nodes: how many of some chosen test nodes are still right, each under an attack of its own."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.attacks import surrogate_weights
from wtawp.attacks.losses import margins
from wtawp.attacks.registry import attack_spec
from wtawp.attacks.spec import AttackRequest, AttackSpec
from wtawp.base import AttackError, NoFlipError, part_of_progress, rng
from wtawp.experiments.measures.shared.flips import check_attack_options, flips_to_result
from wtawp.experiments.measures.shared.interface import MeasureSpec, Result, TrainedModels
from wtawp.experiments.measures.shared.option_checks import check_count
from wtawp.experiments.spec import Option, add_cwd_to_sys_path
from wtawp.graphs import Flips, Split, undirected_pairs
from wtawp.models.evaluation import evaluating, refuse_cached

CHECKED = 3  # nodes that are attacked before the training, to see whether the attack works
EXTRA_FLIPS = 2  # without a budget, a target's is its degree plus this, as in Nettack's paper


@dataclass(frozen=True, kw_only=True)
class TargetedOptions:
    """Which attack, on how many nodes, and its own options.

    Attributes:
        attack: The attack.
        budget: Flips allowed for each target. None: its degree plus 2.
        targets: The number of targets: a quarter each with the largest and the smallest margin, the others random.
        own: Options of the attack's function.
    """

    attack: AttackSpec
    budget: int | None = None
    targets: int = 40
    own: dict[str, Option] = field(default_factory=dict)


def _parse(**options: Any) -> TargetedOptions:
    given = dict(options)
    if "attack" not in given:
        raise ValueError("targeted needs an attack")
    attack = attack_spec(str(given.pop("attack")))
    if attack.is_user_code:
        add_cwd_to_sys_path()
    if not attack.uses_victim or attack.attacks_training:
        raise ValueError(f"{attack.name} attacks a whole graph, not single nodes; use the measure evasion or poison")
    given.pop("code", None)  # the hash of a user's attack, which is there for the key alone
    budget, targets = given.pop("budget", None), given.pop("targets", 40)
    if budget is not None:
        check_count("budget", budget, 1)
    check_count("targets", targets, 1)
    check_attack_options(attack, given, ("targets",))
    return TargetedOptions(attack=attack, budget=budget, targets=targets, own=given)


def chosen_targets(logits: Tensor, labels: Tensor, nodes: Tensor, count: int, g: torch.Generator) -> Tensor:  # -> [k]
    """Choose nodes that are classified correctly: a quarter with the largest margins, a quarter with the smallest.

    The others are drawn from the rest, as in Nettack's paper (10, 10 and 20).

    Args:
        logits: The model's outputs, [n, c].
        labels: The true labels, [n].
        nodes: The nodes to choose from, as indices.
        count: How many to choose; all that are classified correctly if there are fewer.
        g: Draws the random ones.

    Returns:
        The nodes: those with the largest margins, those with the smallest, the random ones.
    """
    right = nodes[logits[nodes].argmax(1) == labels[nodes]]
    ordered = right[margins(logits[None, right], labels[None, right])[0].argsort()]
    quarter = min(count, len(ordered)) // 4
    last = len(ordered) - quarter
    middle = ordered[quarter:last]
    drawn = middle[torch.randperm(len(middle), generator=g)[: max(0, count - 2 * quarter)].to(middle.device)]
    return torch.cat([ordered[:quarter], ordered[last:], drawn])


def run(trained: TrainedModels, options: TargetedOptions) -> list[Result]:
    """For each model its targets, the flips for each of them, and the share that are still classified correctly.

    A target on which the attack fails, for instance because its gradient vanishes, does not count as robust: it is left
    out of that share, and its error is kept. One for which no flip is allowed withstands the attack.
    """
    results, data = [], trained.data
    for i, (model, split) in enumerate(zip(trained.models, trained.splits, strict=True)):
        refuse_cached(model)
        with evaluating(model), torch.no_grad():
            logits = model(data.x, data.edge_index)
        g = rng("targets", trained.dataset, trained.seeds[i])
        targets = chosen_targets(logits, data.y, split.test, options.targets, g).tolist()
        run_id = zip(("split", "init"), map(str, trained.run_ids[i]), strict=True)
        origin = (("dataset", trained.dataset), ("model", trained.model), ("awp", trained.awp), *run_id)
        attacked = []
        with part_of_progress(i / len(trained.models), (i + 1) / len(trained.models)):
            flips = find_flips(model, data, split, targets, data.y, trained.seeds[i], options)
        for node, each in zip(targets, flips, strict=True):
            if isinstance(each, AttackError):
                why = "no_flip" if isinstance(each, NoFlipError) else "error"
                attacked.append({"node": node, "is_right": True, why: str(each)})
                continue
            is_right = _predicted(model, each.apply(data), node) == int(data.y[node])
            named = each.with_origin((*origin, ("node", str(node))))
            attacked.append({"node": node, "is_right": is_right, **flips_to_result(named, data)})
        counted = [bool(each["is_right"]) for each in attacked if "error" not in each]
        if not counted:
            raise AttackError(_nothing_attacked(options.attack.name, attacked))
        results.append({"accuracy": sum(counted) / len(counted), "targets": attacked})
    return results


def _nothing_attacked(name: str, attacked: Sequence[Result]) -> str:
    """Why no target was attacked."""
    if not attacked:
        return "no test node is classified correctly, so that there is nothing to attack"
    return f"{name} fails on all {len(attacked)} targets, first with: {attacked[0]['error']}"


def find_flips(
    model: nn.Module,
    data: Data,
    split: Split,
    targets: Sequence[int],
    labels: Tensor,
    seed: int,
    options: TargetedOptions,
) -> list[Flips | AttackError]:
    """The flips for each target, by attacks that know nothing of each other; the error where an attack finds none."""
    degree, attack = torch.bincount(undirected_pairs(data).flatten(), minlength=int(data.num_nodes)), options.attack
    weights: dict[str, Any] = {}
    if attack.takes_surrogate:  # one for all targets
        weights = {"weights": surrogate_weights(data, labels=labels, train=split.train)}
    flips: list[Flips | AttackError] = []
    for done, node in enumerate(targets):
        budget = int(degree[node]) + EXTRA_FLIPS if options.budget is None else options.budget
        request = AttackRequest.single(
            data, model, budget=budget, nodes=torch.tensor([node], device=data.edge_index.device), labels=labels,
            seed=seed, train=split.train,
        )  # fmt: skip
        with part_of_progress(done / len(targets), (done + 1) / len(targets)):
            try:
                flips += attack.run(request, **options.own, **weights)
            except AttackError as error:
                flips.append(error)
    return flips


@torch.no_grad()
def _predicted(model: nn.Module, data: Data, node: int) -> int:
    """The class that a model predicts for a node."""
    with evaluating(model):
        return int(model(data.x, data.edge_index)[node].argmax())


def _check(options: TargetedOptions, model: nn.Module, data: Data, split: Split) -> None:
    """Refuse, before anything is trained, what cannot be attacked: by an attack of one flip on an untrained model."""
    refuse_cached(model)
    with evaluating(model), torch.no_grad():
        predicted = model(data.x, data.edge_index).argmax(1)  # so that the loss is not flat, whatever it is
    one = TargetedOptions(attack=options.attack, budget=1, targets=1, own=options.own)
    errors = [
        each
        for each in find_flips(model, data, split, split.test[:CHECKED].tolist(), predicted, 0, one)
        if isinstance(each, AttackError)
    ]
    if len(errors) == min(CHECKED, len(split.test)):
        raise errors[0]


MEASURE = MeasureSpec(
    name="targeted",
    options=_parse,
    run=run,
    smoke_options={"targets": 4, "budget": 2},
    check=_check,
    cost=lambda options: options.attack.cost * options.targets / 10,
)
