import pytest
import torch
from torch import Tensor

from wtawp.base import rng
from wtawp.graphs import cosine, extreme_pairs, gcn_operator, jaccard, jaccard_operator, knn_operator, sparse_features
from wtawp.graphs.similarity import jaccard_rows, presence

X = (torch.rand(30, 40, generator=rng("x")) < 0.4).double()
X[7] = 0  # a node without features
X[9] = X[8]  # two with the same


def similarities(x: Tensor) -> list[list[float]]:
    """Slowly, with sets."""
    words = [set(row.nonzero()[:, 0].tolist()) for row in x]
    return [[len(a & b) / max(len(a) * len(b), 1) ** 0.5 for b in words] for a in words]


def ranked(x: Tensor, i: int) -> list[int]:
    n, similarity = len(x), similarities(x)[i]
    return sorted((j for j in range(n) if j != i), key=lambda j: (-similarity[j], (j - i) % n))


@pytest.mark.parametrize("k", [1, 5, 100])
def test_the_knn_operator_by_a_slow_loop(k: int) -> None:
    similarity, s = similarities(X), torch.zeros(30, 30, dtype=torch.float64)
    for i in range(30):
        for j in ranked(X, i)[:k]:
            s[i, j] = similarity[i][j]
    scale = torch.where(s.sum(1) > 0, s.sum(1), torch.inf).rsqrt()
    torch.testing.assert_close(knn_operator(X, k).to_dense(), scale[:, None] * s * scale, rtol=0, atol=1e-9)
    torch.testing.assert_close(knn_operator(sparse_features(X), k).to_dense(), knn_operator(X, k).to_dense())


def test_zeros_among_the_entries_of_sparse_features_are_no_features_and_stay_where_they_are() -> None:
    x = sparse_features(X)
    x.values[::3] = 0
    indptr, indices = x.indptr.clone(), x.indices.clone()
    assert torch.equal(torch.from_numpy(presence(x).toarray()), (x.to_dense() != 0).double())
    assert torch.equal(x.indptr, indptr)
    assert torch.equal(x.indices, indices)


def test_pairs_by_a_slow_loop() -> None:
    similarity, expected = similarities(X), {}
    for i in range(30):
        for j in ranked(X, i)[:3] + ranked(X, i)[-3:]:
            expected[min(i, j), max(i, j)] = similarity[i][j]
    pairs, found = extreme_pairs(X, 3)
    assert dict(zip(map(tuple, pairs.T.tolist()), found.tolist(), strict=True)) == pytest.approx(expected, abs=1e-9)


def test_identity_features_join_nobody_and_pair_everybody_evenly() -> None:
    assert len(knn_operator(torch.eye(30), 5).indices) == 0
    pairs, similarity = extreme_pairs(torch.eye(30), 3)
    assert similarity.unique().tolist() == [0.0]
    assert torch.bincount(pairs.flatten(), minlength=30).unique().tolist() == [6]


def test_a_node_alone_has_nobody() -> None:
    assert len(knn_operator(torch.ones(1, 3), 5).indices) == 0
    assert extreme_pairs(torch.ones(1, 3))[0].shape == (2, 0)


def test_cosines_of_dense_and_sparse_rows_are_torch_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wtawp.graphs.similarity.PAIRS", 7)  # some at a time
    g = rng("cosine")
    x = torch.randn(30, 6, generator=g, dtype=torch.float64) * (torch.rand(30, 6, generator=g) < 0.5)
    x[7] = 0
    rows, cols = torch.randint(30, (2, 50), generator=g)
    expected = torch.nn.functional.cosine_similarity(x[rows], x[cols])
    for given in (x, sparse_features(x), x.to_sparse()):
        torch.testing.assert_close(cosine(rows, cols, given), expected)
    assert cosine(rows[:0], cols[:0], sparse_features(x)).shape == (0,)
    stack = torch.stack([x, 2 * x])
    torch.testing.assert_close(cosine(rows, cols, stack), expected.expand(2, -1))


def test_the_gradient_of_a_cosine_is_finite_everywhere() -> None:
    x = torch.randn(5, 3, generator=rng("gradient"), dtype=torch.float64).requires_grad_()
    rows, cols = torch.triu_indices(5, 5)
    assert torch.autograd.gradcheck(lambda t: cosine(rows, cols, t), x)
    zero = torch.zeros(5, 3).requires_grad_()
    cosine(rows, cols, zero).sum().backward()
    assert zero.grad is not None
    assert zero.grad.isfinite().all()


def test_edges_between_dissimilar_nodes_are_left_out() -> None:
    x = torch.tensor([[1, 1, 0, 0], [2, -1, 1, 0], [0, 0, 1, 1], [0, 0, 0, 0], [0, 0, 0, 0]], dtype=torch.float64)
    edges = torch.tensor([[0, 1, 1, 2, 0, 2, 3, 4, 0, 3], [1, 0, 2, 1, 2, 0, 4, 3, 3, 0]])
    expected = [2 / 3, 2 / 3, 1 / 4, 1 / 4, 0, 0, 1, 1, 0, 0]  # a feature counts where it is not 0; none and none: 1
    assert jaccard(edges, x).tolist() == pytest.approx(expected)
    for threshold, kept in ((0.0, 10), (0.01, 6), (0.25, 6), (0.3, 4), (1.0, 2)):
        operator = jaccard_operator(edges, None, x, threshold)
        assert len(operator.indices) == kept + 5  # and the self-loops
    left = torch.tensor(expected) >= 0.3
    torch.testing.assert_close(
        jaccard_operator(edges, None, x, 0.3).to_dense(), gcn_operator(edges[:, left], None, 5, x.dtype).to_dense()
    )


@pytest.mark.parametrize("sparse", [False, True])
def test_rows_of_jaccard_similarities_are_those_of_pairs(sparse: bool) -> None:
    x = (torch.rand(9, 6, generator=rng("rows")) > 0.7).float()
    x[3] = 0
    pairs = torch.cartesian_prod(torch.arange(2, 7), torch.arange(9)).T
    found = jaccard_rows(sparse_features(x) if sparse else x)(2, 7)
    assert torch.equal(found.flatten(), jaccard(pairs, x))
