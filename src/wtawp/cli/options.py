"""Options and arguments that several commands share."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer

from wtawp.models.registry import model_names

StorePath = Annotated[Path | None, typer.Option("--store", help="Where results are kept.", show_default="our folder")]
Device = Annotated[Literal["cpu", "cuda"], typer.Option()]
Tf32 = Annotated[bool, typer.Option("--tf32", help="Allow TF32 matrix products on a GPU.")]
EngineName = Annotated[Literal["local", "ray"], typer.Option("--engine")]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes.", show_default="one a core; one on a GPU")]
Json = Annotated[bool, typer.Option("--json", help="Print the results as JSON and nothing else.")]
RHO_SHOWN, LAM_SHOWN = "1; for whole graphs, the paper's", "0.7; for whole graphs, the paper's"
Labels = Annotated[list[str] | None, typer.Argument(help="LaTeX labels of the paper, or: all.", show_default=False)]
Size = Annotated[
    Literal["smoke", "quick", "full"],
    typer.Option("--scale", help="smoke: does it work; quick: 10 runs a cell; full: as in the paper."),
]
Rows = Annotated[list[str] | None, typer.Option(help="Only this row; may be given several times.", show_default=False)]
Columns = Annotated[list[str] | None, typer.Option(help="Only this column; likewise.", show_default=False)]
Model = Annotated[
    str,
    typer.Option(
        help=f"{', '.join(model_names('node'))}, of whole graphs {', '.join(model_names('graph'))}, or your own: "
        "package.module:Class."
    ),
]
Rho = Annotated[
    float | None,
    typer.Option(help="Radius of the perturbation, relative to each layer's norm.", show_default=RHO_SHOWN),
]
Lam = Annotated[float | None, typer.Option(help="Weight of the perturbed loss.", show_default=LAM_SHOWN)]
Dataset = Annotated[str, typer.Argument(help="A name of `wtawp data list`, or the path of a graph of your own.")]
Epochs = Annotated[int, typer.Option(min=1)]


Plain = Annotated[bool, typer.Option("--plain", help="Only without WT-AWP.")]


def can_be_written(path: Path | None) -> None:
    """Refuse a path that cannot be a file."""
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        raise typer.BadParameter(f"{path} cannot be a file: its folder is not there, or it is a folder itself")


@contextmanager
def values_are_parameters() -> Iterator[None]:
    """Inside, a ValueError is reported as a bad argument of the command."""
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
