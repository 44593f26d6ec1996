from collections.abc import Callable
from pathlib import Path

from wtawp.experiments.report.figures import figures_of
from wtawp.experiments.report.markdown import (
    markdown_table,
    render_dataset_tables,
    render_markdown,
    write_folder,
)
from wtawp.experiments.report.tables import Entry, Table
from wtawp.experiments.results.summary import summarise
from wtawp.experiments.spec import Plan, Record

MakeRecords = Callable[..., list[Record]]


def test_numbers_are_to_the_right_and_words_are_escaped() -> None:
    table = Table("A caption.", ("name", "mean"), ((Entry("a|b <c> [d]"), Entry("1.50", 1.5)),))
    assert markdown_table(table).splitlines() == [
        "| name | mean |",
        "| --- | ---: |",
        r"| a\|b &lt;c> \[d\] | 1.50 |",
        "",
        "A caption.",
    ]


def test_a_folder_has_the_text_and_the_figures_it_links_to(
    small_plan: Plan, make_records: MakeRecords, tmp_path: Path, empty_home: Path
) -> None:
    report, empty = summarise(small_plan, make_records(small_plan)), summarise(small_plan, [])
    write_folder([report, empty], tmp_path / "out")
    text = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert text == render_markdown([report, empty], figures="figures")
    assert text.count("](figures/") == 1, "nothing is drawn of a plan without runs"
    assert "](figures/tab-small-gains.svg)" in text
    ((_, svg, _),) = figures_of(report)
    assert (tmp_path / "out" / "figures" / "tab-small-gains.svg").read_text(encoding="utf-8") == svg
    assert [p.name for p in (tmp_path / "out" / "figures").iterdir()] == ["tab-small-gains.svg"]
    assert (tmp_path / "out" / "datasets.md").read_text(encoding="utf-8") == render_dataset_tables()
    assert not empty_home.exists()


def test_data_sets_are_a_page_of_their_own(empty_home: Path) -> None:
    assert "| cora | 2,708 / 2,485 | 5,429 / 5,069 |" in render_dataset_tables()
    assert "| imdb-binary | 136 / " in render_dataset_tables()
    assert not empty_home.exists()
