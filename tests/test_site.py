"""The documentation site builds without a warning, with its tutorials, and its pages need nothing from the network."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site, built as `make docs` builds it; a broken link is a warning, and warnings are errors."""
    pytest.importorskip("sphinx_gallery", reason="THE SITE IS NOT CHECKED: the extra docs is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-q", "-W", str(DOCS), str(folder)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def test_every_page_is_on_the_site(site: Path) -> None:
    pages = [path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md") if "gallery" not in path.parts]
    missing = [str(page) for page in pages if not (site / page).exists()]
    assert not missing
    for tutorial in (DOCS / "tutorials").glob("tutorial_*.py"):
        assert (site / "gallery" / f"{tutorial.stem}.html").exists()
        assert list((site / "_downloads").rglob(f"{tutorial.stem}.ipynb"))


def test_tutorials_show_what_they_print_and_draw(site: Path) -> None:
    for name in ("tutorial_1_one_line", "tutorial_2_does_it_help", "tutorial_3_how_robust"):
        text = (site / "gallery" / f"{name}.html").read_text(encoding="utf-8")
        assert "sphx-glr-script-out" in text
        assert list((site / "_images").glob(f"sphx_glr_{name}_001.png"))


def test_no_page_loads_anything_from_the_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|img|iframe)[^>]+src=\"([^\"]+)\"|<link[^>]+href=\"([^\"]+)\"", text)
        outside = [url for pair in loaded for url in pair if url.startswith(("http:", "https:", "//"))]
        assert not outside, f"{page.name} loads {outside}"


def test_equations_are_part_of_the_page(site: Path) -> None:
    text = (site / "method.html").read_text(encoding="utf-8")
    assert text.count("<math") > 10
    assert "$$" not in text


def test_every_command_is_described(site: Path) -> None:
    text = (site / "commands.html").read_text(encoding="utf-8")
    for command in ("wtawp compare", "wtawp attack", "wtawp results export"):
        assert f">{command}<" in text
    assert "%COMMANDS%" not in text
