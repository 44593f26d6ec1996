"""What is done with trained models beside counting their hits; a plan names these functions, a record keeps the result.

Each takes the models of one stack, trained on one graph, and returns for each of them plain data that JSON can hold.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp import attacks
from wtawp.attacks.registry import AttackRequest, attack_spec
from wtawp.base import home, rng
from wtawp.experiments.measures import geometry as flatness
from wtawp.experiments.measures.certification import certification_of, check_options
from wtawp.experiments.plans.robustness import BEFORE_TRAINING
from wtawp.experiments.spec.plan import MAX_INITS, Measure, Option
from wtawp.graphs import EdgeFlips, Split, budget_of
from wtawp.models import GCN
from wtawp.models.adapter import refuse_cached
from wtawp.training import evaluate, fit_many

Result = dict[str, Any]
NODES: dict[str, Callable[[Split], Tensor]] = {
    "train": lambda split: split.train,
    "test": lambda split: split.test,
    "unlabelled": lambda split: torch.cat([split.val, split.test]),
    "train+test": lambda split: torch.cat([split.train, split.test]),
    "all": lambda split: torch.cat([split.train, split.val, split.test]),
}
LABELS = ("true", "predicted", "self-training")  # the last: true for training nodes, predicted for all others


CHOSEN = ("data", "victim", "train", "unlabelled", "seed", "progress")  # arguments of attacks that are no options


@dataclass(frozen=True)
class Trained:
    """The models of a stack with the graph and splits they were trained on, and the dataset's name."""

    models: Sequence[nn.Module]
    data: Data  # where the models are
    dataset: str
    splits: Sequence[Split]
    places: Sequence[tuple[int, int]]  # the numbers of split and initialisation
    model: str = ""  # its name in plans
    awp: str = "None"  # how its weights were perturbed

    @property
    def seeds(self) -> list[int]:
        """One for each model, as in its training."""
        return [split * MAX_INITS + init for split, init in self.places]


def measure(wanted: Measure, trained: Trained) -> list[Result]:
    """What the measure gives for each model."""
    return MEASURES[wanted.name](trained, **dict(wanted.options))


def check(wanted: Measure, data: Data | None = None) -> None:
    """Refuse, before anything is trained, what no measure is or takes; of `data` too, what it cannot work with."""
    if wanted.name not in MEASURES:
        raise ValueError(f"a measure is one of {', '.join(MEASURES)}, got {wanted.name!r}")
    options: dict[str, Any] = dict(wanted.options)
    if wanted.name == "certificate":
        check_options(**options, data=data)
    if wanted.name in flatness.MEASURES:
        flatness.check_options(wanted.name, options)
    if wanted.name not in ("evasion", "poison"):
        return
    if data is not None and "budget" in options:
        budget_of(data, options["budget"])
    if options.get("attack") not in ATTACKS:
        raise ValueError(f"attack must be one of {', '.join(ATTACKS)}, got {options.get('attack')!r}")
    if "budget" not in options:
        raise ValueError(f"{wanted.name} needs a budget: a share of the edges as in 0.05, or their number")
    for name, known in (("nodes", tuple(NODES)), ("labels", LABELS)):
        if name in options and options[name] not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}, got {options[name]!r}")
    attack = str(options["attack"])
    if wanted.name == "evasion" and attack in BEFORE_TRAINING:
        raise ValueError(f"{attack} attacks the training, not a trained model; poison with it")
    function = {"random": "random_flips"}.get(attack, attack)
    takes = {name: p for name, p in signature(getattr(attacks, function)).parameters.items() if name not in CHOSEN}
    ours = {"attack", "budget", "nodes", "labels", *(("adaptive",) if wanted.name == "evasion" else ())}
    if unknown := sorted(set(options) - ours - set(takes)):
        raise ValueError(f"{attack} has no option {unknown[0]!r}; it has {', '.join(sorted(ours | set(takes)))}")


def smoke_test(wanted: Measure, model: nn.Module, data: Data, split: Split) -> None:
    """One step of the attack on a model that nobody trained: what cannot be attacked is refused before the training."""
    refuse_cached(model)
    options: dict[str, Any] = dict(wanted.options)
    if "attack" not in options or not options.get("adaptive", True):
        return
    spec = attack_spec(str(options["attack"]))
    if not spec.uses_gradient:
        return
    few: dict[str, Any] = {"steps": 1, "samples": 0, "block_size": options.get("block_size", 250_000)}
    few = {name: value for name, value in few.items() if name in spec.options}
    nodes = NODES["all"](split)
    spec.run(AttackRequest.single(data, model, budget=options["budget"], nodes=nodes, labels=data.y, seed=0), **few)


def evasion(
    trained: Trained, *, attack: str, budget: float | int, adaptive: bool = True, **options: Any
) -> list[Result]:
    """Accuracy of each model on a graph attacked to mislead it; the test nodes and their true labels by default.

    `adaptive`: the attack differentiates through the model itself. Else its flips are found on a plain GCN, trained on
    the same split, and only applied to the model.
    """
    for model in trained.models:
        refuse_cached(model)  # it would be accurate on any graph: the first one
    against = trained if adaptive else _surrogate_gcns(trained)
    flips = find_flips(against, attack, budget, **{"nodes": "test", "labels": "true", **options})
    found = []
    for model, split, flipped in zip(trained.models, trained.splits, flips, strict=True):
        _, accuracy = evaluate(model, flipped.apply(trained.data), split.test)
        found.append({"accuracy": accuracy, **_told(flipped, trained.data)})
    return found


