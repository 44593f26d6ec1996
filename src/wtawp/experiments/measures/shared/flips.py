"""Attacks on trained models in a plan: their options, and the flips they find for each model of a stack."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.attacks import self_training_labels
from wtawp.attacks.registry import attack_spec, is_user_attack
from wtawp.attacks.spec import AttackRequest, AttackSpec, Stage
from wtawp.base import rng
from wtawp.experiments.measures.shared.interface import Result, TrainedModels
from wtawp.experiments.measures.shared.option_checks import check_choice
from wtawp.experiments.spec import SURROGATE, Option, add_cwd_to_sys_path
from wtawp.graphs import EdgeFlips, FeatureFlips, Flips, GraphFlips, Split, as_graph_flips, budget_of, feature_budget_of
from wtawp.models.evaluation import refuse_cached
from wtawp.models.registry import model_spec
from wtawp.training import fit_many

NODES: dict[str, Callable[[Split], Tensor]] = {
    "train": lambda split: split.train,
    "test": lambda split: split.test,
    "unlabelled": lambda split: torch.cat([split.val, split.test]),
    "train+test": lambda split: torch.cat([split.train, split.test]),
    "all": lambda split: torch.cat([split.train, split.val, split.test]),
}
LABELS = ("true", "predicted", "self-training")  # the last: true for training nodes, predicted for all others
SMOKE_OPTIONS = {
    "steps": 1,
    "samples": 0,
    "training_steps": 1,
    "restarts": 1,
}  # one step is enough to see whether an attack works
SMOKE_BLOCK = 250_000  # the most draws of a block then, unless the plan says otherwise
TRAINING_OPTIONS = ("lr", "weight_decay")  # which decide whether a training inside an attack learns anything


@dataclass(frozen=True)
class AttackOptions:
    """Which attack, what it may change and see, and its own options.

    Attributes:
        attack: The attack.
        budget: Flips allowed: a share of the edges (float) or their number (int).
        nodes: The nodes whose loss it raises, a key of NODES.
        labels: The labels it uses, one of LABELS.
        adaptive: Whether it goes through the model itself, or through a plain GCN trained on the same split.
        own: Options of the attack's function.
    """

    attack: AttackSpec
    budget: float | int
    nodes: str = "test"
    labels: str = "true"
    adaptive: bool = True
    own: dict[str, Option] = field(default_factory=dict)


def parse_attack_options(stage: Stage, options: dict[str, Any]) -> AttackOptions:
    """Validate the options of an attack in a plan.

    Args:
        stage: Whether models are attacked after training ("evasion") or before it ("poisoning").
        options: Options of the measure and of the attack, as the plan gives them.

    Returns:
        The options, sorted by whom they belong to.

    Raises:
        ValueError: If an option is unknown or missing, or the attack does not work at this stage.
    """
    given = dict(options)
    if "attack" not in given:
        raise ValueError(f"{stage} needs an attack")
    attack = attack_spec(str(given.pop("attack")))
    if attack.is_user_code:
        add_cwd_to_sys_path()
    if "budget" not in given:
        raise ValueError(f"{stage} needs a budget: a share of the edges as in 0.05, or their number")
    if attack.has_one_target:
        raise ValueError(f"{attack.name} attacks one node at a time; use the measure targeted, or wtawp.attack(...)")
    if stage == "poisoning" and ("features" in attack.changes or stage not in attack.stages):
        raise ValueError(f"{attack.name} attacks trained models; measure evasion, or poison with wtawp.attack(...)")
    if stage not in attack.stages:
        raise ValueError(f"{attack.name} attacks the training, not a trained model; poison with it")
    allowed = {"nodes": tuple(NODES), "labels": LABELS, **({"adaptive": (True, False)} if stage == "evasion" else {})}
    general: dict[str, Any] = {"budget": given.pop("budget")}
    given.pop("code", None)  # the hash of a user's attack, which is there for the key alone
    for name, values in allowed.items():
        if name in given:
            check_choice(name, given[name], values)
            general[name] = given.pop(name)
    check_attack_options(attack, given, allowed)
    return AttackOptions(attack, **general, own=given)


def check_attack_options(attack: AttackSpec, given: Mapping[str, Option], general: Iterable[str]) -> None:
    """Refuse names that are no options of an attack, and values of another kind than those of ours take.

    `general` are the options of the measure, for the message.
    """
    if unknown := sorted(set(given) - set(attack.options)):
        names = sorted({"attack", "budget", *general, *attack.options})
        raise ValueError(f"{attack.name} has no option {unknown[0]!r}; it has {', '.join(names)}")
    if is_user_attack(attack.name):  # what the annotations of a user mean is not known
        return
    for name, value in given.items():
        _check_kind(f"the option {name} of {attack.name}", value, attack.option_types[name])


def _check_kind(what: str, value: Option, annotation: Any) -> None:
    """Refuse a value that is none of the annotation of an option: a kind, several kinds, or the allowed words."""
    if get_origin(annotation) is Literal:
        check_choice(what, value, get_args(annotation))
        return
    kinds = {each for each in (get_args(annotation) or (annotation,)) if isinstance(each, type)}
    accepted = {*kinds, int} if float in kinds else kinds  # a whole number is a number, true is none
    if kinds and type(value) not in accepted:
        names = {int: "a whole number", float: "a number", bool: "true or false", str: "text", NoneType: "none"}
        expected = " or ".join(text for kind, text in names.items() if kind in kinds)
        raise ValueError(f"{what} must be {expected or annotation}, got {value!r}")


def check_attack(options: AttackOptions, model: nn.Module, data: Data, split: Split) -> None:
    """Refuse, before anything is trained, what cannot be attacked: by one step of the attack on an untrained model."""
    (budget_of if options.attack.changes == "edges" else feature_budget_of)(data, options.budget)
    refuse_cached(model)
    if (options.attack.uses_gradient or options.attack.uses_surrogate) and options.adaptive:
        nodes, train = NODES["all"](split), split.train
        request = AttackRequest.single(
            data, model, budget=options.budget, nodes=nodes, labels=data.y, seed=0, train=train,
            surrogate=_surrogate(data, 0) if options.attack.uses_surrogate else None,
        )  # fmt: skip
        options.attack.run(request, **_smoke_options(options))


def _smoke_options(options: AttackOptions) -> dict[str, Option]:
    """The options of an attack of one step, on blocks and with trainings inside it as the plan and the attack say."""
    defaults = options.attack.options
    few: dict[str, Option] = {name: value for name, value in SMOKE_OPTIONS.items() if name in defaults}
    if isinstance(block_size := defaults.get("block_size"), int):  # None: each attack of several has its own
        few["block_size"] = min(SMOKE_BLOCK, block_size)
    kept = {"block_size", *TRAINING_OPTIONS}
    if not options.own.keys().isdisjoint(TRAINING_OPTIONS):  # one step of training would not show what they do
        few.pop("training_steps", None)
        kept.add("training_steps")
    return few | {name: value for name, value in options.own.items() if name in kept}


def find_flips(trained: TrainedModels, options: AttackOptions, surrogates: TrainedModels | None = None) -> list[Flips]:
    """One set of flips for each model, with where they come from; attacks that use no model share them in a split.

    Surrogates are for attacks that transfer flips from them; without any, such an attack leaves that out.
    """
    data = trained.data
    pairs = list(zip(trained.models, trained.splits, strict=True))
    request = AttackRequest(
        data=data,
        victims=trained.models,
        budget=options.budget,
        nodes=[NODES[options.nodes](split) for split in trained.splits],
        labels=[_labels(model, data, split, options.labels) for model, split in pairs],
        seeds=trained.seeds,
        split_seeds=[split for split, _ in trained.run_ids],
        trains=[split.train for split in trained.splits],
        surrogates=None if surrogates is None else surrogates.models,
    )
    without: dict[str, Option] = {"transfer": False} if options.attack.uses_surrogate and surrogates is None else {}
    flips = options.attack.run(request, **{**without, **options.own})
    origin = {
        "dataset": trained.dataset, "model": trained.model, "awp": trained.awp, "nodes": options.nodes,
        "labels": options.labels,
    }  # fmt: skip
    return [
        f.with_origin((*origin.items(), ("split", str(split)), ("init", str(init))))
        for f, (split, init) in zip(flips, trained.run_ids, strict=True)
    ]


@torch.no_grad()
def _labels(model: nn.Module, data: Data, split: Split, kind: str) -> Tensor:
    """The labels that an attacker has."""
    if kind == "true":
        true: Tensor = data.y
        return true
    logits: Tensor = model.eval()(data.x, data.edge_index)
    return self_training_labels(logits, data.y, split.train) if kind == "self-training" else logits.argmax(1)


def surrogate_models(trained: TrainedModels) -> TrainedModels:
    """A plain surrogate for each model, trained on its split from its seed, for attacks that are not adaptive."""
    data, device = trained.data, trained.data.x.device
    models = [_surrogate(data, seed).to(device) for seed in trained.seeds]
    fit_many(models, data, trained.splits, seeds=trained.seeds)
    return TrainedModels(models, data, trained.dataset, trained.splits, trained.run_ids, f"{SURROGATE} in its place")


def _surrogate(data: Data, seed: int) -> nn.Module:
    """An untrained surrogate for a graph."""
    return model_spec(SURROGATE).build(data.num_features, int(data.y.max()) + 1, {}, rng("stand-in", seed))


def flips_to_result(flips: Flips, data: Data) -> Result:
    """Flips as plain data for a record."""
    result: Result = {"added": flips.num_added(data), "removed": flips.num_removed(data)}
    both = as_graph_flips(flips, data)
    if not isinstance(flips, EdgeFlips):
        result |= {"num_features": both.features.num_features, "feature_flips": both.features.packed()}
    return result | {
        "num_nodes": both.edges.num_nodes, "flips": both.edges.packed(),
        "provenance": [list(entry) for entry in flips.provenance],
    }  # fmt: skip


def flips_from_result(result: Result) -> EdgeFlips | GraphFlips:
    """The flips in a result of the measures "evasion" and "poison"."""
    provenance = tuple((str(name), str(value)) for name, value in result["provenance"])
    edges = EdgeFlips.unpacked(result["flips"], result["num_nodes"], provenance)
    if "feature_flips" not in result:
        return edges
    sizes = result["num_nodes"], result["num_features"]
    return GraphFlips(edges, FeatureFlips.unpacked(result["feature_flips"], *sizes, provenance))
