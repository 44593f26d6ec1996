import io

import pytest
from rich.console import Console

from wtawp.cli import printing
from wtawp.cli.printing import columns_that_fit, print_table
from wtawp.experiments.report.tables import Entry, Table

CLAIM = "A sentence that is too long for one line of any terminal that is as narrow as this one."


def table(*numbers: float) -> Table:
    rows = tuple((Entry(name), *(Entry(f"{x:.4f}", x) for x in numbers)) for name in ("GCN", "GCN+WT-AWP"))
    return Table("What it says.", ("model", *(f"measure {i}" for i in range(len(numbers)))), rows)


def test_a_table_that_is_too_wide_comes_in_parts_that_begin_with_the_names() -> None:
    assert columns_that_fit(table(1, 2, 3), 80) == [[0, 1, 2, 3]]
    assert columns_that_fit(table(*range(9)), 40) == [[0, 1, 2, 3], [0, 4, 5, 6], [0, 7, 8, 9]]
    assert columns_that_fit(table(1, 2), 1) == [[0, 1], [0, 2]], "there is no less than one"


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_word_and_no_number_is_cut(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(printing, "console", Console(file=out, width=width))
    print_table("Flatness [of models]", table(*(i + 0.1234 for i in range(9))))
    print_table("Claims", Table("Ends.", ("claim", "verdict"), ((Entry(CLAIM), Entry("does not hold")),)))
    printed = out.getvalue()
    assert "…" not in printed
    assert max(map(len, printed.splitlines())) <= width
    for words in ("Flatness [of models]", *(f"{i}.1234" for i in range(9)), "GCN+WT-AWP", "What it says."):
        assert words in printed
    assert all(word in printed for word in CLAIM.split())


@pytest.mark.parametrize("width", [40, 60, 80])
def test_numbers_stay_whole_beside_long_names(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pairs of a search over a model of one's own, whose names alone are wider than a terminal."""
    out = io.StringIO()
    monkeypatch.setattr(printing, "console", Console(file=out, width=width))
    names = ("my_models:Gated+WT-AWP, paper's setting", "my_models:Gated+WT-AWP, tuned", "my_module.data:graph")
    numbers = (Entry("-16.74", -16.74), Entry("-28.85 to -4.63", -28.85), Entry("0.092", 0.092))
    headers = ("without", "with", "column", "gain", "95 % interval", "p (Holm)")
    print_table("Pairs", Table("Gains.", headers, ((*map(Entry, names), *numbers),)))
    printed = out.getvalue()
    assert "…" not in printed
    assert max(map(len, printed.splitlines())) <= width
    for number in ("-16.74", "-28.85 to -4.63", "0.092"):
        assert number in printed
