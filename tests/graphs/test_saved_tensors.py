import struct
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data, InMemoryDataset

from wtawp.base import DataError, UnusedDataWarning, digest_of
from wtawp.graphs.read_limits import VARIABLE
from wtawp.graphs.saved_tensors import SavedTensors
from wtawp.graphs.user_files import read_pt

GRAPH = {"edge_index": torch.tensor([[0, 1], [1, 2]]), "y": torch.tensor([0, 1, 1, 0])}
Outcomes = Callable[[str, Sequence[Path]], list[str]]


def saved(folder: Path, name: str, **content: object) -> Path:
    torch.save({**GRAPH, **content}, folder / f"{name}.pt")
    return folder / f"{name}.pt"


def forged(path: Path, **members: Callable[[bytes], bytes]) -> Path:
    """A copy of a saved file in which functions change some members, named by the end of their path."""
    target = path.with_name(f"forged_{path.name}")
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(target, "w") as archive:
        for name in source.namelist():
            change = members.get(name.rsplit("/", 1)[-1].removesuffix(".pkl"), bytes)
            archive.writestr(name, change(source.read(name)))
    return target


def replaced(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    def change(content: bytes) -> bytes:
        assert content.count(old) == 1
        return content.replace(old, new)

    return change


def coo(rows: list[int], columns: list[int], values: Tensor, *, size: tuple[int, ...] = (4, 2)) -> Tensor:
    indices = torch.tensor([rows, columns])
    return torch.sparse_coo_tensor(indices, values, size, check_invariants=False)


def compressed(layout: torch.layout, pointers: Tensor, indices: Tensor, values: Tensor, *size: int) -> Tensor:
    return torch.sparse_compressed_tensor(pointers, indices, values, size, layout=layout, check_invariants=False)


def sparse_mutants() -> dict[str, Tensor]:
    far, two, good = 10**9, torch.ones(2), torch.tensor([0, 1, 1, 1, 2])
    mutants = {
        "row_beyond": coo([0, far], [0, 1], two),
        "row_just_beyond": coo([0, 4], [0, 1], two),
        "row_negative": coo([0, -far], [0, 1], two),
        "column_beyond": coo([0, 1], [0, far], two),
        "column_negative": coo([0, 1], [0, -1], two),
        "row_extreme": coo([0, -(2**63)], [0, 1], two),
        "rows_declared": coo([0, 1], [0, 1], two, size=(2**31 - 1, 2)),
        "twice": coo([1, 1], [0, 0], two),
        "unsorted": coo([1, 0], [0, 0], two),
    }
    mutants = {name: tensor._coalesced_(True) for name, tensor in mutants.items()}
    for layout, size in ((torch.sparse_csr, (4, 2)), (torch.sparse_csc, (2, 4))):
        kind = str(layout)[-3:]
        mutants |= {
            f"{kind}_index": compressed(layout, good, torch.tensor([0, far]), two, *size),
            f"{kind}_index_just_beyond": compressed(layout, good, torch.tensor([0, 2]), two, *size),
            f"{kind}_index_negative": compressed(layout, good, torch.tensor([0, -far]), two, *size),
            f"{kind}_pointers_beyond": compressed(layout, torch.tensor([0, 1, far, 1, 2]), good[:2], two, *size),
            f"{kind}_pointers_fall": compressed(layout, torch.tensor([0, 2, 1, 1, 2]), good[:2], two, *size),
            f"{kind}_pointers_end": compressed(layout, torch.tensor([0, 1, 1, 1, far]), good[:2], two, *size),
            f"{kind}_pointers_negative": compressed(layout, torch.tensor([0, -far, 1, 1, 2]), good[:2], two, *size),
        }
    return mutants


@pytest.mark.filterwarnings("ignore:Sparse CS", "ignore:Sparse invariant checks are implicitly disabled")
def test_a_pt_with_an_unchecked_sparse_x_is_refused(tmp_path: Path, outcomes: Outcomes) -> None:
    paths = [saved(tmp_path, name, x=tensor) for name, tensor in sparse_mutants().items()]
    sparse_elsewhere = [
        saved(tmp_path, f"sparse_{key}", **{key: coo([0], [10**9], torch.ones(1))._coalesced_(True)})
        for key in ("edge_index", "y", "edge_weight", "train_mask")
    ]
    results = outcomes("wtawp.graphs.user_files:read_pt", [*paths, *sparse_elsewhere])
    assert len(results) == len(paths) + 4
    assert [(p.stem, r) for p, r in zip(paths + sparse_elsewhere, results, strict=True) if "DataError" not in r] == []


def test_a_pt_that_declares_more_than_it_holds_is_refused(tmp_path: Path, outcomes: Outcomes) -> None:
    whole = saved(tmp_path, "whole", x=torch.ones(4, 2))
    many = b"J" + struct.pack("<i", 4 * 10**8)
    count = replaced(b"K\x08t", many + b"t")
    width = replaced(b"K\x04K\x02\x86", b"K\x04J" + struct.pack("<i", 10**8) + b"\x86")
    big = b"big" if sys.byteorder == "little" else b"little"
    paths = []
    for name, members in {
        "count": {"data": count},
        "count_swapped": {"data": count, "byteorder": lambda _: big},
        "shape": {"data": width},
        "both": {"data": lambda content: width(count(content))},
        "offset": {"data": replaced(b"QK\x00K\x04K\x02", b"QK\x01K\x04K\x02")},
        "offset_negative": {"data": replaced(b"QK\x00K\x04K\x02", b"QJ\xff\xff\xff\xffK\x04K\x02")},
        "stride": {"data": replaced(b"K\x02K\x01\x86q\x1b", b"K\x02K\x02\x86q\x1b")},
        "cut": {"2": lambda content: content[:-1]},
        "huge": {"data": replaced(b"K\x08t", b"\x8b" + struct.pack("<i", 4000) + b"\x01" * 4000 + b"t")},
    }.items():
        paths.append(forged(whole, **members).rename(tmp_path / f"{name}.pt"))
    for key, tensor in {
        "x": torch.ones(1).expand(4, 10**9),
        "edge_index": torch.zeros(1, dtype=torch.long).expand(2, 10**9),
        "y": torch.zeros(1, dtype=torch.long).expand(10**9),
        "edge_weight": torch.ones(1).expand(10**9),
        "train_mask": torch.ones(1, dtype=torch.bool).expand(10**9),
    }.items():
        paths.append(saved(tmp_path, f"repeated_{key}", **{key: tensor}))
    paths.append(saved(tmp_path, "overlapping", x=torch.ones(2**14).as_strided((4, 2**14 - 4), (1, 1))))
    results = outcomes("wtawp.graphs.user_files:read_pt", [whole, *paths])
    assert (results[0], results[-1]) == ("loaded", "loaded")  # a few repeated numbers are harmless
    assert [(p.stem, r) for p, r in zip(paths[:-1], results[1:-1], strict=True) if "DataError" not in r] == []


def test_a_large_sparse_x_is_never_written_out(tmp_path: Path) -> None:
    path = saved(tmp_path, "wide", x=coo([0, 3], [5, 10**12], torch.ones(2), size=(4, 10**12 + 1)))
    x = read_pt(path).x
    assert x.layout == torch.sparse_csr
    assert x.col_indices().tolist() == [5, 10**12]


@pytest.mark.filterwarnings("ignore:Sparse CS")
@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool]
)
def test_sparse_features_equal_the_dense_ones(tmp_path: Path, dtype: torch.dtype) -> None:
    table = torch.tensor([[0, 2], [3, 0], [0, 0], [1, 1]]).to(dtype)
    for convert in (Tensor.to_sparse, Tensor.to_sparse_csr, Tensor.to_sparse_csc, Tensor.clone):
        assert torch.equal(read_pt(saved(tmp_path, "g", x=convert(table))).x, table.float())
    if dtype != torch.bool:
        summed = coo([3, 0, 3], [1, 0, 1], torch.tensor([1, 2, 3]).to(dtype))
        assert torch.equal(read_pt(saved(tmp_path, "g", x=summed)).x, summed.to_dense().float())


