"""Checks of records from outside: kinds, ranges, and whether the fields fit the status. Nothing is imported or run.

Losses, curves, scores and the results of measures may be infinite or NaN, as they are for a training that diverged.
Accuracies are shares of nodes and always finite.
"""

import base64
import binascii
import json
import math
import re
import zlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from wtawp.experiments.spec.measure import is_option
from wtawp.experiments.spec.split_rule import SplitRule
from wtawp.training.options import check_average

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

PARTS = frozenset({"train", "val", "test"})  # of a split, in accuracies and losses
MAX_WHOLE = 2**63 - 1  # the largest whole number that SQLite holds
MAX_FLIP_BYTES = 2**28  # of unpacked flips: 33 million pairs
MAX_NODES = 3_037_000_499  # the largest number whose square is below 2**63, since a pair is coded as i * num_nodes + j
_SURROGATE = re.compile("[\ud800-\udfff]")
Check = tuple[Callable[[Any], bool], str]  # whether a value can be right, and what was expected


def wrong_fields(record: Mapping[str, Any]) -> dict[str, str]:
    """Find the fields of a record whose values cannot be right.

    Args:
        record: All fields of a record but the key, which is not checked here.

    Returns:
        What was expected of each wrong field, by its name; empty if all can be right.

    Example:
        >>> is_share(5.0), is_share(0.5), is_share(float("nan"))
        (False, True, False)
    """
    wrong = {name: expected for name, (can_be, expected) in _ALWAYS.items() if not can_be(record[name])}
    if "setting" in wrong and isinstance(record["setting"], dict):
        fields = wrong_setting_fields(record["setting"])
        wrong["setting"] = ", ".join(f"{expected} as its {name}" for name, expected in fields.items())
    if wrong:
        return wrong
    checks = _done_checks(record["setting"]) if record["status"] == "done" else _FAILED
    return {name: expected for name, (can_be, expected) in checks.items() if not can_be(record[name])}


def wrong_setting_fields(content: object) -> dict[str, str]:
    """Find the fields of a setting's content whose values cannot be right; unknown fields are left alone.

    Args:
        content: What may be the `content` of a setting, after a round trip through JSON.

    Returns:
        What was expected of each wrong field, by its name; empty if all can be right.

    Example:
        >>> wrong_setting_fields("cora")
        {'content': 'a JSON object'}
    """
    if not isinstance(content, dict):
        return {"content": "a JSON object"}
    wrong = {n: e for n, (can_be, e) in _SETTING.items() if n not in content or not can_be(content[n])}
    later = {n: e for n, (can_be, e) in _SETTING_LATER.items() if n in content and not can_be(content[n])}
    return wrong | later


def is_whole(value: object) -> bool:
    """Whether a value is a whole number from 0 that SQLite can hold.

    Args:
        value: Any value.

    Returns:
        False for booleans, which Python counts among the whole numbers, and for all that is no whole number.

    Example:
        >>> is_whole(3), is_whole(True), is_whole(10**400)
        (True, False, False)
    """
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_WHOLE


def is_share(value: object) -> bool:
    """Whether a value is a finite number between 0 and 1.

    Args:
        value: Any value.

    Returns:
        False for NaN, booleans and all that is no number.

    Example:
        >>> is_share(0.5), is_share("0.5")
        (True, False)
    """
    return _is_number(value) and 0 <= value <= 1  # type: ignore[operator]


def are_packed_flips(text: object, num_nodes: object) -> bool:
    """Whether a text holds flips of a graph as `EdgeFlips.packed` writes them; torch is not needed.

    Args:
        text: What may be packed flips.
        num_nodes: What may be the number of nodes of the graph.

    Returns:
        True if `EdgeFlips.unpacked` accepts them.

    Example:
        >>> are_packed_flips("no flips", 3)
        False
    """
    import numpy as np

    if not is_whole(num_nodes) or not 1 <= num_nodes <= MAX_NODES:  # type: ignore[operator]
        return False
    codes = _unpacked(text)
    if codes is None:
        return False
    first, second = np.divmod(codes, num_nodes)  # type: ignore[call-overload]
    in_range = (codes >= 0) & (first < second)  # i < j < num_nodes, since a remainder is below it
    return bool(in_range.all() and (codes[1:] > codes[:-1]).all())


