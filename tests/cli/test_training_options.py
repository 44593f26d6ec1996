import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from click.testing import Result
from scipy.sparse import save_npz
from torch_geometric.utils import to_scipy_sparse_matrix
from typer.testing import CliRunner

from wtawp.cli import app
from wtawp.cli.training_options import Training
from wtawp.experiments.execution import runner, training
from wtawp.experiments.spec import Plan, Run, SplitRule
from wtawp.graphs import EdgeFlips, load, save_split, stratified, undirected_pairs

RUN = CliRunner()
SMALL = ("--epochs", 2, "--workers", 1)
MODEL = """
from torch import nn
from pk_compare.helper import OFFSET

class M(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.first, self.last = nn.Linear(d_in, 4), nn.Linear(4, d_out)

    def forward(self, x, edge_index):
        return self.last(self.first(x)) + OFFSET
"""


def invoke(*arguments: object, code: int = 0) -> str:
    result: Result = RUN.invoke(app, list(map(str, arguments)))
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    text = result.stdout if "--json" in arguments else result.output
    return " ".join(text.replace("│", " ").split())


def save_wine(path: Path, columns: int | None = None) -> Path:
    """Save wine with masks that divide its nodes by their numbers, as one split or as several columns."""
    data = load("wine")
    parts = torch.arange(178) % 4 if columns is None else torch.stack([torch.arange(178) % 4] * columns, 1)
    masks = {name: parts == i for i, name in enumerate(("train_mask", "val_mask", "test_mask"))}
    torch.save({"x": data.x, "edge_index": data.edge_index, "y": data.y, **masks}, path)
    return path


class StoppedError(Exception):
    """Raised in place of a training."""


