"""The loops of `sampling`, compiled for one thread: batches are spread over workers, not loops over cores."""

import numba
import numpy as np

Array = np.ndarray
u = np.uint64


@numba.njit(nogil=True, inline="always")
def splitmix64(h: u) -> u:
    """Map 64 bits one to one to 64 bits without visible pattern (the finaliser of SplitMix64)."""
    h = (h ^ (h >> u(30))) * u(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> u(27))) * u(0x94D049BB133111EB)
    return h ^ (h >> u(31))


@numba.njit(nogil=True, cache=True)
def sort_by_target(targets: Array, indptr: Array, order: Array) -> None:
    """Write the positions of the edges to `order`, sorted by target; edges of one target keep their order."""
    free = indptr[:-1].copy()
    for e in range(len(targets)):
        target = targets[e]
        order[free[target]] = e
        free[target] += 1


@numba.njit(nogil=True, cache=True)
def draw_positions(indptr: Array, nodes: Array, fanout: int, key: u, offsets: Array, out: Array) -> None:
    """See `sampling._draw_positions`; node i writes from `offsets[i]` on."""
    golden, increment, unit = u(0x9E3779B97F4A7C15), u(0xD1B54A32D192ED03), 2.0**-53
    for i in range(len(nodes)):
        start, o = indptr[nodes[i]], offsets[i]
        degree = indptr[nodes[i] + 1] - start
        if fanout < 0 or degree <= fanout:
            for j in range(degree):
                out[o + j] = start + j
            continue
        state = splitmix64(key + u(nodes[i]) * golden)
        for j in range(fanout):
            last = degree - fanout + j
            share = np.float64(splitmix64(state + u(j) * increment) >> u(11)) * unit
            drawn = start + np.int64(share * np.float64(last + 1))
            for earlier in range(j):
                if out[o + earlier] == drawn:
                    drawn = start + last
                    break
            out[o + j] = drawn


@numba.njit(nogil=True, inline="always")
def _slot(identifier: np.int64, table: Array, nodes: Array) -> np.int64:
    """The slot of a node in the hash table, or the empty slot where it belongs."""
    mask = len(table) - 1
    slot = np.int64(splitmix64(u(identifier)) & u(mask))
    while table[slot] >= 0 and nodes[table[slot]] != identifier:
        slot = (slot + 1) & mask
    return slot


@numba.njit(nogil=True, cache=True)
def insert(nodes: Array, count: int, table: Array) -> None:
    """Enter the first `count` nodes, which are distinct, into an empty hash table from nodes to their numbers."""
    for i in range(count):
        table[_slot(nodes[i], table, nodes)] = i


@numba.njit(nogil=True, cache=True)
def renumber(sources: Array, positions: Array, nodes: Array, count: int, table: Array, out: Array) -> int:
    """Write the number of each sampled source to `out` and append new sources to `nodes`; returns how many there are.

    Nodes are numbered in the order in which they are first met. The size of the hash table is a power of two.
    """
    for e in range(len(positions)):
        identifier = np.int64(sources[positions[e]])
        slot = _slot(identifier, table, nodes)
        if table[slot] < 0:
            table[slot] = count
            nodes[count] = identifier
            count += 1
        out[e] = table[slot]
    return count
