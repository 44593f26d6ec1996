"""What chunks cost, estimated before they are trained, and whether they are worth the start of worker processes."""

from collections.abc import Callable, Generator, Sequence
from typing import TypeVar

from wtawp.experiments.execution.building import data_of
from wtawp.experiments.execution.engines import ChunkProgress, Engine, LostChunk, local
from wtawp.experiments.execution.jobs import Chunk, Job
from wtawp.experiments.measures.shared.registry import measure_spec, options_of
from wtawp.experiments.spec import Setting
from wtawp.models.registry import model_spec

C = TypeVar("C")
R = TypeVar("R")
START_SECONDS = 5.0  # that a worker process needs to import torch and PyTorch Geometric
EPOCH_SECONDS = 1e-3  # of a GCN on a graph with few edges, on one core
ENTRY_SECONDS = 1e-7  # in addition for each node and directed edge


def cost_of(chunk: Chunk) -> float:
    """Estimate the time that a chunk takes.

    Args:
        chunk: Runs of one setting.

    Returns:
        The time in epochs of a GCN.
    """
    return len(chunk) * sum(_costs(chunk[0].setting))


def training_share(setting: Setting) -> float:
    """Estimate which share of the time of a run is its training; the rest is for its measures.

    Args:
        setting: The setting of the run.

    Returns:
        The share, from 0 to 1.
    """
    training, measures = _costs(setting)
    return training / (training + measures)


def _costs(setting: Setting) -> tuple[float, float]:
    """The costs of training a model and of measuring it, in epochs of a GCN."""
    awp = setting.awp
    passes = 1 if awp is None else int(awp.needs_natural_gradient) + awp.steps
    epochs = setting.epochs * model_spec(setting.model).cost * (passes + 0.5)
    cost = epochs * (1 if setting.batch_size is None else 20)
    return cost, sum(measure_spec(m.name).cost(options_of(m)) for m in setting.measures)


def remaining_share(job: Job) -> float:
    """Estimate which share of the cost of its chunk a job has: its stored runs are trained, but not measured.

    Args:
        job: The job.

    Returns:
        The share, from 0 to 1.
    """
    training = training_share(job.runs[0].setting)
    return training + (1 - training) * len(job.new_indices) / len(job.runs)


def seconds_of(job: Job) -> float:
    """Estimate the time that a job takes on one core, to within a factor of a few.

    Args:
        job: The job. Its data are loaded.

    Returns:
        The time in seconds.
    """
    data = data_of(job.runs[0].setting, job.runs[0].split)
    size = int(data.num_nodes or 0) + int(data.num_edges)
    return cost_of(job.runs) * remaining_share(job) * (EPOCH_SECONDS + ENTRY_SECONDS * size)


def worthwhile_workers(seconds: float, workers: int) -> int:
    """Choose between worker processes and this process alone.

    Args:
        seconds: The time that all of the work takes on one core.
        workers: How many workers there may be.

    Returns:
        `workers`, or 1 where it takes longer to start them than they save.

    Example:
        >>> worthwhile_workers(2.0, 8), worthwhile_workers(60.0, 8)
        (1, 8)
    """
    return workers if START_SECONDS + seconds / workers < seconds else 1


def local_if_worthwhile(workers: int) -> Engine:
    """Make an engine for jobs on this machine that starts worker processes only if they save time.

    Args:
        workers: How many workers there may be.

    Returns:
        The engine. Its jobs are those of `run_plans`.

    Raises:
        ValueError: If `workers` is below 1.
    """
    with_workers, alone = local(workers), local()

    def run(
        chunks: Sequence[C], work: Callable[[C], R], progress: ChunkProgress | None = None
    ) -> Generator[tuple[int, R | LostChunk], None, None]:
        total = 0.0
        for chunk in chunks:
            total += seconds_of(chunk)  # type: ignore[arg-type]  # a job
            if worthwhile_workers(total, workers) > 1:  # whatever the others take
                return with_workers(chunks, work, progress)
        return alone(chunks, work, progress)

    return run