def planned(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> Plan:
    """The plan that a command would run."""
    plans: list[Plan] = []

    def stop(chosen: list[Plan], *_: object, **__: object) -> None:
        plans.extend(chosen)
        raise StoppedError

    monkeypatch.setattr(runner, "run_plans", stop)
    assert isinstance(RUN.invoke(app, list(map(str, arguments))).exception, StoppedError)
    return plans[0]


def test_row_1_a_model_whose_helper_was_edited_is_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "pk_compare"
    folder.mkdir()
    (folder / "m.py").write_text(MODEL)
    (folder / "helper.py").write_text("OFFSET = 0.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    compare = (
        "compare",
        "wine",
        "--model",
        "pk_compare.m:M",
        "--splits",
        2,
        "--inits",
        1,
        *SMALL,
        "--store",
        "s.sqlite",
    )
    assert "6 runs trained, 0 known before" in invoke(*compare)
    again = invoke(*compare)
    assert "0 runs trained, 6 known before" in again
    assert "6 of 6 runs are known from before: they were trained" in again
    assert "6 runs trained, 0 known before" in invoke(*compare, "--fresh")
    (folder / "helper.py").write_text("OFFSET = 1.0\n")
    changed = invoke(*compare)
    assert "6 runs trained, 0 known before" in changed
    assert "known from before" not in changed


def test_row_2_masks_are_the_split_and_sizes_are_printed(tmp_path: Path) -> None:
    path = save_wine(tmp_path / "g.pt")
    compare = ("compare", path, *SMALL, "--store", tmp_path / "s.sqlite")
    output = invoke(*compare, "--inits", 2)
    assert "split by the masks of the graph: 45 nodes to train, 45 to validate, 44 to test." in output
    assert "initialisations are paired, and nothing is said about other splits" in " ".join(output.split())
    assert "of 2" in output, "two pairs"
    assert "split at random: 17 nodes to train, 18 to validate, 143 to test; the masks of the graph are not used" in (
        invoke(*compare, "--split", "random", "--splits", 2, "--inits", 1)
    )
    trained = invoke("train", path, "--plain", "--epochs", 2, "--train", 0.5, "--val", 0.25)
    assert "88 nodes to train, 45 to validate, 45 to test" in trained
    sharp = invoke("sharpness", path, "--plain", "--epochs", 1, "--points", 1, "--top", 1, "--steps", 1)
    assert "split by the masks of the graph: 45 nodes to train" in sharp


def save_attacked_wine(folder: Path) -> tuple[Path, Path]:
    """Save wine without its last edge as an adjacency matrix, and a split of its nodes."""
    data = load("wine")
    pairs = undirected_pairs(data)
    attacked = EdgeFlips.of(pairs[:, -1:], 178).apply(data)
    save_npz(folder / "adj.npz", to_scipy_sparse_matrix(attacked.edge_index, num_nodes=178).tocsr())
    save_split(stratified(data.y, seed=5, train=0.2, val=0.2), folder / "s.json")
    return folder / "adj.npz", folder / "s.json"


def test_edges_and_a_split_in_files_are_trained_on(tmp_path: Path) -> None:
    graph, split = save_attacked_wine(tmp_path)
    output = invoke("train", "wine", "--plain", "--epochs", 2, "--graph", graph, "--split-file", split)
    assert "adj.npz@" in output
    assert "split by the masks of the graph: 35 nodes to train, 36 to validate, 107 to test." in output
    compare = ("compare", "wine", "--graph", graph, "--split-file", split, "--inits", 2, *SMALL)
    assert "6 runs trained" in invoke(*compare, "--store", tmp_path / "s.sqlite")
    assert "6 known before" in invoke(*compare, "--store", tmp_path / "s.sqlite")


def test_files_of_edges_and_splits_are_checked_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, split = save_attacked_wine(tmp_path)
    plan = planned(monkeypatch, "attack", "wine", "--graph", graph, "--attack", "random")
    assert {cell.setting.dataset for cell in plan.cells} == {f"wine@{graph}"}
    assert plan.cells[0].setting.split == SplitRule()
    assert "there is no file" in invoke("train", "wine", "--graph", tmp_path / "none.npz", code=1)
    assert "must end in .npz" in invoke("train", "wine", "--graph", split, code=1)
    for other in (("--split", "random"), ("--train", 0.5)):
        assert "leave out --split, --train and --val" in invoke("train", "wine", "--split-file", split, *other, code=2)
    assert "names its files already" in invoke("train", f"wine@{graph}", "--split-file", split, code=2)
    assert "would be overwritten" in invoke("compare", "wine", "--graph", graph, "--html", graph, code=2)


def test_row_2_every_column_of_masks_is_a_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save_wine(tmp_path / "g.pt", columns=3)
    plan = planned(monkeypatch, "compare", path)
    assert [(cell.splits, cell.inits, cell.setting.split) for cell in plan.cells] == [
        (3, 2, SplitRule(kind="masks"))
    ] * 3
    plan = planned(monkeypatch, "attack", path, "--splits", 2)
    assert {(cell.splits, cell.inits) for cell in plan.cells} == {(2, 1)}
    assert "describe 3 splits, got 4" in invoke("compare", path, "--splits", 4, code=2)


def test_row_2_shares_and_folds_are_options(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = planned(monkeypatch, "compare", "wine", "--split", "k-fold", "--splits", 4).cells[0].setting.split
    assert rule == SplitRule(kind="k-fold", folds=4)
    rule = planned(monkeypatch, "certify", "wine", "--train", 0.3).cells[0].setting.split
    assert rule == SplitRule(train=0.3)
    assert planned(monkeypatch, "compare", "wine").cells[0].setting.split == SplitRule()


def test_row_2_a_plan_of_the_user_takes_masks_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, file = save_wine(tmp_path / "g.pt"), tmp_path / "plan.toml"
    file.write_text(
        f'splits = 1\n[base]\ndataset = "{path}"\n[[cell]]\nrow = "a"\n[[cell]]\nrow = "b"\nsplit = "random"\n'
    )
    assert [cell.setting.split for cell in planned(monkeypatch, "run", file).cells] == [
        SplitRule(kind="masks"),
        SplitRule(),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("train", "wine", "--split", "3"), "got '3'; the number of a split is --split-seed 3"),
        (
            ("compare", "wine", "--split", "halves"),
            "it is one of masks, public, random, k-fold, released, got 'halves'",
        ),
        (("train", "wine", "--split", "k-fold"), "a single training has no folds"),
        (("compare", "wine", "--split", "masks", "--train", "0.5"), "is for random splits"),
        (("compare", "wine", "--split", "released", "--train", "0.5"), "is for random splits"),
        (("compare", "wine", "--train", "0.5", "--val", "0.5"), "must leave a share for testing"),
        (("compare", "wine", "--splits", "1"), "a comparison needs 2 splits or more"),
        (("compare", "wine", "--lr", "nan"), "lr must be a finite number"),
        (("compare", "wine", "--average", "ema"), "--average must be swa or a number between 0 and 1, got ema"),
        (("compare", "wine", "--option", "width=3"), "GCN has no option 'width'"),
        (("compare", "wine", "--model", "no_such_module:M"), "there is no module no_such_module"),
    ],
)
def test_options_that_make_no_sense_are_refused(arguments: tuple[str, ...], message: str) -> None:
    assert message in invoke(*arguments, code=2)


@pytest.mark.parametrize("model", ["GCN", "GAT", "GraphSAGE"])
def test_norms_and_skip_connections_are_options(model: str, tmp_path: Path) -> None:
    train, path = ("train", "wine", "--model", model, "--epochs", 1), tmp_path / "weights.pt"
    invoke(*train, "--option", "norm=layer", "--option", "residual=true", "--save", path)
    assert {"norms.0.weight", "convs.0.skip_weight"} <= torch.load(path, weights_only=True).keys()
    output = invoke(*train, "--option", "norm=group", code=1)
    assert """norm must be "layer", "batch" or None, got 'group'""" in output
    assert "residual must be True or False, got 'yes'" in invoke(*train, "--option", "residual=yes", code=1)


def test_row_2_public_is_for_data_with_masks(tmp_path: Path) -> None:
    output = invoke("compare", "wine", "--split", "public", *SMALL, "--store", tmp_path / "s.sqlite", code=1)
    assert "the graph has no train_mask" in output


