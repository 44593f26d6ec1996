"""What commands pass through, as `docs/architecture.md` lists it: traced in small runs, module by module.

A walk is the modules of `cli` and `experiments` whose functions a command enters, in the order of the first entry.
`spec`, plain data that is passed everywhere, is left out, and so is what happens while modules are imported. On the way
down no module may be entered again below another one. Functions inside functions are not counted: callbacks that report
progress go up by design, and generator expressions run where they are read.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from types import FrameType

import pytest

from wtawp.experiments.store.database import Store

PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
SMALL = ("--epochs", "3")
FEW = ("--attack-option", "steps=2", "--attack-option", "restarts=1", "--attack-option", "block_size=1000")
WALKS = {
    "wtawp reproduce tab:natacc": ("reproduce", "tab:natacc", "--scale", "smoke", "--column", "cora", "--row", "GCN"),
    "wtawp attack": ("attack", "wine", "--budget", "5", "--splits", "1", "--plain", *FEW, *SMALL),
    "wtawp landscape": ("landscape", "wine", "--points", "3", "--directions", "1", *SMALL),
    "wtawp certify": ("certify", "citation", "--on", "edges", "--samples", "20", "--plain", *SMALL),
    "wtawp report": ("report", "tab:natacc"),
}


class Trace:
    """Collects the walk of a command, and where it comes back to a module that it has left for a lower one."""

    def __init__(self) -> None:
        self.walk: list[str] = []
        self.returns: set[str] = set()
        self._stack: list[str | None] = []  # the module of each active frame; "import" below an import, None elsewhere

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event == "return" and self._stack:
            self._stack.pop()
        elif event == "call":
            self._stack.append(self._enter(frame))

    def _enter(self, frame: FrameType) -> str | None:
        module, function = str(frame.f_globals.get("__name__", "")), frame.f_code.co_name
        if function == "<module>" or (self._stack and self._stack[-1] == "import"):
            return "import"
        if not module.startswith(("wtawp.cli.", "wtawp.experiments.")) or ".spec." in module:
            return None
        name = module.removeprefix("wtawp.").removeprefix("experiments.")
        above = [entered for entered in self._stack if entered]
        is_nested = "<locals>" in frame.f_code.co_qualname  # a callback, a generator expression, or a closure
        if is_nested or (above and above[-1] == name):
            return above[-1] if above else None
        if name in above:
            self.returns.add(f"{above[-1]} calls {name}.{function}, which lies above it")
        if name not in self.walk:
            self.walk.append(name)
        return name


def trace(arguments: list[str]) -> None:
    """Run one command in this process and print its walk as JSON; the last line of what is printed."""
    from typer.testing import CliRunner

    from wtawp.cli import app

    tracer = Trace()
    sys.setprofile(tracer)
    try:
        result = CliRunner().invoke(app, arguments)
    finally:
        sys.setprofile(None)
    assert result.exit_code == 0, result.output
    print(json.dumps({"walk": tracer.walk, "returns": sorted(tracer.returns)}))  # noqa: T201


def traced(arguments: tuple[str, ...], folder: Path) -> dict[str, list[str]]:
    """The walk of a command in a process of its own, where nothing was computed and cached before."""
    store = folder / "s.sqlite"
    more = {"report": ["--store", str(store), "--json"]}
    more |= {name: ["--workers", "1", "--store", str(store)] for name in ("reproduce", "attack", "certify")}
    Store(store).close()
    command = [sys.executable, __file__, *arguments, *more.get(arguments[0], [])]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    walk: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return walk


def printed_walks() -> dict[str, list[str]]:
    """The walks of the page, by command."""
    rows = re.findall(r"^- `(wtawp [^`]+)`: (.+?)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {command: re.findall(r"`([^`]+)`", walk) for command, walk in rows}


@pytest.mark.parametrize("command", WALKS)
def test_a_command_passes_through_no_module_twice_and_the_page_lists_its_walk(
    command: str, empty_home: Path, data_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty_home.mkdir()
    monkeypatch.setenv("WTAWP_DATA", str(data_root))
    found = traced(WALKS[command], empty_home)
    assert not found["returns"]
    line = " → ".join(f"`{name}`" for name in found["walk"])
    assert printed_walks().get(command) == found["walk"], f"write into {PAGE.name}:\n- `{command}`: {line}"


def test_the_trace_notices_a_module_that_is_entered_from_below() -> None:
    tracer = Trace()

    def frame(module: str, function: str) -> FrameType:
        space: dict[str, object] = {"__name__": module, "sys": sys}
        exec(f"def {function}():\n    return sys._getframe()", space)  # at the top level of a module
        return space[function]()  # type: ignore[operator,no-any-return]

    for module, function in (("wtawp.cli.sweeps", "run"), ("wtawp.experiments.store.database", "add"),
                             ("wtawp.cli.sweeps", "show")):  # fmt: skip
        tracer(frame(module, function), "call", None)
    assert tracer.returns == {"store.database calls cli.sweeps.show, which lies above it"}
    assert tracer.walk == ["cli.sweeps", "store.database"]


if __name__ == "__main__":
    trace(sys.argv[1:])
