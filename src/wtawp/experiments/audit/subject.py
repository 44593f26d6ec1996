"""What is audited: a model with its data and its rows, or the weights of a checkpoint."""

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wtawp.base import is_reference, resolve, write_atomic
from wtawp.core.config import AwpConfig
from wtawp.experiments.execution.building import mask_splits_of
from wtawp.experiments.plans.defaults import default_awp
from wtawp.experiments.spec import Setting
from wtawp.models.registry import model_spec

if TYPE_CHECKING:
    from torch import nn
    from torch_geometric.data import Data


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What an audit is about.

    Attributes:
        base: The setting of the model without perturbation.
        methods: How the weights of each row are perturbed, by its label; plain training is first.
        most_splits: The number of splits that the data have; None for as many as one likes.
        has_one_split: Whether masks describe a single split, so that initialisations are paired.
    """

    base: Setting
    methods: tuple[tuple[str, AwpConfig | None], ...]
    most_splits: int | None = None
    has_one_split: bool = False

    @property
    def label(self) -> str:
        """The name of the model for people."""
        return model_spec(self.base.model).label

    @property
    def rows(self) -> dict[str, Setting]:
        """The setting of each row, by its label."""
        return {row: replace(self.base, awp=awp) for row, awp in self.methods}

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The pairs of rows that are compared: every one with every later one."""
        names = [row for row, _ in self.methods]
        return tuple((a, b) for i, a in enumerate(names) for b in names[i + 1 :])

    @property
    def is_checkpoint(self) -> bool:
        """Whether given weights are audited, and nothing is trained."""
        return self.base.weights is not None

    def grid(self, splits: int) -> tuple[int, int]:
        """Say how often rows are trained.

        Args:
            splits: The number of paired trainings.

        Returns:
            The numbers of splits and of initialisations of each.
        """
        return (1, splits) if self.has_one_split else (splits, 1)

    def key(self, **options: Any) -> str:
        """Name the audit by its content.

        Args:
            options: What else distinguishes one audit from another.

        Returns:
            16 hexadecimal digits.
        """
        methods = [(row, None if awp is None else awp.content) for row, awp in self.methods]
        content = {"setting": self.base.content, "methods": methods, **options}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def make_subject(base: Setting, awp: AwpConfig | None) -> Subject:
    """Choose the rows of an audit: plain training, WT-AWP, and WT-AWP whose lam follows the training.

    Args:
        base: The setting of the model without perturbation, with its split; with `weights`, it is the only row.
        awp: The perturbation of the second row; None for a model whose weights cannot be perturbed.

    Returns:
        The subject.

    Raises:
        ValueError: If the setting has no split.
    """
    if base.split is None:
        raise ValueError("an audit needs to know how the data are split; pass split=SplitRule()")
    label = model_spec(base.model).label
    methods: dict[str, AwpConfig | None] = {label: None}
    if base.weights is not None:
        return Subject(base=base, methods=((f"{label}, given weights", None),), most_splits=1)
    if awp is not None:
        auto = default_awp(base.model, base.dataset, rho=awp.rho, lam="auto", layers=awp.layers)
        methods |= {} if awp == auto else {f"{label}+WT-AWP": awp}
        methods |= {f"{label}+WT-AWP auto": auto}
    rule = base.split
    available = mask_splits_of(base.dataset) if rule.kind == "masks" else rule.folds
    has_one_split = rule.kind == "masks" and available == 1
    return Subject(
        base=base,
        methods=tuple(methods.items()),
        most_splits=None if has_one_split else available,
        has_one_split=has_one_split,
    )


def model_name(model: "str | type[nn.Module] | nn.Module") -> str:
    """Find the name of a model in settings.

    Args:
        model: A name in the registry, "package.module:Class", a class, or an instance of one.

    Returns:
        The name, or the reference to the class.

    Raises:
        ValueError: If a class cannot be imported by its name, because a function defines it.

    Example:
        >>> from wtawp.models import GCN
        >>> model_name("GCN"), model_name(GCN)
        ('GCN', 'wtawp.models.gcn:GCN')
    """
    if isinstance(model, str):
        return model_spec(model).name
    cls = model if isinstance(model, type) else type(model)
    reference = f"{cls.__module__}:{cls.__qualname__}"
    if not is_reference(reference) or resolve(reference) is not cls:
        raise ValueError(
            f"{reference} cannot be imported by its name, and an audit builds the model several times; define the class"
            " at the top of a module, or register it with wtawp.models.register_model and pass its name"
        )
    return reference


def dataset_name(data: "str | Path | Data", folder: Path) -> str:
    """Find the name of data in settings; a graph in memory is written to a file first.

    Args:
        data: A name as `wtawp data list` shows it, a path, or a PyG `Data`.
        folder: Where files of graphs are written, under names made of their contents.

    Returns:
        The name or the path.
    """
    if isinstance(data, str | Path):
        return str(data)
    import torch

    names = [name for name in ("x", "y", "edge_index", "edge_weight", "train_mask", "val_mask", "test_mask")
             if isinstance(data.get(name), torch.Tensor)]  # fmt: skip
    tensors: Mapping[str, torch.Tensor] = {name: data[name].detach().cpu().clone() for name in names}
    digest = hashlib.sha256()
    for name, tensor in tensors.items():
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    path = folder / f"{digest.hexdigest()[:16]}.pt"
    if not path.is_file():
        buffer = io.BytesIO()
        torch.save(dict(tensors), buffer)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(path, buffer.getvalue())
    return str(path)
