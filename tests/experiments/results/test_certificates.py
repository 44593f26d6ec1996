from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from wtawp.core import AwpConfig
from wtawp.experiments.plans.robustness import certificate_plan, certifying
from wtawp.experiments.results.certificates import (
    at_radius,
    certificate_results,
    certified_grids,
    compare_certified,
    largest_radii,
)
from wtawp.experiments.results.summary import PlanReport, summarise
from wtawp.experiments.spec import Record, Run, Setting

MakeRecord = Callable[..., Record]
COLUMN = "smoothed, features"
GAINS = (0.02, 0.05, 0.03, 0.06)  # of the splits, as shares
HOW = {"alpha": 0.01, "kind": "multiclass", "on": "features", "p_add": 0.01, "p_del": 0.6, "samples": 1000}


def certified(run: Run) -> dict[str, object]:
    """With the method more at (0, 0) and less at (0, 1); nothing is certified against additions."""
    gain = 0.0 if run.setting.awp is None else GAINS[run.split]
    grid = [[0.7 + gain + 0.001 * run.init, 0.3 - gain]]
    return {"accuracy": 0.8, "abstained": 0.0, "certified": grid if run.split else [[*grid[0], 0.0]], **HOW}


def report_of(make_record: MakeRecord, dataset: str = "karate") -> PlanReport:
    plan = certificate_plan(
        Setting(dataset=dataset), [certifying("features", 1000)], awp=AwpConfig(rho=1.0, lam=0.5), splits=4, inits=2
    )
    return summarise(plan, [
        make_record(key=run.key, setting=run.setting.content, split=run.split, init=run.init, measured=[certified(run)])
        for run in plan.runs()
    ])  # fmt: skip


def test_grids_have_one_size_and_nothing_is_certified_outside(make_record: MakeRecord) -> None:
    report = report_of(make_record)
    grids = certified_grids(report, COLUMN)
    assert {row: runs.shape for row, runs in grids.items()} == {"GCN": (8, 2, 4), "GCN+WT-AWP": (8, 2, 4)}
    assert at_radius(grids["GCN"], (0, 1)) == pytest.approx([30.0] * 8)
    assert at_radius(grids["GCN"], (1, 0)).tolist() == at_radius(grids["GCN"], (9, 9)).tolist() == [0.0] * 8
    assert certified_grids(report, "no attack") == {}
    assert [len(certificate_results(c)) for c in report.column(COLUMN)] == [8, 8]


def test_methods_are_compared_at_every_radius_that_either_certifies(make_record: MakeRecord) -> None:
    more, less = compare_certified(report_of(make_record), COLUMN)
    test = stats.ttest_1samp(100 * np.array(GAINS), 0.0)
    assert (more.radius, less.radius) == ((0, 0), (0, 1))
    assert (more.gain.mean, less.gain.mean) == (pytest.approx(4.0), pytest.approx(-4.0))
    assert more.gain.num_pairs == 4, "initialisations of a split are averaged"
    assert more.gain.p_value == pytest.approx(test.pvalue)
    assert more.holm_p_value == pytest.approx(2 * test.pvalue)
    assert (more.is_higher, more.is_lower) == (2 * test.pvalue < 0.05, False)
    assert (less.is_higher, less.is_lower) == (False, 2 * test.pvalue < 0.05)


def test_without_two_rows_nothing_is_compared(make_record: MakeRecord) -> None:
    assert compare_certified(report_of(make_record), "no attack") == ()


@pytest.mark.parametrize(("dataset", "classes"), [("karate", 2), ("cora", 7)])
def test_the_limit_of_votes_is_where_a_unanimous_node_is_no_longer_certified(
    make_record: MakeRecord, dataset: str, classes: int
) -> None:
    limits = largest_radii(report_of(make_record, dataset).column(COLUMN)[0])
    # Every vote for one class: the lower bound is the level to the power 1 / votes, and by the worst case of the
    # regions (the adversary's r deletions all survive the noise with probability p_del^r) nothing is left beyond.
    lower = (0.01 / (2 * classes)) ** (1 / 1000)
    deletions = max(r for r in range(1, 40) if _worst(lower, 0, r) > _best(1 - lower, 0, r))
    additions = max(r for r in range(1, 40) if _worst(lower, r, 0) > _best(1 - lower, r, 0))
    assert limits == (additions, deletions)


def _regions(additions: int, deletions: int) -> list[tuple[float, float]]:
    """Probability of each region under the clean and under the attacked input, by increasing likelihood ratio."""
    flips = additions + deletions
    under = [
        np.convolve(
            stats.binom.pmf(range(additions + 1), additions, a), stats.binom.pmf(range(deletions + 1), deletions, d)
        )
        for a, d in ((0.01, 0.6), (0.4, 0.99))
    ]
    return sorted(zip(*(each[: flips + 1] for each in under), strict=True), key=lambda pair: pair[1] / pair[0])


def _worst(p: float, additions: int, deletions: int) -> float:
    """The least probability under the attacked input of what has probability p under the clean one."""
    left, total = p, 0.0
    for clean, attacked in _regions(additions, deletions):
        share = min(1.0, left / clean)
        left, total = left - share * clean, total + share * attacked
    return total


def _best(p: float, additions: int, deletions: int) -> float:
    """The largest probability likewise."""
    return 1 - _worst(1 - p, additions, deletions)


def test_records_that_do_not_say_how_have_no_limit(make_record: MakeRecord) -> None:
    plan = certificate_plan(Setting(dataset="karate"), [certifying("features", 10)], awp=None, splits=1, inits=1)
    run = next(iter(plan.runs()))
    measured = [{"accuracy": 0.8, "abstained": 0.0, "certified": [[0.5]]}]
    report = summarise(plan, [make_record(key=run.key, setting=run.setting.content, measured=measured)])
    assert largest_radii(report.column(COLUMN)[0]) is None
    assert largest_radii(summarise(plan, []).column(COLUMN)[0]) is None
