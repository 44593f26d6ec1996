import pytest

from wtawp.experiments.inspection.model_options import options_of


def test_options_of_models_are_read_from_text() -> None:
    assert dict(options_of("GCN", ["hidden=8", "dropout=0.2"])) == {"hidden": (8,), "dropout": 0.2}
    assert dict(options_of("MLP", ["hidden=8,4", "linear=true"])) == {"hidden": (8, 4), "linear": True}
    assert dict(options_of("PPNP", ["hidden=8"])) == {"hidden": 8}
    texts = ["hidden=8", "sizes=8,", "name=a b", "limit=none", "size = 1e-3"]
    assert dict(options_of("mine:Net", texts)) == {
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
        options_of("GCN", [text])
    with pytest.raises(ValueError, match="given twice"):
        options_of("GCN", ["hidden=8", "hidden=9"])
