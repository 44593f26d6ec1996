"""Load weights from a file into a model. No code in the file is ever run, and differences are named."""

import re
from pathlib import Path

from torch import Tensor, nn

from wtawp.base import AnalysisError, DataError
from wtawp.graphs.file_checks import brief
from wtawp.graphs.saved_tensors import SavedTensors

WRAPPER_PREFIX = "module."  # DataParallel and DistributedDataParallel put it before every name


def load_weights(model: nn.Module, path: Path) -> None:
    """Load the weights of a file into a model.

    Args:
        model: The model, which is changed in place.
        path: A file with a state dict, as `torch.save(model.state_dict(), path)` writes it.

    Raises:
        AnalysisError: If the file holds no state dict, or that of another architecture.
    """
    weights = read_state_dict(path)
    if differences := _differences(model.state_dict(), weights):
        more = f", and {len(differences) - 4} more" if len(differences) > 4 else ""
        advice = "Choose the model and options (--option) with which it was trained"
        if all(name.startswith(WRAPPER_PREFIX) for name in weights):
            advice = (
                f"Its names begin with {WRAPPER_PREFIX!r}, as those of a model inside DataParallel or "
                "DistributedDataParallel do: save the weights of the model inside, "
                "torch.save(model.module.state_dict(), file)"
            )
        raise AnalysisError(
            f"{path} has another architecture than {type(model).__name__} on these data: "
            f"{'; '.join(differences[:4])}{more}. {advice}"
        )
    model.load_state_dict(weights)


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """Read a state dict. No code in the file is run, and its tensors are checked against what the file holds.

    Args:
        path: The file.

    Returns:
        Tensors by name, on the CPU.

    Raises:
        AnalysisError: If there is no such file, if it is damaged, or if it holds anything but a state dict.
    """
    if not path.is_file():
        raise AnalysisError(f"there is no checkpoint {path}")
    try:
        content = SavedTensors(path).restored()
    except DataError as error:
        foreign_class = re.search(r"asks for (\S+);", str(error))
        if foreign_class:
            raise AnalysisError(
                f"{path} holds an object of {foreign_class[1]}, perhaps a whole model; refused, nothing was run: "
                "save the weights alone, torch.save(model.state_dict(), file)"
            ) from None
        raise AnalysisError(str(error)) from error
    if isinstance(content, dict) and _is_state_dict(content):
        return dict(content)
    inside = [key for key, value in content.items() if _is_state_dict(value)] if isinstance(content, dict) else []
    if inside:
        raise AnalysisError(
            f"{path} holds more than a state dict; weights are under {', '.join(map(brief, inside[:8]))}: save them "
            f"alone, torch.save(torch.load(file, weights_only=True)[{brief(inside[0])}], other)"
        )
    keys = ", ".join(map(brief, list(content)[:8])) or "nothing" if isinstance(content, dict) else ""
    got = f"a dict of {keys}" if keys else type(content).__name__
    raise AnalysisError(f"{path} must hold a state dict, torch.save(model.state_dict(), file), not {got}")


def _is_state_dict(value: object) -> bool:
    """Whether a value is a dict of tensors by name and not empty."""
    if not isinstance(value, dict) or not value:
        return False
    return all(isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in value.items())


def _differences(expected: dict[str, Tensor], weights: dict[str, Tensor]) -> list[str]:
    """A text for each name that is missing, unknown, or has another shape."""
    shapes = [
        f"{name} is {list(weights[name].shape)}, not {list(tensor.shape)}"
        for name, tensor in expected.items()
        if name in weights and weights[name].shape != tensor.shape
    ]
    missing = [f"{name} is missing" for name in expected if name not in weights]
    return missing + [f"{name} is unknown" for name in weights if name not in expected] + shapes
