import gzip
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from wtawp.experiments.spec import Record
from wtawp.experiments.store import Store, StoreError, check_file, first_problem, load_lines, salvage

Make = Callable[..., Record]
FAILED = {"status": "failed", "epoch": None, "accuracy": None, "loss": None, "error": "no"}


@pytest.fixture
def records(make_record: Make) -> list[Record]:
    return [*map(make_record, range(60)), make_record(60, **FAILED)]


@pytest.fixture
def path(tmp_path: Path, records: list[Record]) -> Path:
    with Store(tmp_path / "results.sqlite") as store:
        store.add(records)
    return store.path


def test_an_intact_store_and_an_intact_file_have_no_problems(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl.gz"
    with Store(path) as store:
        store.export(file)
    for each in (path, file):
        check = check_file(each)
        assert (check.done, check.failed, check.unchecked, check.problems) == (60, 1, 0, ())
        assert check.path == str(each)


def test_every_problem_of_a_file_is_listed_with_its_line(tmp_path: Path, make_record: Make) -> None:
    lines = [make_record(split).to_json() for split in range(4)]
    lines[1] = lines[1].replace("0.85", "0.86")
    lines[2] = re.sub(',"checksum":"[^"]*"', "", lines[2])
    file = tmp_path / "records.jsonl"
    file.write_bytes("\n".join(lines).encode() + b"\n\xff\n")
    check = check_file(file)
    assert (check.done, check.failed, check.unchecked) == (3, 0, 1)
    assert [problem[:15] for problem in check.problems] == ["line 2: the rec", "line 5: 'utf-8'"]
    assert "does not match its checksum" in check.problems[0]


def test_a_file_that_is_cut_short_is_read_to_its_end(tmp_path: Path, records: list[Record]) -> None:
    file = tmp_path / "records.jsonl.gz"
    file.write_bytes(gzip.compress("".join(f"{r.to_json()}\n" for r in records).encode())[:-20])
    check = check_file(file)
    assert check.done > 10
    assert len(check.problems) == 1
    assert f"cannot read {file} after line" in check.problems[0]
    with pytest.raises(StoreError, match="cannot read"):
        check_file(tmp_path / "missing.jsonl")


def test_a_record_with_a_changed_number_is_named(path: Path, make_record: Make) -> None:
    with Store(path) as store:
        store._db.execute("UPDATE records SET content = replace(content, '0.85', '0.86') WHERE split = 1")
        store._db.execute("UPDATE records SET test = 0.5 WHERE split = 2")
    check = check_file(path)
    assert (check.done, check.failed) == (58, 1)
    assert sorted(problem.split(":")[0] for problem in check.problems) == sorted(
        f"record '{make_record(split).key}'" for split in (1, 2)
    )


def test_the_first_problem_is_found_without_changing_anything(path: Path, tmp_path: Path) -> None:
    content = path.read_bytes()
    assert first_problem(path) is None
    with Store(path) as store:
        store._db.execute("UPDATE records SET created = created")  # stays in the log until the store is closed
        assert first_problem(path) is None
    (tmp_path / "notes.txt").write_text("notes" * 1000)
    assert "it is not a store of results" in str(first_problem(tmp_path / "notes.txt"))
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    assert "it is damaged" in str(first_problem(path))
    path.write_bytes(content)
    with Store(path) as store:
        store._db.execute("UPDATE records SET content = replace(content, '0.75', '0.76')")
    assert "does not match its checksum" in str(first_problem(path))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["notes.txt", "results.sqlite"]


def test_what_can_be_read_of_a_damaged_store_is_saved(path: Path, tmp_path: Path, records: list[Record]) -> None:
    content, rng, saved = path.read_bytes(), random.Random(0), tmp_path / "saved.jsonl"
    originals = {record.to_json() for record in records}
    counts = []
    for _ in range(5):
        pages = bytearray(content)
        page = rng.randrange(4, len(content) // 4096)
        pages[page * 4096 : page * 4096 + 64] = b"\xff" * 64
        path.write_bytes(pages)
        if not check_file(path).problems:  # an unused page
            continue
        with pytest.raises(StoreError, match="--salvage"):
            Store(path)
        count, _ = salvage(path, saved)
        read = [record.to_json() for record in load_lines(saved)]
        assert len(read) == len(set(read)) == count
        assert set(read) <= originals
        counts.append(count)
    assert min(counts) > len(records) // 2
    with Store(tmp_path / "fresh.sqlite") as fresh:
        assert fresh.import_(saved) == (counts[-1], 0)
    with pytest.raises(StoreError, match="there is no store"):
        salvage(tmp_path / "missing.sqlite", saved)
    (tmp_path / "notes.txt").write_text("notes" * 1000)
    with pytest.raises(StoreError, match="not a store of results"):
        salvage(tmp_path / "notes.txt", saved)
