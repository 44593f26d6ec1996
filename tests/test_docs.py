"""What README and docs print works: Python blocks and commands run, one after another.

Where a block loads a large graph, a small one takes its place, and numbers of epochs and samples are smaller.
"""

import contextlib
import gc
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer.main
from scipy.sparse import csr_matrix, save_npz
from torch_geometric.data import Data
from torch_geometric.utils import to_scipy_sparse_matrix
from typer.testing import CliRunner

from wtawp.attacks import registry as attacks
from wtawp.cli import app
from wtawp.experiments.measures.shared import registry as measures
from wtawp.experiments.report import reporters
from wtawp.graphs import citation, save_split, stratified
from wtawp.graphs import registry as graphs
from wtawp.models import registry as models

ROOT = Path(__file__).parents[1]
FILES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in FILES}
ELSEWHERE = (
    "docs/own_loop.md",
    "docs/minibatches.md",
    "docs/training.md",
    "docs/coming_from.md",
)  # have tests already
SMALLER = {  # what is printed -> what is run
    r'\bload\("(cora|citation|citeseer|proteins)"\)': r'small("\1")',
    r"\brange\((200|100)\)": "range(2)",
    r"\bsamples=[\d_]{4,}": "samples=60",
}
READER = {  # what the reader of a page has already
    "docs/frameworks.md": """
import lightning
from types import SimpleNamespace
import torch
from torch.utils.tensorboard import SummaryWriter
from wtawp import WTAWP
model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
awp = WTAWP(model, rho=1.0, lam=0.7)
module = SimpleNamespace(awp=awp)
mlflow = wandb = SimpleNamespace(log_metrics=print, log=print)
""",
    "docs/my_data.md": """
import numpy as np
import torch
np.save("x.npy", np.ones((4, 2), dtype=np.float32))
edge_index, y = torch.tensor([[0, 1], [1, 0]]), torch.tensor([0, 1, 0, 1])
""",
}
SAVED_AS = {"docs/my_model.md": ("my_graphs.py", "my_registrations.py")}  # the reader saves the first blocks as files
REGISTRIES = (
    (models, "_SPECS"),
    (attacks, "_SPECS"),
    (graphs, "_DATASETS"),
    (measures, "_REGISTERED"),
    (reporters, "_registered"),
)


