from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GCNConv

from wtawp.base import CertificateError, DataError, UncountedVotesWarning, WtawpError, rng
from wtawp.certificates import Noise, Votes, vote, voters
from wtawp.certificates.noise import NoisyGraphs
from wtawp.graphs import citation
from wtawp.models import GCN, GCNSVD, MLP
from wtawp.models.capabilities import IsConvolutionStack

DATA = citation(seed=0, num_nodes=60, num_words=30)
FEATURES, EDGES = Noise(p_add=0.02, p_del=0.5), Noise(p_add=0.01, p_del=0.3)
PARTS = {"features": (FEATURES, None), "edges": (None, EDGES), "both": (FEATURES, EDGES)}
parts = pytest.mark.parametrize("part", PARTS)


def gcn(hidden: tuple[int, ...] = (8,)) -> GCN:
    """In float64, so that no two ways of adding up disagree about the first class."""
    return GCN(30, 7, hidden=hidden, generator=rng("voter")).double()


def double(data: Data) -> Data:
    return Data(x=data.x.double(), edge_index=data.edge_index)


def naive(victim: Callable[[Tensor, Tensor], Tensor], part: str, samples: int, least: float = 0.0) -> Tensor:
    """One graph after the other, one node after the other."""
    graphs, counts = NoisyGraphs.of(double(DATA), *PARTS[part]), torch.zeros(60, 7, dtype=torch.int64)
    for i in range(samples):
        probabilities = victim(*graphs.together(seed=2, first=i, count=1)).softmax(1)
        for node, (confidence, c) in enumerate(zip(*(t.tolist() for t in probabilities.max(1)), strict=True)):
            counts[node, c] += confidence >= least
    return counts


