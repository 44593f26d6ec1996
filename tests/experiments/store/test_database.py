import errno
import gc
import gzip
import os
import random
import re
import sqlite3
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from wtawp.experiments.spec import Record, RecordError
from wtawp.experiments.store import Store, StoreError, UnreadableRecordWarning, load_lines
from wtawp.experiments.store.connection import SCHEMA

Make = Callable[..., Record]
FAILED = {"status": "failed", "epoch": None, "accuracy": None, "loss": None, "error": "Traceback ...\nValueError: no"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "results.sqlite") as opened:
        yield opened


def texts(store: Store) -> list[str]:  # as text, because NaN is not equal to NaN
    return [record.to_json() for record in store.records()]


def test_the_default_store_is_in_our_folder(empty_home: Path) -> None:
    with Store() as store:
        assert store.path == empty_home / "results.sqlite"
    assert os.listdir(empty_home) == ["results.sqlite"]


def test_adding_again_changes_nothing(store: Store, make_record: Make) -> None:
    records = [make_record(split) for split in range(3)]
    assert store.add(records) == (3, 0)
    later = [replace(r, seconds=9.0, created="2024", versions={**r.versions, "commit": "def"}) for r in records]
    assert store.add([*later, *records]) == (0, 6)
    assert texts(store) == [r.to_json() for r in records]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"accuracy": {"test": 0.5}}, "accuracy.test was 0.75 and is 0.5"),
        ({"epoch": 8, "accuracy": {"test": 0.5}}, "epoch was 7 and is 8"),
        ({"history": {"gap": [0.0]}}, "history differs"),
    ],
)
def test_a_contradiction_is_named_and_nothing_of_the_batch_is_written(
    store: Store, make_record: Make, change: dict[str, object], named: str
) -> None:
    store.add([make_record()])
    with pytest.raises(RecordError, match=f"run {make_record().key} on cpu .*{named}"):
        store.add([make_record(1), make_record(**change), make_record(2)])
    assert texts(store) == [make_record().to_json()]
    with pytest.raises(RecordError, match="contradicts"):  # inside one batch as well
        store.add([make_record(1), make_record(1, **change), make_record(2)])
    assert len(store.records()) == 1


def test_an_error_in_the_middle_of_a_batch_leaves_nothing_of_it(store: Store, make_record: Make) -> None:
    def records() -> Iterator[Record]:
        yield make_record()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.add(records())
    with pytest.raises(RecordError, match="does not name its version of torch"):
        store.add([make_record(), make_record(1, versions={})])
    assert store.records() == []
    assert store.add([make_record()]) == (1, 0)


def test_the_same_run_from_another_device_or_torch_is_kept_beside(store: Store, make_record: Make) -> None:
    other = {"accuracy": {"test": 0.5}}
    records = [make_record(), make_record(torch="2.7.0", **other), make_record(device="H200", **other)]
    assert store.add(reversed(records)) == (3, 0)
    assert [(r.device, r.versions["torch"]) for r in store.records()] == [
        ("H200", "2.6.0"), ("cpu", "2.6.0"), ("cpu", "2.7.0"),
    ]  # fmt: skip


def test_only_a_failed_run_gives_way(store: Store, make_record: Make) -> None:
    first, second = make_record(**FAILED), make_record(**{**FAILED, "error": "other", "created": "2024"})
    assert store.add([first]) == (1, 0)
    assert store.done([first.key], "cpu", "2.6.0") == set()
    assert store.add([second]) == (1, 0)
    assert store.add([first]) == (0, 1)  # it is older
    assert store.records()[0].error == "other"
    assert store.add([make_record()]) == (1, 0)
    assert store.add([replace(second, created="2025")]) == (0, 1)
    assert texts(store) == [make_record().to_json()]


def test_a_result_is_replaced_on_request_by_one_that_succeeded(store: Store, make_record: Make) -> None:
    store.add([make_record()])
    other = make_record(loss={"test": 9.0})
    assert store.add([make_record(**FAILED)], replace=True) == (0, 1)
    assert store.add([other], replace=True) == (1, 0)
    assert texts(store) == [other.to_json()]


