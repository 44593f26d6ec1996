import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from wtawp.core import AwpConfig
from wtawp.experiments.report.drawing import (
    COLOURS,
    METHOD_COLOURS,
    drawing,
    embed,
    log_ticks,
    method_style,
    observe_figures,
    row_styles,
    style_by_index,
    use_log_scale,
)
from wtawp.experiments.results.methods import MethodKind

SVG = "{http://www.w3.org/2000/svg}"
PLAIN_ROW = {"GCN": None}


def awp(rho: float, lam: float, layers: str = "all-but-last", **options: Any) -> AwpConfig:
    return AwpConfig(rho=rho, lam=lam, layers=layers, **options)


def draw(title: str) -> str:
    with drawing(1, 2, 4, 2) as (axes, out):
        axes[0].plot([1, 2], [1e-3, 1e3])
        use_log_scale(axes[0], "y")
        axes[0].set_title(title)
        axes[1].scatter([0.0, 1.0], [0.0, 1.0])
    return out[0]


def words(svg: str) -> list[str]:
    return ["".join(t.itertext()) for t in ET.fromstring(svg).iter(f"{SVG}text")]


def test_a_drawing_is_svg_that_repeats_byte_for_byte() -> None:
    assert draw("one") == draw("one")
    assert draw("one").startswith("<svg")


def test_observers_get_the_finished_figure_inside_their_block_only() -> None:
    plotted: list[list[float]] = []
    with observe_figures(lambda figure: plotted.append(figure.axes[0].lines[0].get_ydata().tolist())):
        draw("one")
    draw("two")
    assert plotted == [[1e-3, 1e3]]


def test_pixels_are_written_where_asked_for(tmp_path: Path) -> None:
    with drawing(1, 1, 2, 2, png=tmp_path / "a.png") as (axes, out):
        axes[0].plot([1, 2])
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert out[0].startswith("<svg")


def test_names_are_shown_as_they_are() -> None:
    name = r"a $b$ <c> & \frac"
    assert name in words(draw(name))
    assert "0.001" in words(draw(name))


def test_ids_of_two_drawings_do_not_meet_and_references_still_resolve() -> None:
    roots = [ET.fromstring(embed(draw("x"), prefix=prefix, label="x")) for prefix in ("a", "b")]
    ids = [{e.get("id") for e in root.iter() if e.get("id")} for root in roots]
    assert not ids[0] & ids[1]
    links = {e.get("{http://www.w3.org/1999/xlink}href", "") for e in roots[0].iter()} - {""}
    clips = {e.get("clip-path", "") for e in roots[0].iter()} - {""}
    assert links
    assert clips
    assert {link.removeprefix("#") for link in links} | {c[5:-1] for c in clips} <= ids[0]


def test_a_figure_of_a_page_says_what_it_shows_and_loses_nothing_that_is_seen() -> None:
    name = r"a $b$ <c> & \frac"
    drawn = draw(name)
    shown = embed(drawn, prefix="a", label=f'curves of {name} "quoted"')
    root = ET.fromstring(shown)
    assert (root.get("role"), root.get("aria-label")) == ("img", f'curves of {name} "quoted"')
    assert len(shown) < 0.7 * len(drawn)
    assert words(shown) == words(drawn)
    paths, before = ([[float(x) for x in re.findall(r"-?[0-9.]+", e.get("d", ""))] for e in tree.iter() if e.get("d")]
                     for tree in (root, ET.fromstring(drawn)))  # fmt: skip
    assert [len(path) for path in paths] == [len(path) for path in before]
    assert max(abs(a - b) for pair in zip(paths, before, strict=True) for a, b in zip(*pair, strict=True)) <= 0.005


def test_lines_beyond_the_colours_are_dashed() -> None:
    styles = [tuple(style_by_index(i).values()) for i in range(3 * len(COLOURS))]
    assert len(set(styles)) == len(styles)
    assert styles[0] == (COLOURS[0], "-")


