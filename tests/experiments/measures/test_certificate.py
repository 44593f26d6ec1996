import json
from pathlib import Path

import numpy as np
import pytest
import torch

from wtawp.base import DamagedCacheWarning, progress_receiver, rng
from wtawp.certificates import Noise, Votes, certificate_of, vote
from wtawp.experiments.execution.training import train
from wtawp.experiments.measures import certificate as module
from wtawp.experiments.measures.certificate import MEASURE, CertificateOptions, kept_votes, run
from wtawp.experiments.measures.shared.interface import TrainedModels
from wtawp.experiments.plans.robustness import certifying
from wtawp.experiments.spec import Run, Setting
from wtawp.graphs import citation, stratified
from wtawp.models import GCN, ElasticGNN

DATA = citation(seed=0, num_nodes=200, num_words=30)
SPLITS = [stratified(DATA.y, seed=seed) for seed in (0, 1)]
MODELS = [GCN(30, 7, hidden=(8,), generator=rng("certified", i)) for i in (0, 1)]
OPTIONS = {"on": "features", "p_add": 0.02, "p_del": 0.5, "alpha": 0.05}
NOISE = Noise(p_add=0.02, p_del=0.5)


def test_each_model_is_certified_on_the_test_nodes_of_its_split(tmp_path: Path) -> None:
    told: list[float] = []
    trained = TrainedModels(MODELS, DATA, "citation", SPLITS, [(0, 5), (0, 6)])
    options = CertificateOptions(samples=300, **OPTIONS)
    found = run(trained, options, folder=tmp_path, progress=lambda share, _: told.append(share))
    assert json.loads(json.dumps(found)) == found
    assert told[-1] == 1.0
    for model, split, seed, result in zip(MODELS, SPLITS, (5, 6), found, strict=True):
        votes = vote(DATA, model, features=NOISE, samples=300, seed=seed)
        right = (votes.prediction == DATA.y)[split.test]
        assert result["accuracy"] == pytest.approx(float(right.double().mean()))
        certificate = certificate_of(votes, alpha=0.05)
        grid = np.array(result["certified"])
        assert grid[0, 0] == pytest.approx(
            (certificate.certified() & (votes.prediction == DATA.y).numpy())[split.test].mean()
        )
        assert grid[0, 0] <= result["accuracy"]
        assert grid[0, 0] + result["abstained"] <= 1
        assert result["samples"] == 300


def test_the_bar_moves_after_every_batch_of_votes(tmp_path: Path) -> None:
    trained, shares = TrainedModels(MODELS, DATA, "citation", SPLITS, [(0, 5), (0, 6)]), list[float]()
    with progress_receiver(shares.append, interval=0.0):
        run(trained, CertificateOptions(samples=300, **OPTIONS), folder=tmp_path)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert len(shares) >= 2 * 300 / 64, "a batch has 64 votes at most, and all of them are one step between saves"


def test_votes_are_kept_and_go_on_where_they_were_broken_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAMPLES_BETWEEN_SAVES", 40)

    def cast(samples: int, seed: int = 3, folder: Path | None = tmp_path) -> Votes:
        return kept_votes(DATA, MODELS[0], "edges", NOISE, samples, seed, folder)

    whole = cast(100, folder=None)
    calls: list[int] = []
    real = vote

    def stopping(*given: object, **named: object) -> Votes:
        calls.append(0)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "vote", stopping)
    with pytest.raises(KeyboardInterrupt):
        cast(100)
    (path,) = tmp_path.iterdir()
    assert Votes.load(path).samples == 80
    assert torch.equal(cast(100).counts, whole.counts)
    assert len(calls) == 4, "only the last part was cast again"
    assert torch.equal(cast(100).counts, whole.counts)
    assert len(calls) == 4
    assert cast(60).samples == 60, "fewer are counted anew"
    assert Votes.load(path).samples == 100
    cast(10, seed=4)
    assert len(list(tmp_path.iterdir())) == 2


def test_votes_of_a_model_with_other_options_are_not_reused(tmp_path: Path) -> None:
    first, second = (ElasticGNN(30, 7, lambda1=s, generator=rng("certified")) for s in (0.0, 3.0))
    for model in (first, second, first):
        kept = kept_votes(DATA, model, "features", NOISE, 5, 3, tmp_path)
        assert torch.equal(kept.counts, vote(DATA, model, features=NOISE, samples=5, seed=3).counts)
    assert len(list(tmp_path.iterdir())) == 2


