import math

import pytest

from wtawp.base import did_you_mean, matching_name, resolve


def test_references_are_resolved_or_refused() -> None:
    assert resolve("math:pi") == math.pi
    with pytest.raises(ImportError, match=r"module math has no attribute 'tau2' \(did you mean tau\?\)"):
        resolve("math:tau2")
    with pytest.raises(ImportError, match="no_such_module"):
        resolve("no_such_module:name")


def test_a_name_is_found_in_any_case_and_only_whole() -> None:
    known = ["GCN", "imdb-binary"]
    assert [matching_name(name, known) for name in ("GCN", "gcn", "gCn", "IMDB-Binary")] == [
        *3 * ["GCN"],
        "imdb-binary",
    ]
    assert [matching_name(name, known) for name in ("GC", "GCNN", "", "imdb_binary")] == 4 * [None]


@pytest.mark.parametrize(
    ("written", "meant"), [("gnc", "GCN"), ("gin ", "GIN"), ("GTA", "GAT"), ("pooledgnc", "PooledGCN")]
)
def test_the_nearest_name_is_suggested_and_letters_that_changed_places_come_first(written: str, meant: str) -> None:
    assert did_you_mean(written, ["GIN", "GAT", "GCN", "PooledGCN"]) == f"; did you mean {meant}?"
    assert did_you_mean("xyzzy", ["GIN", "GCN"]) == ""
