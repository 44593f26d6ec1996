import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from wtawp.experiments.spec import Record, RecordError
from wtawp.experiments.store import Store, StoreError, load_all, load_lines
from wtawp.experiments.store.json_lines import write_lines
from wtawp.graphs.read_limits import VARIABLE

Make = Callable[..., Record]


def test_a_folder_stands_for_the_files_of_records_in_it(tmp_path: Path, make_record: Make) -> None:
    for name, split in (("a.jsonl", 0), ("b.jsonl.gz", 1)):
        with Store(tmp_path / f"{name}.sqlite") as store:
            store.add([make_record(split=split)])
            store.export(tmp_path / name)
    assert [r.split for r in load_all([tmp_path])] == [0, 1]
    assert [r.split for r in load_all([tmp_path / "b.jsonl.gz", tmp_path / "a.jsonl"])] == [1, 0]
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match="holds no file of records"):
        load_all([tmp_path / "empty"])


@pytest.mark.parametrize("name", ["records.jsonl", "records.jsonl.gz"])
def test_written_lines_are_read_in_order_and_up_to_the_first_error(
    tmp_path: Path, make_record: Make, name: str
) -> None:
    file, store = tmp_path / name, tmp_path / "results.sqlite"
    store.touch()
    lines = [make_record(split).to_json() for split in range(3)]
    assert write_lines(lines, file, store=store) == 3
    assert [record.to_json() for record in load_lines(file)] == lines
    write_lines([lines[0], "{}"], file, store=store)
    reading = load_lines(file)
    assert next(reading).to_json() == lines[0]
    with pytest.raises(RecordError, match=f"{name}, line 2"):
        next(reading)


def test_the_store_is_never_overwritten_and_an_error_in_the_lines_leaves_no_file(tmp_path: Path) -> None:
    def lines_that_fail():  # type: ignore[no-untyped-def]
        yield "first"
        raise KeyError("no second line")

    store, file = tmp_path / "results.sqlite", tmp_path / "records.jsonl"
    store.write_text("a store")
    with pytest.raises(StoreError, match="is the store itself"):
        write_lines([], store, store=store)
    with pytest.raises(KeyError, match="no second line"):
        write_lines(lines_that_fail(), file, store=store)
    assert [path.name for path in tmp_path.iterdir()] == ["results.sqlite"]


def test_a_compressed_file_is_read_up_to_a_limit_in_proportion_to_its_size(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(130):
            file.write(b" " * 2**20)  # one line
    with pytest.raises(StoreError, match=f"r.jsonl.gz holds more than the 128 MB .*{VARIABLE}"):
        list(load_lines(path))