def test_sums_of_entries_listed_twice_must_be_finite(tmp_path: Path) -> None:
    for values in (torch.full((2,), 3e38), torch.full((2,), 3e38, dtype=torch.float64)):
        with pytest.raises(
            DataError, match="1 features are NaN, infinite or too large for float32, the first at node 1"
        ):
            read_pt(saved(tmp_path, "g", x=coo([1, 1], [0, 0], values)))


def test_tensors_are_those_that_torch_loads(tmp_path: Path) -> None:
    numbers = torch.arange(24).reshape(4, 6)
    attributed = torch.ones(2)
    attributed.note = "a tensor with an attribute is saved in another way"  # type: ignore[attr-defined]
    content = {
        "whole": numbers, "transposed": numbers.T, "part": numbers[1:3, ::2], "repeated": numbers[:, :1].expand(4, 3),
        "scalar": torch.tensor(3.5), "empty": torch.empty(0, 3), "parameter": torch.nn.Parameter(torch.ones(2)),
        "attributed": attributed, "wide": torch.tensor([2**64 - 1], dtype=torch.uint64),
        **{str(dtype): torch.tensor([0, 1, 1]).to(dtype) for dtype in (torch.bool, torch.int8, torch.uint8, torch.int16,
           torch.int32, torch.float16, torch.bfloat16, torch.float64, torch.uint16, torch.uint32)},
    }  # fmt: skip
    torch.save(content, tmp_path / "g.pt")
    loaded, ours = torch.load(tmp_path / "g.pt", weights_only=True), SavedTensors(tmp_path / "g.pt")
    assert list(ours.content) == list(content)
    for key, expected in loaded.items():
        assert ours.is_tensor(key)
        assert not ours.is_sparse(key)
        tensor = ours.dense(key)
        assert (tensor.dtype, tensor.shape) == (expected.dtype, expected.shape)
        assert tensor.tolist() == expected.tolist()


