"""Plans that ask how robust a model is: attacked before training (poisoning) or after it (evasion), or certified."""

from collections.abc import Sequence
from dataclasses import replace

from wtawp.attacks.registry import attack_spec
from wtawp.core import AwpConfig
from wtawp.experiments.spec import SURROGATE, Cell, Measure, Option, Plan, Setting

PAPER_NOISE = {"features": (0.01, 0.6), "edges": (0.001, 0.4)}  # p_add and p_del, sec:rand_smooth_details


def poisoning(attack: str, budget: float | int, **options: Option) -> Measure:
    """An attack on the training, in the protocol of the paper's tables.

    Args:
        attack: The name of an attack.
        budget: Flips allowed: a share of the edges (float) or their number (int).
        options: Options that differ from the protocol's.

    Returns:
        The measure that finds the flips.
    """
    protocol: dict[str, Option] = dict(attack_spec(attack).poisoning_options)
    return Measure("poison", tuple({"attack": attack, "budget": budget, **protocol, **options}.items()))


def evading(attack: str, budget: float | int, **options: Option) -> Measure:
    """An attack on trained models, in the protocol of the paper's tables: test nodes with their true labels.

    Args:
        attack: The name of an attack.
        budget: Flips allowed: a share of the edges (float) or their number (int).
        options: Options that differ from the protocol's.

    Returns:
        The measure that attacks and evaluates.
    """
    protocol: dict[str, Option] = dict(attack_spec(attack).evasion_options)
    return Measure("evasion", tuple({"attack": attack, "budget": budget, **protocol, **options}.items()))


def budget_name(budget: float | int) -> str:
    """For people: 0.05 is "5 %", 253 is "253 edges"."""
    return f"{100 * budget:g} %" if isinstance(budget, float) else f"{budget} edges"


def attack_plan(
    base: Setting,
    attack: str,
    budgets: Sequence[float | int],
    *,
    awp: AwpConfig | None,
    poison: bool,
    adaptive: bool,
    splits: int,
    inits: int,
) -> Plan:
    """`base` without and with `awp` (None: without alone), unattacked and at each budget, paired over splits.

    `adaptive`: the attack differentiates through the model itself, and not through a plain GCN in its place.
    """
    spec = attack_spec(attack)
    if "evasion" not in spec.stages and not poison:
        raise ValueError(f"{attack} attacks the training, not a trained model; ask for poisoning (--poison)")
    budgets = list(dict.fromkeys(budgets))
    if len({isinstance(budget, float) for budget in budgets}) != 1:
        raise ValueError(f"budgets must be all shares (0.05) or all numbers of edges (253), got {budgets}")
    rows = {base.model: None} if awp is None else {base.model: None, f"{base.model}+WT-AWP": awp}
    cells = []
    for row, method in rows.items():
        setting = replace(base, awp=method)
        if poison:
            surrogate = base.model if adaptive else SURROGATE
            attacked = [replace(setting, poison=poisoning(attack, b, surrogate=surrogate)) for b in budgets]
            settings: list[tuple[Setting, int | None]] = [(setting, None), *((one, None) for one in attacked)]
        else:
            through: dict[str, Option] = {} if adaptive or not spec.uses_victim else {"adaptive": False}
            measured = replace(setting, measures=tuple(evading(attack, b, **through) for b in budgets))
            settings = [(measured, None), *((measured, place) for place in range(len(budgets)))]
        for name, (one, place) in zip(("no attack", *map(budget_name, budgets)), settings, strict=True):
            cells.append(Cell(row, name, one, splits, inits, measure=place))
    kind = "poisoning" if poison else "evasion"
    whose = "the model itself" if adaptive else "a plain GCN"
    how = "" if not spec.uses_gradient else f", by the gradient of {whose}"
    title = f"{base.model} on {base.dataset} under {kind} with {attack}{how}"
    pairs = () if awp is None else ((base.model, f"{base.model}+WT-AWP"),)
    return Plan("attack", title, tuple(cells), pairs, figures=("accuracy_over_budget",))


def certifying(
    on: str, samples: int, *, p_add: float | None = None, p_del: float | None = None, alpha: float = 0.01
) -> Measure:
    """A certificate against flips of "features" or "edges", under the paper's noise unless another is given."""
    if on not in PAPER_NOISE:
        raise ValueError(f"a certificate is on {' or on '.join(PAPER_NOISE)}, got {on!r}")
    paper = PAPER_NOISE[on]
    options: dict[str, Option] = {
        "on": on, "p_add": paper[0] if p_add is None else p_add, "p_del": paper[1] if p_del is None else p_del,
        "samples": samples, "alpha": alpha,
    }  # fmt: skip
    return Measure("certificate", tuple(options.items()))


def noise_of(certificate: Measure) -> Measure:
    """The noise of a certificate, to train under it."""
    options = dict(certificate.options)
    return Measure("noise", tuple((name, options[name]) for name in ("on", "p_add", "p_del")))


def certificate_plan(
    base: Setting, certificates: Sequence[Measure], *, awp: AwpConfig | None, splits: int, inits: int
) -> Plan:
    """`base` without and with `awp` (None: without alone), plain and smoothed under the noise of each certificate."""
    rows = {base.model: None} if awp is None else {base.model: None, f"{base.model}+WT-AWP": awp}
    cells = []
    for row, method in rows.items():
        setting = replace(base, awp=method, measures=tuple(certificates))
        cells.append(Cell(row, "not smoothed", setting, splits, inits))
        for place, wanted in enumerate(certificates):
            on = f"smoothed, {dict(wanted.options)['on']}"
            cells.append(Cell(row, on, setting, splits, inits, measure=place))
    how = "" if base.noise is None else ", trained under noise"
    title = f"{base.model} on {base.dataset}{how}, certified by randomized smoothing"
    pairs = () if awp is None else ((base.model, f"{base.model}+WT-AWP"),)
    return Plan("certificate", title, tuple(cells), pairs, figures=("certified_accuracy",))