@pytest.mark.parametrize("command", ["compare", "attack", "certify"])
def test_row_5_every_command_that_trains_takes_the_options_of_the_training(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("--option", "hidden=8", "--lr", 0.1, "--layers", "all", "--select-on", "last", "--rho", 2, "--lam", 0.2,
               "--average", 0.9)  # fmt: skip
    cells = planned(monkeypatch, command, "wine", *options).cells
    for cell in cells:
        setting = cell.setting
        assert (setting.options, setting.lr, setting.select_on) == ((("hidden", (8,)),), 0.1, "last")
        assert setting.average == 0.9
    methods = [str(cell.setting.awp) for cell in cells]
    assert "rho=2.0, lam=0.2, layers='all'" in methods
    assert ("rho=2.0, lam='auto', layers='all'" in methods) == (command == "compare")


def test_row_5_train_takes_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Run] = []
    monkeypatch.setattr(training, "train_one", lambda run, **_: runs.append(run))
    RUN.invoke(app, ["train", "wine", "--lr", "0.1", "--layers", "all", "--select-on", "last", "--option", "hidden=8"])
    setting = runs[0].setting
    assert (setting.options, setting.lr, setting.select_on) == ((("hidden", (8,)),), 0.1, "last")
    assert str(setting.awp) == "rho=1.0, lam=0.7, layers='all'"


def test_row_9_the_weights_do_not_overwrite_the_graph(tmp_path: Path) -> None:
    path = save_wine(tmp_path / "g.pt")
    before = path.read_bytes()
    (tmp_path / "link.pt").symlink_to(path)
    for target in (path, tmp_path / "link.pt"):
        assert "is a file that this command reads" in invoke("train", path, "--save", target, "--epochs", 1, code=2)
        assert "is a file that this command reads" in invoke("attack", path, "--html", target, "--epochs", 1, code=2)
    assert path.read_bytes() == before


REFUSED = (
    ("compare", "no_such_file.csv"),
    ("attack", "no-such-graph"),
    ("certify", "wine", "--model", "NoSuchModel"),
    ("train", "wine", "--model", "no_such_module:M"),
    ("landscape", "no_such_file.pt"),
    ("compare", "wine", "--split", "halves"),
    ("compare", "wine", "--option", "hidden"),
    ("attack", "wine", "--budget", "much"),
    ("train", "wine", "--save", "no_such_folder/weights.pt"),
)


def test_build_4_arguments_are_checked_before_torch_is_imported() -> None:
    program = f"""
import sys
from typer.testing import CliRunner
from wtawp.cli import app
for arguments in {REFUSED!r}:
    result = CliRunner().invoke(app, arguments)
    print(result.exit_code in (1, 2), "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["True False"] * len(REFUSED), done.stdout


def test_json_is_alone_on_standard_output(tmp_path: Path) -> None:
    compare = (
        "compare",
        save_wine(tmp_path / "g.pt"),
        *SMALL,
        "--inits",
        1,
        "--store",
        tmp_path / "s.sqlite",
        "--json",
    )
    assert "'--inits': one split of the masks" in RUN.invoke(app, list(map(str, compare))).output.replace("\n", " ")
    compare = (*compare, "--split", "random", "--splits", 2)
    assert json.loads(invoke(*compare))[0]["cells"]


def test_names_may_be_written_in_any_case_and_the_model_follows_from_the_data() -> None:
    assert Training(dataset="Wine", model="softmediangcn") == Training(dataset="wine", model="SoftMedianGCN")
    defaults = {name: Training(dataset=name).model for name in ("wine", "PROTEINS", "mine.csv", "mine.zip", "a.b:load")}
    assert list(defaults.values()) == ["GCN", "PooledGCN", "GCN", "PooledGCN", "GCN"]


def test_a_name_that_is_not_known_is_refused_before_anything_heavy_is_imported() -> None:
    calls = {
        "train corra": "did you mean cora?",
        "compare wine --model gnc": "did you mean GCN?",
        "attack wine --attack metatack": "did you mean metattack?",
        "train wine --split 3": "--split-seed 3",
        "train no-such-file.csv": "there is no file",
        "demo proteins": "wtawp compare proteins",
        "train wine --lam 2": "lam must lie in",
    }
    code = """if True:
        import sys
        from wtawp.cli import app
        for call in sys.argv[1:]:
            try:
                app(call.split())
            except SystemExit as end:
                print("--- status", end.code, file=sys.stderr)
        print(*(name for name in ("torch", "torch_geometric", "numpy", "scipy") if name in sys.modules))
    """
    done = subprocess.run([sys.executable, "-c", code, *calls], capture_output=True, text=True, check=True)
    *refusals, rest = re.split("--- status [12]", " ".join(done.stderr.replace("│", " ").split()))
    for (call, words), refusal in zip(calls.items(), refusals, strict=True):
        assert words in refusal, call
    assert (rest, done.stdout.strip()) == ("", ""), "nothing else was printed, and nothing was imported"


def test_row_2_test_nodes_can_be_left_out_of_the_graph_in_training(monkeypatch: pytest.MonkeyPatch) -> None:
    assert planned(monkeypatch, "compare", "wine", "--inductive").cells[0].setting.inductive
    for command in ("landscape", "tune"):
        assert "--inductive" in invoke(command, "wine", "--inductive", code=2)
