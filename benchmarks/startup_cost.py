"""What a command costs before it does anything: CPU seconds over those of an empty Python program.

    python benchmarks/startup_cost.py

Each command runs in a process of its own, several times; the least is printed, since everything above it is noise. The
bars are those of `docs/architecture.md`.
"""

import argparse
import os
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

BARS = {  # CPU seconds over `python -c pass`
    "--version": 0.5,
    "--help": 0.5,
    "data list": 1.0,
    "reproduce": 1.0,
    "results ls": 1.0,
    "train nosuch": 0.5,  # commands that only say what is wrong
    "attack wine --attack nosuch": 0.5,
    "compare wine --model nosuch": 0.5,
}
IMPORT_BAR = 0.2  # CPU seconds of `import torch, wtawp` over `import torch`
COMPARE_BAR = 6.0  # CPU seconds of a comparison of 120 nodes, with all of its processes
HEAVY = ("torch", "torch_geometric", "numba", "matplotlib", "scipy", "sklearn", "pandas")


def cpu_seconds(command: list[str], repeats: int) -> float:
    """The least user and system time that the command took."""
    least = float("inf")
    for _ in range(repeats):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        least = min(least, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return least


def heavy_modules(arguments: str) -> list[str]:
    """Which of the large libraries the command imports."""
    program = f"""
import sys
sys.argv = ["wtawp", *{arguments.split()!r}]
from wtawp.cli import app
try:
    app(standalone_mode=False)
finally:
    print("LOADED", *[name for name in {HEAVY!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    loaded = [line for line in done.stdout.splitlines() if line.startswith("LOADED")]
    return loaded[-1].split()[1:] if loaded else ["?"]


def write_small_graph(folder: Path) -> Path:
    """Write a graph of 120 nodes and 300 edges with three classes as CSV."""
    draw = random.Random(0)
    nodes = [f"n{i},{'abc'[i % 3]},{i % 3 + draw.random():.3f},{draw.random():.3f}" for i in range(120)]
    edges = [f"n{draw.randrange(120)},n{draw.randrange(120)}" for _ in range(300)]
    (folder / "g.labels.csv").write_text("\n".join(["node,label,x,y", *nodes]))
    (folder / "g.csv").write_text("\n".join(["source,target", *edges]))
    return folder / "g.csv"


def compare_seconds(folder: Path, repeats: int) -> float:
    """The least CPU time of a comparison of 120 nodes with 2 splits and 10 epochs, each into a new store."""
    command = [sys.executable, "-m", "wtawp.cli", "compare", str(write_small_graph(folder)), "--splits", "2",
               "--epochs", "10", "--store"]  # fmt: skip
    return min(cpu_seconds([*command, str(folder / f"{i}.sqlite")], 1) for i in range(repeats))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is not compiled at every start
    with tempfile.TemporaryDirectory() as home:  # without a store, and without downloads
        os.environ["WTAWP_HOME"] = home
        empty = cpu_seconds([sys.executable, "-c", "pass"], repeats)
        print(f"python -c pass: {empty:.2f} CPU s\n")
        print(f"{'command':<34} {'CPU s over it':>14} {'bar':>6}   imports")
        for arguments, bar in BARS.items():
            spent = cpu_seconds([sys.executable, "-m", "wtawp", *arguments.split()], repeats) - empty
            words = ", ".join(heavy_modules(arguments)) or "none of the large libraries"
            print(f"wtawp {arguments:<28} {spent:>14.2f} {bar:>6.1f}   {words}")
        torch_alone = cpu_seconds([sys.executable, "-c", "import torch"], repeats)
        both = cpu_seconds([sys.executable, "-c", "import torch, wtawp; wtawp.WTAWP"], repeats)
        print(f"\nimport wtawp, and WTAWP from it, over import torch: {both - torch_alone:.2f} CPU s, bar {IMPORT_BAR}")
        spent = compare_seconds(Path(home), repeats)
        print(f"wtawp compare, 120 nodes, 2 splits, 10 epochs: {spent:.2f} CPU s in all, bar {COMPARE_BAR}")
        program = "from wtawp.cli.shared import import_torch_geometric as load; load()"
        imports = cpu_seconds([sys.executable, "-c", program], repeats)
        print(f"of which the import of PyTorch Geometric takes {imports:.2f}")


if __name__ == "__main__":
    main()
