"""Plans that measure robustness: attacks before training (poisoning) or after it (evasion), and certificates."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from wtawp.attacks.registry import attack_spec, is_user_attack
from wtawp.attacks.spec import AttackSpec
from wtawp.base import unknown_name
from wtawp.core import AwpConfig
from wtawp.experiments.spec import ITSELF, SURROGATE, Cell, MeasureRequest, Option, Plan, Setting, source_digest

TARGETS = 40  # of attacks on single nodes, as in Nettack's paper
PAPER_NOISE = {"features": (0.01, 0.6), "edges": (0.001, 0.4)}  # p_add and p_del, sec:rand_smooth_details


def poisoning(attack: str, budget: float | int, **options: Option) -> MeasureRequest:
    """Describe an attack on the training, with the paper's options.

    Args:
        attack: The name of an attack.
        budget: Flips allowed: a share of the edges (float) or their number (int).
        **options: Options that differ from the paper's.

    Returns:
        The measure that finds the flips.
    """
    spec = attack_spec(attack)
    paper_options: dict[str, Option] = {**dict(spec.poisoning_options), **_code_of(spec)}
    return MeasureRequest("poison", tuple({"attack": spec.name, "budget": budget, **paper_options, **options}.items()))


def evading(attack: str, budget: float | int, **options: Option) -> MeasureRequest:
    """Describe an attack on trained models, with the paper's options: test nodes with their true labels.

    Args:
        attack: The name of an attack.
        budget: Flips allowed: a share of the edges (float) or their number (int).
        **options: Options that differ from the paper's.

    Returns:
        The measure that attacks and evaluates.
    """
    spec = attack_spec(attack)
    paper_options: dict[str, Option] = {**dict(spec.evasion_options), **_code_of(spec)}
    return MeasureRequest("evasion", tuple({"attack": spec.name, "budget": budget, **paper_options, **options}.items()))


def targeting(attack: str, budget: int | None, targets: int, **options: Option) -> MeasureRequest:
    """Describe attacks on single test nodes of trained models, one after another.

    Args:
        attack: The name of an attack.
        budget: Flips allowed for each target; None for its degree plus 2.
        targets: The number of targets.
        **options: Options of the attack.

    Returns:
        The measure that attacks and evaluates.
    """
    spec = attack_spec(attack)
    stated = {name: value for name, value in spec.evasion_options if name not in ("nodes", "labels")}
    own = {"attack": attack, "budget": budget, "targets": targets, **stated, **_code_of(spec), **options}
    return MeasureRequest("targeted", tuple(own.items()))


def _code_of(attack: AttackSpec) -> dict[str, Option]:
    """The hash of a user's attack, so that results of other code are other results; nothing for attacks of ours."""
    return {"code": source_digest(attack.reference)} if is_user_attack(attack.name) else {}


def budget_name(budget: float | int, unit: str = "edges") -> str:
    """Write a budget for the head of a column.

    Args:
        budget: A share of the edges (float) or a number of edges (int).
        unit: What a number counts.

    Returns:
        The text.

    Example:
        >>> budget_name(0.05), budget_name(253)
        ('5 %', '253 edges')
    """
    return f"{100 * budget:g} %" if isinstance(budget, float) else f"{budget} {unit}"


