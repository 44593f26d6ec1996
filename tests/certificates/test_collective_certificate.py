from itertools import product

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch_geometric.data import Data

from wtawp.base import rng
from wtawp.certificates import Certificate, Noise, ReceptiveFields, certificate_of, collective, receptive_fields
from wtawp.certificates.collective_certificate import CollectiveCertificate
from wtawp.graphs import citation
from wtawp.models import GCN

DATA = citation(seed=0, num_nodes=60, num_words=20)
MODEL = GCN(20, 7, hidden=(8,), generator=rng("collective"))
NOISE = Noise(p_add=0.02, p_del=0.5)
Bits = NDArray[np.int64]


def ring(size: int) -> ReceptiveFields:
    """Every node depends on itself and on both of its neighbours on a ring."""
    distance = np.abs(np.arange(size)[:, None] - np.arange(size))
    near = sparse.csr_array(np.minimum(distance, size - distance) <= 1)
    return ReceptiveFields("features", near, np.full(size, 12), np.full(size, 8))


FIELDS, LABELS = ring(60), np.arange(60) % 3


@pytest.fixture(scope="module")
def certificate() -> Certificate:
    """Of random votes: most nodes are predicted correctly, by different majorities."""
    share = 1 - np.random.default_rng(0).random(60) ** 3 / 2
    right = np.round(2000 * share).astype(np.int64)
    votes = np.zeros((60, 3), dtype=np.int64)
    votes[np.arange(60), LABELS] = right
    votes[np.arange(60), (LABELS + 1) % 3] = 2000 - right
    votes[:5] = votes[:5, [1, 2, 0]]
    return certificate_of(votes, {"features": NOISE}, alpha=0.05, over_nodes=True)


def test_it_is_never_below_the_certificates_of_the_nodes_one_by_one(certificate: Certificate) -> None:
    nodes = np.arange(0, 60, 2)
    result = collective(certificate, FIELDS, labels=LABELS, nodes=nodes, additions=range(3), deletions=range(8))
    assert result.certified.shape == (3, 8)
    assert bool((result.certified >= result.per_node).all())
    assert bool((result.certified > result.per_node).any())
    for axis in (0, 1):
        assert bool((np.diff(result.certified, axis=axis) <= 0).all()), "a larger budget never certifies more"
    grid = certificate.certified_ratio(LABELS, nodes)
    ours = result.per_node_ratio[: grid.shape[0], : grid.shape[1]]
    assert np.array_equal(ours, grid[: ours.shape[0], : ours.shape[1]])
    assert (result.num_nodes, result.alpha) == (30, 0.05)


def test_an_open_axis_ends_where_nothing_more_can_be_attacked(certificate: Certificate) -> None:
    for axis, how in ((1, {}), (0, {"additions": None, "deletions": (0,)})):
        curve = collective(certificate, FIELDS, **how)  # type: ignore[arg-type]
        last = curve.certified.shape[axis] - 1
        further = {"additions": (0,), "deletions": (0,), ("additions", "deletions")[axis]: (last, 3 * last + 50)}
        few = collective(certificate, FIELDS, **further)  # type: ignore[arg-type]
        assert few.certified.ravel()[0] == few.certified.ravel()[1] == curve.certified.ravel()[-1]
        every = {**further, ("additions", "deletions")[axis]: tuple(range(last + 1))}
        solved = collective(certificate, FIELDS, **every)  # type: ignore[arg-type]
        assert bool((np.abs(solved.certified - curve.certified) <= 1).all()), "few programs bound the budgets between"
        assert curve.average > curve.per_node_average