@parts
@pytest.mark.parametrize("hidden", [(8,), (20, 5)])
@pytest.mark.parametrize("compiled", [True, False])
def test_the_fast_way_counts_as_a_plain_loop_does(
    part: str, hidden: tuple[int, ...], compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(voters, "HAS_NUMBA", compiled and voters.HAS_NUMBA)
    model = gcn(hidden).eval()
    found = vote(double(DATA), model, features=PARTS[part][0], edges=PARTS[part][1], samples=25, seed=2)
    with torch.no_grad():
        assert torch.equal(found.counts, naive(model, part, 25))
    assert found.samples == 25
    assert torch.equal(found.counts.sum(1), torch.full((60,), 25))
    assert found.counts.amax(1).min() < 25, "noise that never changes a vote would test nothing"


@parts
@pytest.mark.parametrize("way", ["compiled", "torch", "plain"])
def test_votes_of_little_confidence_do_not_count(part: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(voters, "HAS_NUMBA", way == "compiled" and voters.HAS_NUMBA)
    model = gcn().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight *= 4  # otherwise the model is not confident of anything
    victim = model if way != "plain" else lambda x, edge_index: model(x, edge_index)
    how = {"features": PARTS[part][0], "edges": PARTS[part][1], "samples": 25, "seed": 2}
    found = vote(double(DATA), victim, min_confidence=0.4, **how)
    with torch.no_grad():
        assert torch.equal(found.counts, naive(model, part, 25, 0.4))
    assert (found.samples, found.min_confidence) == (25, 0.4)
    assert 0.1 < float(found.counted.mean()) < 0.9, "a filter that does nothing, or stops everything, tests nothing"
    every = vote(double(DATA), victim, **how)
    assert torch.equal(every.counts, vote(double(DATA), victim, min_confidence=1 / 8, **how).counts)
    assert bool((found.counts <= every.counts).all())


@pytest.mark.parametrize("least", [-0.1, 1.0, 70, True, float("nan"), "high", None, [0.5]])
def test_thresholds_that_are_no_probabilities_are_refused(least: Any) -> None:
    with pytest.raises(ValueError, match=r"min_confidence, .* must lie in \[0, 1\), got .*; 0 counts every vote"):
        vote(double(DATA), gcn(), features=FEATURES, samples=5, seed=2, min_confidence=least)


def test_numbers_of_numpy_are_numbers() -> None:
    how = {"features": FEATURES, "seed": 2}
    numpys = vote(double(DATA), gcn(), samples=np.int64(5), min_confidence=np.float32(0.1875), **how)  # type: ignore[arg-type]
    ours = vote(double(DATA), gcn(), samples=5, min_confidence=0.1875, **how)  # type: ignore[arg-type]
    assert torch.equal(numpys.counts, ours.counts)
    assert (type(numpys.samples), type(numpys.min_confidence)) == (int, float)


def test_where_no_vote_counts_nothing_is_predicted() -> None:
    counts = torch.tensor([[0, 0, 0], [2, 0, 1], [0, 1, 3]])
    filtered = Votes(counts, 5, {"features": FEATURES}, seed=0, min_confidence=0.5)
    assert filtered.prediction.tolist() == [-1, 0, 2]


def test_a_filter_that_stops_every_vote_of_every_node_is_warned_of() -> None:
    def probabilities(x: Tensor, edge_index: Tensor) -> Tensor:  # noqa: ARG001
        return torch.eye(2).repeat(len(x), 1)[: len(x)]  # certain, but the softmax of them is (0.73, 0.27)

    how = {"features": FEATURES, "samples": 5, "seed": 2, "min_confidence": 0.8}
    with pytest.warns(UncountedVotesWarning, match=r"min_confidence=0\.8 \(5 votes .* and not probabilities"):
        assert not bool(vote(DATA, probabilities, **how).counts.any())  # type: ignore[arg-type]
    assert bool(vote(DATA, lambda x, e: 9 * probabilities(x, e), **how).counts.any())  # type: ignore[arg-type]


@parts
def test_votes_in_parts_are_votes_at_once(part: str) -> None:
    model, (features, edges) = gcn(), PARTS[part]

    def cast(samples: int, after: Votes | None = None) -> Votes:
        return vote(double(DATA), model, features=features, edges=edges, samples=samples, seed=2, after=after)

    together, split = cast(100), cast(1, cast(69, cast(30)))
    assert torch.equal(together.counts, split.counts)
    assert together.samples == split.samples
    assert not torch.equal(cast(30).counts * 100, together.counts * 30)


class Own(nn.Module):
    """Somebody's PyG model."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.one, self.two = GCNConv(30, 8), GCNConv(8, 7)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.two(self.one(x, edge_index).relu(), edge_index)


@parts
def test_any_victim_votes_and_gets_many_graphs_at_once(part: str) -> None:
    sizes: list[int] = []
    model = Own().double().eval()

    def victim(x: Tensor, edge_index: Tensor) -> Tensor:
        sizes.append(len(x))
        return model(x, edge_index)

    features, edges = PARTS[part]
    found = vote(double(DATA), victim, features=features, edges=edges, samples=25, seed=2)
    assert max(sizes) == 25 * 60
    with torch.no_grad():
        assert torch.equal(found.counts, naive(model, part, 25))


class Backwards(GCN):
    """It says it is a stack of convolutions, as what it is made from does, and is another one."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:  # type: ignore[override]
        return -super().forward(x, edge_index, edge_weight)


class OwnWithList(Own, IsConvolutionStack):
    """Its convolutions are modules, not weights."""

    def convolution_weights(self) -> list[nn.Module]:  # type: ignore[override]
        return [self.one, self.two]


class OwnWithOthers(Own, IsConvolutionStack):
    """Its weights are transposed."""

    def convolution_weights(self) -> list[tuple[Tensor, Tensor]]:
        return [(layer.lin.weight, layer.bias) for layer in (self.one, self.two)]


class KnowsItsNodes(GCN):
    """It has a number for each node of one graph."""

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:  # type: ignore[override]
        return super().forward(x, edge_index, edge_weight) + torch.linspace(0, 1, 60)[:, None] * torch.arange(7)


@parts
@pytest.mark.parametrize("kind", [Backwards, OwnWithList, OwnWithOthers, KnowsItsNodes, "hook"])
@pytest.mark.parametrize("compiled", [True, False])
def test_only_what_is_a_stack_of_convolutions_goes_the_fast_way(
    part: str, kind: type[nn.Module] | str, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(voters, "HAS_NUMBA", compiled and voters.HAS_NUMBA)
    monkeypatch.setattr(voters, "PIECE", 16)
    if isinstance(kind, str):
        model: nn.Module = gcn()
        model.register_forward_hook(lambda _, __, logits: logits.flip(1))
    else:
        model = kind() if issubclass(kind, Own) else kind(30, 7, hidden=(8,), generator=rng("voter"))
    model = model.double().eval()
    found = vote(double(DATA), model, features=PARTS[part][0], edges=PARTS[part][1], samples=5, seed=2)
    with torch.no_grad():
        assert torch.equal(found.counts, naive(model, part, 5))


@parts
@pytest.mark.parametrize("options", [{"norm": "layer"}, {"norm": "batch"}, {"residual": True}], ids=str)
def test_a_gcn_with_norms_or_skip_connections_votes_as_itself(part: str, options: dict[str, Any]) -> None:
    data = double(DATA)
    model = GCN(30, 7, hidden=(8,), **options, generator=rng("voter")).double()
    model(data.x, data.edge_index)  # in training mode: running averages other than 0 and 1
    assert model.convolution_weights() == []
    found = vote(data, model, features=PARTS[part][0], edges=PARTS[part][1], samples=10, seed=2)
    with torch.no_grad():
        assert torch.equal(found.counts, naive(model.eval(), part, 10))


@pytest.mark.parametrize("compiled", [True, False])
def test_our_gcn_goes_the_fast_way_and_draws_nothing_for_it(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(voters, "HAS_NUMBA", compiled and voters.HAS_NUMBA)
    data = citation(seed=0, num_nodes=400, num_words=30)
    calls: list[int] = []
    state = torch.get_rng_state()
    model = GCN(30, 7, generator=rng("voter"))
    model.register_forward_pre_hook(lambda _, given: calls.append(len(given[0])))
    for noise in ({"features": FEATURES}, {"edges": EDGES}):
        vote(data, model, **noise, samples=3, seed=2)
    pieces = [size for size in calls if size < 300]
    assert len(pieces) == 2, "once for each, on a piece of the graph"
    assert len(calls) == 2 + 4, "and twice for each on the clean graph, for the name of the model"
    assert torch.equal(torch.get_rng_state(), state)
    edgeless = Data(x=data.x, edge_index=torch.empty(2, 0, dtype=torch.int64))
    assert vote(edgeless, model, edges=EDGES, samples=3, seed=2).samples == 3
    assert len(calls) == 9


def test_victims_that_keep_the_first_graph_are_refused() -> None:
    model = Own()
    model.one.cached = True
    with pytest.raises(WtawpError, match=r"Own\.one, a GCNConv, keeps the graph it saw first"):
        vote(DATA, model, edges=EDGES, samples=5, seed=0)


def test_a_victim_that_looks_at_all_nodes_gets_one_graph_at_a_time() -> None:
    sizes: list[int] = []

    def victim(x: Tensor, edge_index: Tensor) -> Tensor:  # noqa: ARG001
        sizes.append(len(x))
        return x[:, :7] * x.sum() / 10 - (x[:, 7:14] + x.mean(0)[:7])

    found = vote(double(DATA), victim, features=FEATURES, samples=9, seed=2)
    assert sizes.count(60) == 4 + 9
    assert torch.equal(found.counts, naive(victim, "features", 9))
    fixed = torch.randn(60, 7, generator=rng("fixed"), dtype=torch.float64)
    found = vote(double(DATA), lambda x, _: x[:, :7] + fixed, features=FEATURES, samples=9, seed=2)
    assert torch.equal(found.counts, naive(lambda x, _: x[:, :7] + fixed, "features", 9))
    svd = GCNSVD(30, 7, rank=5, hidden=(4,), generator=rng("svd")).double().eval()
    with torch.no_grad():
        few = vote(double(DATA), svd, edges=EDGES, samples=3, seed=2)
        assert torch.equal(few.counts, naive(svd, "edges", 3))


def test_modules_vote_without_dropout_and_come_back_as_they_were() -> None:
    model = MLP(30, 7, hidden=(8,), generator=rng("mlp")).double().train()
    state = torch.get_rng_state()
    one, same = (vote(double(DATA), model, features=FEATURES, samples=5, seed=2) for _ in range(2))
    assert torch.equal(one.counts, same.counts)
    assert torch.equal(one.counts, naive(model.eval(), "features", 5))
    model.train()
    vote(double(DATA), model, features=FEATURES, samples=1, seed=2)
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)


def test_self_loops_of_the_graph_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    once, twice = torch.tensor([[3, 4], [3, 4]]), torch.tensor([[3, 3], [3, 3]])
    model = gcn().eval()
    for loops in (once, twice):
        data = double(DATA)
        data.edge_index = torch.cat([DATA.edge_index, loops], 1)
        graphs = NoisyGraphs.of(data, None, EDGES)
        with torch.no_grad():
            logits = [model(*graphs.together(seed=2, first=i, count=1)) for i in range(20)]
        expected = voters.tally(torch.stack(logits))
        assert torch.equal(vote(data, model, edges=EDGES, samples=20, seed=2).counts, expected)
        monkeypatch.setattr(voters, "HAS_NUMBA", False)


def test_sparse_features_vote_as_dense_ones_do() -> None:
    sparse = Data(x=DATA.x.double().to_sparse(), edge_index=DATA.edge_index)
    for noise in ({"features": FEATURES}, {"edges": EDGES}):
        one, other = (vote(data, gcn(), **noise, samples=10, seed=2) for data in (sparse, double(DATA)))
        assert torch.equal(one.counts, other.counts)


def test_progress_tells_the_share_done() -> None:
    told: list[tuple[float, str]] = []
    vote(
        double(DATA),
        gcn(),
        features=FEATURES,
        samples=130,
        seed=0,
        progress=lambda share, what: told.append((share, what)),
    )
    assert told[-1] == (1.0, "130 samples")
    assert [share for share, _ in told] == sorted(share for share, _ in told)
    assert len(told) == 3


def test_votes_are_saved_and_go_on(tmp_path: Path) -> None:
    path, model = tmp_path / "votes.npz", gcn()

    def cast(samples: int, after: Votes | None = None, victim: GCN = model, **changed: object) -> Votes:
        options = {"features": FEATURES, "edges": EDGES, "seed": 7, **changed}
        return vote(double(DATA), victim, samples=samples, after=after, **options)  # type: ignore[arg-type]

    cast(5).save(str(path))
    loaded = Votes.load(str(path))
    assert torch.equal(Votes.load(path).counts, loaded.counts)
    assert loaded.noise == {"features": FEATURES, "edges": EDGES}
    assert dict(loaded.provenance)["victim"] == "GCN"
    assert torch.equal(cast(6, loaded).counts, cast(11).counts)
    assert list(tmp_path.iterdir()) == [path]
    for match, options in (
        ("their seed was 7 and is now 8", {"seed": 8}),
        ("their noise", {"edges": None}),
        (r"their min_confidence was 0.0 and is now 0.3", {"min_confidence": 0.3}),
        ("their graph and model", {"victim": gcn((9,))}),
    ):
        with pytest.raises(CertificateError, match=match):
            cast(1, loaded, **options)  # type: ignore[arg-type]


def test_filtered_votes_are_saved_with_their_filter_and_go_on(tmp_path: Path) -> None:
    path, how = tmp_path / "votes.npz", {"features": FEATURES, "seed": 7, "min_confidence": 0.2}
    vote(double(DATA), gcn(), samples=5, **how).save(path)  # type: ignore[arg-type]
    loaded = Votes.load(path)
    assert loaded.min_confidence == 0.2
    assert bool((loaded.counts.sum(1) < 5).any())
    more, whole = (vote(double(DATA), gcn(), samples=k, after=a, **how) for k, a in ((6, loaded), (11, None)))  # type: ignore[arg-type]
    assert torch.equal(more.counts, whole.counts)
    for least in (0.0, 0.25):
        with pytest.raises(CertificateError, match=f"their min_confidence was 0.2 and is now {least}"):
            vote(double(DATA), gcn(), samples=1, after=loaded, **{**how, "min_confidence": least})  # type: ignore[arg-type]


def test_files_that_are_not_votes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "votes.npz"
    with pytest.raises(CertificateError, match="there is no file"):
        Votes.load(path)
    path.write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(CertificateError, match="not a readable archive"):
        Votes.load(path)
    np.savez(path, counts=np.zeros((2, 2)))
    with pytest.raises(CertificateError, match="not a file of votes"):
        Votes.load(path)
    Votes(torch.tensor([[1, 2], [2, 2]]), 3, {"features": FEATURES}, 0, (("graph", "a"),)).save(path)
    with pytest.raises(CertificateError, match="not of 3 votes"):
        Votes.load(path)


def test_votes_that_are_not_those_that_were_written_are_refused(tmp_path: Path) -> None:
    path, noise = tmp_path / "votes.npz", {"features": Noise(p_add=0, p_del=0.5)}
    Votes(torch.tensor([[1, 2], [0, 3]]), 3, noise, 7, (("graph", "a"),)).save(path)
    assert Votes.load(path).counts.tolist() == [[1, 2], [0, 3]]
    with np.load(path) as content:
        members = dict(content)
    for name, value in (
        ("counts", members["counts"][:, ::-1]),  # of the two classes, swapped
        ("seed", np.int64(8)),
        ("min_confidence", np.float64(0.5)),
        ("noise", np.array([("features", "0.0", "0.4")])),
        ("provenance", np.array([("graph", "b")])),
        ("checksum", np.str_("0123456789abcdef")),
    ):
        np.savez(path, **{**members, name: value})
        with pytest.raises(CertificateError, match=r"does not match its checksum.*cast them again"):
            Votes.load(path)
    del members["min_confidence"]  # as before there were filters
    np.savez(path, **members)
    assert Votes.load(path).min_confidence == 0.0
    del members["checksum"]  # as before there were checksums
    np.savez(path, **members)
    assert Votes.load(path).counts.tolist() == [[1, 2], [0, 3]]


@pytest.mark.parametrize(
    ("victim", "match"),
    [
        (lambda x, _: x[:, :1], "2 or more logits"),
        (lambda x, _: x[:-1], "for each of 60 nodes, got"),
        (lambda x, _: x.sum(), "got"),
        (lambda *_: "class 3", "got str"),
        (lambda x, _: x * float("nan"), "NaN"),
    ],
)
def test_victims_that_do_not_vote_are_refused(victim: Callable[[Tensor, Tensor], Tensor], match: str) -> None:
    with pytest.raises(CertificateError, match=match):
        vote(double(DATA), victim, features=FEATURES, samples=5, seed=0)


def test_a_victim_whose_output_changes_shape_is_refused() -> None:
    calls: list[int] = []

    def victim(x: Tensor, _: Tensor) -> Tensor:
        calls.append(0)
        return x[:, : 7 if len(calls) < 4 else 6]

    with pytest.raises(CertificateError, match="7 classes and now 6"):
        vote(double(DATA), victim, features=FEATURES, samples=5, seed=0)
    broken = gcn()
    with torch.no_grad():
        broken.convs[0].bias[0] = float("inf")
    with pytest.raises(CertificateError, match="not all finite"):
        vote(double(DATA), broken, features=FEATURES, samples=5, seed=0)


@pytest.mark.parametrize("samples", [0, -1, 2.5, True])
def test_no_samples_are_no_votes(samples: int) -> None:
    with pytest.raises(ValueError, match="whole number >= 1"):
        vote(double(DATA), gcn(), features=FEATURES, samples=samples, seed=0)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"counts": np.array([[2**62, 2**62, 2**62, 2**62 + 3]])}, "not of 3 votes"),  # their sum wraps around to 3
        ({"counts": np.array([[-1, 4]])}, "not of 3 votes"),
        ({"counts": np.array([[1, 1]])}, "not of 3 votes"),
        ({"counts": np.array([[2, 2]]), "min_confidence": np.array(0.5)}, "not of 3 votes"),
        ({"min_confidence": np.array(1.5)}, "other types or shapes"),
        ({"min_confidence": np.array("0.5")}, "other types or shapes"),
        ({"samples": np.array([3])}, "other types or shapes"),
        ({"seed": np.array("0")}, "other types or shapes"),
        ({"counts": np.array([1, 2])}, "other types or shapes"),
        ({"counts": np.array([[1.0, 2.0]])}, "other types or shapes"),
        ({"provenance": np.array(["a", "b", "c"])}, "other types or shapes"),
        ({"noise": np.array([["features", "nan", "0"]])}, "noise must be rows"),
        ({"noise": np.array([["features", "0.1"]])}, "noise must be rows"),
        ({"noise": np.array([["labels", "0.1", "0.1"]])}, "noise must be on one or both of features, edges"),
        ({"noise": np.empty((0, 3), dtype="U1")}, "noise must be on one or both of features, edges"),
        ({"counts": np.array([[None, 1]])}, "is not a plain array"),
    ],
)
def test_votes_that_cannot_be_right_are_refused(change: dict[str, np.ndarray], match: str, tmp_path: Path) -> None:
    whole = {
        "counts": np.array([[1, 2]]), "samples": np.array(3), "seed": np.array(0),
        "noise": np.array([["features", "0.1", "0.2"]]), "provenance": np.array([["graph", "a"]]),
    }  # fmt: skip
    np.savez(tmp_path / "v.npz", **whole)
    assert Votes.load(tmp_path / "v.npz").samples == 3
    np.savez(tmp_path / "v.npz", **{**whole, **change})
    with pytest.raises(CertificateError, match=match):
        Votes.load(tmp_path / "v.npz")


def test_graphs_and_victims_that_cannot_vote_are_refused_in_words() -> None:
    class OfData(nn.Module):
        def forward(self, data: Data) -> Tensor: ...

    how = {"edges": EDGES, "samples": 2, "seed": 0}
    with pytest.raises(DataError, match=r"put a module around it that is called as model\(x, edge_index\)"):
        vote(DATA, OfData(), **how)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"certificates are of the nodes of one homogeneous graph, .* got HeteroData"):
        vote(HeteroData(), gcn(), **how)  # type: ignore[arg-type]
    weighted = DATA.clone()
    weighted.edge_weight = torch.ones(DATA.num_edges)
    with pytest.raises(DataError, match="certify a model of the graph without edge_weight"):
        vote(weighted, gcn(), **how)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="the features have 30 columns, but the layer takes 29"):
        vote(DATA, GCN(29, 7, generator=rng("voter")), **how)  # type: ignore[arg-type]
