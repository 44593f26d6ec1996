"""The command line: every command is a few lines over `experiments` or `graphs`.

Modules are imported here for the commands they add to the app.
"""

from wtawp.cli import attack, certify, data, demo, geometry, results, sweeps
from wtawp.cli.shared import app

__all__ = ["app", "attack", "certify", "data", "demo", "geometry", "results", "sweeps"]
