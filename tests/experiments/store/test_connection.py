import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from wtawp.experiments.spec import Record
from wtawp.experiments.store import Store, StoreError
from wtawp.experiments.store.connection import SCHEMA, connect, structural_problems, transaction

Make = Callable[..., Record]


@pytest.fixture
def path(tmp_path: Path, make_record: Make) -> Path:
    """A store of three records."""
    with Store(tmp_path / "results.sqlite") as store:
        store.add(map(make_record, range(3)))
    return store.path


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute(statement)
        db.commit()


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER t AFTER INSERT ON records BEGIN DELETE FROM records; END",
        "CREATE VIEW others AS SELECT * FROM records",
        "CREATE TABLE notes (text)",
        "ALTER TABLE records ADD COLUMN hidden TEXT GENERATED ALWAYS AS (hex(content)) VIRTUAL",
        "DROP INDEX in_order",
    ],
)
def test_tables_that_wtawp_does_not_create_are_refused_before_they_are_used(path: Path, statement: str) -> None:
    change(path, statement)
    with pytest.raises(StoreError, match=r"has other tables than wtawp creates.*--salvage"):
        Store(path)


def test_connections_are_defensive(path: Path) -> None:
    with closing(connect(path)) as db:
        read = {name: db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("trusted_schema", "cell_size_check")}
        assert read == {"trusted_schema": 0, "cell_size_check": 1}
        assert structural_problems(db, most=9) == []


def test_a_store_of_the_first_schema_is_read_and_raised_by_the_first_write(path: Path, make_record: Make) -> None:
    change(path, "PRAGMA user_version = 1")
    with Store(path) as store:
        assert len(store.records()) == 3
        assert store._db.execute("PRAGMA user_version").fetchone()[0] == 1
        store.add([make_record(3)])
        assert store._db.execute("PRAGMA user_version").fetchone()[0] == SCHEMA
    change(path, "PRAGMA user_version = 0")
    with pytest.raises(StoreError, match="has other tables"):
        Store(path)


def test_an_index_that_misses_a_row_is_noticed(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute("DELETE FROM sqlite_master WHERE name = 'in_order'")
        db.commit()
    with closing(sqlite3.connect(path)) as db:
        assert structural_problems(db, most=9) != []


def test_an_empty_transaction_needs_permission_to_write(path: Path) -> None:
    with closing(connect(path)) as db:
        with transaction(db):
            pass
        db.execute("PRAGMA query_only = 1")
        with pytest.raises(sqlite3.OperationalError, match="readonly"), transaction(db):
            pass
        assert not db.in_transaction
