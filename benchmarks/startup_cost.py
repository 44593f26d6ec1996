"""What a command costs before it does anything: CPU seconds over those of an empty Python program.

    python benchmarks/startup_cost.py

Each command runs in a process of its own, several times; the least is printed, since everything above it is noise. The
bars are those of `docs/architecture.md`.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile

BARS = {  # CPU seconds over `python -c pass`
    "--version": 0.5,
    "--help": 0.5,
    "data list": 1.0,
    "reproduce": 1.0,
    "results ls": 1.0,
}
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as home:  # without a store, and without downloads
        os.environ["WTAWP_HOME"] = home
        empty = cpu_seconds([sys.executable, "-c", "pass"], repeats)
        print(f"python -c pass: {empty:.2f} CPU s\n")
        print(f"{'command':<20} {'CPU s over it':>14} {'bar':>6}   imports")
        for arguments, bar in BARS.items():
            spent = cpu_seconds([sys.executable, "-m", "wtawp.cli", *arguments.split()], repeats) - empty
            words = ", ".join(heavy_modules(arguments)) or "none of the large libraries"
            print(f"wtawp {arguments:<14} {spent:>14.2f} {bar:>6.1f}   {words}")


if __name__ == "__main__":
    main()
