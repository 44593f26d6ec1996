"""The strongest of several attacks: for each victim the flips that leave the lowest accuracy.

One attack may fail on a model that another breaks: its loss rewards flips near nodes that are lost already, its
gradient vanishes in a defence, or it needs edge weights that the model does not take. So every attack whose
`AttackSpec` names strong variants is run, and flips that mislead a plain surrogate are tried as well. What each attack
reached, and why others were skipped, is in the provenance of the flips (see `AttackOutcome`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from wtawp.attacks.checks import checked_labels, refuse_without_features
from wtawp.attacks.outcomes import AttackOutcome
from wtawp.attacks.registry import attack_names, attack_spec
from wtawp.attacks.relaxed import target_of
from wtawp.attacks.spec import AttackRequest, AttackSpec
from wtawp.attacks.surrogate import distilled_surrogate
from wtawp.base import AttackError, WtawpError, checked_seed, part_of_progress, seed_of
from wtawp.graphs.flips import EdgeFlips, budget_of
from wtawp.graphs.row_choices import checked_rows
from wtawp.models.evaluation import evaluating

T = TypeVar("T")
MOST_NODES = 10_000  # for attacks whose time grows with the square of the number of nodes
PAIRS_PER_FLIP = 4  # draws of random pairs in a block, at least, for each flip of the budget


def strongest(
    data: Data,
    victim: nn.Module,
    *,
    budget: float | int,
    nodes: Tensor,
    labels: Tensor,
    seed: int,
    surrogate: nn.Module | None = None,
    restarts: int = 2,
    steps: int | None = None,
    block_size: int | None = None,
    transfer: bool = True,
) -> EdgeFlips:
    """Run several attacks and return the flips that leave the lowest accuracy on the attacked nodes.

    The attacks are PGD on the tanh margin and on the cross-entropy (the paper's), PRBCD, GRBCD, EvA, which uses the
    victim's predictions alone, any other registered attack with `strong_variants`, and the flips that PRBCD and GRBCD
    find on a plain surrogate. An attack that cannot be applied is skipped, and the provenance of the flips says why.

    Args:
        data: The graph.
        victim: The model, called as `victim(x, edge_index, edge_weight)`; without edge weights, only attacks that need
            no gradient and the flips of the surrogate remain.
        budget: The number of flips allowed: undirected edges (int) or a share of the graph's edges (float).
        nodes: The nodes whose loss is to rise and whose accuracy decides, as indices or a mask.
        labels: The labels of all nodes, [n].
        seed: The seed of all attacks.
        surrogate: A model of which flips are transferred. None: a GCN that learns the victim's predictions.
        restarts: How often attacks that search random pairs are run, each time from another seed.
        steps: The number of steps of every attack. None: a number for each that takes it about as far as it gets.
        block_size: The number of random pairs that PRBCD and GRBCD consider at a time. None: 50,000, or more where the
            budget needs more.
        transfer: Whether flips that mislead the surrogate are tried.

    Returns:
        The flips of the attack that won; `AttackOutcome.of(flips.provenance)` says what all of them reached.

    Raises:
        ValueError: If nodes, labels or options are not what they must be.
        AttackError: If no attack can be applied, or no flips change the victim's output.

    Example:
        >>> from wtawp.base import rng
        >>> from wtawp.graphs import citation
        >>> from wtawp.models import GCN
        >>> data, victim = citation(seed=0, num_nodes=60, num_words=20), GCN(20, 7, generator=rng("victim"))
        >>> flips = strongest(data, victim, budget=5, nodes=torch.arange(20), labels=data.y, seed=0, steps=3)
        >>> outcome = AttackOutcome.of(flips.provenance)
        >>> outcome.accuracies[outcome.winner] == min(outcome.accuracies.values())
        True
    """
    seed = checked_seed(seed)
    request = AttackRequest.single(
        data, victim, budget=budget, nodes=nodes, labels=labels, seed=seed, surrogate=surrogate
    )
    return run_strongest(request, restarts=restarts, steps=steps, block_size=block_size, transfer=transfer)[0]


def run_strongest(
    request: AttackRequest,
    *,
    restarts: int = 2,
    steps: int | None = None,
    block_size: int | None = None,
    transfer: bool = True,
) -> list[EdgeFlips]:
    """Run `strongest` on every victim of a request, for the registry."""
    for name, value in (("restarts", restarts), ("steps", steps), ("block_size", block_size)):
        if value is not None and value < 1:
            raise ValueError(f"{name} must be >= 1, got {value}")
    _check(request)
    options = {"restarts": restarts, "steps": steps, "block_size": block_size}
    contests = [_Contest(request, i) for i in range(len(request.victims))]
    members = _members(request, steps, block_size)
    of_surrogate = [member for member in members if member.restarts and member.spec.uses_gradient and transfer]
    rounds = [(member, restart) for member in members for restart in range(restarts if member.restarts else 1)]
    parts = len(rounds) + len(of_surrogate)
    for part, (member, restart) in enumerate(rounds):
        with part_of_progress(part / parts, (part + 1) / parts):
            _enter(contests, request, member, restart)
    if of_surrogate:
        with part_of_progress(len(rounds) / parts, 1.0):
            _enter_transferred(contests, request, of_surrogate)
    return [contest.flips(options) for contest in contests]


@dataclass(frozen=True)
class _Member:
    """An attack that takes part, with its options."""

    name: str  # for people
    spec: AttackSpec
    options: dict[str, Any]

    @property
    def restarts(self) -> bool:
        """Whether another seed finds other flips."""
        return self.spec.searches_at_random

    def run(self, request: AttackRequest) -> list[EdgeFlips]:
        """The flips of each victim; members change edges alone."""
        return cast("list[EdgeFlips]", self.spec.run(request, **self.options))


def _members(request: AttackRequest, steps: int | None, block_size: int | None) -> list[_Member]:
    """The strong variants of all registered attacks on edges."""
    members = []
    least = PAIRS_PER_FLIP * budget_of(request.data, request.given_budget)
    for spec in map(attack_spec, attack_names("evasion")):
        for variant in spec.strong_variants if spec.changes == "edges" else ():
            options = dict(variant)
            name = f"{spec.label}, {variant[0][1]}" if variant and len(spec.strong_variants) > 1 else spec.label
            if "block_size" in options:
                options["block_size"] = block_size or max(int(options["block_size"] or 0), least)
            if steps is not None and "steps" in spec.options:
                options["steps"] = steps
            members.append(_Member(name, spec, options))
    return members


@dataclass
class _Contest:
    """The attacks on one victim so far."""

    request: AttackRequest
    index: int
    best: EdgeFlips | None = None
    best_score: tuple[float, float] = (-1.0, 0.0)
    winner: str = ""
    accuracies: dict[str, float] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    changes_output: bool = False

    def __post_init__(self) -> None:
        request, i = self.request, self.index
        self.target = target_of(request.data, [request.nodes[i]], [request.labels[i]], "ce", victim=request.victims[i])
        self.clean = self._logits(request.data)

    def _logits(self, data: Data) -> Tensor:  # -> [1, n, c]
        """The victim's logits on a graph."""
        victim = self.request.victims[self.index]
        with evaluating(victim), torch.no_grad():
            logits: Tensor = victim(data.x, data.edge_index)
        return logits[None]

    def enter(self, name: str, flips: EdgeFlips) -> None:
        """Hold flips against the best so far: the lowest accuracy wins, ties by the higher cross-entropy."""
        logits = self._logits(flips.apply(self.request.data))
        lost = float(self.target.lost(logits)[0])
        self.changes_output |= not torch.equal(logits, self.clean)
        self.skipped.pop(name, None)  # it worked in this restart
        self.accuracies[name] = min(1 - lost, self.accuracies.get(name, 1.0))
        score = lost, float(self.target.losses(logits)[0])
        if score > self.best_score:
            self.best, self.best_score, self.winner = flips, score, name

    def skip(self, name: str, reason: str) -> None:
        """Record why an attack was not run; one that worked in another restart stays."""
        if name not in self.accuracies:
            self.skipped[name] = reason

    def flips(self, options: dict[str, Any]) -> EdgeFlips:
        """The best flips, with the outcome of all attacks and the winner's own entries in their provenance."""
        if self.best is None or not self.changes_output:
            raise AttackError(self._complaint())
        request = self.request
        origin = {"attack": "strongest", "budget": request.budget, "seed": request.seeds[self.index], **options}
        own = [(f"winner's {name}", value) for name, value in self.best.provenance]
        outcome = AttackOutcome(self.winner, self.accuracies, self.skipped)
        provenance = (*((name, str(value)) for name, value in origin.items()), *outcome.provenance(), *own)
        return EdgeFlips(self.best.pairs, self.best.num_nodes, provenance)

    def _complaint(self) -> str:
        """Why there are no flips, and what to do."""
        victim = type(self.request.victims[self.index]).__name__
        reasons = "; ".join(f"{name}: {reason}" for name, reason in self.skipped.items())
        if self.best is not None:
            tried = ", ".join(self.accuracies)
            return f"{victim} ignores the graph: no flips of {tried} change its output" + f" ({reasons})" * bool(
                reasons
            )
        return (
            f"none of the attacks can be applied to {victim} ({reasons}). What works: a module around it that is called"
            " as victim(x, edge_index, edge_weight) and uses the weights; flips of a surrogate (transfer=True); or"
            f" attacks that need no gradient: {', '.join(_without_gradient())}"
        )


def _without_gradient() -> list[str]:
    """The names of the attacks on trained models that any victim can be attacked with."""
    return [name for name in attack_names("evasion") if attack_spec(name).needs in ("nothing", "labels", "predictions")]


def _check(request: AttackRequest) -> None:
    """Refuse arguments that no attack accepts, so that they are not taken for a weakness of the attacks."""
    size = int(request.data.num_nodes)
    refuse_without_features(request.data)
    budget_of(request.data, request.given_budget)
    for nodes, labels in zip(request.nodes, request.labels, strict=True):
        checked_rows(nodes, size)
        checked_labels(labels, size)


def _enter(contests: Sequence[_Contest], request: AttackRequest, member: _Member, restart: int) -> None:
    """Run an attack on the victims that it can be applied to."""
    wanted = [contest for contest in contests if _is_wanted(contest, member)]
    if restart:
        seeds = [seed_of("restart", seed, restart) for seed in request.seeds]
        request = replace(request, seeds=seeds)
    for contest, flips in _attacked(wanted, request, member):
        if isinstance(flips, str):
            contest.skip(member.name, flips)
            continue
        try:
            contest.enter(member.name, flips)
        except (WtawpError, ValueError) as error:
            contest.skip(member.name, str(error))


def _is_wanted(contest: _Contest, member: _Member) -> bool:
    """Whether an attack should be run on a victim; if not, the reason is recorded."""
    size = int(contest.request.data.num_nodes)
    if member.spec.is_quadratic and size > MOST_NODES:
        contest.skip(
            member.name,
            f"its time grows with the square of the number of nodes, and {size} are more than {MOST_NODES}",
        )
        return False
    return True


def _attacked(
    contests: Sequence[_Contest], request: AttackRequest, member: _Member
) -> Iterable[tuple[_Contest, EdgeFlips | str]]:
    """The flips of an attack on each victim, all at once if possible, or why it cannot be applied."""
    if not contests:
        return []
    try:
        found = member.run(_part(request, contests))
        return list(zip(contests, found, strict=True))
    except (WtawpError, ValueError) as error:
        if len(contests) == 1:
            return [(contests[0], str(error))]
    return [pair for contest in contests for pair in _attacked([contest], request, member)]


def _part(request: AttackRequest, contests: Sequence[_Contest]) -> AttackRequest:
    """The request for some of the victims."""

    def chosen(values: Sequence[T]) -> list[T]:
        return [values[contest.index] for contest in contests]

    return replace(
        request,
        victims=chosen(request.victims),
        nodes=chosen(request.nodes),
        labels=chosen(request.labels),
        seeds=chosen(request.seeds),
        split_seeds=chosen(request.split_seeds),
        trains=None if request.trains is None else chosen(request.trains),
        surrogates=None if request.surrogates is None else chosen(request.surrogates),
    )


def _enter_transferred(contests: Sequence[_Contest], request: AttackRequest, members: Sequence[_Member]) -> None:
    """Try flips that mislead a surrogate of each victim."""
    for contest in contests:
        with part_of_progress(contest.index / len(contests), (contest.index + 1) / len(contests)):
            _transfer(contest, _part(request, [contest]), members)


def _transfer(contest: _Contest, request: AttackRequest, members: Sequence[_Member]) -> None:
    """Try flips that mislead the surrogate of one victim."""
    names = [f"{member.name} on a surrogate" for member in members]
    try:
        if request.surrogates is None:
            seed = request.seeds[0]
            surrogates = [distilled_surrogate(request.data, request.victims[0], seed=seed)]
        else:
            surrogates = list(request.surrogates)
    except (WtawpError, ValueError) as error:
        for name in names:
            contest.skip(name, str(error))
        return
    for number, (name, member) in enumerate(zip(names, members, strict=True)):
        with part_of_progress(number / len(members), (number + 1) / len(members)):
            try:
                contest.enter(name, member.run(replace(request, victims=surrogates))[0])
            except (WtawpError, ValueError) as error:
                contest.skip(name, str(error))
