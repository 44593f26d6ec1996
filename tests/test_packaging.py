"""The package as others get it: built, installed away from the checkout, and with the dependencies that it declares."""

import ast
import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from wtawp import __version__

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
COME_WITH = {  # packages that are imported, and those of ours that require them
    "llvmlite": "numba",
    "markupsafe": "jinja2",
    "requests": "pooch",
    "sqlalchemy": "optuna",
    "triton": "torch",
    "typing_extensions": "torch",
}
IMPORTED_AS = {"scikit-learn": "sklearn"}
FOR_DEVELOPERS = ("dev", "docs")  # extras for tests and pages
NOT_IN_SOURCE = {"accelerate", "tensorboard"}  # of extras: the one is used beside ours, torch imports the other


def declared(requirements: list[str]) -> set[str]:
    """The names under which packages are imported."""
    names = (re.match(r"[A-Za-z0-9_-]+", each) for each in requirements)
    return {IMPORTED_AS.get(name[0], name[0]) for name in names if name}


def imported() -> set[str]:
    """What the modules of the package import, at their top or inside of functions."""
    names = set()
    for path in (ROOT / "src" / "wtawp").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.split(".")[0])
    return names - set(sys.stdlib_module_names) - {"wtawp"}


def test_what_is_imported_is_declared_and_what_is_declared_is_imported() -> None:
    extras = PROJECT["optional-dependencies"]
    optional = set().union(*(declared(names) for extra, names in extras.items() if extra not in FOR_DEVELOPERS))
    required = declared(PROJECT["dependencies"])
    assert imported() - COME_WITH.keys() == required | (optional - NOT_IN_SOURCE)
    assert set(COME_WITH.values()) <= required | optional


def test_every_extra_is_installed_for_the_tests() -> None:
    installs = re.search(r"-e '\.\[([^]]*)\]'", (ROOT / "Makefile").read_text("utf-8"))
    assert installs is not None
    assert set(installs[1].split(",")) == PROJECT["optional-dependencies"].keys()


def test_the_citation_names_this_version() -> None:
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert re.search(r"^version: (.*)$", citation, re.MULTILINE)[1] == __version__  # type: ignore[index]


def test_the_draft_of_the_article_cites_what_its_bibliography_holds() -> None:
    cited = set(re.findall(r"@([a-z]+\d{4}\w*)", (ROOT / "paper.md").read_text("utf-8")))
    held = set(re.findall(r"^@\w+\{(\w+),", (ROOT / "paper.bib").read_text("utf-8"), re.MULTILINE))
    assert cited == held


def run(*command: object, folder: Path, home: Path | None = None) -> str:
    """The standard output of a command that must succeed, away from the checkout and its settings."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "WTAWP_DATA")}
    environment |= {"WTAWP_HOME": str(home or folder), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    done = subprocess.run(list(map(str, command)), cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel that is built from the archive of sources, as by somebody who has the archive alone."""
    if find_spec("hatchling") is None:
        pytest.skip("THE PACKAGE IS NOT BUILT: pip install hatchling")
    folder = tmp_path_factory.mktemp("build")
    build = (sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}; from hatchling.cli import hatchling; "
             "sys.exit(hatchling())", "build", "-d", folder)  # fmt: skip
    run(*build, "-t", "sdist", folder=ROOT, home=folder)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as sources:
        sources.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))  # from 3.11.4 on
    run(*build, "-t", "wheel", folder=folder / archive.name.removesuffix(".tar.gz"))
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel, and with the dependencies of this one but not its `wtawp`."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=False)
    programs = folder / ("Scripts" if os.name == "nt" else "bin")
    python = programs / "python"
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    others = [path for path in sys.path if path.endswith("site-packages")]  # a .pth inside of them is not followed
    (site / "others.pth").write_text("\n".join(others) + "\n")
    pip = ("-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", "--no-compile")
    run(sys.executable, *pip, wheel, folder=folder)
    assert run(python, "-c", "import wtawp; print(wtawp.__file__)", folder=folder).startswith(str(site))
    return programs


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    assert wheel.name == f"wtawp-{__version__}-py3-none-any.whl"
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    source = ROOT / "src"
    files = {str(path.relative_to(source)) for path in (source / "wtawp").rglob("*") if path.is_file()}
    assert held == {name for name in files if "__pycache__" not in name}
    assert {"wtawp/py.typed", "wtawp/experiments/plans/printed.json"} <= held
    assert len([name for name in held if name.endswith(".j2")]) == 3  # report, demo and audit


def test_the_archive_of_sources_is_small_and_complete(wheel: Path) -> None:
    (archive,) = wheel.parent.glob("*.tar.gz")
    with tarfile.open(archive) as sources:
        names = {name.partition("/")[2] for name in sources.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "CITATION.cff", "CHANGELOG.md"} <= names
    assert not [name for name in names if name.startswith(("results/", "tests/", "docs/"))]
    assert archive.stat().st_size < 2**20


def test_the_installed_command_answers_by_both_of_its_names(installed: Path, tmp_path: Path) -> None:
    for command in ((installed / "wtawp",), (installed / "python", "-m", "wtawp")):
        assert run(*command, "--version", folder=tmp_path).strip() == f"wtawp {__version__}"


def test_the_installed_package_trains_reports_and_draws_with_its_own_files(installed: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(
        'splits = 1\ninits = 1\n[base]\ndataset = "Wine"\nepochs = 2\nkeep = ["history"]\n[[cell]]\nrow = "GCN"\n'
    )
    ran = run(installed / "wtawp", "run", plan, "--workers", "1", "--html", "page.html", "--json", folder=tmp_path)
    (report,) = json.loads(ran)
    assert [cell["runs"] for cell in report["cells"]] == [1]
    assert "<table>" in (tmp_path / "page.html").read_text("utf-8")
    listed = json.loads(run(installed / "wtawp", "reproduce", "--json", folder=tmp_path))
    assert "tab:natacc" in listed
