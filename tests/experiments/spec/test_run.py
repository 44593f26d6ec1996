import gzip
import json
from pathlib import Path

from wtawp.experiments.spec import MeasureRequest, Run, Setting, key_of
from wtawp.experiments.spec.run import chunks

RESULTS = Path(__file__).parents[3] / "results"


def test_the_keys_of_committed_records_are_those_of_their_settings() -> None:
    """50 records from every file: what was measured before must be found again by every later version."""
    checked = 0
    for file in sorted(RESULTS.glob("*.jsonl.gz")):
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            records = [json.loads(line) for line in lines]
        for record in records[:: max(1, len(records) // 50)][:50]:
            setting = Setting.from_content(record["setting"])
            assert Run(setting, record["split"], record["init"]).key == record["key"]
            assert key_of(record["setting"], record["split"], record["init"]) == record["key"]
            checked += 1
    assert checked >= 50


def test_the_key_is_that_of_the_content() -> None:
    run = Run(Setting(dataset="karate", epochs=3), 4, 2)
    assert run.key == key_of(run.setting.content, 4, 2) == key_of(json.loads(run.setting.content_json), 4, 2)


def test_initialisations_take_turns_with_the_draws_of_their_poisoning_and_train_with_their_own_graph() -> None:
    poison = MeasureRequest("poison", (("attack", "dice"), ("budget", 0.1), ("draws", 2)))
    runs = tuple(Run(Setting(dataset="karate", poison=poison), split, init) for split in (0, 1) for init in range(4))
    assert [run.poison_draw for run in runs] == [0, 1, 0, 1] * 2
    for together in (True, False):
        stacks = chunks(runs, together=together)
        assert [[(run.split, run.init) for run in stack] for stack in stacks] == [
            [(0, 0), (0, 2)], [(0, 1), (0, 3)], [(1, 0), (1, 2)], [(1, 1), (1, 3)],
        ]  # fmt: skip
