from pathlib import Path

import pytest

from wtawp.cli.option_values import parse_model_options


def test_options_of_models_are_read_from_text() -> None:
    assert dict(parse_model_options("GCN", ["hidden=8", "dropout=0.2"])) == {"hidden": (8,), "dropout": 0.2}
    assert dict(parse_model_options("MLP", ["hidden=8,4", "linear=true"])) == {"hidden": (8, 4), "linear": True}
    assert dict(parse_model_options("PPNP", ["hidden=8"])) == {"hidden": 8}
    texts = ["hidden=8", "sizes=8,", "name=a b", "limit=none", "size = 1e-3"]
    assert dict(parse_model_options("mine:Net", texts)) == {
        "hidden": 8, "sizes": (8,), "name": "a b", "limit": None, "size": 0.001,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hidden", "name=value"),
        ("=8", "name=value"),
        ("hidden=", "name=value"),
        ("hidden=0", "whole numbers >= 1"),
        ("hidden=8,-1", "whole numbers >= 1"),
        ("hidden=wide", "whole numbers >= 1"),
    ],
)
def test_options_that_are_none_are_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_model_options("GCN", [text])
    with pytest.raises(ValueError, match="given twice"):
        parse_model_options("GCN", ["hidden=8", "hidden=9"])


def test_an_unknown_option_of_a_class_of_the_user_is_refused_with_those_that_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = "def net(d_in, d_out, hidden=8, gate=True): ...\ndef any_net(d_in, d_out, **options): ...\n"
    Path("models_with_options.py").write_text(source, encoding="utf-8")
    with pytest.raises(ValueError, match=r"no option 'hiden'; did you mean hidden\? It has hidden, gate"):
        parse_model_options("models_with_options:net", ["hiden=3"])
    assert parse_model_options("models_with_options:net", ["hidden=3"]) == (("hidden", 3),)
    assert parse_model_options("models_with_options:net", ["d_out=3"]) == (("d_out", 3),), "refused with its reason"
    assert parse_model_options("models_with_options:any_net", ["hiden=3"]) == (("hiden", 3),)
    with pytest.raises(ValueError, match=r"GCN has no option 'hiden'; did you mean hidden\? It has hidden, "):
        parse_model_options("GCN", ["hiden=3"])
