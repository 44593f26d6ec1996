import time
from dataclasses import replace
from pathlib import Path

import pytest

from wtawp.base import DownloadError
from wtawp.experiments import Demo, run_demo
from wtawp.experiments.demo import runner
from wtawp.experiments.demo.runner import DISTANCES, PAIR, TOY_VARIANTS, demo_dataset


def test_it_trains_five_toys_and_a_pair_on_every_split(small_demo: Demo) -> None:
    assert {p.name: p.awp for p in small_demo.toys} == TOY_VARIANTS
    assert all(t.awp == PAIR[t.name] for t in small_demo.trained)
    assert [(t.split, t.name) for t in small_demo.trained] == [(i, name) for i in range(2) for name in PAIR]
    assert all(t.landscape.shape == (10, len(DISTANCES)) for t in small_demo.trained)
    assert all(abs(float(t.landscape[:, len(DISTANCES) // 2].abs().max())) < 1e-5 for t in small_demo.trained)
    assert all(t.sharpness >= 0 for t in small_demo.trained)
    assert (small_demo.num_nodes, small_demo.dataset) == (178, "wine")


def test_pairs_start_from_the_same_weights_and_splits(small_demo: Demo) -> None:
    # The first step of training sees the same weights and mask, whatever is added to its gradient.
    for plain, perturbed in zip(small_demo.of("GCN"), small_demo.of("GCN + WT-AWP"), strict=True):
        assert plain.fit.history["train_loss"][0] == perturbed.fit.history["train_loss"][0]
        assert plain.fit.history["train_loss"][1] != perturbed.fit.history["train_loss"][1]


def test_results_do_not_depend_on_the_number_of_workers(small_demo: Demo) -> None:
    shares: list[float] = []
    other = run_demo(dataset="wine", num_splits=2, epochs=3, workers=2, progress=lambda share, _: shares.append(share))
    assert [t.fit for t in other.trained] == [t.fit for t in small_demo.trained]
    assert [p.fit for p in other.toys] == [p.fit for p in small_demo.toys]
    assert len(shares) == 9
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)


def with_gains(demo: Demo, gains: list[float]) -> Demo:
    """The same demo with made-up test accuracies: 0.5 without, 0.5 + gain with."""
    trained = []
    for t in demo.trained:
        accuracy = 0.5 + (gains[t.split] if t.awp is not None else 0.0)
        trained.append(replace(t, fit=replace(t.fit, scores={**t.fit.accuracy, "test": accuracy})))
    return replace(demo, trained=trained)


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        ([0.0100, 0.0101], "is better here"),
        ([-0.0100, -0.0101], "is worse here"),
        ([0.00, 0.02], "is ahead on average, but 2 splits cannot tell"),
        ([-0.02, 0.01], "is behind on average"),
        ([0.01, -0.01], "is level on average"),
        ([0.001, 0.001], "changes the accuracy by +0.10 points in each of the 2 splits; without any spread"),  # row 6
        ([0.0, 0.0], "nothing can be said about chance"),
    ],
)
def test_the_verdict_follows_the_interval_whoever_wins(small_demo: Demo, gains: list[float], verdict: str) -> None:
    changed = with_gains(small_demo, gains)
    assert verdict in changed.verdict
    assert changed.gain.mean == pytest.approx(100 * sum(gains) / 2)


def test_cora_is_taken_where_it_is(offline: Path) -> None:
    assert offline.is_dir()
    assert demo_dataset() == ("cora", "Cora is on this machine")


def test_without_a_network_the_generated_graph_is_taken(empty_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(name: str) -> None:
        raise DownloadError(name)

    monkeypatch.setattr(runner, "fetch_dataset", offline)
    assert demo_dataset() == ("citation", "Cora could not be fetched")
    monkeypatch.setattr(runner, "fetch_dataset", lambda _: time.sleep(1))
    assert demo_dataset(seconds=0.1) == ("citation", "Cora did not arrive within 0 s")
    assert not empty_home.exists()


def test_one_split_is_no_comparison() -> None:
    with pytest.raises(ValueError, match="at least 2 splits, got 1"):
        run_demo(num_splits=1)
