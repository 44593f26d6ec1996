"""The store of results: one SQLite file of records, and JSON lines to move records between machines.

This room imports `spec` alone: it knows what a record is, and neither how it was made nor what it means.
"""

from typing import TYPE_CHECKING

from wtawp.base import lazy_exports

if TYPE_CHECKING:
    from wtawp.experiments.store.checking import FileCheck, check_file, first_problem, salvage
    from wtawp.experiments.store.database import Row, Store, Summary, default_path
    from wtawp.experiments.store.errors import StoreError, UnreadableRecordWarning
    from wtawp.experiments.store.json_lines import load_all, load_lines, record_files

__all__ = [
    "FileCheck", "Row", "Store", "StoreError", "Summary", "UnreadableRecordWarning", "check_file", "default_path",
    "first_problem", "load_all", "load_lines", "record_files", "salvage",
]  # fmt: skip
_HOMES = {
    **dict.fromkeys(("FileCheck", "check_file", "first_problem", "salvage"), "checking"),
    **dict.fromkeys(("Row", "Store", "Summary", "default_path"), "database"),
    **dict.fromkeys(("StoreError", "UnreadableRecordWarning"), "errors"),
    **dict.fromkeys(("load_all", "load_lines", "record_files"), "json_lines"),
}
__getattr__ = lazy_exports(__name__, _HOMES)


def __dir__() -> list[str]:
    """The public names, also those that are not imported yet."""
    return sorted({*globals(), *__all__})
