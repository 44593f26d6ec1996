"""How long a sweep will take, estimated before it starts from what similar runs took on the same kind of device."""

from collections.abc import Callable, Sequence

from wtawp.experiments.spec import Run, Setting
from wtawp.experiments.store import Store

Chunk = tuple[Run, ...]


def describe_cost(store: Store, chunks: Sequence[Chunk], device: str, cost: Callable[[Chunk], float]) -> str:
    """Say how much there is to train, and how long it takes if runs like it are stored.

    Args:
        store: The store.
        chunks: The chunks to train, at least one.
        device: The kind of device, as in the records.
        cost: The cost of a chunk in any unit that is proportional to its time on one data set.

    Returns:
        A sentence. Without stored runs of every data set and model in the chunks it makes no estimate, and says so.
    """
    num_runs = sum(map(len, chunks))
    seconds = _estimate(store, chunks, device, cost)
    if seconds is None:
        return (
            f"{num_runs:,} runs to train in {len(chunks):,} chunks. No run of the same data and model is stored from "
            "this device, so there is no estimate of the time: the bar shows one as soon as it moves."
        )
    return (
        f"{num_runs:,} runs to train in {len(chunks):,} chunks, about {_duration(seconds)} of work for one process, by "
        "what stored runs of the same data and models took."
    )


def _estimate(store: Store, chunks: Sequence[Chunk], device: str, cost: Callable[[Chunk], float]) -> float | None:
    """The seconds that all chunks take one after the other; None where no readable run of data and model is stored."""
    newest = {
        (row.setting["dataset"], row.setting["model"]): row.key
        for row in sorted(store.summary(), key=lambda row: row.last)
        if row.device == device and row.done and not row.failed and not row.unreadable
    }
    rates: dict[tuple[str, str], float] = {}
    total = 0.0
    for chunk in chunks:
        place = chunk[0].setting.dataset, chunk[0].setting.model
        if place not in newest:
            return None
        if place not in rates:
            record = store.records([newest[place]], status="done", device=device)[0]
            try:
                run = Run(Setting.from_content(record.setting), record.split, record.init)
                rates[place] = record.seconds / cost((run,))
            except (KeyError, TypeError, ValueError):  # options or measures that this program does not know
                return None
        total += rates[place] * cost(chunk)
    return total


def _duration(seconds: float) -> str:
    """A duration in the unit that people would use, with two digits."""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{_two_digits(seconds / size)} {unit}"
    return f"{_two_digits(seconds)} s"


def _two_digits(value: float) -> str:
    """A number with two digits, or as a whole number where it has more."""
    return f"{value:.2g}" if value < 99.5 else f"{value:.0f}"
