"""Tables of the paper by the protocol of the code that was released with it, where that differs from the text.

The released code draws its splits from numpy's global generator, selects the epochs of two baselines on validation loss
alone, uses 16 hidden units in all robustness runs, draws the logits of an RGCN in evaluation as well, and has
Metattack test the degrees and guess labels with a linear GCN.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from wtawp.experiments.plans.robustness import poisoning
from wtawp.experiments.spec import Cell, Option, Plan, Setting, SplitRule
from wtawp.training.options import SelectOn

SPLITS = SplitRule(kind="released")
HIDDEN: tuple[tuple[str, Option], ...] = (("hidden", (16,)),)
SELECTED_ON: dict[str, SelectOn] = {"GAT": "loss", "PPNP": "loss"}  # what selects the epochs of the plain baselines
IN_EVALUATION: dict[str, tuple[tuple[str, Option], ...]] = {"RGCN": (("sample", True),)}  # options that act there alone
ABLATIONS = ("tab:ablation", "tab:ablation2", "tab:ablationlast")
DRAWS = 3  # of PGD's flips for each split, as draws differ by more than splits; an initialisation for each
LIKELIHOOD_CUTOFF = 0.004
# Options of Metattack, one after another, from how the other tables use it to how the released code does; the last is
# how the first implementation, which is older than that, draws the initial weights.
METATTACKS: dict[str, dict[str, Option]] = {
    "no degree test": {},
    "degree test": {"likelihood_cutoff": LIKELIHOOD_CUTOFF},
    "degree test, linear surrogate": {"likelihood_cutoff": LIKELIHOOD_CUTOFF, "surrogate": "LinearGCN"},
    "degree test, linear surrogate, Glorot": {
        "likelihood_cutoff": LIKELIHOOD_CUTOFF, "surrogate": "LinearGCN", "initial": "glorot",
    },
}  # fmt: skip
AS_RELEASED: dict[str, dict[str, Option]] = {
    "metattack": METATTACKS["degree test, linear surrogate"],
    "pgd": {"draws": DRAWS},
}


def released_plans(tables: Mapping[str, Plan]) -> tuple[Plan, ...]:
    """Build the plans.

    Args:
        tables: The plans of the paper's tables, by label.

    Returns:
        The clean tables, poisoning and evasion as in the released code, and how each option of Metattack counts.
    """
    clean = _with_cells(tables["tab:natacc"], [_clean(cell) for cell in tables["tab:natacc"].cells])
    ablations = [  # on the paper's own splits, means differ by what initialisations change alone
        _with_cells(tables[name], [replace(_clean(cell), inits=1) for cell in tables[name].cells]) for name in ABLATIONS
    ]
    poisoned = [each for cell in tables["tab:poison"].cells for each in _poisoned(cell)]
    evaded = [_attacked(cell, HIDDEN) for cell in tables["tab:evasion"].cells]
    return (
        clean,
        *ablations,
        _with_cells(tables["tab:poison"], poisoned),
        _with_cells(tables["tab:evasion"], evaded),
        _metattack_options(),
    )


def _with_cells(plan: Plan, cells: Sequence[Cell]) -> Plan:
    """A table with other cells, under its name with "released" in place of "tab"."""
    name = plan.name.replace("tab:", "released:")
    title = f"{plan.title}, as the released code does it"
    return replace(plan, name=name, title=title, cells=tuple(cells), repeats=plan.name)


def _clean(cell: Cell) -> Cell:
    """A cell of a table without attacks, on the released splits."""
    selected_on = SELECTED_ON.get(cell.row, cell.setting.select_on)
    return replace(cell, setting=replace(cell.setting, split=SPLITS, select_on=selected_on))


def _attacked(cell: Cell, options: tuple[tuple[str, Option], ...]) -> Cell:
    """A cell of a table with attacks, on the released splits, with options of the model."""
    setting = replace(cell.setting, split=SPLITS, options=options)
    return replace(cell, setting=setting, inits=setting.poison_draws)


def _poisoned(cell: Cell) -> tuple[Cell, ...]:
    """A cell of tab:poison as the released code has it; where it draws logits in evaluation, with their means too."""
    setting = cell.setting
    if setting.poison is not None:
        attack = str(dict(setting.poison.options)["attack"])
        cell = replace(cell, setting=replace(setting, poison=setting.poison.with_options(**AS_RELEASED[attack])))
    in_evaluation = IN_EVALUATION.get(cell.row)
    if in_evaluation is None:
        return (_attacked(cell, setting.options),)
    means = replace(_attacked(cell, setting.options), row=f"{cell.row}, means", judged=False)
    return _attacked(cell, (*setting.options, *in_evaluation)), means


def _metattack_options() -> Plan:
    """A GCN poisoned by Metattack with one option after another, where the tables differ most from the paper."""
    cells = [
        Cell(
            row,
            dataset,
            Setting(dataset=dataset, options=HIDDEN, split=SPLITS, poison=poisoning("metattack", 0.05, **options)),
            5,
            3,
            judged=False,
        )
        for dataset in ("citeseer", "polblogs")
        for row, options in METATTACKS.items()
    ]
    rows = list(METATTACKS)
    return Plan(
        "deviation:metattack",
        "Metattack with one option after another",
        tuple(cells),
        tuple((rows[0], row) for row in rows[1:]),
    )
