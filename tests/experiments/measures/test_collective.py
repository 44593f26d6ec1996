import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wtawp.base import CertificateError, rng
from wtawp.certificates import Noise, certificate_of, collective, receptive_fields, vote
from wtawp.experiments.measures.collective import MEASURE, CollectiveOptions, run, stored_budgets
from wtawp.experiments.measures.shared.interface import TrainedModels
from wtawp.experiments.plans.robustness import certifying, certifying_together
from wtawp.graphs import citation, stratified
from wtawp.models import GCN

DATA = citation(seed=0, num_nodes=200, num_words=30)
SPLIT = stratified(DATA.y, seed=0)
MODEL = GCN(30, 7, hidden=(8,), generator=rng("certified together"))
OPTIONS: dict[str, Any] = {"on": "features", "p_add": 0.02, "p_del": 0.5, "samples": 200, "alpha": 0.05}
TRAINED = TrainedModels([MODEL, MODEL], DATA, "citation", [SPLIT, SPLIT], [(0, 5), (0, 6)])


def test_curves_are_those_of_the_test_nodes_from_the_same_votes(tmp_path: Path) -> None:
    told: list[float] = []
    results = run(TRAINED, CollectiveOptions(**OPTIONS), folder=tmp_path, progress=lambda s, _: told.append(s))
    assert json.loads(json.dumps(results)) == results
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert len(list(tmp_path.iterdir())) == 2
    votes = vote(DATA, MODEL, features=Noise(p_add=0.02, p_del=0.5), samples=200, seed=5)
    certificate = certificate_of(votes, alpha=0.05, over_nodes=True)
    expected = collective(certificate, receptive_fields(DATA, MODEL), labels=DATA.y, nodes=SPLIT.test)
    curve = results[0]["curves"]["deletions"]
    assert curve["together"] == pytest.approx(expected.ratio[0][curve["budgets"]], abs=1e-6)
    assert curve["per_node"] == pytest.approx(expected.per_node_ratio[0][curve["budgets"]], abs=1e-6)
    assert (curve["average"], curve["per_node_average"]) == pytest.approx(
        (expected.average, expected.per_node_average), abs=1e-6
    )
    assert set(results[0]["curves"]) == {"deletions", "additions"}
    assert bool((np.array(curve["together"]) >= curve["per_node"]).all())


def test_edges_are_certified_against_deletions(tmp_path: Path) -> None:
    options = CollectiveOptions(**{**OPTIONS, "on": "edges", "p_add": 0.0})
    (result,) = run(TrainedModels([MODEL], DATA, "citation", [SPLIT], [(0, 0)]), options, folder=tmp_path)
    assert set(result["curves"]) == {"deletions"}


def test_filtered_votes_are_certified_together_too(tmp_path: Path) -> None:
    (result,) = run(
        TrainedModels([MODEL], DATA, "citation", [SPLIT], [(0, 5)]),
        CollectiveOptions(**OPTIONS, min_confidence=0.2),
        folder=tmp_path,
    )
    votes = vote(DATA, MODEL, features=Noise(p_add=0.02, p_del=0.5), samples=200, seed=5, min_confidence=0.2)
    certificate = certificate_of(votes, alpha=0.05, over_nodes=True)
    expected = collective(certificate, receptive_fields(DATA, MODEL), labels=DATA.y, nodes=SPLIT.test)
    assert result["curves"]["deletions"]["average"] == pytest.approx(expected.average, abs=1e-6)
    assert 0 < result["counted"] < 1


def test_a_test_node_without_a_counted_vote_is_not_right(tmp_path: Path) -> None:
    trained = TrainedModels([MODEL], DATA, "citation", [SPLIT], [(0, 5)])
    (result,) = run(trained, CollectiveOptions(**OPTIONS, min_confidence=0.21), folder=tmp_path)
    votes = vote(DATA, MODEL, features=Noise(p_add=0.02, p_del=0.5), samples=200, seed=5, min_confidence=0.21)
    is_empty = votes.counts.sum(1) == 0
    assert bool((is_empty & (DATA.y == 0))[SPLIT.test].any()), "which the first class would be right for"
    right = (votes.counts.argmax(1) == DATA.y) & ~is_empty
    assert result["accuracy"] == pytest.approx(float(right[SPLIT.test].double().mean()))


def test_options_that_are_not_sound_or_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="needs noise that only deletes, p_add = 0"):
        CollectiveOptions(**{**OPTIONS, "on": "edges"})
    with pytest.raises(ValueError, match="hops must be a whole number >= 0"):
        CollectiveOptions(**OPTIONS, hops=-1)
    with pytest.raises(ValueError, match="samples must be"):
        CollectiveOptions(**{**OPTIONS, "samples": 0})


def test_a_model_that_reaches_further_is_refused_before_it_is_trained() -> None:
    assert MEASURE.check is not None
    MEASURE.check(CollectiveOptions(**OPTIONS), MODEL, DATA, SPLIT)
    with pytest.raises(CertificateError, match="outside the receptive field"):
        MEASURE.check(CollectiveOptions(**OPTIONS, hops=1), MODEL, DATA, SPLIT)


def test_budgets_are_stored_one_by_one_and_then_ever_fewer() -> None:
    for last in (0, 3, 10, 57, 1000):
        budgets = stored_budgets(last)
        assert (budgets[0], budgets[-1]) == (0, last)
        assert bool((np.diff(budgets) >= 1).all())
        assert all(b <= 1.1 * a + 1 for a, b in pairwise(budgets))


def test_plans_name_it_beside_the_certificate_of_the_same_votes() -> None:
    certificate = certifying("features", 100)
    assert certifying_together(certificate).options == certificate.options
    assert dict(certifying_together(certificate, hops=3).options)["hops"] == 3
    assert MEASURE.parse(dict(certifying_together(certificate).options)).samples == 100