def attack_plan(
    base: Setting,
    attack: str,
    budgets: Sequence[float | int | None],
    *,
    awp: AwpConfig | None,
    poison: bool,
    adaptive: bool,
    splits: int,
    inits: int,
    targets: int | None = None,
    options: Mapping[str, Option] | None = None,
) -> Plan:
    """Build a plan that attacks a model without and with WT-AWP, paired over splits.

    Args:
        base: The setting of the model without WT-AWP.
        attack: The name of an attack, or "package.module:function".
        budgets: Flips allowed: shares of the edges (float) or numbers of edges (int), not both. For attacks on single
            nodes, the flips for each: numbers, or None for its degree plus 2.
        awp: The perturbation of the second row; None leaves that row out.
        poison: Whether the attack is before the training; otherwise it is after it.
        adaptive: Whether the attack is on the model itself; otherwise it uses a plain GCN. Attacks on single nodes are
            always on the model itself.
        splits: The number of splits.
        inits: The number of initialisations for each split.
        targets: The number of single test nodes to attack, one after another; None for an attack on all of them at
            once, or for 40 if the attack is one on single nodes.
        options: Options of the attack that differ from those of its protocol.

    Returns:
        The plan, with a column without attack and one for each budget.

    Raises:
        ValueError: If the attack cannot be used so, if budgets are of both kinds, or if an option is named like an
            argument.
    """
    spec, own = attack_spec(attack), dict(options or {})
    if arguments := [name for name in ("attack", "budget", "targets") if name in own]:
        raise ValueError(f"{arguments[0]} is no option of an attack; use the argument {arguments[0]} instead")
    if "code" in own:
        raise ValueError("code is no option of an attack; it is the hash of its source, which is computed")
    if spec.has_one_target or targets is not None:
        if poison:
            raise ValueError(
                f"poisoning single nodes would need a training for each of them; attack trained models (without"
                f" --poison), or call wtawp.attack(data, model, method={spec.name!r}, nodes=[node]) and train on the"
                " result"
            )
        if not adaptive:
            raise ValueError("attacks on single nodes always attack the model itself; leave out --no-adaptive")
        return _targeted_plan(base, spec, budgets, awp, TARGETS if targets is None else targets, splits, inits, own)
    if any(budget is None for budget in budgets):
        raise ValueError(f"{attack} needs a budget: a share of the edges as in 0.05, or their number")
    if "evasion" not in spec.stages and not poison:
        raise ValueError(f"{spec.name} attacks the training, not a trained model; ask for poisoning (--poison)")
    if "poisoning" not in spec.stages and poison:
        raise ValueError(f"{spec.name} attacks trained models, not the training; leave out --poison")
    if not poison and "adaptive" in own:
        if type(wanted := own.pop("adaptive")) is not bool:
            raise ValueError(f"the option adaptive must be true or false, got {wanted!r}")
        adaptive = adaptive and wanted
    _check_names(spec, own, poison=poison)
    given = [budget for budget in dict.fromkeys(budgets) if budget is not None]
    if len({isinstance(budget, float) for budget in given}) != 1:
        raise ValueError(f"budgets must be all shares (0.05) or all numbers of edges (253), got {given}")
    unit = "edges" if spec.changes == "edges" else "features"
    names = ("no attack", *(budget_name(budget, unit) for budget in given))
    rows = {base.model: None} if awp is None else {base.model: None, f"{base.model}+WT-AWP": awp}
    cells = []
    for row, method in rows.items():
        setting = replace(base, awp=method)
        if poison:
            surrogate: dict[str, Option] = {"surrogate": base.model if adaptive else SURROGATE}
            if adaptive and spec.unrolls_training:
                surrogate = {}  # the setting names the model itself, with its options
            attacked = [replace(setting, poison=poisoning(attack, b, **{**surrogate, **own})) for b in given]
            settings: list[tuple[Setting, int | None]] = [(each, None) for each in (setting, *attacked)]
        else:
            surrogate_option: dict[str, Option] = {} if adaptive or not spec.uses_victim else {"adaptive": False}
            measured = replace(
                setting, measures=tuple(evading(attack, b, **{**surrogate_option, **own}) for b in given)
            )
            settings = [(measured, None), *((measured, index) for index in range(len(given)))]
        for name, (each, index) in zip(names, settings, strict=True):
            cells.append(Cell(row, name, each, splits, inits, measure=index))
    kind = "poisoning" if poison else "evasion"
    source = "the model itself" if adaptive else "a plain GCN"
    if "surrogate" in own:
        source = "the model itself" if own["surrogate"] in (ITSELF, base.model) else str(own["surrogate"])
    by = f", by the gradient of {source}" if spec.uses_gradient else f", on {source}" if spec.uses_surrogate else ""
    title = f"{base.model} on {base.dataset} under {kind} with {spec.title or spec.name}{by}"
    pairs = () if awp is None else ((base.model, f"{base.model}+WT-AWP"),)
    return Plan("attack", title, tuple(cells), pairs, figures=("accuracy_over_budget",))


def _check_names(attack: AttackSpec, options: Mapping[str, Option], *, poison: bool) -> None:
    """Refuse names that are no options of an attack in a plan; those of the user's attacks are checked with the plan.

    They are in a module that may not be importable, which the check of the plan explains.
    """
    known = {"nodes", "labels", *(("surrogate", "draws") if poison else ())}
    if is_user_attack(attack.name):
        return
    known |= set(attack.options)
    if unknown := [name for name in options if name not in known]:
        raise ValueError(
            unknown_name(f"{attack.name} has no option {unknown[0]!r}", unknown[0], sorted(known), are="it has")
        )


def _targeted_plan(
    base: Setting,
    attack: AttackSpec,
    budgets: Sequence[float | int | None],
    awp: AwpConfig | None,
    targets: int,
    splits: int,
    inits: int,
    options: Mapping[str, Option],
) -> Plan:
    """The plan of attacks on single nodes: the share of targets, all right before, that are still right."""
    if not attack.uses_victim or attack.attacks_training:
        raise ValueError(f"{attack.name} attacks a whole graph, not single nodes; leave out --targets")
    if any(isinstance(budget, float) for budget in budgets):
        raise ValueError(
            f"the budget of attacks on single nodes is a number of flips for each (5), got {list(budgets)}"
        )
    numbers = [budget if budget is None else int(budget) for budget in dict.fromkeys(budgets)]
    rows = {base.model: None} if awp is None else {base.model: None, f"{base.model}+WT-AWP": awp}
    cells = []
    for row, method in rows.items():
        measures = tuple(targeting(attack.name, budget, targets, **options) for budget in numbers)
        setting = replace(base, awp=method, measures=measures)
        cells.append(Cell(row, "all test nodes, no attack", setting, splits, inits))
        for index, budget in enumerate(numbers):
            cells.append(Cell(row, f"targets, {_flips_name(budget)}", setting, splits, inits, measure=index))
    title = (
        f"{base.model} on {base.dataset} under attacks on single nodes with {attack.name}: accuracy on {targets} test"
        " nodes that were all classified correctly, each after its own attack"
    )
    pairs = () if awp is None else ((base.model, f"{base.model}+WT-AWP"),)
    return Plan("attack", title, tuple(cells), pairs)


