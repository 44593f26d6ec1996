"""A training with its seeds, the content key that names it, and the chunks that are trained as one stack.

A run's random numbers follow from its split and initialisation numbers alone, so that two settings share both: pairs
with and without WT-AWP start from the same weights on the same split.
"""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from wtawp.experiments.spec.setting import Setting

MAX_INITS = 1000  # initialisations of one split; keeps the seeds of (split, initialisation) apart
MAX_TOGETHER = 200  # runs in one stack on a GPU
RunId = tuple[int, int]  # the numbers of a split and of an initialisation
FORMAT = 1  # of a run's content; a change of what the numbers mean must change it


def key_of(setting: dict[str, Any], split: int, init: int, *, form: int = FORMAT) -> str:
    """The content key of a run.

    Args:
        setting: `Setting.content`, also after a round trip through JSON.
        split: The number of the split.
        init: The number of the initialisation.
        form: The FORMAT of the content.

    Returns:
        16 hexadecimal digits.
    """
    content = {"format": form, "setting": setting, "split": split, "init": init}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Run:
    """One training. Its `key` identifies its content: the same key, the same training, wherever it ran.

    Attributes:
        setting: What is trained.
        split: The number of the split, from 0.
        init: The number of the initialisation, from 0.
    """

    setting: Setting
    split: int
    init: int

    @property
    def poison_draw(self) -> int:
        """Which of the surrogates of its split poisons the graph of the run: its initialisations take turns."""
        return self.init % self.setting.poison_draws

    @cached_property
    def key(self) -> str:
        """16 hexadecimal digits: what `key_of` gives, from the setting's JSON, which runs of a setting share."""
        text = f'{{"format":{FORMAT},"init":{self.init},"setting":{self.setting.content_json},"split":{self.split}}}'
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def chunks(runs: tuple[Run, ...], *, together: bool) -> list[tuple[Run, ...]]:
    """Group runs into the stacks that are trained as one.

    The result depends on the runs alone: the chunks are the same on every machine, with any number of workers, and
    after a restart.

    Args:
        runs: All runs.
        together: Whether splits of a setting are trained together, as on a GPU. Splits with a graph of their own,
            redrawn, poisoned or without test nodes, never are, and neither are masks and folds, whose sizes may differ.

    Returns:
        Chunks of at most MAX_TOGETHER runs of one setting.
    """
    groups: dict[tuple[Setting, int | None, int], list[Run]] = {}
    for run in runs:
        has_own_graph = run.setting.is_redrawn or run.setting.poison is not None or run.setting.inductive
        has_own_sizes = not run.setting.split_rule.is_random  # parts of one stack must be equally large
        split = None if together and not has_own_graph and not has_own_sizes else run.split
        groups.setdefault((run.setting, split, run.poison_draw), []).append(run)
    stacks = (group[i : i + MAX_TOGETHER] for group in groups.values() for i in range(0, len(group), MAX_TOGETHER))
    return [tuple(stack) for stack in stacks]
