import xml.etree.ElementTree as ET

import pytest

from wtawp.experiments import Demo
from wtawp.experiments.demo import figures
from wtawp.experiments.demo.demo import PAIR, TOY_VARIANTS

SVG = "{http://www.w3.org/2000/svg}"
DRAWN = {
    "toy_panels": (lambda d: figures.toy_panels(d.toys), [f"{name}: accuracy" for name in TOY_VARIANTS]),
    "toy_curves": (lambda d: figures.toy_curves(d.toys), [*TOY_VARIANTS, "epoch", "training loss"]),
    "learning_curves": (figures.learning_curves, [*PAIR, "validation accuracy"]),
    "landscape": (figures.landscape, [*PAIR, "rise of the training loss"]),
}


@pytest.mark.parametrize("name", DRAWN)
def test_figures_are_svg_that_says_what_it_shows_and_repeats_byte_for_byte(small_demo: Demo, name: str) -> None:
    draw, words = DRAWN[name]
    svg = draw(small_demo)
    root = ET.fromstring(svg)
    text = " ".join("".join(t.itertext()) for t in root.iter(f"{SVG}text"))
    assert root.tag == f"{SVG}svg"
    assert all(word in text for word in words)
    assert svg == draw(small_demo)
    assert "http" not in svg.replace("http://www.w3.org", "")
