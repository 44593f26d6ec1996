import xml.etree.ElementTree as ET
from pathlib import Path

from wtawp.experiments.report.drawing import COLOURS, drawing, line_look, looks, method_style, use_log_scale, with_ids

SVG = "{http://www.w3.org/2000/svg}"


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
    roots = [ET.fromstring(with_ids(draw("x"), prefix)) for prefix in ("a", "b")]
    ids = [{e.get("id") for e in root.iter() if e.get("id")} for root in roots]
    assert not ids[0] & ids[1]
    links = {e.get("{http://www.w3.org/1999/xlink}href", "") for e in roots[0].iter()} - {""}
    clips = {e.get("clip-path", "") for e in roots[0].iter()} - {""}
    assert links
    assert clips
    assert {link.removeprefix("#") for link in links} | {c[5:-1] for c in clips} <= ids[0]


def test_lines_beyond_the_colours_are_dashed() -> None:
    found = [tuple(line_look(i).values()) for i in range(3 * len(COLOURS))]
    assert len(set(found)) == len(found)
    assert found[0] == (COLOURS[0], "-")


def test_a_method_has_its_colour_in_every_figure_and_no_two_rows_look_the_same() -> None:
    kept = looks(["GCN", "AWP rho=0.5", "AWP rho=2.5", "WT-AWP rho=2.5"])
    assert [look["color"] for look in kept.values()] == [method_style(row)["color"] for row in kept]
    assert kept["AWP rho=0.5"]["linestyle"] != kept["AWP rho=2.5"]["linestyle"]
    values = looks([*(f"lambda={x}" for x in (0.1, 0.3, 0.5, 0.7, 1.0)), "AWP", "W-AWP"])
    assert values["W-AWP"]["color"] == method_style("W-AWP")["color"]
    assert len({look["color"] for look in values.values()}) == len(values)
    many = looks(["GCN", "GAT", "PPNP", "RGCN", "GCNSVD", "GCN+WT-AWP"])
    assert len({tuple(look.values()) for look in many.values()}) == 6