def test_dates_are_those_of_runs_that_succeeded_on_a_device(store: Store, make_record: Make) -> None:
    created = {0: "2026-01-02T03:04:05+00:00", 1: "2026-05-06T07:08:09+00:00"}
    runs = [make_record(split, created=when) for split, when in created.items()]
    failed = make_record(2, **{**FAILED, "created": "2020"})
    store.add([*runs, failed, make_record(3, device="H200", created="2030")])
    keys = [run.key for run in (*runs, failed)]
    assert store.dates(keys, "cpu") == (created[0], created[1])
    assert store.dates(keys[:1], "cpu") == (created[0], created[0])
    assert store.dates(keys, "H200") is None


def test_done_is_asked_for_a_device_and_a_torch(store: Store, make_record: Make) -> None:
    runs = [make_record(split) for split in range(3)]
    store.add([runs[0], make_record(1, **FAILED), make_record(2, device="H200")])
    keys = [run.key for run in runs]
    assert store.done(keys, "cpu", "2.6.0") == {keys[0]}
    assert store.done(iter(keys[1:]), "H200", "2.6.0") == {keys[2]}
    assert store.done(keys, "cpu", "2.7.0") == store.done([], "cpu", "2.6.0") == set()
    assert len(store.done([*keys, *map(str, range(50_000))], "cpu", "2.6.0")) == 1  # no limit on how many are asked


def test_of_runs_that_were_compiled_otherwise_the_first_stays(store: Store, make_record: Make) -> None:
    versions = make_record().versions
    first, second = (make_record(epoch=n, versions={**versions, "numba": f"0.6{n} for znver3"}) for n in (1, 2))
    assert store.add([first]) == (1, 0)
    assert store.add([second]) == (0, 1)
    assert texts(store) == [first.to_json()]
    for contradicting in (replace(second, versions=first.versions), replace(second, versions=versions)):
        with pytest.raises(RecordError, match="contradicts"):
            store.add([contradicting])


def test_runs_are_counted_by_device(store: Store, make_record: Make) -> None:
    store.add([make_record(0), make_record(0, torch="2.7.0"), make_record(1), make_record(2, **FAILED)])
    store.add([make_record(1, device="gpu"), make_record(3)])
    assert store.count_done(make_record(split).key for split in range(3)) == {"cpu": 2, "gpu": 1}
    assert store.count_done([]) == {}


def test_a_contradiction_of_older_records_says_that_their_cpus_may_differ(store: Store, make_record: Make) -> None:
    store.add([make_record(), make_record(device="gpu")])
    with pytest.raises(RecordError, match=r"'cpu' does not say which kind of CPU.*import the file into another store"):
        store.add([make_record(epoch=8)])
    with pytest.raises(RecordError, match="epoch was 7 and is 8; nothing of this batch was written"):
        store.add([make_record(device="gpu", epoch=8)])


def test_records_come_in_one_order_whatever_the_order_of_adding(tmp_path: Path, make_record: Make) -> None:
    names = ("split", "init", "dataset", "device")
    records = [make_record(**dict(zip(names, (s, i, data, dev), strict=True)))
               for data in ("cora", "karate") for s in (2, 10) for i in (0, 1) for dev in ("cpu", "gpu")]  # fmt: skip
    for seed in range(3):
        with Store(tmp_path / f"{seed}.sqlite") as store:
            store.add(random.Random(seed).sample(records, len(records)))
            assert texts(store) == [r.to_json() for r in records]
            chosen = store.records(keys=[records[0].key, "unknown"])
            assert [r.key for r in chosen] == [records[0].key] * 2
            assert len(store.records(status="done", device="gpu")) == len(records) // 2
            assert store.records(status="failed") == store.records(keys=[]) == []


