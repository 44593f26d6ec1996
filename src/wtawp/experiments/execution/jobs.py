"""What engines pass on to the processes that train: a chunk of a sweep, and what is known of it."""

from dataclasses import dataclass

from wtawp.experiments.execution.changed_files import FileHashes
from wtawp.experiments.spec import Run
from wtawp.graphs import EdgeFlips

Chunk = tuple[Run, ...]  # runs of one setting that are trained as one stack


@dataclass(frozen=True)
class Job:
    """A chunk to train.

    Attributes:
        runs: The runs of the chunk.
        flips: The flips that poison their graph, if any do.
        stored: The keys of runs that have a record already. They are trained with the others, since a stack of another
            size rounds differently, but neither measured, which can take a thousand times as long, nor recorded.
        files: The files whose content is part of the keys, with their hashes; none of them may change meanwhile.
    """

    runs: Chunk
    flips: EdgeFlips | None = None
    stored: frozenset[str] = frozenset()
    files: FileHashes = ()

    @property
    def new_indices(self) -> list[int]:
        """The indices in the chunk of the runs that are measured and recorded."""
        return [i for i, run in enumerate(self.runs) if run.key not in self.stored]