def are_packed_features(text: object, num_nodes: object, num_features: object) -> bool:
    """Whether a text holds flips of features as `FeatureFlips.packed` writes them; torch is not needed.

    Args:
        text: What may be packed flips.
        num_nodes: What may be the number of nodes of the graph.
        num_features: What may be the number of features of a node.

    Returns:
        True if `FeatureFlips.unpacked` accepts them.

    Example:
        >>> are_packed_features("no flips", 3, 2)
        False
    """
    sizes = [size for size in (num_nodes, num_features) if isinstance(size, int) and is_whole(size) and size >= 1]
    codes = _unpacked(text)
    if len(sizes) < 2 or sizes[0] * sizes[1] >= 2**63 or codes is None:
        return False
    return bool(((codes >= 0) & (codes < sizes[0] * sizes[1])).all() and (codes[1:] > codes[:-1]).all())


def _unpacked(text: object) -> "npt.NDArray[np.int64] | None":
    """The numbers in packed flips; None if the text holds none."""
    import numpy as np

    if not isinstance(text, str):
        return None
    unpacking = zlib.decompressobj()
    try:
        columns = unpacking.decompress(base64.b64decode(text, validate=True), MAX_FLIP_BYTES)
    except (binascii.Error, zlib.error, ValueError):
        return None
    if not unpacking.eof or unpacking.unused_data or len(columns) % 8:
        return None
    steps = np.ascontiguousarray(np.frombuffer(columns, np.uint8).reshape(8, len(columns) // 8).T).view("<i8").ravel()
    return np.cumsum(steps, dtype=np.int64)


@lru_cache(maxsize=1024)
def _is_setting(text: str) -> bool:
    """Whether a text is the content of a setting as JSON; remembered, since many records share a setting."""
    return not wrong_setting_fields(json.loads(text))


def _is_number(value: object) -> bool:
    """Whether a value is a number that a float can hold, also infinite or NaN; booleans are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, float) or abs(value) <= 2**1023


def _is_finite_from_0(value: object) -> bool:
    """Whether a value is a finite number >= 0."""
    return _is_number(value) and 0 <= value < math.inf  # type: ignore[operator]


def _is_text(value: object) -> bool:
    """Whether a value is text that can be encoded; JSON also has halves of surrogate pairs, which cannot."""
    if not isinstance(value, str):
        return False
    return value.isascii() or not _SURROGATE.search(value)


def _are_numbers(value: object) -> bool:
    """Whether a value is a list of numbers."""
    if not isinstance(value, list | tuple):
        return False
    return set(map(type, value)) == {float} or all(map(_is_number, value))  # the former is quick, and the usual case


def _is_none(value: object) -> bool:
    """Whether a value is None."""
    return value is None


def _are_options(value: object) -> bool:
    """Whether a value is a list of pairs, names and values of options."""
    if not isinstance(value, list | tuple):
        return False
    pairs = all(isinstance(pair, list | tuple) and len(pair) == 2 and _is_text(pair[0]) for pair in value)
    return pairs and all(is_option(tuple(v) if isinstance(v, list) else v) for _, v in value)


def _is_measure(value: object) -> bool:
    """Whether a value is the content of a measure."""
    return isinstance(value, dict) and _is_text(value.get("name")) and _are_options(value.get("options"))


def _is_awp(value: object) -> bool:
    """Whether a value is None, or options of the perturbation: numbers, text, booleans and lists of text by name."""
    if value is None:
        return True
    globs = isinstance(value, dict) and value.get("layers")
    plain = {} if not isinstance(value, dict) else {n: v for n, v in value.items() if n != "layers"}
    is_layers = _is_text(globs) or (isinstance(globs, list | tuple) and all(map(_is_text, globs)))
    return isinstance(value, dict) and is_layers and all(is_option(v) and _fits_float(v) for v in plain.values())


def _fits_float(value: object) -> bool:
    """Whether a value is no whole number beyond the range of floats."""
    return not isinstance(value, int) or isinstance(value, bool) or _is_number(value)


def _is_parts(value: object, can_be: Callable[[object], bool]) -> bool:
    """Whether a value holds one right number for the test nodes, and others for other parts of the split only."""
    return isinstance(value, dict) and "test" in value and set(value) <= PARTS and all(map(can_be, value.values()))


def _is_result(measure: Mapping[str, Any], result: object) -> bool:
    """Whether a value can be the result of a measure: plain data, with shares as accuracies and flips that unpack."""
    if not isinstance(result, dict) or not all(map(_is_plain, result.values())):
        return False
    if "accuracy" in result and not is_share(result["accuracy"]):
        return False
    if not all(_are_flips(each) for each in _attacked_targets(result)):
        return False
    if measure["name"] == "poison" and "feature_flips" in result:
        return False
    return (measure["name"] not in ("evasion", "poison") and "flips" not in result) or _are_flips(result)


def _attacked_targets(result: Mapping[str, Any]) -> list[Any]:
    """The parts of a result that hold the flips for single nodes."""
    targets = result.get("targets")
    return [each for each in targets if isinstance(each, dict) and "flips" in each] if isinstance(targets, list) else []


def _are_flips(result: Mapping[str, Any]) -> bool:
    """Whether a result holds flips that unpack, with their provenance."""
    source = result.get("provenance")
    pairs = isinstance(source, list | tuple) and all(isinstance(p, list | tuple) and len(p) == 2 for p in source)
    is_sourced = pairs and all(_is_text(text) for pair in source or () for text in pair)
    size = result.get("num_nodes")
    is_right = "feature_flips" not in result or are_packed_features(
        result["feature_flips"], size, result.get("num_features")
    )
    return is_sourced and is_right and are_packed_flips(result.get("flips"), size)


def _is_plain(value: object) -> bool:
    """Whether a value consists of numbers, text, booleans, None, and lists and objects of them."""
    if isinstance(value, list | tuple):
        return _are_numbers(value) or all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    return value is None or isinstance(value, bool) or _is_text(value) or _is_number(value)


def _done_checks(setting: Mapping[str, Any]) -> dict[str, Check]:
    """What the outcome of a run that succeeded must be, given its setting."""
    measures, epochs = setting.get("measures", ()), setting["epochs"]

    def are_results(value: object) -> bool:
        if not measures:
            return value is None
        if not isinstance(value, list | tuple) or len(value) != len(measures):
            return False
        return all(map(_is_result, measures, value))

    return {
        "epoch": (lambda v: is_whole(v) and v < epochs, f"a whole number from 0 to {epochs - 1}"),
        "accuracy": (lambda v: _is_parts(v, is_share), "finite shares of 1 by part of the split, with 'test'"),
        "loss": (lambda v: _is_parts(v, _is_number), "numbers by part of the split, with 'test'"),
        "history": (
            lambda v: v is None or (isinstance(v, dict) and all(map(_are_numbers, v.values()))),
            "None, or lists of numbers by name",
        ),
        "scores": (lambda v: v is None or _are_numbers(v), "None, or a list of numbers"),
        "measured": (are_results, f"{len(measures)} valid results of measures" if measures else "None"),
        "error": (_is_none, "None for a run that is done"),
    }


def _is_split_rule(value: object) -> bool:
    """Whether a value is the content of a `SplitRule`."""
    try:
        SplitRule(**value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return True


def _is_average(value: object) -> bool:
    """Whether a value says what weights are averaged over."""
    try:
        check_average(value)
    except ValueError:
        return False
    return True


_FAILED: dict[str, Check] = {
    **dict.fromkeys(("accuracy", "loss", "history", "scores", "measured"), (_is_none, "None for a run that failed")),
    "epoch": (lambda v: v is None or is_whole(v), "None or a whole number >= 0"),
    "error": (lambda v: v is None or _is_text(v), "None or text"),
}
_SETTING: dict[str, Check] = {
    "dataset": (_is_text, "text"),
    "model": (_is_text, "text"),
    "options": (_are_options, "pairs of a name and a value"),
    "awp": (_is_awp, "None, or options of the perturbation"),
    "epochs": (lambda v: is_whole(v) and v >= 1, "a whole number >= 1"),
    "lr": (_is_finite_from_0, "a finite number >= 0"),
    "weight_decay": (_is_finite_from_0, "a finite number >= 0"),
    "select_on": (_is_text, "text"),
    "keep": (lambda v: isinstance(v, list | tuple) and all(map(_is_text, v)), "a list of text"),
}
_SETTING_LATER: dict[str, Check] = {  # fields that are left out at their defaults
    **dict.fromkeys(("digest", "code", "features", "weights"), (lambda v: v is None or _is_text(v), "None or text")),
    **{name: (lambda v: v is None or _is_measure(v), "None, or a measure") for name in ("poison", "noise")},
    "measures": (lambda v: isinstance(v, list | tuple) and all(map(_is_measure, v)), "a list of measures"),
    "batch_size": (lambda v: v is None or (is_whole(v) and v >= 1), "None or a whole number >= 1"),
    "split": (_is_split_rule, "a kind of split with its shares or folds"),
    "average": (_is_average, 'None, "swa" or a number between 0 and 1'),
}
_ALWAYS: dict[str, Check] = {
    "setting": (lambda v: _is_setting(json.dumps(v)), "the content of a setting"),
    "split": (is_whole, "a whole number >= 0"),
    "init": (is_whole, "a whole number >= 0"),
    "device": (_is_text, "text"),
    "created": (_is_text, "text"),
    "versions": (lambda v: isinstance(v, dict) and all(map(_is_text, v.values())), "text by name"),
    "seconds": (_is_finite_from_0, "a finite number >= 0"),
    "status": (lambda v: v in ("done", "failed"), "'done' or 'failed'"),
}
