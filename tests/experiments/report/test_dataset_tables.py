from pathlib import Path

from wtawp.experiments.report.dataset_tables import graph_dataset_table, node_dataset_table
from wtawp.experiments.report.tables import Table


def texts(table: Table) -> list[list[str]]:
    assert all(len(row) == len(table.headers) for row in table.rows)
    return [[entry.text for entry in row] for row in table.rows]


def test_data_sets_stand_beside_the_printed_sizes(offline: Path) -> None:
    assert offline.is_dir()
    assert texts(node_dataset_table())[0] == ["cora", "2,708 / 2,485", "5,429 / 5,069", "1,433 / 1,433", "7 / 7"]
    assert texts(graph_dataset_table())[2] == ["imdb-multi", "89 / 89", "13.00 / 13.00", "1,500 / 1,500", "3 / 3"]


def test_without_files_the_known_sizes_are_shown_and_nothing_is_fetched(empty_home: Path) -> None:
    assert texts(node_dataset_table())[1] == ["citeseer", "3,327 / 2,110", "4,732 / 3,668", "3,703 / –", "6 / 6"]  # noqa: RUF001
    assert texts(graph_dataset_table())[0] == ["proteins", "620 / –", "39.06 / –", "1,113 / –", "2 / 2"]  # noqa: RUF001
    assert not empty_home.exists()
