from pathlib import Path

import pytest
import torch
from scipy.sparse import save_npz
from torch import Tensor
from torch_geometric.utils import to_scipy_sparse_matrix

from wtawp.base import DataError, rng
from wtawp.experiments.execution.building import (
    build_model,
    data_of,
    default_split,
    describe_split,
    mask_splits_of,
    split_of,
    with_default_splits,
)
from wtawp.experiments.spec import Cell, Plan, PlanError, Run, Setting, SplitRule
from wtawp.graphs import load, save_split, stratified
from wtawp.models import GCN

SOURCE = """
from torch import nn

class Net(nn.Module):
    def __init__(self, d_in, d_out, width=4):
        super().__init__()
        self.lin = nn.Linear(d_in, d_out)
        self.width = width

    def forward(self, x, edge_index):
        return self.lin(x)
"""


def test_a_run_s_weights_follow_from_its_numbers() -> None:
    setting = Setting(dataset="wine", options=(("hidden", (8,)),))
    data = data_of(setting, 0)
    model = build_model(Run(setting, 2, 1), data)
    again = GCN(13, 3, hidden=(8,), generator=rng("init", 2, 1))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


def test_a_user_s_class_is_built_from_the_working_folder_without_touching_the_random_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "net_of_a_user.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    setting = Setting(dataset="wine", model="net_of_a_user:Net", options=(("width", 7),))
    data = data_of(setting, 0)
    before = torch.random.get_rng_state()
    first, second = (build_model(Run(setting, 0, 3), data) for _ in range(2))
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(first.lin.weight, second.lin.weight)
    assert first.width == 7
    with pytest.raises(PlanError, match="there is no model net_of_a_user:Other"):
        build_model(Run(Setting(dataset="wine", model="net_of_a_user:Other"), 0, 0), data)


def test_nodes_are_split_10_10_80() -> None:
    setting = Setting(dataset="digits")
    data = data_of(setting, 0)
    split = split_of(setting, data, 0)
    shares = [len(part) / len(data.y) for part in (split.train, split.val, split.test)]
    assert shares == pytest.approx([0.1, 0.1, 0.8], abs=0.01)


def save_with_masks(path: Path, parts: Tensor) -> None:
    """Save wine with masks: `parts` says, for each node (and split), 0 for train, 1 for val, 2 for test."""
    data = load("wine")
    masks = {name: parts == i for i, name in enumerate(("train_mask", "val_mask", "test_mask"))}
    torch.save({"x": data.x, "edge_index": data.edge_index, "y": data.y, **masks}, path)


def test_row_2_the_masks_of_a_graph_are_its_split(tmp_path: Path) -> None:
    path, parts = str(tmp_path / "one.pt"), torch.arange(178) % 4
    save_with_masks(tmp_path / "one.pt", parts)
    assert default_split(path) == SplitRule(kind="masks")
    setting = Setting(dataset=path, split=SplitRule(kind="masks"))
    data = data_of(setting, 0)
    split = split_of(setting, data, 0)
    for i, part in enumerate((split.train, split.val, split.test)):
        assert part.tolist() == [node for node in range(178) if node % 4 == i]
    assert describe_split(setting) == (
        f"{path}: split by the masks of the graph: 45 nodes to train, 45 to validate, 44 to test."
    )
    assert "not used" in describe_split(Setting(dataset=path, split=SplitRule()))
    with pytest.raises(DataError, match="describe one split, so there is no split 1"):
        split_of(setting, data, 1)


def test_row_2_masks_with_columns_are_several_splits(tmp_path: Path) -> None:
    path, parts = str(tmp_path / "three.pt"), torch.stack([torch.arange(178) % size for size in (3, 4, 5)], 1)
    save_with_masks(tmp_path / "three.pt", parts)
    setting = Setting(dataset=path, split=SplitRule(kind="masks"))
    sizes = [len(split_of(setting, data_of(setting, 0), i).train) for i in range(3)]
    assert sizes == [60, 45, 36]
    assert mask_splits_of(path) == 3
    with pytest.raises(DataError, match=r"0 to 2 .*got 3"):
        split_of(setting, data_of(setting, 0), 3)


def test_row_2_a_missing_mask_is_said_before_splits_are_counted(tmp_path: Path) -> None:
    save_with_masks(tmp_path / "own.pt", torch.arange(178) % 3)
    saved = torch.load(tmp_path / "own.pt")
    torch.save({name: value for name, value in saved.items() if name != "val_mask"}, tmp_path / "own.pt")
    with pytest.raises(DataError, match="has no val_mask, only train_mask, test_mask"):
        mask_splits_of(str(tmp_path / "own.pt"))


def test_row_2_a_test_mask_without_columns_belongs_to_every_split(tmp_path: Path) -> None:
    parts = torch.stack([torch.arange(178) % 4, (torch.arange(178) + 1) % 4], 1)
    parts[torch.arange(178) % 5 == 0] = 2  # tested in every split
    parts[(parts == 2) & (torch.arange(178) % 5 != 0)[:, None]] = 3
    save_with_masks(tmp_path / "own.pt", parts)
    saved = torch.load(tmp_path / "own.pt")
    saved["test_mask"] = saved["test_mask"][:, 0]
    torch.save(saved, tmp_path / "own.pt")
    path = str(tmp_path / "own.pt")
    setting = Setting(dataset=path, split=SplitRule(kind="masks"))
    splits = [split_of(setting, data_of(setting, 0), i) for i in range(mask_splits_of(path))]
    assert len(splits) == 2
    assert torch.equal(splits[0].test, splits[1].test)
    assert not torch.equal(splits[0].train, splits[1].train)


