"""Options and arguments that several commands share."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer

from wtawp.cli.completion import complete_dataset, complete_model
from wtawp.graphs.composed_names import files_of_name
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
TimeLimit = Annotated[
    float | None,
    typer.Option(
        help="Seconds after which a chunk of runs that are trained together is stopped and recorded as failed.",
        show_default="none",
    ),
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
        autocompletion=complete_model,
        show_default=" or ".join(model_names(level)[0] for level in ("node", "graph")) + ", by what is classified",
        help=f"One of {', '.join(model_names('node'))}; for whole graphs {', '.join(model_names('graph'))}; or your "
        "own, as package.module:Class.",
    ),
]
Rho = Annotated[
    float | None,
    typer.Option(help="Radius of the perturbation, relative to each layer's norm.", show_default=RHO_DEFAULT),
]


def read_average(text: str) -> "float | Literal['swa']":
    """Read the value of --average.

    Args:
        text: A number between 0 and 1, or "swa".

    Returns:
        The number, or "swa".

    Raises:
        ValueError: If it is something else.
    """
    from wtawp.training.options import check_average

    try:
        value: float | Literal["swa"] = "swa" if text == "swa" else float(text)
        check_average(value)
    except ValueError:
        raise ValueError(f"--average must be swa or a number between 0 and 1, got {text}") from None
    return value


def read_lam(text: str) -> "float | Literal['auto']":
    """Read the value of --lam.

    Args:
        text: A number, or "auto".

    Returns:
        The number, or "auto".

    Raises:
        typer.BadParameter: If it is something else.
    """
    from wtawp.core.config import AwpConfig

    with as_bad_parameter():
        try:
            return AwpConfig(rho=0.0, lam="auto" if text == "auto" else float(text)).lam
        except ValueError:
            raise ValueError(
                f'lam must lie in [0, 1] or be "auto", got {text}; 0 is plain training, 1 is AWP'
            ) from None


def _check_lam(text: str | None) -> str | None:
    """A callback that refuses texts that are no weight of the perturbed loss."""
    if text is not None:
        read_lam(text)
    return text


Lam = Annotated[
    str | None,
    typer.Option(
        metavar="FLOAT|auto",
        callback=_check_lam,
        help="Weight of the perturbed loss, or auto: as much as the model overfits.",
        show_default=LAM_DEFAULT,
    ),
]
Dataset = Annotated[
    str,
    typer.Argument(
        autocompletion=complete_dataset, help="A name as `wtawp data list` shows it, or the path of your own graph."
    ),
]
Epochs = Annotated[int, typer.Option(min=1, help="Epochs of training.")]
Plain = Annotated[bool, typer.Option("--plain", help="Train without WT-AWP only.")]


Fresh = Annotated[bool, typer.Option("--fresh", help="Train all runs anew and replace their stored results.")]


def check_outputs(outputs: Mapping[str, Path | None], inputs: Iterable[str | Path | None] = ()) -> None:
    """Refuse paths at which no file can be written, and those of files that the command reads.

    Args:
        outputs: The path of each output by its option; None for options that are not given.
        inputs: The files that the command reads, or names that are no files; None is accepted.

    Raises:
        typer.BadParameter: If a path is a folder, its folder does not exist, or it is that of an input or of another
            output, also under another name or through a link.
    """
    read = [path for name in inputs if name is not None for path in files_of_name(str(name)) or (Path(name),)]
    written: dict[str, Path] = {}
    for option, path in outputs.items():
        if path is None:
            continue
        if path.is_dir() or not path.parent.is_dir():
            raise typer.BadParameter(f"{path} cannot be a file: its folder does not exist, or it is a folder itself")
        if any(_is_same_file(path, other) for other in read):
            raise typer.BadParameter(
                f"{path} is a file that this command reads, and would be overwritten; choose another one",
                param_hint=f"'{option}'",
            )
        if twice := [name for name, other in written.items() if _is_same_file(path, other)]:
            raise typer.BadParameter(
                f"{path} is the file of {twice[0]} already; choose another one", param_hint=f"'{option}'"
            )
        written[option] = path


def _is_same_file(one: Path, other: Path) -> bool:
    """Whether two paths lead to one file, which need not exist."""
    try:
        one, other = one.expanduser(), other.expanduser()
        return one.samefile(other) if one.exists() and other.exists() else one.resolve() == other.resolve()
    except (OSError, RuntimeError, ValueError):  # no name of a file, or no such user: then it is not that file
        return False


@contextmanager
def as_bad_parameter(param_hint: str | None = None) -> Iterator[None]:
    """Report a ValueError inside the context as a bad argument of the command.

    Args:
        param_hint: The option in quotes, for the message; None names none.

    Returns:
        A context manager.

    Raises:
        typer.BadParameter: In place of a ValueError, with its message.
    """
    try:
        yield
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=param_hint) from error
