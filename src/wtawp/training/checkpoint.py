"""Files from which a killed training continues: weights-only, versioned, written atomically and checked when read."""

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from wtawp.base import CheckpointError, DataError, digest_of, shortened, write_atomic
from wtawp.graphs.saved_tensors import SavedTensors
from wtawp.training.options import is_count

KIND, FORMAT = "wtawp training checkpoint", 4
WAY_OUT = "pass another path, or move the file away to train from the start"


@dataclass
class Checkpoint:
    """The file of one training.

    Attributes:
        path: The file.
        every: Number of epochs between two saves, at least 1.
        identity: What the training is, by name: a file that was written by another one is refused.

    Raises:
        ValueError: If `every` is not a whole number from 1 on.
        CheckpointError: If the folder of the file does not exist.
    """

    path: Path
    every: int
    identity: dict[str, str]

    def __post_init__(self) -> None:
        if not is_count(self.every):
            raise ValueError(f"checkpoint_every must be a whole number of epochs >= 1, got {self.every!r}")
        if not self.path.parent.is_dir():
            raise CheckpointError(f"cannot write the checkpoint {self.path}: its folder does not exist; make it first")
        self._num_proofs = 0

    def read(self) -> dict[str, Any] | None:
        """Read the state that was saved last.

        Returns:
            The state, with all tensors on the CPU; None if there is no file yet.

        Raises:
            CheckpointError: If the file cannot be read, is damaged, is not a checkpoint, has an unknown format, or
                belongs to another training.
        """
        if not self.path.exists():
            return None
        try:
            content = SavedTensors(self.path).restored()
        except DataError as error:
            raise CheckpointError(
                f"{self.path} cannot be read, it is damaged or is not a checkpoint ({shortened(str(error))}); {WAY_OUT}"
            ) from error
        match content:
            case {"kind": str(kind), "format": int(form)} if kind == KIND and form != FORMAT:
                raise CheckpointError(
                    f"{self.path} has format {form}, this version of wtawp reads format {FORMAT}; continue with the"
                    " version that wrote it, " + WAY_OUT
                )
            case {"kind": str(kind), "identity": dict(identity), "state": dict(state), "digest": str(digest)} if (
                kind == KIND and all(isinstance(text, str) for pair in identity.items() for text in pair)
            ):
                if digest != _digest_or_none([identity, state]):
                    raise CheckpointError(f"{self.path} is damaged, its content does not match its digest; {WAY_OUT}")
                self._check_identity(identity)
                return state
        raise CheckpointError(f"{self.path} is not a checkpoint of a training; {WAY_OUT}")

    def write(self, state: Mapping[str, Any]) -> None:
        """Replace the file. If the process is killed meanwhile, the file has its former content.

        Args:
            state: Tensors and plain values, in dicts and lists.

        Raises:
            CheckpointError: If the state has something that cannot be read back, or the file cannot be written.
        """
        buffer = io.BytesIO()
        try:
            content = {
                "kind": KIND,
                "format": FORMAT,
                "torch": str(torch.__version__),
                "digest": digest_of([self.identity, state]),
                "identity": self.identity,
                "state": dict(state),
            }
            torch.save(content, buffer)
            if self._num_proofs < 2:  # read it back, rather now than after a crash; the first state may be nearly empty
                SavedTensors(self.path, buffer).restored()
                self._num_proofs += 1
        except Exception as error:
            culprit = re.search(r"asks for (\S+);", str(error))
            raise CheckpointError(
                "the state of this training cannot be saved: the optimizer, the scheduler or the model holds something"
                f" other than tensors and plain values ({culprit[1] if culprit else shortened(str(error))}); train"
                " without checkpoint="
            ) from error
        try:
            write_atomic(self.path, buffer.getvalue())
        except OSError as error:
            raise CheckpointError(f"cannot write the checkpoint {self.path}: {error}") from error

    def _check_identity(self, saved: Mapping[str, str]) -> None:
        """Refuse the file of another training, naming what differs."""
        names = dict.fromkeys([*self.identity, *saved])
        differing = [
            f"{name} ({shortened(saved.get(name, 'not given'))} in the file,"
            f" {shortened(self.identity.get(name, 'not given'))} now)"
            for name in names
            if saved.get(name) != self.identity.get(name)
        ]
        if differing:
            raise CheckpointError(
                f"{self.path} was written by another training: {'; '.join(differing)}. Repeat the call that wrote it,"
                f" {WAY_OUT}"
            )


def _digest_or_none(value: object) -> str | None:
    """The digest of content that was read; None if it holds something of which there is none."""
    try:
        return digest_of(value)
    except TypeError:
        return None
