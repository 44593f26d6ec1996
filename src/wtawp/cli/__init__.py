"""The command line: options in, tables out. Every command is a few lines around functions of `experiments` or `graphs`.

The modules are imported because each adds its commands to the app. They import what computes inside of the commands, so
that `wtawp --help` loads neither torch nor PyTorch Geometric.
"""

from wtawp.cli import (
    attack,
    audit,
    certify,
    compare,
    data,
    demo,
    doctor,
    geometry,
    report,
    reproduce,
    results,
    train,
    tune,
)
from wtawp.cli.panels import arrange
from wtawp.cli.shared import app

__all__ = [
    "app", "attack", "audit", "certify", "compare", "data", "demo", "doctor", "geometry", "report", "reproduce",
    "results", "train", "tune",
]  # fmt: skip

arrange(app)
