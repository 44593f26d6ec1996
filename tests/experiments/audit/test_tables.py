from wtawp.experiments.audit.findings import Audit
from wtawp.experiments.audit.tables import grid_table


def test_a_line_for_each_row_and_a_column_for_each_budget(small_audit: tuple[Audit, object]) -> None:
    audit = small_audit[0]
    for section in audit.sections:
        if section.section.kind != "evasion":
            continue
        table = grid_table(section.report)
        assert table.headers == ("row", *section.report.columns)
        assert table.headers[1] == "no attack"
        means = {(c.cell.row, c.cell.column): c.mean for c in section.report.cells}
        for line in table.rows:
            orders = [entry.order for entry in line[1:]]
            assert orders == [means[line[0].text, column] for column in section.report.columns]


def test_comparisons_follow_the_means(small_audit: tuple[Audit, object]) -> None:
    tables = {s.section.key: s.tables for s in small_audit[0].sections}
    assert "drop without" in tables["attack-dice"][-1].headers
    assert "effect size" in tables["accuracy"][1].headers
    assert "radius" in tables["certificate-edges"][-1].headers
    flat = tables["flatness"]
    assert flat[0].headers == ("quantity", *small_audit[0].rows)
    assert [table.headers[-1] for table in flat[1:]] == ["second is", "second is"]  # a table for each other row
    assert [table.headers[-1] for table in tables["smoothness"][1:]] == ["both", "both"]
