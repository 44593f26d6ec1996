from dataclasses import replace

import pytest

from wtawp.experiments.records import Record, RecordError

DONE = Record(
    key="0123456789abcdef", setting={"dataset": "karate"}, split=0, init=1, device="cpu", status="done", epoch=3,
    accuracy={"test": 0.1 + 0.2}, loss={"test": 1.0}, history={"gap": [0.0, 1e-300]}, seconds=0.5,
    created="2023-02-07T00:00:00+00:00", versions={"torch": "2.13.0"},
)  # fmt: skip


def test_a_record_goes_through_json_bit_for_bit() -> None:
    assert Record.from_json(DONE.to_json()) == DONE
    assert "\n" not in DONE.to_json()


def test_time_is_not_part_of_the_outcome() -> None:
    assert replace(DONE, seconds=9.0, created="later").outcome == DONE.outcome
    assert replace(DONE, epoch=4).outcome != DONE.outcome


@pytest.mark.parametrize("line", ["", "{", "[]", '{"key": "x"}', DONE.to_json()[:-1] + ',"more":1}'])
def test_what_is_no_record_is_refused_with_the_reason(line: str) -> None:
    with pytest.raises(RecordError, match=r"a record (must be one JSON object a line|has the fields)"):
        Record.from_json(line)