def test_the_average_is_the_area_under_the_curve() -> None:
    counts = np.array([[4, 4, 2, 1, 0]])
    result = CollectiveCertificate(np.array([0]), np.arange(5), counts, counts // 2, 4, 0.01, (1, 1))
    assert result.average == pytest.approx((4 + 2 + 1) / 4)
    assert result.per_node_average == pytest.approx((2 + 1) / 4)
    few = CollectiveCertificate(
        np.array([0]), np.array([0, 1, 4]), counts[:, [0, 1, 4]], counts[:, :3], 4, 0.01, (1, 1)
    )
    assert few.average == pytest.approx(4 / 4), "budgets in between count as the next larger one"
    both = CollectiveCertificate(
        np.arange(2), np.arange(2), np.ones((2, 2), int), np.ones((2, 2), int), 1, 0.01, (1, 1)
    )
    with pytest.raises(ValueError, match="single budget"):
        _ = both.average


@pytest.mark.parametrize("never", [0, 2])
def test_the_average_does_not_depend_on_where_the_search_stopped(never: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes alone in their fields; `never` of them have too few ones to be attacked."""
    certificate = certificate_of(np.array([[1000, 0]] * 7), {"features": Noise(p_add=0.01, p_del=0.6)}, over_nodes=True)
    radius = int(certificate.radii[0, 1]) + 1  # that many deletions attack a node
    alone, ones = sparse.eye_array(7, dtype=bool, format="csr"), np.where(np.arange(7) < never, 2, radius + 2)
    fields = ReceptiveFields("features", alone, np.full(7, 90), ones)
    expected = np.maximum(7 - np.arange((7 - never) * radius + 1) // radius, never)
    for growth in (1.0, 1.25, 3.0):
        monkeypatch.setattr("wtawp.certificates.collective_certificate.GROWTH", growth)
        result = collective(certificate, fields)
        assert result.deletions.tolist() == list(range((7 - never) * radius + 1))
        assert result.certified.shape == result.per_node.shape == (1, len(result.deletions))
        if growth == 1.0:
            assert result.certified[0].tolist() == expected.tolist()
            assert result.average == pytest.approx(expected[1:].sum() / 7)
        assert bool((result.certified[0] <= expected).all())


def test_nodes_are_indices_or_a_mask(certificate: Certificate) -> None:
    mask = np.arange(60) % 3 == 0
    by_mask = collective(certificate, FIELDS, nodes=torch.from_numpy(mask), deletions=(0, 5))
    by_index = collective(certificate, FIELDS, nodes=mask.nonzero()[0], deletions=(0, 5))
    assert by_mask.num_nodes == by_index.num_nodes == 20
    assert np.array_equal(by_mask.certified, by_index.certified)
    for wrong, message in (
        (mask[:9], r"or a boolean mask \[60\], of the nodes, got torch.bool of shape \[9\]"),
        ([0.5], r"nodes must be indices \[k\]"),
        ([], "nodes must hold one or more of the nodes"),
        ([0, 0, 1], "nodes must be distinct, but 1 of 3 occur again"),
        ([60], "nodes must lie in 0 to 59"),
        ([-1], "nodes must lie in 0 to 59"),
    ):
        with pytest.raises(ValueError, match=message):
            collective(certificate, FIELDS, nodes=wrong, deletions=(0,))


def flipped_counts(x: Bits, moved: Bits) -> tuple[int, int]:
    return int((moved > x).sum()), int((moved < x).sum())


def exact_shares(classes: Bits, copies: Bits, x: Bits, noise: Noise) -> NDArray[np.float64]:
    """The probability with which each node gets class 1 under noise on x, summed over all noisy copies."""
    flip = np.where(x == 1, noise.p_del, noise.p_add)
    return np.asarray(np.where(copies != x, flip, 1 - flip).prod(1) @ classes)


def check_against_all_attacks(
    classes: Bits, x: Bits, copies: Bits, noise: Noise, fields: ReceptiveFields
) -> CollectiveCertificate:
    """Attack the smoothed classifier by every possible input and compare with the bounds."""
    many = 10**9
    p = exact_shares(classes, copies, x, noise)
    ones = np.floor(p * many).astype(np.int64)
    votes = np.stack([many - ones, ones], axis=1)
    certificate = certificate_of(votes, {fields.on: noise}, over_nodes=True)
    additions = (0,) if fields.on == "edges" else tuple(range(len(x) + 1))
    result = collective(certificate, fields, additions=additions, deletions=range(len(x) + 1))
    counted = certificate.certified()
    for moved in copies:
        a, d = flipped_counts(x, moved)
        if a < len(additions):
            kept = (exact_shares(classes, copies, moved, noise) > 0.5) == (p > 0.5)
            assert (kept & counted).sum() >= result.certified[a, d]
    return result


def test_no_attack_on_the_features_of_a_small_graph_changes_more_nodes() -> None:
    """Four nodes on a path with two features each; a node sees its neighbours, and both smoothings are exact."""
    near = np.abs(np.arange(4)[:, None] - np.arange(4)) <= 1
    weight = np.array([1.0, 0.7, 1.3, 0.9, 1.1, 0.8, 1.2, 1.0])
    copies = np.array(list(product((0, 1), repeat=8)))
    classes = ((copies * weight).reshape(-1, 4, 2).sum(2) @ near > 0.35 * near.sum(1)).astype(np.int64)
    x = np.array([1, 1, 1, 0, 1, 1, 1, 1])
    ones = x.reshape(4, 2).sum(1)
    fields = ReceptiveFields("features", sparse.csr_array(near), 2 - ones, ones)
    result = check_against_all_attacks(classes, x, copies, Noise(p_add=0.05, p_del=0.6), fields)
    assert bool((result.certified > result.per_node).any())


def test_no_removal_of_edges_changes_more_nodes_although_degrees_reach_further() -> None:
    """A path of nine nodes and one hop of a GCN; three nodes need at least one of their two neighbours."""
    value = torch.tensor([1.0, -0.3, 1.0, 1.0, -0.3, 1.0, 1.0, -0.3, 1.0], dtype=torch.float64)[:, None]
    pairs = torch.stack([torch.arange(8), torch.arange(1, 9)])

    def model(x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        matrix = torch.eye(9, dtype=x.dtype)
        matrix[edges[0], edges[1]] = 1
        scale = matrix.sum(0) ** -0.5
        return torch.cat([x * 0, scale[:, None] * matrix * scale @ x], 1)

    fields = receptive_fields(Data(x=value, edge_index=torch.cat([pairs, pairs.flip(0)], 1)), model, hops=1, on="edges")
    copies = np.array(list(product((0, 1), repeat=8)))
    kept = [pairs[:, torch.from_numpy(copy == 1)] for copy in copies]
    classes = np.stack([model(value, torch.cat([some, some.flip(0)], 1)).argmax(1).numpy() for some in kept])
    result = check_against_all_attacks(classes, copies[-1], copies, Noise(p_add=0.0, p_del=0.3), fields)
    assert result.per_node.tolist()[0][:5] == [9, 9, 6, 6, 6]
    assert result.certified.tolist()[0][:5] == [9, 9, 7, 7, 6]


def test_what_is_not_sound_is_refused() -> None:
    votes = np.array([[600, 0]] * 60)
    each = certificate_of(votes, {"features": NOISE})
    with pytest.raises(ValueError, match="over_nodes=True"):
        collective(each, FIELDS)
    adding = certificate_of(votes, {"features": NOISE, "edges": Noise(p_add=0.001, p_del=0.4)}, over_nodes=True)
    with pytest.raises(ValueError, match="noise that adds edges"):
        collective(adding, FIELDS)
    removing = certificate_of(votes, {"edges": Noise(p_add=0.0, p_del=0.4)}, over_nodes=True)
    edges = receptive_fields(DATA, MODEL, on="edges")
    for additions in ((0, 1), None):
        with pytest.raises(ValueError, match="against deletions only"):
            collective(removing, edges, additions=additions, deletions=(0,))
    assert collective(removing, edges, deletions=(0, 1)).certified.tolist()[0][0] == 60
    with pytest.raises(ValueError, match="about edges, the fields about features"):
        collective(removing, FIELDS)


def test_wrong_arguments_are_named(certificate: Certificate) -> None:
    with pytest.raises(ValueError, match="only one of both"):
        collective(certificate, FIELDS, additions=None, deletions=None)
    for wrong in ((), (-1,), (0.5,)):
        with pytest.raises(ValueError, match="deletions must be one or more whole numbers"):
            collective(certificate, FIELDS, deletions=wrong)  # type: ignore[arg-type]
    small = ReceptiveFields("features", FIELDS.reach[:9], FIELDS.zeros, FIELDS.ones)
    with pytest.raises(ValueError, match="fields are of 9 nodes"):
        collective(certificate, small)


def test_nodes_that_are_wrong_or_abstain_are_not_counted() -> None:
    votes = np.array([[600, 0], [600, 0], [300, 300]])
    certificate = certificate_of(votes, {"features": NOISE}, over_nodes=True)
    fields = ReceptiveFields("features", sparse.eye_array(3, dtype=bool, format="csr"), np.full(3, 9), np.full(3, 9))
    assert collective(certificate, fields, deletions=(0,)).certified.tolist() == [[2]]
    assert collective(certificate, fields, labels=[0, 1, 0], deletions=(0,)).certified.tolist() == [[1]]
    none = collective(certificate, fields, labels=[1, 1, 0])
    assert none.certified.tolist() == [[0]]
    assert none.average == 0


def test_labels_of_another_shape_are_refused_instead_of_broadcast(certificate: Certificate) -> None:
    for labels in (LABELS[:, None], LABELS[:1], LABELS / 1):
        with pytest.raises(ValueError, match=r"one for each of the 60 nodes, \[60\]; got \w+ of shape"):
            collective(certificate, FIELDS, labels=labels, deletions=(0,))
