import subprocess
import sys

from wtawp import __version__


def test_the_package_runs_as_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "wtawp", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"wtawp {__version__}"