def test_a_run_is_found_by_the_start_of_its_key(store: Store, make_record: Make) -> None:
    store.add([make_record(split, device=device) for split in range(40) for device in ("cpu", "gpu")])
    key = make_record(3).key
    assert [(r.key, r.device) for r in store.find(key[:12])] == [(key, "cpu"), (key, "gpu")]
    with pytest.raises(RecordError, match=r"'' starts the key of 40 runs: .*, \.\.\."):
        store.find("")
    with pytest.raises(RecordError, match="'%' starts the key of no run"):
        store.find("%")


def test_the_summary_counts_and_averages(store: Store, make_record: Make) -> None:
    assert store.summary() == []
    last = make_record(2, created="2025", **FAILED)
    store.add([make_record(0), make_record(1), last, make_record(device="gpu", accuracy={"test": float("nan")})])
    cpu, gpu = store.summary()
    assert cpu.accuracy == pytest.approx(0.8)
    assert (cpu.device, cpu.done, cpu.failed, cpu.last, cpu.key) == ("cpu", 2, 1, "2025", last.key)
    assert (cpu.setting["dataset"], gpu.device, gpu.accuracy) == ("karate", "gpu", None)


def test_pruning_deletes_what_fits_all_that_is_said(store: Store, make_record: Make) -> None:
    runs = [make_record(0), make_record(1, **FAILED), make_record(1, device="gpu", **FAILED), make_record(2)]
    store.add(runs)
    with pytest.raises(ValueError, match="would delete everything"):
        store.prune()
    assert store.prune(failed=True, device="gpu") == 1
    assert store.prune(failed=True) == 1
    assert store.prune(keep=[runs[0].key]) == 1
    assert texts(store) == [runs[0].to_json()]
    assert store.prune(device="cpu") == 1
    assert store.records() == []


@pytest.mark.parametrize("name", ["records.jsonl", "records.jsonl.gz"])
def test_export_import_export_gives_the_same_bytes(store: Store, tmp_path: Path, make_record: Make, name: str) -> None:
    records = [make_record(s, device=device) for s in (0, 1) for device in ("gpu", "cpu")]
    store.add([*records, make_record(2, **FAILED)])
    first, second = tmp_path / name, tmp_path / f"again-{name}"
    assert store.export(first) == 5
    with Store(tmp_path / "fresh.sqlite") as fresh:
        assert fresh.import_(first) == (5, 0)
        assert fresh.import_(first) == (0, 5)
        assert fresh.export(second) == 5
    assert second.read_bytes() == first.read_bytes()
    assert [r.to_json() for r in load_lines(first)] == texts(store)
    assert store.export(first, device="gpu") == 2  # over what is there
    assert len(list(load_lines(first))) == 2
    assert not list(tmp_path.glob("*.part"))


def lines_of(*records: Record) -> bytes:
    return b"".join(r.to_json().encode() + b"\n" for r in records)


def unchecked(lines: bytes) -> bytes:
    """The same lines as versions before there were checksums wrote them."""
    return re.sub(rb',"checksum":"[0-9a-f]{16}"', b"", lines)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        (b'"split":1', b'"split":2', "key cannot be right"),
        (b'"karate"', b'"cora"', "key cannot be right"),
        (b'"status":"done"', b'"status":"good"', "status cannot be right"),
        (b'"device":"cpu"', b'"device":7', "device cannot be right"),
        (b'"device":"cpu"', rb'"device":"\ud800"', "device cannot be right"),
        (b'"accuracy":{"test":0.85}', b'"accuracy":{"test":"0.85"}', "accuracy cannot be right"),
        (b'"torch":"2.6.0"', b'"torch":null', "versions cannot be right"),
        (b'"init":0,', b"", "a record has the fields"),
        (b'"seconds":0.5', b'"seconds":' + b"1" * 5000, "Exceeds the limit"),
        (b'"error":null', b'"error":' + b"[" * 100_000, "recursion"),
        (b"karate", b"kar\xffate", "invalid start byte"),
        (b"}\n", b"\n", "one JSON object a line"),
    ],
)
def test_a_tampered_line_is_named_and_nothing_is_imported(
    store: Store, tmp_path: Path, make_record: Make, old: bytes, new: bytes, named: str
) -> None:
    tampered = unchecked(lines_of(make_record(1))).replace(old, new)
    assert tampered != unchecked(lines_of(make_record(1)))
    file = tmp_path / "records.jsonl"
    file.write_bytes(lines_of(make_record(0)) + tampered + lines_of(make_record(2)))
    with pytest.raises(RecordError, match=f"records.jsonl, line 2: .*{named}"):
        store.import_(file)
    assert store.records() == []