def test_every_method_has_a_colour_of_its_own_and_balance_is_dashed() -> None:
    assert set(METHOD_COLOURS) == set(MethodKind)
    assert len(set(METHOD_COLOURS.values())) == len(MethodKind)
    assert method_style(None) == {"color": COLOURS[0], "linestyle": "-"}
    assert method_style(awp(1.0, 0.5)) == {"color": COLOURS[1], "linestyle": "-"}
    assert method_style(awp(1.0, 0.5, balance=1.0)) == {"color": COLOURS[1], "linestyle": "--"}


def test_a_method_keeps_its_colour_and_no_two_rows_look_the_same() -> None:
    rows = {
        "GCN": None,
        "AWP rho=0.5": awp(0.5, 1.0, "all"),
        "AWP rho=2.5": awp(2.5, 1.0, "all"),
        "WT-AWP": awp(2.5, 0.5),
    }
    styles = row_styles(rows)
    assert [style["color"] for style in styles.values()] == [method_style(each)["color"] for each in rows.values()]
    assert [style["linestyle"] for style in styles.values()] == ["-", "-", "--", "-"]
    models = row_styles({**dict.fromkeys(["GCN", "GAT", "PPNP", "RGCN", "GCNSVD"]), "GCN+WT-AWP": awp(1.0, 0.5)})
    assert len({tuple(style.values()) for style in models.values()}) == 6
    assert models == {row: style_by_index(i) for i, row in enumerate(models)}, "more rows than dashes"


def test_rows_of_a_sweep_take_the_colours_that_are_left() -> None:
    lams = (0.1, 0.3, 0.5, 0.7, 1.0)
    rows = {f"lambda={lam}": awp(0.05, lam) for lam in lams}
    rows |= {"AWP": awp(0.05, 1.0, "all"), "W-AWP": awp(0.05, 0.5, "all")}
    colours = [style["color"] for style in row_styles(rows).values()]
    assert colours == [COLOURS[i] for i in (0, 1, 3, 5, 6, 4, 2)]
    alone = {f"lambda={lam}": awp(0.05, lam) for lam in lams}
    assert [style["color"] for style in row_styles(alone).values()] == list(COLOURS[:5])


@pytest.mark.parametrize(
    ("low", "high", "ticks"), [(0.5, 12, [0.5, 1.0, 2.0, 5.0, 10.0]), (3.0, 4.0, [3.0, 3.25, 3.5, 3.75, 4.0])]
)
def test_ticks_are_round(low: float, high: float, ticks: list[float]) -> None:
    assert log_ticks(low, high) == pytest.approx(ticks)
    assert log_ticks(1e-6, 1e6, few=True)[0] == pytest.approx(1e-6)
    assert len(log_ticks(1e-6, 1e6, few=True)) <= 5


def test_reports_without_figures_load_neither_matplotlib_nor_pytorch_geometric() -> None:
    code = """
import sys
from wtawp.experiments.plans import catalogue
from wtawp.experiments.report import html
from wtawp.experiments.report.contents import tables_of
from wtawp.experiments.report.export import export_data
from wtawp.experiments.report.markdown import render_markdown
from wtawp.experiments.report.reporters import all_reporters
from wtawp.experiments.results.summary import summarise
labels = ("tab:natacc", "fig:certcora", "extra:flatness", "extra:bounds")
reports = [summarise(catalogue.plan(label), []) for label in labels]
for report in reports:
    assert len(tables_of(report)) == len(export_data(report)["claims"]) + 1 + bool(report.pairs)
assert "Nothing was trained yet" in render_markdown(reports, figures="figures")
without_figures = {"evasion", "targeted"}
drawn = {"bound", "certificate", "collective", "landscape", "sharpness", "smoothness"}
assert set(all_reporters()) - without_figures == drawn
print(*sys.modules)
"""
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "wtawp.experiments.report.markdown" in loaded
    assert not {"matplotlib", "torch_geometric"} & set(loaded)
