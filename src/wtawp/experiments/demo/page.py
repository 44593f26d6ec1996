"""The demonstration as one self-contained HTML page, without scripts and without requests to the network."""

from statistics import mean, stdev

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from wtawp.experiments.demo import figures
from wtawp.experiments.demo.runner import COMPARED, PAIR, SHARPNESS_RHO, TOY_RHO, Demo
from wtawp.experiments.report.drawing import embed

CAPTIONS = {
    "learning_curves": "Learning curves; a thin line for each split. WT-AWP converges more slowly, so short trainings "
    "put it at a disadvantage.",
    "landscape": "Loss landscape: the training loss along ten random directions around the selected weights, less its "
    "value there. Lines are means, bands quartiles. Random directions are not the worst one: that is what sharpness "
    "measures.",
    "toy_panels": "Nodes filled by prediction score, outlined by label (figure 2 of the paper).",
    "toy_curves": "The natural training loss of the same five trainings (figure 3 of the paper).",
}


def demo_rows(demo: Demo) -> list[tuple[str, str, str, str]]:
    """The table of the comparison as text, for the page and the terminal.

    Args:
        demo: The trained models.

    Returns:
        For each method its name, test accuracy, sharpness and selected epochs.
    """
    rows = []
    for name in PAIR:
        accuracies, sharp = demo.accuracies(name), [t.sharpness for t in demo.of(name)]
        epochs = ", ".join(str(t.fit.epoch) for t in demo.of(name))
        rows.append(
            (
                name,
                f"{mean(accuracies):.2f} ± {stdev(accuracies):.2f}",
                f"{mean(sharp):.3f} ± {stdev(sharp):.3f}",
                epochs,
            )
        )
    return rows


def demo_gain(demo: Demo) -> str:
    """The paired difference with its interval as text.

    Args:
        demo: The trained models.

    Returns:
        A phrase such as "+0.50 points (95 % interval ...)".
    """
    g = demo.gain
    return f"{g.mean:+.2f} points (95 % interval: {g.interval('+.2f')}; {g.num_pairs} paired splits)"


def demo_page(demo: Demo) -> str:
    """Write the demonstration as one HTML page.

    Args:
        demo: The trained models.

    Returns:
        The page; it needs no other file and no network.
    """
    environment = Environment(
        loader=PackageLoader("wtawp.experiments.demo"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    drawn = {
        "toy_panels": figures.toy_panels(demo.toys),
        "toy_curves": figures.toy_curves(demo.toys),
        "learning_curves": figures.learning_curves(demo),
        "landscape": figures.landscape(demo),
    }
    shown = {name: Markup(embed(svg, prefix=name, label=CAPTIONS[name])) for name, svg in drawn.items()}  # from numbers
    return environment.get_template("demo.html.j2").render(
        demo=demo,
        toy_rho=TOY_RHO,
        sharpness_rho=SHARPNESS_RHO,
        setting=COMPARED,
        rows=demo_rows(demo),
        gain=demo_gain(demo),
        pairs=list(zip(*(demo.accuracies(name) for name in PAIR), strict=True)),
        captions=CAPTIONS,
        **shown,
    )
