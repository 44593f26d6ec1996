import numpy as np
import pytest

structure_numba = pytest.importorskip("wtawp.graphs.structure_numba", reason="the extra `fast` is not installed")


@pytest.mark.parametrize("length", [0, 1, 2, 30, structure_numba.SHORT, structure_numba.SHORT + 1, 500])
@pytest.mark.parametrize("kind", ["shuffled", "rising", "falling", "last first"])
def test_a_row_is_sorted_stably_however_it_comes(length: int, kind: str) -> None:
    state = np.random.RandomState(length)
    columns = np.sort(state.randint(0, max(length // 2, 1), length)).astype(np.int32)
    columns = {
        "shuffled": state.permutation(columns),
        "rising": columns,
        "falling": columns[::-1],
        "last first": np.roll(columns, 1),
    }[kind].copy()
    order = np.argsort(columns, kind="stable")
    indices, values = np.full(length + 2, -7, np.int32), np.full(length + 2, -7.0)
    indices[1:-1], values[1:-1] = columns, np.arange(length)
    structure_numba.sort_row(indices, values, 1, length + 1)
    assert indices.tolist() == [-7, *columns[order].tolist(), -7]  # neighbouring rows are left alone
    assert values.tolist() == [-7, *order.tolist(), -7]


def test_both_ways_of_selecting_agree() -> None:
    indptr, indices = np.array([0, 3, 3, 6], np.int32), np.array([0, 2, 4, 1, 2, 3], np.int32)
    values, rows = np.arange(6.0), np.array([2, 0, 1])
    new_column = np.array([2, 0, 3, -1, 1], np.int32)  # the columns 1, 4 | 0, 2 in two rising runs
    results = []
    for select in (structure_numba.select_and_sort, structure_numba.select_by_runs):
        out = np.zeros(4, np.int32), np.zeros(7, np.int32), np.zeros(7)
        runs = (np.array([0, 2, 4], np.int32),) if select is structure_numba.select_by_runs else ()
        kept = select(*runs, indptr, indices, values, rows, new_column, *out)
        results.append((kept, out[0].tolist(), out[1][:kept].tolist(), out[2][:kept].tolist()))
    assert results[0] == results[1] == (5, [0, 2, 5, 5], [0, 3, 1, 2, 3], [3.0, 4.0, 2.0, 0.0, 1.0])
