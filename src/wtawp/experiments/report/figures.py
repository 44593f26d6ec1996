"""The registry of figures: those of a subject are listed here, those of a measure come from its reporter."""

from difflib import get_close_matches

from wtawp.experiments.report.accuracy_figures import accuracy_over_budget, accuracy_over_rho
from wtawp.experiments.report.gain_figures import gains, gains_by_column, gains_over_lam, gains_over_overfitting
from wtawp.experiments.report.league_figures import critical_difference
from wtawp.experiments.report.reporters import FigureSpec, all_reporters
from wtawp.experiments.report.toy_figures import decisions, toy_losses
from wtawp.experiments.report.training_curves import (
    gradient_norms,
    losses_and_gap,
    relative_gradient_norms,
    saturation_curves,
    sharpness_curves,
)
from wtawp.experiments.results.summary import PlanReport
from wtawp.experiments.spec import Plan

_FIGURES = {
    "accuracy_over_budget": FigureSpec(
        accuracy_over_budget,
        "Test accuracy, and the drop from the clean graph, over the number of flipped edges, with bands of one "
        "standard deviation over runs.",
    ),
    "accuracy_over_rho": FigureSpec(
        accuracy_over_rho,
        "Test accuracy over the radius: ours as lines with bands of one standard deviation over runs, the paper's as "
        "dashed lines with dots. The right panel shows the means again, where the models train, with bands of one "
        "standard error over splits.",
    ),
    "critical_difference": FigureSpec(
        critical_difference,
        "Mean ranks of the methods over models and data sets. Bars join methods whose differences chance can explain "
        "(Nemenyi, 5 %).",
    ),
    "decisions": FigureSpec(
        decisions,
        "One run of each method: nodes filled by prediction score (blue for one class, red for the other, pale for "
        "undecided) and outlined by label; lines are the edges that the model sees.",
    ),
    "gains": FigureSpec(
        gains,
        "What the method adds: a dot for each split (its initialisations averaged, the first split on top), a diamond "
        "for their mean, a bar for its 95 % interval. Where there are attacks, the second panel shows in the same way "
        "how much more of the clean accuracy they take from the method; below 0 they take less.",
        where_printed="A vertical stroke is the gain that the paper prints.",
    ),
    "gains_by_column": FigureSpec(
        gains_by_column,
        "What each method adds to each model, with 95 % intervals, paired over splits; the scale is logarithmic beyond "
        "one point.",
    ),
    "gains_over_lam": FigureSpec(
        gains_over_lam,
        'Gain over a fixed lam, a line for each rho, and that of lam="auto" with its 95 % interval, paired over '
        "splits; a collapse leaves the panel.",
    ),
    "gains_over_overfitting": FigureSpec(
        gains_over_overfitting,
        "Where WT-AWP helps: its gain over how much plain training overfits, (L_val - L_train) / (L_val + L_train) at "
        "the selected epochs; a dot for each model and data set, with Spearman's correlation.",
    ),
    "gradient_norms": FigureSpec(
        gradient_norms,
        "Norm of the gradient at the perturbed weights; a thin line for each run, a thick one for their median.",
    ),
    "losses_and_gap": FigureSpec(
        losses_and_gap,
        "Training loss, and the rise that the perturbation causes; a thin line for each run, a thick one for their "
        "median. Plain training has no perturbation, so its rise is 0.",
    ),
    "relative_gradient_norms": FigureSpec(
        relative_gradient_norms,
        "Gradient norm relative to that of the weights; a thin line for each run, a thick one for their median.",
    ),
    "saturation_curves": FigureSpec(
        saturation_curves,
        "What the perturbation does in training, medians over runs and over nine epochs: the mean distance between a "
        "node's largest and smallest logit, the mean probability of its likeliest class and the norm of the gradient, "
        "at the perturbed weights or as they are. Plain training has no perturbation.",
    ),
    "sharpness_curves": FigureSpec(
        sharpness_curves,
        "The largest rise of the training loss inside a ball around the weights, found by climbing, every tenth epoch "
        "and with one radius for all methods; a thin line for each run, a thick one for their median.",
    ),
    "toy_losses": FigureSpec(toy_losses, "Natural training loss of one run of each method."),
}


def figure_names() -> tuple[str, ...]:
    """The names of all figures that a plan may ask for.

    Returns:
        Those of subjects, then those of measures.
    """
    return (*_FIGURES, *(name for reporter in all_reporters().values() for name in reporter.figures))


def figure_spec(name: str) -> FigureSpec:
    """Find a figure by its name.

    Args:
        name: The name of the figure in plans.

    Returns:
        How to draw it, and its caption.

    Raises:
        ValueError: If there is no figure of that name.
    """
    if name in _FIGURES:
        return _FIGURES[name]
    for reporter in all_reporters().values():
        if name in reporter.figures:
            return reporter.figures[name]
    near = get_close_matches(name, figure_names(), 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"figure must be one of {', '.join(figure_names())}, got {name!r}{hint}")


def figures_of(report: PlanReport) -> list[tuple[str, str, str]]:
    """Draw every figure of a plan.

    Args:
        report: The plan with its measurements.

    Returns:
        Name, SVG text and caption of each; the text is "" where nothing was measured yet.
    """
    return [(name, figure_spec(name).draw(report), caption) for name, caption in captions_of(report.plan)]


def captions_of(plan: Plan) -> list[tuple[str, str]]:
    """List the figures of a plan without drawing them.

    Args:
        plan: The plan.

    Returns:
        Name and caption of each; a plan with pairs also has the figure of their gains, unless it asks for one that
        shows them in another way.
    """
    has_own = any(name.startswith("gains_") for name in plan.figures)
    names = [*plan.figures, *(["gains"] if plan.pairs and not has_own else [])]
    is_printed = any(cell.printed is not None for cell in plan.cells)
    specs = {name: figure_spec(name) for name in names}
    return [
        (name, f"{spec.caption} {spec.where_printed}".strip() if is_printed else spec.caption)
        for name, spec in specs.items()
    ]