def blocks(text: str, *languages: str) -> list[str]:
    """The contents of the fenced blocks of a page that are in one of these languages ("" is none)."""
    fences = re.findall(r"^```(\w*)[^\n]*\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    return [content for language, content in fences if language in languages]


def small(name: str) -> Data | list[Data]:
    """A graph, or twenty of them, that trains in milliseconds."""
    if name == "proteins":
        graphs = [citation(seed=seed, num_nodes=50, num_words=6) for seed in range(20)]
        return [Data(x=g.x, edge_index=g.edge_index, y=torch.tensor([i % 2])) for i, g in enumerate(graphs)]
    return citation(seed=0, num_nodes=140, num_words=60)


@pytest.mark.filterwarnings("ignore::wtawp.base.VanishingGradientWarning")  # the small graphs have random labels
@pytest.mark.parametrize("page", [name for name, text in PAGES.items() if blocks(text, "python")])
def test_the_python_of_the_page_runs(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page in ELSEWHERE:
        tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
        assert f'"{Path(page).name}"' in tests
        return
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "argv", ["program", "--version"])  # for a block that is a command line
    for registry, attribute in REGISTRIES:
        monkeypatch.setattr(registry, attribute, dict(getattr(registry, attribute)))
    python = blocks(PAGES[page], "python")
    saved = SAVED_AS.get(page, ())
    for name, block in zip(saved, python, strict=False):
        (tmp_path / name).write_text(block, encoding="utf-8")
        sys.modules.pop(Path(name).stem, None)  # of another test
    names: dict[str, Any] = {"small": small, "__name__": "page"}
    with torch.random.fork_rng(), contextlib.suppress(SystemExit):
        exec(READER.get(page, ""), names)
        for block in python[len(saved) :]:
            for printed, run in SMALLER.items():
                block = re.sub(printed, run, block)
            exec(compile(block, page, "exec"), names)  # our own text
    for name in saved:
        del sys.modules[Path(name).stem]
    names.clear()
    gc.collect()  # what a block leaves open is reported here, not in another test


def commands() -> list[tuple[str, str]]:
    """Every line of a page that calls the command, with the page."""
    found = []
    for page, text in PAGES.items():
        for block in blocks(text, "sh", ""):
            lines = re.sub(r"\\\n\s*", " ", block).splitlines()
            calls = [call.strip() for line in lines for call in line.split(" # ")[0].split(";")]
            found += [(page, call) for call in calls if call.startswith("wtawp ")]
    return list(dict.fromkeys(found))


@pytest.mark.parametrize(("page", "line"), commands())
def test_the_command_of_the_page_is_accepted(page: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    _, *arguments = shlex.split(line, comments=True)
    command: Any = typer.main.get_command(app)
    with contextlib.suppress(typer.Exit):  # --version and --help end the program
        context = command.make_context("wtawp", arguments)
        while hasattr(command, "resolve_command"):
            name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
            context = command.make_context(name, rest, parent=context)
        assert context.params or not command.params, f"{page}: {line}"


SHORT = {  # what is added to a command of a page or replaced in it, so that it takes a second
    "train": "--epochs 2",
    "compare": "--epochs 2 --splits 2 --inits 1 --workers 1",
    "attack": "--epochs 2 --splits 2 --inits 1 --workers 1 --plain",
    "certify": "--epochs 2 --splits 2 --inits 1 --workers 1 --plain --samples 20",
    "landscape": "--epochs 2", "smoothness": "--epochs 2 --samples 2", "sharpness": "--epochs 2",
    "bound": "--epochs 2", "audit": "--epochs 2 --minutes 0.02 --workers 1",
}  # fmt: skip
OF_ATTACKS = {"strongest": "steps=2", "pgd": "steps=2", "prbcd": "steps=2", "pgd-features": "steps=2"}
OF_ATTACKS |= {"prbcd-features": "steps=2"}
NOT_HERE = {  # parts of commands that cannot be run in a second, and the tests that run them in another way
    "--device cuda": "test_cuda.py", "reproduce tab:": "cli/test_reproduce.py", "tune ": "cli/test_tune.py",
    "--tuned": "cli/test_compare.py", "--checkpoint weights.pt": "cli/test_audit.py",
    "GCNSVD": "models/test_svd.py", "metattack": "cli/test_attack.py",
}  # fmt: skip


@pytest.fixture(scope="module")
def reader_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that a reader of the pages has."""
    folder = tmp_path_factory.mktemp("reader")
    source = blocks(PAGES["docs/my_model.md"], "python")[0]
    (folder / "my_package").mkdir()
    for name in ("my_graphs.py", "my_pkg.py", "my_package/__init__.py", "my_package/models.py"):
        (folder / name).write_text("" if name.endswith("__init__.py") else source, encoding="utf-8")
    data = small("cora")
    assert isinstance(data, Data)
    adjacency = to_scipy_sparse_matrix(data.edge_index, num_nodes=data.num_nodes).tocsr()
    words = csr_matrix(data.x.numpy())
    arrays = {f"{kind}_{part}": getattr(matrix, part) for kind, matrix in (("adj", adjacency), ("attr", words))
              for part in ("data", "indices", "indptr", "shape")}  # fmt: skip
    for name in ("my-graph.npz", "my_graph.npz"):
        np.savez(folder / name, labels=data.y.numpy(), **arrays)
    save_npz(folder / "cora_meta_adj_0.05.npz", adjacency)
    save_split(stratified(data.y, seed=0), folder / "cora_prognn_splits.json")
    return folder


def shortened(line: str) -> list[str]:
    """The arguments of a command of a page, with other values of options and further ones that make it short."""
    _, name, *rest = shlex.split(line, comments=True)
    options = shlex.split(SHORT.get(name, ""))
    if name == "compare" and ".json" in line:  # the file describes one split: initialisations are paired
        options = ["--epochs", "2", "--inits", "2", "--workers", "1"]
    if "--checkpoint" in rest:  # nothing is trained
        options = []
    if name == "attack":
        attack = rest[rest.index("--attack") + 1] if "--attack" in rest else "strongest"
        options += ["--attack-option", OF_ATTACKS[attack]] if attack in OF_ATTACKS else []
        options += ["--targets", "2"] if attack in ("nettack", "fga") else []
    for option, value in re.findall(r"(--\S+)(?: ([^-]\S*))?", " ".join(options)):
        new = [option, value] if value else [option]
        if option in rest and option != "--attack-option":  # which may be repeated
            at = rest.index(option)
            del rest[at : at + len(new)]
        rest += new
    return [name, *rest]


@pytest.mark.filterwarnings("ignore::wtawp.base.VanishingGradientWarning", "ignore::wtawp.base.UnusedDataWarning")
def test_the_commands_of_all_pages_run(reader_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order of the pages, in one folder, on a small graph in the place of Cora."""
    monkeypatch.chdir(reader_folder)
    monkeypatch.syspath_prepend(reader_folder)
    monkeypatch.setenv("WTAWP_HOME", str(reader_folder / "home"))
    for module in ("my_graphs", "my_pkg", "my_package", "my_package.models"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    spec = graphs.DatasetSpec(name="cora", loader=lambda: small("cora"), nodes=140, classes=7)
    stand_ins = {name: replace(spec, name=name) for name in ("cora", "citation")}
    monkeypatch.setattr(graphs, "_DATASETS", graphs._DATASETS | stand_ins)
    lines = [line for _, line in commands() if not any(part in line for part in NOT_HERE)]
    assert len(lines) > 25
    failed = {}
    for line in dict.fromkeys(lines):
        result = CliRunner().invoke(app, shortened(line))
        if result.exit_code:
            failed[line] = result.output[-600:]
    assert not failed, "\n\n".join(f"{line}\n{output}" for line, output in failed.items())
