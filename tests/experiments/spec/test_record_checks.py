import base64
import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from wtawp.base import DataError, rng
from wtawp.experiments.spec import MeasureRequest, Record, RecordError, Run, Setting, key_of
from wtawp.experiments.spec.record import checked
from wtawp.experiments.spec.record_checks import (
    are_packed_features,
    are_packed_flips,
    is_share,
    is_whole,
    wrong_fields,
    wrong_setting_fields,
)
from wtawp.graphs import EdgeFlips, FeatureFlips

Make = Callable[..., Record]
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("accuracy", [None, {}, {"test": 5.0}, {"test": -0.1}, {"test": NAN}, {"test": "0.5"}, {"test": True}, [0.5]]),
        ("accuracy", [{"train": 0.5}, {"test": 0.5, "other": 0.5}, {"test": 0.5, "val": INF}, {"test": 10**400}]),
        ("loss", [None, {"test": "1"}, {"test": None}, {"val": 1.0}, {"test": 10**400}]),
        ("epoch", [None, -1, 200, 1.0, True, "7", 10**400]),
        ("history", [[], {"gap": 1.0}, {"gap": ["1"]}, {"gap": [None]}]),
        ("scores", [{}, "1", ["1"], [[1.0]]]),
        ("measured", [[], [{}], {}, "1"]),
        ("error", ["Traceback", 5]),
        ("seconds", [-1.0, NAN, INF, "1", None, True, 10**400]),
        ("versions", [None, [], {"torch": 2.6}, {"torch": None}]),
        ("device", [None, 5, "\ud800"]),
        ("created", [None, 5]),
        ("status", ["good", None, [], {}]),
    ],
)
def test_an_outcome_that_cannot_be_right_is_refused_by_name(make_record: Make, name: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(RecordError, match=f"^{name} cannot be right.* {name} must be .*, got "):
            checked(replace(make_record(), **{name: value}))


def test_a_failed_run_has_no_outcome(make_record: Make) -> None:
    failed = {"status": "failed", "epoch": None, "accuracy": None, "loss": None, "error": "Traceback"}
    assert checked(make_record(**failed)).status == "failed"
    for name, value in (("accuracy", {"test": 0.5}), ("loss", {"test": 0.5}), ("scores", [0.5]), ("error", 5)):
        with pytest.raises(RecordError, match=f"^{name} cannot be right"):
            checked(make_record(**failed | {name: value}))


def test_a_diverged_training_is_a_valid_outcome(make_record: Make) -> None:
    record = make_record(loss={"train": NAN, "test": INF}, history={"gap": [NAN, INF]}, scores=[NAN])
    assert checked(record) is record


@pytest.mark.parametrize(
    "changed",
    [
        {"model": 5}, {"dataset": None}, {"lr": 10**400}, {"lr": "1"}, {"lr": -1.0}, {"epochs": 0}, {"epochs": 1.5},
        {"options": {}}, {"options": [["a"]]}, {"options": [[1, 2]]}, {"keep": [1]}, {"awp": 5}, {"measures": [5]},
        {"awp": {"layers": "all", "rho": 10**400}}, {"measures": [{"name": 5, "options": []}]}, {"batch_size": 0},
        {"average": 2.0},
        {"poison": {"name": "poison"}}, {"digest": 5}, {"model": "a\ud800:B"},
    ],
)  # fmt: skip
def test_a_setting_that_cannot_be_right_is_refused_under_its_right_key(
    make_record: Make, changed: dict[str, Any]
) -> None:
    record = make_record()
    setting = record.setting | changed
    assert list(wrong_setting_fields(setting)) == list(changed)
    with pytest.raises(RecordError, match=f"^setting cannot be right.* as its {next(iter(changed))}"):
        checked(replace(record, setting=setting, key=key_of(setting, 0, 0)))
    missing = {name: value for name, value in record.setting.items() if name not in changed}
    assert set(wrong_setting_fields(missing)) == set(changed) & set(record.setting)


def test_settings_of_every_kind_are_right() -> None:
    noise = MeasureRequest("certificate", (("p_add", 0.1), ("radii", (1, 2))))
    setting = Setting(dataset="cora", options=(("hidden", (16,)),), measures=(noise,), noise=noise, batch_size=5)
    assert wrong_setting_fields(setting.content) == {}
    assert wrong_setting_fields({**setting.content, "of_a_later_version": 5}) == {}


def test_malformed_surrogate_records_are_refused(make_record: Make) -> None:
    flips = EdgeFlips.of(torch.tensor([[0, 1], [2, 3]]), 5, (("attack", "random"),))
    result = {"added": 1, "removed": 1, "num_nodes": 5, "flips": flips.packed(), "provenance": [["attack", "random"]]}
    run = Run(Setting(dataset="karate", measures=(MeasureRequest("poison"),)), 0, 0)
    record = make_record(key=run.key, setting=run.setting.content, measured=[result])
    assert checked(record) is record
    wrong: list[Any] = [None, [], [result, result], [5], [{}], [{**result, "flips": "?"}], [{**result, "flips": None}]]
    wrong += [[{**result, "num_nodes": n}] for n in (0, 3, "5", 5.0, 2**62)]
    wrong += [[{**result, "provenance": p}] for p in (None, [5], [["a"]], [["a", 5]], 5)]
    wrong += [[{**result, "accuracy": 5.0}]]
    for measured in wrong:
        with pytest.raises(RecordError, match=r"^measured cannot be right"):
            checked(replace(record, measured=measured))


def test_packed_flips_are_those_that_unpack() -> None:
    draw = rng("test", "packed flips")
    outcomes = set()
    for n in (1, 2, 3, 7, 3_000_000_000):
        for _ in range(60):
            steps = torch.randint(-1, 2 * min(n, 1000), (int(torch.randint(0, 4, (), generator=draw)),), generator=draw)
            columns = steps.numpy().astype("<i8").view("u1").reshape(-1, 8).T.tobytes()
            text = base64.b64encode(zlib.compress(columns)).decode()
            try:
                EdgeFlips.unpacked(text, n)
                is_right = True
            except DataError:
                is_right = False
            assert are_packed_flips(text, n) == is_right, (steps, n)
            outcomes.add(is_right)
    assert outcomes == {True, False}
    whole = base64.b64decode(text)
    assert not are_packed_flips(base64.b64encode(whole[:-1]).decode(), n)
    assert not are_packed_flips(base64.b64encode(zlib.compress(b"1234567")).decode(), 5)
    assert not are_packed_flips(base64.b64encode(zlib.compress(b"\1" * 3 * 8)).decode(), 5)


def test_booleans_are_no_numbers() -> None:
    assert [is_whole(v) for v in (0, 2**63 - 1, 2**63, -1, True, 1.0, None)] == [True, True] + [False] * 5
    assert [is_share(v) for v in (0, 1, 0.5, 1.01, -0.01, NAN, True, "1")] == [True] * 3 + [False] * 5


def test_packed_flips_of_features_are_those_that_unpack() -> None:
    text = FeatureFlips.of(torch.tensor([[0, 1, 4], [2, 0, 2]]), 5, 3).packed()
    assert are_packed_features(text, 5, 3)
    assert are_packed_features(FeatureFlips.of(torch.zeros(2, 0).long(), 5, 3).packed(), 5, 3)
    for wrong in ((text, 4, 3), (text, 5, 0), (text, True, 3), (text, None, 3), ("?", 5, 3), (None, 5, 3)):
        assert not are_packed_features(*wrong)


def test_flips_in_results_of_measures_must_unpack(make_record: Callable[..., Record]) -> None:
    flips = EdgeFlips.of(torch.tensor([[0, 1], [2, 3]]), 5)
    features = FeatureFlips.of(torch.tensor([[0], [2]]), 5, 3).packed()
    both = {"num_nodes": 5, "flips": flips.packed(), "provenance": [], "num_features": 3, "feature_flips": features}

    def is_accepted(name: str, result: dict[str, Any]) -> bool:
        setting = Setting(dataset="karate", measures=(MeasureRequest(name, (("attack", "fga"), ("budget", 1))),))
        record = make_record(key=Run(setting, 0, 0).key, setting=setting.content, measured=[result])
        return not wrong_fields(json.loads(record.to_json()))

    assert is_accepted("evasion", {"accuracy": 0.5, **both})
    assert not is_accepted("evasion", {"accuracy": 0.5, **both, "num_features": 0})
    assert is_accepted("targeted", {"accuracy": 0.5, "targets": [both, {"node": 1, "error": "none"}]})
    assert not is_accepted("targeted", {"accuracy": 0.5, "targets": [{**both, "flips": "?"}]})