def test_another_byte_order_is_swapped(tmp_path: Path) -> None:
    path = saved(tmp_path, "g", x=torch.tensor([[1.5], [2.0], [3.0], [-4.0]]))
    other = b"big" if sys.byteorder == "little" else b"little"

    def swap(width: int) -> Callable[[bytes], bytes]:
        return lambda content: np.frombuffer(content, dtype=f"u{width}").byteswap().tobytes()

    swaps = {"0": swap(8), "1": swap(8), "2": swap(4)}
    data = read_pt(forged(path, byteorder=lambda _: other, **swaps))
    assert data.x.ravel().tolist() == [1.5, 2.0, 3.0, -4.0]
    assert data.y.tolist() == [0, 1, 1, 0]


def test_numbers_that_are_not_real_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"g\.pt, x must hold real numbers, got 'ComplexFloatStorage'"):
        read_pt(saved(tmp_path, "g", x=torch.ones(4, 2) * 1j))


def test_a_view_that_negates_its_numbers_is_refused(tmp_path: Path) -> None:
    x = (torch.ones(4, 2) * 1j).conj().imag  # real numbers, of which the file holds the negative
    assert x.is_neg()
    with pytest.raises(DataError, match=r"g\.pt, x must be a dense tensor"):
        read_pt(saved(tmp_path, "g", x=x))


def test_other_content_is_left_alone(tmp_path: Path) -> None:
    extra = {"title": "a graph", "count": 3, "size": torch.Size([2]), "complex": torch.ones(2) * 1j}
    with pytest.warns(UnusedDataWarning, match="complex is not used"):
        assert read_pt(saved(tmp_path, "g", **extra)).num_nodes == 4
    torch.save(Data(**GRAPH, x=torch.ones(4, 1).to_sparse(), note="a graph"), tmp_path / "d.pt")
    assert read_pt(tmp_path / "d.pt").x.tolist() == [[1.0]] * 4