def test_a_changed_number_contradicts_what_we_have_and_its_line_is_named(
    store: Store, tmp_path: Path, make_record: Make
) -> None:
    store.add([make_record(1)])
    file = tmp_path / "records.jsonl"
    file.write_bytes(lines_of(make_record(0), make_record(1, epoch=9)))
    with pytest.raises(RecordError, match=r"line 2: run .* contradicts .*epoch was 7 and is 9"):
        store.import_(file)
    assert len(store.records()) == 1


def test_a_broken_or_missing_file_is_named(store: Store, tmp_path: Path, make_record: Make) -> None:
    whole = gzip.compress(lines_of(*map(make_record, range(50))))
    for name, content in (("cut.gz", whole[:-20]), ("plain.gz", lines_of(make_record())), ("flipped.gz", b"")):
        damaged = content or whole[:60] + bytes(b ^ 255 for b in whole[60:90]) + whole[90:]
        (tmp_path / name).write_bytes(damaged)
    for name in ("cut.gz", "plain.gz", "flipped.gz", "missing.jsonl", "."):
        with pytest.raises((StoreError, RecordError), match=name):
            store.import_(tmp_path / name)
    assert store.records() == []


def test_an_export_that_fails_leaves_what_was_there(
    store: Store, tmp_path: Path, make_record: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    store.add([make_record()])
    (tmp_path / "folder").mkdir()
    for file in (tmp_path / "missing" / "x.jsonl", tmp_path / "folder"):
        with pytest.raises(StoreError, match=r"cannot write .*; the store is as it was"):
            store.export(file)
    with pytest.raises(StoreError, match="is the store itself"):
        store.export(store.path)
    (tmp_path / "x.jsonl").write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left on device"):
        store.export(tmp_path / "x.jsonl")
    assert (tmp_path / "x.jsonl").read_text() == "old"
    assert not list(tmp_path.rglob("*.part"))


def test_a_store_of_a_newer_version_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "results.sqlite"
    Store(path).close()
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    db.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match=f"newer wtawp .its schema is {SCHEMA + 1}.*upgrade"):
        Store(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]


def test_what_is_no_store_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are notes, and more than a hundred bytes of them " * 9)
    with pytest.raises(StoreError, match=r"notes.txt: it is not a store of results"):
        Store(path)
    assert path.read_text().startswith("these are notes")
    db = sqlite3.connect(tmp_path / "bookmarks.sqlite")
    db.execute("CREATE TABLE records (address)")
    db.close()
    with pytest.raises(StoreError, match="a database of another program"):
        Store(tmp_path / "bookmarks.sqlite")
    with pytest.raises(StoreError, match="cannot be opened"):
        Store(tmp_path)
    with pytest.raises(StoreError, match="cannot reach the folder"):
        Store(path / "results.sqlite")
    with pytest.raises(StoreError, match="there is no store"):
        Store(tmp_path / "typo.sqlite", create=False)
    assert sorted(os.listdir(tmp_path)) == ["bookmarks.sqlite", "notes.txt"]


def test_a_damaged_store_is_said_to_be_damaged(tmp_path: Path, make_record: Make) -> None:
    path = tmp_path / "results.sqlite"
    with Store(path) as store:
        store.add([make_record(split) for split in range(100)])
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 8 * 4096)
    with pytest.raises(StoreError, match=r"is damaged; .* --salvage"), Store(path) as store:
        store.records()


