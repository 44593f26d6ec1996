import numpy as np
import pytest

sampling_numba = pytest.importorskip("wtawp.graphs.sampling_numba", reason="the extra `fast` is not installed")


def test_the_hash_table_tells_nodes_apart_that_share_a_slot() -> None:
    """A table of 64 slots for 30 nodes has many collisions."""
    nodes = np.empty(40, dtype=np.int64)
    nodes[:10] = np.arange(10) * 1000
    table = np.full(64, -1, dtype=np.int32)
    sampling_numba.insert(nodes, 10, table)
    sources = (np.arange(30, dtype=np.int32) * 1000)[::-1].copy()  # 29000, ..., 0: the last ten are known
    numbers = np.empty(30, dtype=np.int64)
    count = sampling_numba.renumber(sources, np.arange(30), nodes, 10, table, numbers)
    assert count == 30
    assert nodes[numbers].tolist() == sources.tolist()
    assert numbers[-10:].tolist() == list(range(9, -1, -1))