def _flips_name(budget: int | None) -> str:
    """Write the budget of a target for the head of a column."""
    return "degree + 2 flips each" if budget is None else f"{budget} flips each"


def certifying(
    on: str,
    samples: int,
    *,
    p_add: float | None = None,
    p_del: float | None = None,
    alpha: float = 0.01,
    min_confidence: float = 0.0,
) -> MeasureRequest:
    """Describe a certificate against flips of features or edges.

    Args:
        on: "features" or "edges".
        samples: Noisy copies of the graph that vote.
        p_add: The probability of an addition under the noise; by default the paper's.
        p_del: The probability of a deletion under the noise; by default the paper's.
        alpha: The probability that the guarantee of a node is wrong.
        min_confidence: The confidence below which votes do not count; 0 counts all.

    Returns:
        The measure that certifies.

    Raises:
        ValueError: If `on` is neither "features" nor "edges".
    """
    if on not in PAPER_NOISE:
        raise ValueError(f"a certificate is on {' or on '.join(PAPER_NOISE)}, got {on!r}")
    paper = PAPER_NOISE[on]
    options: dict[str, Option] = {
        "on": on, "p_add": paper[0] if p_add is None else p_add, "p_del": paper[1] if p_del is None else p_del,
        "samples": samples, "alpha": alpha,
    }  # fmt: skip
    if min_confidence != 0:  # left out otherwise: records without a filter keep their keys
        options["min_confidence"] = min_confidence
    return MeasureRequest("certificate", tuple(options.items()))


def certifying_together(certificate: MeasureRequest, *, hops: int | None = None) -> MeasureRequest:
    """Describe the collective certificate that follows from the votes of a certificate.

    Args:
        certificate: A measure that `certifying` made; on edges, with noise that adds none.
        hops: How far the model reaches into the graph; None for models that state it.

    Returns:
        The measure that counts how many nodes withstand one attack on all of them.
    """
    return MeasureRequest("collective", (*certificate.options, *([] if hops is None else [("hops", hops)])))


def noise_of(certificate: MeasureRequest) -> MeasureRequest:
    """Take the noise of a certificate, to train under it.

    Args:
        certificate: A measure that `certifying` made.

    Returns:
        The value of `Setting.noise`.
    """
    options = dict(certificate.options)
    return MeasureRequest("noise", tuple((name, options[name]) for name in ("on", "p_add", "p_del")))


def certificate_plan(
    base: Setting,
    certificates: Sequence[MeasureRequest],
    *,
    awp: AwpConfig | None,
    splits: int,
    inits: int,
    together: Sequence[MeasureRequest] = (),
) -> Plan:
    """Build a plan that certifies a model without and with WT-AWP, paired over splits.

    Args:
        base: The setting of the model without WT-AWP.
        certificates: Measures that `certifying` made.
        awp: The perturbation of the second row; None leaves that row out.
        splits: The number of splits.
        inits: The number of initialisations for each split.
        together: Measures that `certifying_together` made.

    Returns:
        The plan, with a column for the model itself, one for the smoothed model of each certificate, and one for each
        collective certificate.
    """
    rows = {base.model: None} if awp is None else {base.model: None, f"{base.model}+WT-AWP": awp}
    cells = []
    for row, method in rows.items():
        setting = replace(base, awp=method, measures=(*certificates, *together))
        cells.append(Cell(row, "not smoothed", setting, splits, inits))
        heads = ["smoothed"] * len(certificates) + ["collective"] * len(together)
        for index, (head, certificate) in enumerate(zip(heads, setting.measures, strict=True)):
            column = f"{head}, {dict(certificate.options)['on']}"
            cells.append(Cell(row, column, setting, splits, inits, measure=index))
    noise = "" if base.noise is None else ", trained under noise"
    limits = {limit for measure in certificates if (limit := dict(measure.options).get("min_confidence"))}
    counted = f" of votes of confidence {', '.join(map(str, sorted(limits)))} or more" if limits else ""
    title = f"{base.model} on {base.dataset}{noise}, certified by randomized smoothing{counted}"
    pairs = () if awp is None else ((base.model, f"{base.model}+WT-AWP"),)
    figures = ("certified_accuracy", "certified_together") if together else ("certified_accuracy",)
    return Plan("certificate", title, tuple(cells), pairs, figures=figures)