def test_compressed_or_repeated_members_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path, "g", x=torch.zeros(4, 10_000))
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(tmp_path / "small.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in source.namelist():
            archive.writestr(name, source.read(name))
    with pytest.raises(DataError, match="listed twice or compressed"):
        read_pt(tmp_path / "small.pt")
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("g/data.pkl", b"N.")
    with pytest.raises(DataError, match="listed twice or compressed"):
        read_pt(path)


@pytest.mark.filterwarnings("ignore::wtawp.base.UnusedDataWarning")
def test_damaged_bytes_raise_nothing_but_data_errors(tmp_path: Path) -> None:
    whole = saved(tmp_path, "g", x=torch.eye(4).to_sparse(), train_mask=torch.ones(4, dtype=torch.bool))
    g = torch.Generator().manual_seed(0)
    refused = 0
    for _ in range(600):

        def damage(content: bytes) -> bytes:
            damaged = bytearray(content)
            for _ in range(int(torch.randint(1, 4, (), generator=g))):
                damaged[int(torch.randint(len(damaged), (), generator=g))] = int(torch.randint(256, (), generator=g))
            return bytes(damaged)

        try:
            read_pt(forged(whole, data=damage))
        except DataError:
            refused += 1
    assert 300 < refused < 600


def test_what_a_training_saves_is_restored_as_torch_loads_it(tmp_path: Path) -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.Adam(layers.parameters())
    layers(torch.ones(4, 2)).sum().backward()
    optimizer.step()
    base = torch.arange(6.0)
    content = {
        "model": layers.state_dict(), "optimizer": optimizer.state_dict(), "half": base.bfloat16(),
        "complex": base * 1j, "view": base[1::2], "shape": base.shape, "dtype": torch.float16,
        "device": torch.device("cuda", 1), "number": 1 + 2j, "counter": Counter({1: 2}),
        "nested": [(1, None), {"a": b"b"}], 3: {4, 5},
    }  # fmt: skip
    torch.save(content, tmp_path / "t.pt")
    restored, expected = SavedTensors(tmp_path / "t.pt").restored(), torch.load(tmp_path / "t.pt", weights_only=False)
    assert isinstance(restored, dict)
    assert digest_of({**restored, 3: None}) == digest_of({**expected, 3: None})
    assert [restored[3], type(restored["shape"]), type(restored["counter"])] == [{4, 5}, torch.Size, Counter]
    assert restored["model"]._metadata == expected["model"]._metadata
    layers.load_state_dict(restored["model"])


def test_values_that_share_parts_do_not_grow_beyond_the_file(tmp_path: Path) -> None:
    nested: list[object] = []
    for _ in range(60):
        nested = [nested, nested]
    torch.save({"a": nested}, tmp_path / "t.pt")
    with pytest.raises(DataError, match="repeats its values too often"):
        SavedTensors(tmp_path / "t.pt").restored()
    torch.save({str(i): torch.zeros(1).expand(2**24) for i in range(3)}, tmp_path / "t.pt")
    with pytest.raises(DataError, match=VARIABLE):
        SavedTensors(tmp_path / "t.pt").restored()


def test_sparse_tensors_and_deep_nesting_are_not_restored(tmp_path: Path) -> None:
    torch.save({"a": torch.eye(3).to_sparse()}, tmp_path / "t.pt")
    with pytest.raises(DataError, match="must be a dense tensor"):
        SavedTensors(tmp_path / "t.pt").restored()
    torch.save({"a": nn.Linear(2, 2)}, tmp_path / "t.pt")
    with pytest.raises(DataError, match=r"holds torch\.nn\.modules\.linear\.Linear; only tensors and plain values"):
        SavedTensors(tmp_path / "t.pt").restored()
    deep = b"\x80\x02" + b"]" * 50_000 + b"a" * 49_999 + b"."
    path = forged(saved(tmp_path, "deep"), data=lambda _: deep)
    with pytest.raises(DataError, match="nests its values too deeply"):
        SavedTensors(path).restored()


def test_the_processed_file_of_a_pyg_data_set_of_one_graph_is_that_graph(tmp_path: Path) -> None:
    path, graph = tmp_path / "data.pt", Data(**GRAPH)
    InMemoryDataset.save([graph], str(path))
    assert torch.equal(read_pt(path).y, GRAPH["y"])
    torch.save((graph, None), path)  # as older versions of PyG
    assert torch.equal(read_pt(path).y, GRAPH["y"])
    InMemoryDataset.save([graph, graph], str(path))
    with pytest.raises(DataError, match=r"data set of PyG with several graphs; .* torch.save\(dataset\[0\]"):
        read_pt(path)
