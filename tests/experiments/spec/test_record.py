import hashlib
import json
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from wtawp.experiments.spec.record import Record, RecordError, checked, first_difference, matches_checksum

DONE = Record(
    key="0123456789abcdef", setting={"dataset": "karate"}, split=0, init=1, device="cpu", status="done", epoch=3,
    accuracy={"test": 0.1 + 0.2}, loss={"test": 1.0}, history={"gap": [0.0, 1e-300]}, seconds=0.5,
    created="2023-02-07T00:00:00+00:00", versions={"torch": "2.13.0"},
)  # fmt: skip
UNCHECKED = DONE.to_json()[: -len(',"checksum":"0123456789abcdef"}')] + "}"  # as before there were checksums


def test_a_record_goes_through_json_bit_for_bit() -> None:
    assert Record.from_json(DONE.to_json()) == DONE
    assert "\n" not in DONE.to_json()


def test_the_checksum_is_that_of_the_text_before_it() -> None:
    checksum = hashlib.sha256(UNCHECKED.encode()).hexdigest()[:16]
    assert DONE.to_json() == f'{UNCHECKED[:-1]},"checksum":"{checksum}"}}'
    assert matches_checksum(DONE.to_json()) is matches_checksum(DONE.to_json() + "\n") is True


def test_a_record_from_before_there_were_checksums_is_read_unchecked() -> None:
    assert matches_checksum(UNCHECKED) is None
    assert Record.from_json(UNCHECKED) == DONE


def test_every_changed_character_of_a_line_is_noticed() -> None:
    line, rng = DONE.to_json(), random.Random(0)
    for place, character in enumerate(line):
        other = chr(ord(character) ^ rng.randrange(1, 128))
        with pytest.raises(RecordError):
            Record.from_json(line[:place] + other + line[place + 1 :])
    with pytest.raises(RecordError, match="does not match its checksum"):
        Record.from_json(line.replace("0.30000000000000004", "0.8"))


def test_a_line_that_was_formatted_anew_is_refused_with_the_reason() -> None:
    with pytest.raises(RecordError, match="the checksum must be the last field"):
        Record.from_json(json.dumps(json.loads(DONE.to_json())))


def test_what_was_measured_is_in_the_line_where_there_is_any(make_record: Callable[..., Record]) -> None:
    record = make_record()
    assert "measured" not in record.to_json()
    more = replace(record, measured=[{"accuracy": 0.5}])
    assert Record.from_json(more.to_json()).measured == [{"accuracy": 0.5}]
    assert first_difference(record, more) is not None
    with pytest.raises(RecordError, match="measured cannot be right"):
        checked(replace(record, measured=["0.5"]))


def test_time_is_not_part_of_the_outcome() -> None:
    assert replace(DONE, seconds=9.0, created="later").outcome == DONE.outcome
    assert replace(DONE, epoch=4).outcome != DONE.outcome


@pytest.mark.parametrize("line", ["", "{", "[]", '{"key": "x"}', '{"more":1,' + UNCHECKED[1:]])
def test_what_is_no_record_is_refused_with_the_reason(line: str) -> None:
    with pytest.raises(RecordError, match=r"a record (must be one JSON object a line|has the fields)"):
        Record.from_json(line)


def test_the_first_difference_is_named_and_what_may_vary_is_none() -> None:
    assert first_difference(DONE, replace(DONE, seconds=9.0, versions={"torch": "2.13.0", "commit": "abc"})) is None
    assert first_difference(DONE, replace(DONE, epoch=4, loss=None)) == "epoch was 3 and is 4"
    assert first_difference(DONE, replace(DONE, loss={"test": 2.0})) == "loss.test was 1.0 and is 2.0"
    assert first_difference(DONE, replace(DONE, loss=None)) == "loss differs"
    assert first_difference(DONE, replace(DONE, history={"gap": [0.0]})) == "history.gap differs"
    assert first_difference(DONE, replace(DONE, versions={"torch": "2.13.0", "python": "3.12"})) is None
    assert first_difference(DONE, replace(DONE, setting={**DONE.setting, "awp": None})) == "setting differs"
    nan = replace(DONE, loss={"test": float("nan")})
    assert first_difference(nan, Record.from_json(nan.to_json())) is None


def test_a_key_must_name_its_content_and_values_be_of_their_kinds(make_record: Callable[..., Record]) -> None:
    record = make_record()
    assert checked(record) is record
    with pytest.raises(RecordError, match="key cannot be right"):
        checked(replace(record, init=1))
    with pytest.raises(RecordError, match="versions and status cannot be right"):
        checked(replace(record, versions=[], status=None))  # type: ignore[arg-type]
