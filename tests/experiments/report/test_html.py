import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from wtawp.experiments.plans.catalogue import plan
from wtawp.experiments.plans.scale import at_scale
from wtawp.experiments.report.artifacts import StoredArtifact
from wtawp.experiments.report.contents import headlines
from wtawp.experiments.report.html import render_html
from wtawp.experiments.report.markdown import render_markdown
from wtawp.experiments.report.tables import Entry, Table
from wtawp.experiments.results.summary import PlanReport, summarise
from wtawp.experiments.spec import Cell, Claim, Plan, Record

MakeRecords = Callable[..., list[Record]]
VOID = {"meta", "link", "br", "img", "path", "use"}
QUIET = [  # for root in a container, and no call home
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


def off_on_karate(cell: Cell, split: int, init: int) -> float:
    return (
        (cell.printed or (70.2, None))[0]
        + (1.0 if cell.column == "karate" else 0.2)
        + 0.1 * split
        + 0.01 * init * len(cell.row)
    )


@pytest.fixture(scope="module")
def reports(small_plan: Plan, make_records: MakeRecords) -> list[PlanReport]:
    """A table with a pair, a claim and a number that is not printed; figures; a plan that nobody has trained."""
    cells = (*small_plan.cells[:3], replace(small_plan.cells[3], printed=None))
    table = replace(small_plan, cells=cells, claims=(Claim("Rows agree.", "rows_agree_within_half"),))
    toy = at_scale(plan("fig:aaa"), "quick")
    curves = at_scale(plan("fig:gdnorm_all"), "quick")
    records = [*make_records(table, off_on_karate), *make_records(toy), *make_records(curves)]
    return [summarise(p, records) for p in (table, toy, curves, at_scale(plan("claim:exact-gradient"), "quick"))]


@pytest.fixture(scope="module")
def shown(reports: list[PlanReport]) -> str:
    return render_html(reports)


def test_it_loads_nothing_that_trains() -> None:
    code = """
import sys
from wtawp.experiments.plans import catalogue
from wtawp.experiments.plans.scale import at_scale
from wtawp.experiments.report import html as report
from wtawp.experiments.results import summary
plans = [at_scale(catalogue.plan(name), "quick") for name in ("tab:natacc", "fig:2", "claim:vanishing-gradient")]
assert "Nothing was trained yet" in report.render_html([summary.summarise(plan, []) for plan in plans])
print(*(m for m in sys.modules if m.startswith("wtawp.")))
"""
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "wtawp.experiments.report.html" in loaded
    trains = (
        "wtawp.training.loop",
        "wtawp.training.stack_training",
        "wtawp.models.gcn",
        "wtawp.analysis.losses",
        "wtawp.experiments.demo.runner",
    )
    assert not [module for module in loaded if module.startswith(trains)]


def test_the_summary_counts_cells_and_claims(reports: list[PlanReport], shown: str) -> None:
    cells, claims = headlines(reports)
    # The table: 2 agree, 1 differs, 1 is not printed. Without a verdict: 8 of the toy, 3 curves. Not trained: 2.
    assert cells == (
        "Of 3 judged cells, 2 agree with the paper within 0.5 points and 1 differ; 12 are reported without a verdict, "
        "4 are incomplete."
    )
    assert claims == "Of 2 claims of the text, 0 hold, 1 does not, 1 wait for runs."
    assert cells in shown
    assert claims in shown


def test_markdown_and_page_show_the_same_numbers(reports: list[PlanReport], shown: str) -> None:
    text = render_markdown(reports)
    rows = [line for line in text.splitlines() if line.startswith("| GCN | cora")]
    assert len(rows) == 1
    assert all(f">{entry}<" in shown for entry in rows[0].strip("| ").split(" | "))
    assert "| GCN | WT-AWP | cora | +" in text
    assert "## tab:small: A small table" in text
    assert "| Rows agree. | does not hold | cora: GCN 84.3" in text


def test_the_same_records_give_the_same_bytes_in_any_order(small_plan: Plan, make_records: MakeRecords) -> None:
    toy = at_scale(plan("fig:ngrad"), "quick")
    records = [*make_records(small_plan), *make_records(toy)]
    shuffled = random.Random(0).sample(records, len(records))
    one, other = ([summarise(p, found) for p in (small_plan, toy)] for found in (records, shuffled))
    assert render_html(one) == render_html(other)
    assert render_markdown(one) == render_markdown(other)


def test_missing_runs_are_said_and_a_figure_waits_for_them(small_plan: Plan) -> None:
    page = render_html([summarise(small_plan, [])])
    assert "Nothing was trained yet: 32 runs are missing." in page
    assert "No figure yet (gains)" in page
    assert '<span class="incomplete">incomplete</span>' in page


class Balance(HTMLParser):
    """Collects ids, addresses and open tags."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [v or "" for k, v in attrs if k in ("src", "href", "xlink:href")]
        self.ids += [v or "" for k, v in attrs if k == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def test_the_page_is_whole_and_its_links_lead_somewhere(reports: list[PlanReport]) -> None:
    parser = Balance()
    parser.feed(render_html([reports[0], *reports[2:], reports[0]]))  # a plan shown twice
    assert parser.open == []
    assert len(set(parser.ids)) == len(parser.ids)
    assert {"tab-small", "tab-small-2", "tab-small-plan", "tab-small-records"} <= set(parser.ids)
    assert {a.removeprefix("#") for a in parser.addresses} <= set(parser.ids)


def test_artifacts_stand_after_the_plans_or_alone_and_run_nothing(reports: list[PlanReport]) -> None:
    bad = "<script>alert(1)</script>"
    artifact = StoredArtifact(
        "a", bad, {bad: bad}, Table(bad, (bad, "loss"), ((Entry(bad), Entry("0.5432", 0.5432)),)), f"<svg>{bad}"
    )
    for given in (reports, []):
        page = render_html(given, [artifact, artifact])
        parser = Balance()
        parser.feed(page)
        assert parser.open == []
        assert len(set(parser.ids)) == len(parser.ids)
        assert page.count("<script") == 1
        assert page.count(">0.5432</td>") == 2
        assert [a for a in parser.addresses if a.startswith("data:")] == [artifact.address] * 2
        assert ("judged cells" in page) == bool(given)
    assert "Single models" not in render_html(reports)


def test_names_are_shown_and_not_obeyed(small_plan: Plan, make_records: MakeRecords) -> None:
    bad = "<script>alert(1)</script> | $x$ & `y`"
    renamed = tuple(replace(c, row=c.row + bad, column=bad + c.column) for c in small_plan.cells)
    pairs = tuple((before + bad, after + bad) for before, after in small_plan.pairs)
    evil = replace(small_plan, name=bad, title=bad, cells=renamed, pairs=pairs)
    records = make_records(evil)
    records[0] = replace(records[0], status="failed", accuracy=None, error=bad)
    report = summarise(evil, records)
    page, text = render_html([report]), render_markdown([report])
    assert "<script>alert" not in page + text
    assert page.count("<script") == 1
    assert "&lt;script&gt;alert(1)&lt;/script&gt; | $x$ &amp; `y`" in page
    row = next(line for line in text.splitlines() if line.startswith("| WT-AWP"))
    assert row.replace("\\|", "").count("|") == 9


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


@pytest.fixture
def page(browser: Any, shown: str, tmp_path: Path) -> Iterator[Any]:
    """The report in a browser; afterwards nothing may have gone wrong, or out."""
    file = tmp_path / "report.html"
    file.write_text(shown, encoding="utf-8")
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    yield page
    page.close()
    assert said == []
    assert asked == [file.as_uri()]


def column(page: Any, table: str, number: int) -> list[str]:
    cells: list[str] = page.locator(f"{table} tbody tr td:nth-child({number})").all_inner_texts()
    return cells


CELLS = "[aria-label='tab:small, row table'] table"


def unfold_plans(page: Any) -> None:
    page.evaluate("document.querySelectorAll('details.plan').forEach(d => d.open = true)")


def test_plans_are_folded_and_unfold_by_a_click_or_a_link(page: Any) -> None:
    plans = page.locator("details.plan")
    assert plans.count() > 1
    assert [plan.get_attribute("open") for plan in plans.all()] == [None] * plans.count()
    folded = page.evaluate("document.documentElement.scrollHeight")
    plans.nth(1).locator("summary").first.click(position={"x": 4, "y": 12})  # beside the link in the title
    assert plans.nth(1).get_attribute("open") is not None
    page.locator("nav a[href='#tab-small']").click()
    page.locator("#tab-small[open]").wait_for()
    assert page.locator(CELLS).is_visible()
    assert page.evaluate("document.documentElement.scrollHeight") > folded + 500
    page.locator("#tab-small > summary").click(position={"x": 4, "y": 12})
    page.evaluate("location.hash = '#tab-small-plan'")  # what is inside of something folded unfolds both
    page.locator("#tab-small-plan[open] td").first.wait_for()


def test_a_page_of_one_plan_is_unfolded(reports: list[PlanReport]) -> None:
    assert '<details class="plan" id="tab-small" open>' in render_html(reports[:1])


def test_a_figure_says_what_it_shows(shown: str) -> None:
    figures = re.findall(r"<svg [^>]*>", shown)
    assert len(figures) == 4
    for figure in figures:
        assert re.search(r'role="img" aria-label="[A-Z][^"]{20,}"', figure), figure


def test_a_header_sorts_its_table_up_and_down(page: Any) -> None:
    unfold_plans(page)
    header = page.locator(f"{CELLS} th:nth-child(3)")
    assert header.get_attribute("aria-sort") == "none"
    start = column(page, CELLS, 3)
    header.locator("button").click()
    assert column(page, CELLS, 3) == sorted(start, key=lambda text: float(text.split()[0])) != start
    assert header.get_attribute("aria-sort") == "ascending"
    header.locator("button").click()
    assert header.get_attribute("aria-sort") == "descending"
    assert column(page, CELLS, 3) == sorted(start, key=lambda text: -float(text.split()[0]))
    other = page.locator(f"{CELLS} th:nth-child(1)")
    other.locator("button").focus()
    page.keyboard.press("Enter")
    assert (header.get_attribute("aria-sort"), other.get_attribute("aria-sort")) == ("none", "ascending")
    assert column(page, CELLS, 1) == ["GCN", "GCN", "WT-AWP", "WT-AWP"]


def test_rows_without_a_number_come_last_either_way(page: Any) -> None:
    unfold_plans(page)
    for printed in (["70.00", "84.00", "85.00"], ["85.00", "84.00", "70.00"]):
        page.locator(f"{CELLS} th:nth-child(4) button").click()
        assert column(page, CELLS, 4) == [*(f"{number} ± 0.50" for number in printed), "–"]  # noqa: RUF001


def test_figures_have_a_size_and_links_unfold_what_they_lead_to(page: Any) -> None:
    unfold_plans(page)
    figures = page.locator("figure svg").all()
    assert len(figures) == 4
    for figure in figures:
        box = figure.bounding_box()
        assert box["width"] > 300
        assert box["height"] > 100
    details = page.locator("#tab-small-records")
    assert details.get_attribute("open") is None
    page.locator("a[href='#tab-small-records']").click()
    page.locator("#tab-small-records[open]").wait_for()  # the page hears of the new address a moment later
    assert details.locator("td", has_text="wtawp results show").first.is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_only_tables_and_figures_scroll_sideways(page: Any, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": 390, "height": 844})
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    paper, ink = (page.evaluate(f"getComputedStyle(document.body).{what}") for what in ("backgroundColor", "color"))
    assert (sum(map(int, paper[4:-1].split(","))) > sum(map(int, ink[4:-1].split(",")))) == (scheme == "light")
