import numpy as np
import pytest

splitmix64_numba = pytest.importorskip("wtawp.graphs.splitmix64_numba", reason="the extra `fast` is not installed")


def test_the_state_of_splitmix64_is_mapped_to_its_published_draws() -> None:
    """The first draws of SplitMix64 with the seed 1234567, as listed with implementations of it."""
    golden = 0x9E3779B97F4A7C15
    keys = np.array([(1234567 + i * golden) % 2**64 for i in range(1, 6)], dtype=np.uint64).view(np.int64)
    out = np.empty_like(keys)
    splitmix64_numba.splitmix64(keys, out)
    published = (
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    )
    assert tuple(out.view(np.uint64).tolist()) == published
