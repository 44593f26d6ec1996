from pathlib import Path

import pytest

from wtawp.base import DataError, UnusedDataWarning
from wtawp.graphs.unread_entries import refuse_unread_features, warn_of_unread


def test_nothing_is_said_of_nothing_and_long_lists_are_cut() -> None:
    warn_of_unread(Path("g.npz"), [], "a")
    with pytest.warns(UnusedDataWarning, match=r"^g\.npz: e00, .*, e09 and 2 more are not used; of such a file, a are"):
        warn_of_unread(Path("g.npz"), [f"e{i:02d}" for i in range(12)], "a")


def test_a_row_of_numbers_for_each_node_may_be_features_and_a_square_table_need_not() -> None:
    refuse_unread_features(Path("g"), {"a": (3,), "b": (3, 3), "c": (4, 2), "d": (3, 0)}, 3, advice="save it as x")
    with pytest.raises(DataError, match=r"a \[3, 2\], b \[3, 1\] may hold them: save it as x, or remove them if"):
        refuse_unread_features(Path("g"), {"a": (3, 2), "b": (3, 1)}, 3, advice="save it as x")
