import json
from dataclasses import asdict, replace

import pytest

from wtawp.experiments.audit.sizes import REDUCTIONS, Sizes, describe_reductions, fit_sizes


def work(sizes: Sizes) -> float:
    """A made-up time: every size makes it longer."""
    searched = len(sizes.searched_budgets) * sizes.attack_seconds
    return sizes.splits * (10 + searched + len(sizes.certified) * sizes.votes / 10) + 20 * sizes.poisoned_splits


def test_an_audit_with_any_time_is_not_reduced() -> None:
    assert fit_sizes(work, 1e9) == Sizes()
    assert list(describe_reductions(Sizes())) == []


@pytest.mark.parametrize("limit", [100.0, 500.0, 1500.0, 6000.0])
def test_reductions_are_made_in_their_order_until_the_audit_fits_and_those_not_needed_are_undone(limit: float) -> None:
    chosen = fit_sizes(work, limit)
    assert work(chosen) <= limit
    reached = [Sizes()]
    for reduction in REDUCTIONS:  # by hand, one after another
        fields = {**asdict(reached[-1]), **reduction}
        fields["poisoned_splits"] = min(fields["poisoned_splits"], fields["splits"])
        reached.append(Sizes(**fields))
    first = next(i for i, sizes in enumerate(reached) if work(sizes) <= limit)
    for name in asdict(
        chosen
    ):  # no size is smaller than the reductions up to there make it, and none grows for nothing
        values = [getattr(sizes, name) for sizes in reached[: first + 1]]
        assert getattr(chosen, name) in values
    last = next(iter(REDUCTIONS[first - 1]))
    assert work(replace(chosen, **{last: getattr(reached[first - 1], last)})) > limit


def test_what_cannot_fit_is_reduced_as_far_as_possible() -> None:
    smallest = fit_sizes(work, 0.0)
    assert (smallest.splits, smallest.searched_budgets, smallest.certified, smallest.poisoned_splits) == (2, (), (), 0)


def test_splits_that_the_user_chose_or_that_there_are_stay() -> None:
    assert fit_sizes(work, 0.0, splits=7).splits == 7
    assert fit_sizes(work, 1e9, most_splits=4).splits == 4
    only = fit_sizes(work, 0.0, most_splits=1)
    assert only.splits == 1


def test_sizes_survive_json() -> None:
    sizes = fit_sizes(work, 500.0)
    assert Sizes.from_json(json.loads(json.dumps(asdict(sizes)))) == sizes


def test_reductions_are_told_in_words_unless_the_section_is_left_out() -> None:
    told = list(
        describe_reductions(Sizes(splits=5, poisoned_splits=5, searched_budgets=(0.05,), certified=(), votes=300))
    )
    assert told == [
        "Splits: 5 instead of 10.",
        "Splits that are trained on poisoned graphs: 5 instead of 10.",
        "Budgets of attacks that search: 5 % instead of 1 %, 2 %, 5 %, 10 %.",
        "Certificates: none instead of on edges, on features.",
    ]