def all_answers(path: Path, keys: list[str]) -> list[tuple[bool, object]]:
    """What every way of reading answers, and whether it said that something is wrong."""
    with Store(path, create=False) as store:
        questions: list[Callable[[], object]] = [
            lambda: texts(store), lambda: [r.to_json() for r in store.records(keys)],
            lambda: [r.to_json() for r in store.records(status="failed")],
            lambda: [r.to_json() for r in store.records(device="gpu")],
            lambda: [r.to_json() for r in store.find(keys[1])], lambda: store.done(keys, "cpu", "2.6.0"), store.summary,
        ]  # fmt: skip
        answers: list[tuple[bool, object]] = []
        for question in questions:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    answer = question()
                except (StoreError, RecordError) as error:
                    answers.append((True, str(error)))
                    continue
            shows_damage = isinstance(answer, list) and any(getattr(row, "unreadable", 0) for row in answer)
            answers.append((bool(caught) or shows_damage, answer))
    return answers


def test_no_flipped_byte_of_a_store_changes_an_answer_silently(tmp_path: Path, make_record: Make) -> None:
    path, damaged, rng = tmp_path / "results.sqlite", tmp_path / "damaged.sqlite", random.Random(0)
    long = [make_record(0, device="gpu", history={"gap": [0.1 * i for i in range(500)]})]  # on overflow pages
    records = [*map(make_record, range(8)), *long, make_record(9, **FAILED)]
    with Store(path) as store:
        store.add(records)
    keys, content = [r.key for r in records], path.read_bytes()
    intact = all_answers(path, keys)
    assert not any(is_wrong for is_wrong, _ in intact)
    outcomes = Counter[str]()
    for _ in range(300):
        flipped, place = bytearray(content), rng.randrange(len(content))
        flipped[place] ^= rng.randrange(1, 256)
        damaged.write_bytes(flipped)
        try:
            answers = all_answers(damaged, keys)
        except StoreError:
            outcomes["refused"] += 1
            continue
        changed = [got for got, expected in zip(answers, intact, strict=True) if got[1] != expected[1]]
        assert all(says_so for says_so, _ in changed), f"byte {place}: {changed}"
        outcomes["noticed" if changed else "equal"] += 1
    assert min(outcomes.values()) > 20, outcomes  # all three happen


def test_a_damaged_record_is_replaced_when_its_run_is_trained_again(store: Store, make_record: Make) -> None:
    store.add([make_record(0), make_record(1)])
    store._db.execute("UPDATE records SET status = 'dome' WHERE split = 1")
    with pytest.warns(UnreadableRecordWarning, match="1 unreadable .*another run or outcome"):
        assert store.done([make_record(1).key], "cpu", "2.6.0") == set()
    assert store.add([make_record(1)]) == (1, 0)
    assert store.done([make_record(1).key], "cpu", "2.6.0") == {make_record(1).key}


def test_unreadable_records_are_pruned_and_left_out_of_exports(store: Store, tmp_path: Path, make_record: Make) -> None:
    store.add([make_record(0), make_record(1), make_record(1, device="gpu"), make_record(2)])
    store._db.execute("UPDATE records SET content = replace(content, '0.85', '0.86') WHERE split = 1")
    rows = [(row.key, isinstance(row.record, Record)) for row in store.rows()]
    assert rows == [(make_record(s).key, s != 1) for s in (0, 1, 1, 2)]
    with pytest.warns(UnreadableRecordWarning, match="2 unreadable .*does not match its checksum"):
        assert store.export(tmp_path / "x.jsonl") == 2
    assert store.prune(unreadable=True, device="gpu") == 1
    assert store.prune(unreadable=True) == 1
    assert store.prune(unreadable=True) == 0
    assert texts(store) == [make_record(0).to_json(), make_record(2).to_json()]


