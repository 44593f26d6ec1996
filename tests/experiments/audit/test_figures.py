from statistics import fmean
from typing import Any

from wtawp.experiments.audit.figures import panels_of
from wtawp.experiments.audit.findings import Audit
from wtawp.experiments.report.drawing import observe_figures


def test_every_section_is_drawn_with_a_caption_and_its_numbers_as_text(small_audit: tuple[Audit, object]) -> None:
    for section in small_audit[0].sections:
        panels = list(panels_of(section))
        assert panels, section.section.key
        for panel in panels:
            assert panel.svg.startswith("<svg")
            assert len(panel.caption) > 20
            assert any(character.isdigit() for character in panel.alt)


def test_the_curve_of_an_attack_shows_the_means(small_audit: tuple[Audit, object]) -> None:
    (section,) = [s for s in small_audit[0].sections if s.section.key == "attack-dice"]
    drawn: list[Any] = []
    with observe_figures(drawn.append):
        list(panels_of(section))
    lines = drawn[0].axes[0].get_lines()
    assert [line.get_label() for line in lines] == list(small_audit[0].rows)
    for line in lines:
        cells = [c for c in section.report.cells if c.cell.row == line.get_label()]
        assert list(line.get_xdata()) == [0.0, 5.0, 10.0]
        assert [round(y, 9) for y in line.get_ydata()] == [round(fmean(c.accuracies.values()), 9) for c in cells]
