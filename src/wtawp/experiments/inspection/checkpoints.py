"""Weights from somebody's file into a model. Nothing in the file is ever run, and what does not fit is named."""

import re
from pathlib import Path

import torch
from torch import Tensor, nn

from wtawp.base import AnalysisError

WRAPPED = "module."  # what DataParallel and DistributedDataParallel put before every name


def load_weights(model: nn.Module, path: Path) -> None:
    """Into the model; refuses what is no state dict, and that of another architecture."""
    found = read_state_dict(path)
    if wrong := _differences(model.state_dict(), found):
        more = f", and {len(wrong) - 4} more" if len(wrong) > 4 else ""
        advice = "Give the model and options (--option) it was trained with"
        if all(name.startswith(WRAPPED) for name in found):
            advice = (
                f"Its names begin with {WRAPPED!r}, as of a model inside DistributedDataParallel or DataParallel: "
                "save that model's own weights, torch.save(model.module.state_dict(), file)"
            )
        raise AnalysisError(
            f"{path} is of another architecture than {type(model).__name__} on these data: "
            f"{'; '.join(wrong[:4])}{more}. {advice}"
        )
    model.load_state_dict(found)


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """Names and tensors, read with `weights_only=True`: a file that names anything else is refused unrun."""
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise AnalysisError(f"there is no checkpoint {path}") from None
    except Exception as error:  # a damaged file can raise anything
        foreign = re.search(r"GLOBAL (\S+)", str(error))  # torch's own message advises to run it after all
        if foreign:
            raise AnalysisError(
                f"{path} holds an object of {foreign[1]}, perhaps a whole model; refused, nothing was run: "
                "save the weights alone, torch.save(model.state_dict(), file)"
            ) from None
        raise AnalysisError(f"{path} is not a file that torch.save wrote, or it is cut short; save it again") from error
    if _is_state_dict(found):
        return dict(found)
    inside = [key for key, value in found.items() if _is_state_dict(value)] if isinstance(found, dict) else []
    if inside:
        raise AnalysisError(
            f"{path} holds more than a state dict; weights are under {', '.join(map(repr, inside))}: save them alone, "
            f"torch.save(torch.load(file, weights_only=True)[{inside[0]!r}], other)"
        )
    got = f"a dict of {', '.join(map(repr, found)) or 'nothing'}" if isinstance(found, dict) else type(found).__name__
    raise AnalysisError(f"{path} must hold a state dict, torch.save(model.state_dict(), file), not {got}")


def _is_state_dict(value: object) -> bool:
    return isinstance(value, dict) and bool(value) and all(isinstance(t, Tensor) for t in value.values())


def _differences(own: dict[str, Tensor], found: dict[str, Tensor]) -> list[str]:
    shapes = [
        f"{n} is {list(found[n].shape)}, not {list(t.shape)}"
        for n, t in own.items()
        if n in found and found[n].shape != t.shape
    ]
    missing = [f"{n} is missing" for n in own if n not in found]
    return missing + [f"{n} is unknown" for n in found if n not in own] + shapes