def test_odd_names_are_files_too(tmp_path: Path, make_record: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (":memory:", "a b?mode=ro#%41.sqlite"):
        with Store(name) as store:
            store.add([make_record()])
        assert (tmp_path / name).is_file()


def test_without_the_right_to_write_nothing_is_lost_and_reading_works(store: Store, make_record: Make) -> None:
    store.add([make_record()])
    store._db.execute("PRAGMA query_only = 1")  # stops root, too
    with pytest.raises(StoreError, match=r"may only be read here.*what was there before still is"):
        store.add([make_record(1)])
    with pytest.raises(StoreError, match="may only be read here"):
        store.prune(failed=True)
    with pytest.raises(StoreError, match="may only be read here"):  # so that a sweep notices before it trains
        store.add([])
    assert texts(store) == [make_record().to_json()]


@contextmanager
def powerless() -> Iterator[None]:
    """As a user whom permissions stop."""
    if os.name != "posix":
        pytest.skip("PERMISSIONS NOT CHECKED: they work otherwise here")
    if os.geteuid() != 0:
        yield
        return
    try:
        os.seteuid(65534)
    except OSError as error:
        pytest.skip(f"PERMISSIONS NOT CHECKED: root cannot become somebody else here: {error}")
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that everybody may enter; pytest's own are private."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "shared"
        folder.mkdir()
        os.chmod(name, 0o755)
        yield folder
        os.chmod(folder, 0o755)


def test_a_read_only_folder_is_read_and_never_written(public: Path, tmp_path: Path, make_record: Make) -> None:
    path = public / "results.sqlite"
    with Store(path) as store:
        store.add([make_record()])
    os.chmod(path, 0o444)
    os.chmod(public, 0o555)
    with powerless():
        with Store(path) as store:
            assert texts(store) == [make_record().to_json()]
            for records in ([make_record(1)], []):
                with pytest.raises(StoreError, match="may only be read here"):
                    store.add(records)
        with pytest.raises(StoreError, match="cannot be opened"):
            Store(public / "new.sqlite")
        with pytest.raises(StoreError, match="cannot reach the folder"):
            Store(public / "new" / "results.sqlite")
    with Store(path) as store:
        store.export(tmp_path / "x.jsonl")
        with powerless(), pytest.raises(StoreError, match="cannot write"):
            store.export(public / "x.jsonl")


def test_a_read_only_file_in_a_folder_of_ours_is_read(public: Path, make_record: Make) -> None:
    path = public / "results.sqlite"
    with Store(path) as store:
        store.add([make_record()])
    os.chmod(path, 0o444)
    os.chmod(public, 0o777)
    with powerless(), Store(path) as store:
        assert texts(store) == [make_record().to_json()]
        with pytest.raises(StoreError, match="may only be read here"):
            store.add([make_record(1)])


def test_records_that_only_the_log_holds_are_never_left_out_silently(public: Path, make_record: Make) -> None:
    """A killed writer leaves a log; where it cannot be merged, half the truth is worse than an error."""
    with Store(public / "live.sqlite") as live:
        live.add([make_record()])
        for end in ("", "-wal"):
            (public / f"results.sqlite{end}").write_bytes((public / f"live.sqlite{end}").read_bytes())
    os.chmod(public, 0o555)
    with powerless(), pytest.raises(StoreError, match="left by a process that was killed"):
        Store(public / "results.sqlite")
    os.chmod(public, 0o755)
    with Store(public / "results.sqlite") as store:
        assert len(store.records()) == 1


def test_a_full_disk_loses_nothing(store: Store, make_record: Make) -> None:
    store.add([make_record()])
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(StoreError, match=r"the disk is full; make room.*what was there before still is"):
        store.add([make_record(split, scores=[0.1] * 500) for split in range(1, 50)])
    assert texts(store) == [make_record().to_json()]
    store._db.execute("PRAGMA max_page_count = 100000")
    assert store.add([make_record(split) for split in range(50)]) == (49, 1)


def test_a_store_kept_by_another_for_too_long_is_said_to_be(store: Store, make_record: Make) -> None:
    with Store(store.path) as other:
        other._db.execute("PRAGMA busy_timeout = 50")
        store._db.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="another process has kept it"):
            other.add([make_record()])
        store._db.execute("ROLLBACK")
        assert other.add([make_record()]) == (1, 0)