def poison(trained: Trained, *, attack: str, budget: float | int, **options: Any) -> list[Result]:
    """The flips that others are then trained with, found on these models: one for each split."""
    flips = find_flips(trained, attack, budget, **options)
    return [_told(flipped, trained.data) for flipped in flips]


def certificate(trained: Trained, **options: Any) -> list[Result]:
    """Certified accuracy of each model on the test nodes; votes are kept, so that more can be added to them later."""
    return certification_of(
        trained.models, trained.data, trained.splits, trained.seeds, **options, folder=home() / "votes"
    )


MEASURES: dict[str, Callable[..., list[Result]]] = {
    "certificate": certificate,
    "evasion": evasion,
    "poison": poison,
    **flatness.MEASURES,
}


def flips_of(result: Result) -> EdgeFlips:
    """The flips in what `evasion` or `poison` gave."""
    provenance = tuple((str(name), str(value)) for name, value in result["provenance"])
    return EdgeFlips.unpacked(result["flips"], result["num_nodes"], provenance)


def _told(flips: EdgeFlips, data: Data) -> Result:
    return {
        "added": flips.num_added(data), "removed": flips.num_removed(data), "num_nodes": flips.num_nodes,
        "flips": flips.packed(), "provenance": [list(entry) for entry in flips.provenance],
    }  # fmt: skip


def find_flips(
    trained: Trained, attack: str, budget: float | int, *, nodes: str = "test", labels: str = "true", **options: Option
) -> list[EdgeFlips]:
    """One set of flips for each model; of attacks that need no model, one for each split."""
    known = [_labels(model, trained.data, split, labels) for model, split in zip(trained.models, trained.splits,
             strict=True)]  # fmt: skip
    attacked = [NODES[nodes](split) for split in trained.splits]
    found = ATTACKS[attack](trained, attacked, known, budget, options)
    origin = {"dataset": trained.dataset, "model": trained.model, "awp": trained.awp, "nodes": nodes, "labels": labels}
    return [
        EdgeFlips(f.pairs, f.num_nodes, (*origin.items(), ("split", str(split)), ("init", str(init)), *f.provenance))
        for f, (split, init) in zip(found, trained.places, strict=True)
    ]


@torch.no_grad()
def _labels(model: nn.Module, data: Data, split: Split, kind: str) -> Tensor:
    if kind == "true":
        true: Tensor = data.y
        return true
    logits: Tensor = model.eval()(data.x, data.edge_index)
    return attacks.self_training_labels(logits, data.y, split.train) if kind == "self-training" else logits.argmax(1)


def _of_a_split(flip: Callable[..., EdgeFlips], *, needs_labels: bool) -> Callable[..., list[EdgeFlips]]:
    """An attack that looks at no model: all models of a split share its flips."""

    def attack(trained: Trained, _: object, labels: list[Tensor], budget: float | int, options: dict[str, Any]
               ) -> list[EdgeFlips]:  # fmt: skip
        found: dict[int, EdgeFlips] = {}
        for (split, _init), known in zip(trained.places, labels, strict=True):
            if split not in found:
                more = {"labels": known} if needs_labels else {}
                found[split] = flip(trained.data, budget=budget, seed=split, **more, **options)
        return [found[split] for split, _ in trained.places]

    return attack


def _one_by_one(flip: Callable[..., EdgeFlips]) -> Callable[..., list[EdgeFlips]]:
    def attack(trained: Trained, nodes: list[Tensor], labels: list[Tensor], budget: float | int,
               options: dict[str, Any]) -> list[EdgeFlips]:  # fmt: skip
        return [
            flip(trained.data, model, budget=budget, nodes=some, labels=known, seed=seed, **options)
            for model, some, known, seed in zip(trained.models, nodes, labels, trained.seeds, strict=True)
        ]

    return attack


def _pgd(trained: Trained, nodes: list[Tensor], labels: list[Tensor], budget: float | int,
         options: dict[str, Any]) -> list[EdgeFlips]:  # fmt: skip
    return attacks.pgd_many(trained.data, trained.models, budget=budget, nodes=nodes, labels=labels,
                            seeds=trained.seeds, **options)  # fmt: skip


def _metattack(trained: Trained, nodes: list[Tensor], labels: list[Tensor], budget: float | int,
               options: dict[str, Any]) -> list[EdgeFlips]:  # fmt: skip
    """It trains surrogates of its own; the model trained here only guesses the labels."""
    return attacks.metattack_many(
        trained.data, budget=budget, trains=[split.train for split in trained.splits], unlabelled=nodes, labels=labels,
        seeds=trained.seeds, **options,
    )  # fmt: skip


ATTACKS: dict[str, Callable[..., list[EdgeFlips]]] = {
    "random": _of_a_split(attacks.random_flips, needs_labels=False),
    "dice": _of_a_split(attacks.dice, needs_labels=True),
    "pgd": _pgd,
    "minmax": _one_by_one(attacks.minmax),
    "metattack": _metattack,
    "prbcd": _one_by_one(attacks.prbcd),
    "grbcd": _one_by_one(attacks.grbcd),
}


def _surrogate_gcns(trained: Trained) -> Trained:
    """A plain GCN for each model, trained on its split from its seed."""
    data, device = trained.data, trained.data.x.device
    num_classes = int(data.y.max()) + 1
    models = [GCN(data.num_features, num_classes, generator=rng("stand-in", seed)).to(device) for seed in trained.seeds]
    fit_many(models, data, trained.splits, seeds=trained.seeds)
    return Trained(models, data, trained.dataset, trained.splits, trained.places, "GCN in its place")