def test_votes_with_another_filter_are_not_reused(tmp_path: Path) -> None:
    for least in (0.0, 0.2, 0.25, 0.2):
        kept = kept_votes(DATA, MODELS[0], "features", NOISE, 40, 3, tmp_path, min_confidence=least)
        fresh = vote(DATA, MODELS[0], features=NOISE, samples=40, seed=3, min_confidence=least)
        assert torch.equal(kept.counts, fresh.counts)
    assert len(list(tmp_path.iterdir())) == 3
    trained = TrainedModels(MODELS[:1], DATA, "citation", SPLITS[:1], [(0, 3)])
    (result,) = run(trained, CertificateOptions(samples=40, min_confidence=0.2, **OPTIONS), folder=tmp_path)
    votes = vote(DATA, MODELS[0], features=NOISE, samples=40, seed=3, min_confidence=0.2)
    assert result["counted"] == pytest.approx(float(votes.counted[SPLITS[0].test].mean()), abs=1e-6)
    assert result["min_confidence"] == 0.2
    assert "counted" not in run(trained, CertificateOptions(samples=40, **OPTIONS), folder=tmp_path)[0]


def test_test_nodes_without_a_counted_vote_are_not_right(tmp_path: Path) -> None:
    trained = TrainedModels(MODELS[:1], DATA, "citation", SPLITS[:1], [(0, 3)])
    (result,) = run(trained, CertificateOptions(samples=40, min_confidence=0.25, **OPTIONS), folder=tmp_path)
    counts = vote(DATA, MODELS[0], features=NOISE, samples=40, seed=3, min_confidence=0.25).counts.tolist()
    test, labels = SPLITS[0].test.tolist(), DATA.y.tolist()
    assert any(sum(counts[node]) == 0 and labels[node] == 0 for node in test), (
        "which the first class would be right for"
    )
    right = [sum(counts[node]) > 0 and counts[node].index(max(counts[node])) == labels[node] for node in test]
    assert result["accuracy"] == pytest.approx(sum(right) / len(test))


def test_plans_without_a_filter_keep_their_options() -> None:
    assert "min_confidence" not in dict(certifying("edges", 30).options)
    assert dict(certifying("edges", 30, min_confidence=0.5).options)["min_confidence"] == 0.5


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"on": "labels"}, "on must be one of features, edges"),
        ({"p_add": 1.5}, r"\[0, 1\]"),
        ({"p_del": 0.99}, "less than 1"),
        ({"samples": 0}, "whole number"),
        ({"alpha": 0.0}, r"\(0, 1\)"),
        ({"kind": "all"}, "kind must be one of"),
        ({"min_confidence": 1.0}, "min_confidence"),
    ],
)
def test_options_are_checked_before_anything_is_trained(changed: dict[str, object], match: str) -> None:
    MEASURE.parse({"samples": 5, **OPTIONS})
    with pytest.raises(ValueError, match=match):
        MEASURE.parse({"samples": 5, **OPTIONS, **changed})


def test_a_certificate_is_kept_with_its_votes(empty_home: Path) -> None:
    setting = Setting(dataset="citation", epochs=2, measures=(certifying("edges", 30),))
    (record,) = train((Run(setting, 0, 0),), device="cpu")
    assert record.measured is not None, record.error
    assert record.measured[0]["samples"] == 30
    assert 0 <= record.measured[0]["certified"][0][0] <= record.measured[0]["accuracy"] <= 1
    assert len(list((empty_home / "votes").iterdir())) == 1


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 nothing"])
def test_a_damaged_file_of_votes_is_replaced_with_a_warning(tmp_path: Path, content: bytes) -> None:
    whole = kept_votes(DATA, MODELS[0], "edges", NOISE, 20, 3, tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_bytes(content)
    with pytest.warns(DamagedCacheWarning, match=rf"{path.name} .*cast again, and the file is replaced"):
        again = kept_votes(DATA, MODELS[0], "edges", NOISE, 20, 3, tmp_path)
    assert torch.equal(again.counts, whole.counts)
    assert torch.equal(Votes.load(path).counts, whole.counts)
