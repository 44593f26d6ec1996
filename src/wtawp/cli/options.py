"""Options and arguments that several commands share."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer

from wtawp.models.registry import model_names

StorePath = Annotated[
    Path | None,
    typer.Option(
        "--store", help="File of the stored results.", show_default="results.sqlite in $WTAWP_HOME or the data folder"
    ),
]
Device = Annotated[Literal["cpu", "cuda"], typer.Option(help="Device of the training.")]
Tf32 = Annotated[bool, typer.Option("--tf32", help="Allow TF32 matrix products on a GPU.")]
EngineName = Annotated[
    Literal["local", "ray"], typer.Option("--engine", help="Train on this machine, or on a Ray cluster.")
]
Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Number of worker processes.", show_default="one for each core; one on a GPU"),
]
Html = Annotated[Path | None, typer.Option(help="Write an HTML page with tables and figures to this file.")]
Json = Annotated[bool, typer.Option("--json", help="Print the results as JSON and nothing else.")]
RHO_DEFAULT, LAM_DEFAULT = "1; for whole graphs, the paper's", "0.7; for whole graphs, the paper's"
Labels = Annotated[
    list[str] | None,
    typer.Argument(help="LaTeX labels of tables and figures of the paper, or all.", show_default=False),
]
Size = Annotated[
    Literal["smoke", "quick", "full"],
    typer.Option("--scale", help="smoke: checks that it works; quick: 10 runs in a cell; full: as in the paper."),
]
Rows = Annotated[list[str] | None, typer.Option(help="Train only this row; may be repeated.", show_default=False)]
Columns = Annotated[list[str] | None, typer.Option(help="Train only this column; may be repeated.", show_default=False)]
Model = Annotated[
    str,
    typer.Option(
        help=f"One of {', '.join(model_names('node'))}; for whole graphs {', '.join(model_names('graph'))}; or your "
        "own, as package.module:Class."
    ),
]
Rho = Annotated[
    float | None,
    typer.Option(help="Radius of the perturbation, relative to each layer's norm.", show_default=RHO_DEFAULT),
]
Lam = Annotated[float | None, typer.Option(help="Weight of the perturbed loss.", show_default=LAM_DEFAULT)]
Dataset = Annotated[str, typer.Argument(help="A name as `wtawp data list` shows it, or the path of your own graph.")]
Epochs = Annotated[int, typer.Option(min=1, help="Epochs of training.")]
Plain = Annotated[bool, typer.Option("--plain", help="Train without WT-AWP only.")]


def refuse_unwritable(path: Path | None) -> None:
    """Refuse a path at which no file can be written.

    Args:
        path: The path; None is accepted.

    Raises:
        typer.BadParameter: If the path is a folder, or its folder does not exist.
    """
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        raise typer.BadParameter(f"{path} cannot be a file: its folder does not exist, or it is a folder itself")


@contextmanager
def as_bad_parameter() -> Iterator[None]:
    """Report a ValueError inside the context as a bad argument of the command.

    Returns:
        A context manager.

    Raises:
        typer.BadParameter: In place of a ValueError, with its message.
    """
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