WRITER = """
import os, random, signal, sys, time
from wtawp.experiments.spec import Run, Setting
from wtawp.experiments.spec import Record
from wtawp.experiments.store.database import Store

path, SETTING = sys.argv[1], Setting(dataset="karate")

def batch(split, size):
    return [Record(key=run.key, setting=SETTING.content, split=split, init=run.init, device="cpu", status="done",
                   epoch=0, accuracy={"test": 0.5}, loss={"test": 1.0}, scores=[0.1] * 300, seconds=1.0,
                   created="2024", versions={"torch": "2.6.0"})
            for run in (Run(SETTING, split, init) for init in range(size))]

def child(work, *arguments):
    pid = os.fork()
    if pid == 0:
        try:
            work(*arguments)
            os._exit(0)
        finally:
            os._exit(1)
    return pid
"""

TOGETHER = """
def add_200(first):
    with Store(path) as store:
        for split in range(first, first + 200):
            store.add(batch(split, 1))

children = [child(add_200, first) for first in (0, 200, 100)]  # the third repeats halves of both
sys.exit(any([os.waitpid(pid, 0)[1] for pid in children]))
"""

KILLED = """
def add_for_ever(first, pipe):
    with Store(path) as store:
        for split in range(first, first + 10_000):
            store.add(batch(split, 10))
            os.write(pipe, b".")

moments = random.Random(5)
for round in range(6):
    reader, writer = os.pipe()
    pid = child(add_for_ever, 10_000 * round, writer)
    os.close(writer)  # in the parent, so that reading ends if the child fails
    assert os.read(reader, 1)
    time.sleep(moments.uniform(0.0, 0.1))
    os.kill(pid, signal.SIGKILL)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    confirmed = 1 + len(os.read(reader, 10_000))
    with Store(path) as store:
        assert store._db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        inits = {}
        for record in store.records():
            inits.setdefault(record.split, []).append(record.init)
        assert all(numbers == list(range(10)) for numbers in inits.values()), inits
        stored = sum(split >= 10_000 * round for split in inits)
        assert stored - confirmed in (0, 1), (stored, confirmed)  # every batch that was confirmed is there
"""


def run(script: str, path: Path) -> None:
    subprocess.run([sys.executable, "-c", WRITER + script, str(path)], check=True, timeout=120)


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="starts a writer once and forks it, to be fast")


@needs_fork
def test_processes_add_at_the_same_time(tmp_path: Path) -> None:
    run(TOGETHER, tmp_path / "results.sqlite")  # which none of them finds there
    with Store(tmp_path / "results.sqlite") as store:
        assert [r.split for r in store.records()] == list(range(400))


@needs_fork
def test_a_process_killed_at_any_moment_leaves_whole_batches(tmp_path: Path) -> None:
    run(KILLED, tmp_path / "results.sqlite")  # which checks after every kill, and fails if it reads half a batch
    with Store(tmp_path / "results.sqlite") as store:
        sizes = Counter(record.split for record in store.records())
    assert sizes
    assert set(sizes.values()) == {10}


def test_stacks_of_other_sizes_round_otherwise_and_the_first_record_stays(
    tmp_path: Path, make_record: Callable[..., Record]
) -> None:
    first = make_record(versions={"torch": "2.6.0", "stack": "2"})
    other = replace(make_record(accuracy={"test": 0.5}), versions={"torch": "2.6.0", "stack": "10"})
    with Store(tmp_path / "s.sqlite") as store:
        assert store.add([first]) == (1, 0)
        assert store.add([other]) == (0, 1)
        assert store.records()[0].accuracy == first.accuracy


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_an_export_that_fails_leaves_no_query_open(tmp_path: Path, make_record: Make) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("NOT CHECKED: there is no device that is always full")
    with Store(tmp_path / "s.sqlite") as opened:
        opened.add([replace(make_record(split), history={"gap": [0.123456789] * 3000}) for split in range(9)])
        with pytest.raises(StoreError, match="No space left") as caught:
            opened.export("/dev/full")
    del caught
    gc.collect()