def test_row_2_empty_and_overlapping_masks_are_refused(tmp_path: Path) -> None:
    save_with_masks(tmp_path / "empty.pt", torch.arange(178) % 2)
    data = torch.load(tmp_path / "empty.pt")
    data["test_mask"] = data["train_mask"]
    torch.save(data, tmp_path / "overlapping.pt")
    for name, message in (("empty", "test_mask 0"), ("overlapping", "must be disjoint")):
        setting = Setting(dataset=str(tmp_path / f"{name}.pt"), split=SplitRule(kind="masks"))
        with pytest.raises(DataError, match=message):
            split_of(setting, data_of(setting, 0), 0)


def test_shares_and_folds_are_those_of_the_rule() -> None:
    shares = Setting(dataset="wine", split=SplitRule(train=0.5, val=0.2))
    data = data_of(shares, 0)
    split = split_of(shares, data, 0)
    assert [len(part) for part in (split.train, split.val, split.test)] == [88, 36, 54]
    folds = Setting(dataset="wine", split=SplitRule(kind="k-fold", folds=4))
    tests = torch.cat([split_of(folds, data, i).test for i in range(4)])
    assert tests.sort().values.tolist() == list(range(178))
    with pytest.raises(DataError, match="has the splits 0 to 3, got 4"):
        split_of(folds, data, 4)
    released = Setting(dataset="digits", split=SplitRule(kind="released"))
    split = split_of(released, data_of(released, 0), 3)
    assert [len(part) for part in (split.train, split.val, split.test)] == [179, 180, 1438]
    assert "digits: split as in the released code: 179 nodes to train" in describe_split(released)


def test_data_sets_of_ours_are_split_at_random_unless_the_plan_says_otherwise(tmp_path: Path) -> None:
    save_with_masks(tmp_path / "own.pt", torch.arange(178) % 3)
    own, chosen = str(tmp_path / "own.pt"), Setting(dataset=str(tmp_path / "own.pt"), split=SplitRule())
    cells = [Cell(str(i), "", s) for i, s in enumerate((Setting(dataset="wine"), Setting(dataset=own), chosen))]
    rules = [cell.setting.split for cell in with_default_splits(Plan("mine", "", tuple(cells))).cells]
    assert rules == [SplitRule(), SplitRule(kind="masks"), SplitRule()]


def test_a_file_that_changes_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load_here(edges: str, labels: str) -> tuple[int, list[int]]:
        Path("g.csv").write_text(edges, encoding="utf-8")
        Path("g.labels.csv").write_text(labels, encoding="utf-8")
        data = data_of(Setting(dataset="g.csv"), 0)
        return data.edge_index.shape[1], data.y.tolist()

    for place in ("one", "two"):
        (tmp_path / place).mkdir()
    monkeypatch.chdir(tmp_path / "one")
    assert load_here("0,1\n1,2\n", "0,0\n1,0\n2,1\n") == (4, [0, 0, 1])
    assert load_here("0,1\n1,2\n0,2\n", "0,0\n1,0\n2,1\n") == (6, [0, 0, 1]), "edited"
    assert load_here("0,1\n1,2\n0,2\n", "0,0\n1,1\n2,11\n") == (6, [0, 1, 2]), "edited beside it"
    monkeypatch.chdir(tmp_path / "two")
    assert load_here("0,1\n", "0,1\n1,0\n") == (2, [1, 0]), "a file of that name in another folder"


def test_a_data_set_with_a_split_in_a_file_is_divided_by_it(tmp_path: Path) -> None:
    file, y = tmp_path / "s.json", load("wine").y
    chosen = stratified(y, seed=3)
    save_split(chosen, file)
    name = f"wine@{file}"
    assert default_split(name) == SplitRule(kind="masks")
    assert mask_splits_of(name) == 1
    setting = Setting(dataset=name, split=SplitRule(kind="masks"))
    split = split_of(setting, data_of(setting, 0), 0)
    assert all(torch.equal(getattr(split, part), getattr(chosen, part)) for part in ("train", "val", "test"))
    save_split(stratified(y, seed=4), file)  # the file changed, so it is read again
    assert not torch.equal(split_of(setting, data_of(setting, 0), 0).train, chosen.train)


def test_edges_in_a_file_leave_the_split_of_the_base(tmp_path: Path) -> None:
    data = load("wine")
    save_npz(tmp_path / "adj.npz", to_scipy_sparse_matrix(data.edge_index, num_nodes=178).tocsr())
    assert default_split(f"wine@{tmp_path / 'adj.npz'}") == SplitRule()


@pytest.mark.parametrize(("described", "unset", "sizes"), [
    (1, ("splits", "inits"), (1, 6)), (1, ("splits",), (1, 2)), (2, ("splits", "inits"), (2, 2)), (1, (), (3, 2)),
])  # fmt: skip
def test_masks_decide_how_many_splits_there_are_where_nobody_did(
    tmp_path: Path, described: int, unset: tuple[str, ...], sizes: tuple[int, int]
) -> None:
    data = load("wine")
    columns = [stratified(data.y, seed=seed) for seed in range(described)]
    for name in ("train", "val", "test"):
        mask = torch.zeros(data.num_nodes, described, dtype=torch.bool)
        for i, split in enumerate(columns):
            mask[getattr(split, name), i] = True
        data[f"{name}_mask"] = mask if described > 1 else mask[:, 0]
    torch.save(data, tmp_path / "masked.pt")
    plan = Plan("p", "", (Cell("", "", Setting(dataset=str(tmp_path / "masked.pt")), 3, 2),), unset=unset)
    (cell,) = with_default_splits(plan).cells
    assert cell.setting.split == SplitRule(kind="masks")
    assert (cell.splits, cell.inits) == sizes
