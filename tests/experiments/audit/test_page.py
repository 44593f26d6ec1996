import shutil
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from wtawp.experiments.audit.findings import Audit
from wtawp.experiments.audit.page import audit_page
from wtawp.experiments.audit.summary import Finding

VOID = {"meta", "link", "br", "img", "path", "use"}
QUIET = [  # for root in a container, and no call home
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


class Structure(HTMLParser):
    """Collects open tags, ids, links and the text of labels."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.labels: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given[name] for name in ("href", "src", "xlink:href") if name in given]
        self.labels += [given["aria-label"]] if given.get("role") == "img" else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


@pytest.fixture(scope="module")
def shown(small_audit: tuple[Audit, Path]) -> str:
    return audit_page(small_audit[0])


def test_the_summary_comes_first_then_the_sections_then_how_it_was_made(
    small_audit: tuple[Audit, Path], shown: str
) -> None:
    places = [shown.index('<section class="summary"')]
    places += [shown.index(f'<h2 id="{s.section.key}"') for s in small_audit[0].sections]
    places += [shown.index('<h2 id="made"')]
    assert places == sorted(places)


def test_the_page_is_whole_and_asks_for_nothing(small_audit: tuple[Audit, Path], shown: str) -> None:
    structure = Structure()
    structure.feed(shown)
    assert structure.open == []
    assert len(set(structure.ids)) == len(structure.ids)
    assert all(link.startswith(("#", "data:")) for link in structure.links)
    assert {link[1:] for link in structure.links if link.startswith("#")} <= set(structure.ids)
    assert len(structure.labels) >= len(small_audit[0].sections)
    assert "<script" not in shown


def test_names_are_shown_and_not_obeyed(small_audit: tuple[Audit, Path]) -> None:
    bad = "<script>alert(1)</script>"
    page = audit_page(
        replace(small_audit[0], dataset=bad, findings=(Finding(bad, bad, (bad,)),), left_out=((bad, bad),))
    )
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 5


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("THE PAGE IS NOT LOOKED AT: install chromium (Debian: apt-get install chromium)")
    api = pytest.importorskip("playwright.sync_api", reason="THE PAGE IS NOT LOOKED AT: pip install playwright")
    with api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=QUIET)
        yield browser
        browser.close()


@pytest.mark.parametrize("width", [400, 1300])
def test_in_a_browser_nothing_sticks_out_and_nothing_goes_wrong(
    browser: Any, shown: str, tmp_path: Path, width: int
) -> None:
    file = tmp_path / "audit.html"
    file.write_text(shown, encoding="utf-8")
    page = browser.new_page(viewport={"width": width, "height": 900})
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for figure in page.locator("figure svg").all():
        box = figure.bounding_box()
        assert 250 < box["width"] <= width
    sizes = page.evaluate(
        "[...document.querySelectorAll('p, td, th')].map(e => parseFloat(getComputedStyle(e).fontSize))"
    )
    assert min(sizes) >= 12
    page.close()
    assert said == []
    assert [url for url in asked if not url.startswith("data:")] == [file.as_uri()]
