"""Two real processes over gloo: every rank trains with the gradient of one process on the joined batch, or refuses."""

import sys
from pathlib import Path

import pytest
import torch
from process_pair import Results, run_pair

from wtawp.core.auto import AutoState, follow_gap

pytestmark = [
    pytest.mark.skipif(not torch.distributed.is_available(), reason="NOT CHECKED: torch has no distributed package"),
    pytest.mark.skipif(sys.platform != "linux", reason="NOT CHECKED: the processes meet over the loopback of Linux"),
]

SCRIPT = Path(__file__).parent / "support" / "distributed_cases.py"
JOINED = [
    "ddp",
    "ddp_two_steps",
    "ddp_ball",
    "ddp_balance",
    "ddp_gradient_as_bucket_view",
    "ddp_static_graph",
    "ddp_find_unused_parameters",
    "ddp_many_buckets",
    "fsdp2",
    "fsdp2_two_steps",
    "tensor_parallel",
    "ddp_inner_module",
]
OWN_PERTURBATION = [
    "ddp_own_perturbation",
    "ddp_own_perturbation_two_steps",
    "ddp_own_perturbation_bucket_view",
]
ACCUMULATED = ["ddp_no_sync", "ddp_no_sync_bucket_view", "ddp_own_perturbation_accumulated", "fsdp2_accumulation"]
LARGE = ["ddp_large_layer", "ddp_large_layer_own_perturbation", "ddp_large_layer_accumulated"]
UNUSED = ["ddp_layer_that_no_rank_uses", "ddp_layer_that_one_rank_uses"]
OVERFLOW = ["ddp_overflow_of_one_rank", "ddp_overflow_of_one_rank_own_perturbation"]
REFUSED = {
    "ddp_balance_under_no_sync": "balance",
    "ddp_balance_with_prior_gradients": "balance",
    "ddp_exact": "exact",
    "ddp_static_graph_loss": "backward",
    "fsdp1": "fully_shard",
    "fsdp2_exact": "exact",
    "fsdp2_without_gradient_sync": "set_requires_gradient_sync",
}
FAILING = ["rank_that_raises_in_the_first_pass", "rank_that_raises_in_the_last_pass", "rank_that_dies"]
OTHERS = ["ddp_auto", "ddp_loss", "fsdp2_loss", "ddp_batch_norm", "ddp_plain"]


@pytest.fixture(scope="module")
def reports() -> Results:
    """What both ranks report; one pair of processes runs all cases. The case whose process ends comes last."""
    cases = [*JOINED, *OWN_PERTURBATION, *ACCUMULATED, *LARGE, *UNUSED, *OVERFLOW, *REFUSED, *OTHERS, *FAILING]
    return run_pair(SCRIPT, cases, limit=300)


def of_both_ranks(reports: Results, case: str) -> list[dict[str, object]]:
    for report in reports[case]:
        assert "failed" not in report, report["failed"]
    return reports[case]


@pytest.mark.parametrize("case", JOINED)
def test_the_gradient_is_that_of_one_process_on_the_joined_batch(case: str, reports: Results) -> None:
    for report in of_both_ranks(reports, case):
        assert report["joined"] < 1e-6
        assert report.get("restored", True)


@pytest.mark.parametrize("case", [*JOINED, *OWN_PERTURBATION, "ddp_loss", "ddp_no_sync", "ddp_no_sync_bucket_view"])
def test_the_ranks_hold_the_same_weights_after_many_steps(case: str, reports: Results) -> None:
    for report in of_both_ranks(reports, case):
        assert report["agree"]
        assert report["moved"] > 0.05


@pytest.mark.parametrize("case", OWN_PERTURBATION)
def test_without_sync_each_rank_has_its_own_perturbation(case: str, reports: Results) -> None:
    for report in of_both_ranks(reports, case):
        assert report["local"] < 1e-6 < report["joined"]
        assert report["restored"]
        assert report["same_gradient"]


@pytest.mark.parametrize("case", ACCUMULATED)
def test_accumulation_adds_up_the_micro_batches_of_every_rank(case: str, reports: Results) -> None:
    for report in of_both_ranks(reports, case):
        assert report["joined"] < 1e-6
        assert report.get("same_gradient", True)


@pytest.mark.parametrize("case", LARGE)
def test_large_layers_are_reduced_over_the_ranks(case: str, reports: Results) -> None:
    for report in of_both_ranks(reports, case):
        assert report["joined"] < 1e-6
        assert report["same_gradient"]


@pytest.mark.parametrize("case", UNUSED)
def test_ranks_that_use_different_layers_stay_together(case: str, reports: Results) -> None:
    for report in of_both_ranks(reports, case):
        assert report["joined"] < 1e-6
        assert report["agree"]


def test_the_ranks_follow_the_means_of_their_losses(reports: Results) -> None:
    state = AutoState(lam=0.0, first_loss=1.0, peak=0.0)
    for _ in range(50):
        state = follow_gap(state, 0.004, 0.03)
    first, second = (report["rhos"] for report in of_both_ranks(reports, "ddp_auto"))
    assert first == second
    assert min(first) < 3
    for report in of_both_ranks(reports, "ddp_auto"):
        assert report["lam"] == pytest.approx(state.lam, rel=1e-6)
        assert report["agree"]
        assert report["moved"] > 0.05


def test_sharded_training_ends_where_one_process_ends(reports: Results) -> None:
    for case in ("fsdp2", "fsdp2_two_steps"):
        assert all(report["drift"] < 1e-4 for report in of_both_ranks(reports, case))


def test_the_loss_form_has_the_global_or_the_local_perturbation(reports: Results) -> None:
    for report in of_both_ranks(reports, "ddp_loss"):
        assert min(report["joined"], report["local"]) < 1e-6
        assert report["restored"]
        assert report["same_gradient"]


def test_the_loss_form_is_right_for_sharded_models_or_refuses(reports: Results) -> None:
    for report in reports["fsdp2_loss"]:
        if "failed" in report:
            assert "use backward" in report["failed"]
        else:
            assert report["joined"] < 1e-6
            assert report["agree"]


def test_batch_norm_under_ddp_is_updated_as_in_plain_training(reports: Results) -> None:
    for report in of_both_ranks(reports, "ddp_batch_norm"):
        assert report == {"same_buffers": [True, True, True], "counted": 3}


@pytest.mark.parametrize("case", OVERFLOW)
def test_an_overflow_of_one_rank_makes_every_rank_skip_and_back_off(case: str, reports: Results) -> None:
    for report in of_both_ranks(reports, case):
        assert report == {"unchanged": True, "scale": 512.0}


def test_lam_zero_is_plain_distributed_training(reports: Results) -> None:
    assert of_both_ranks(reports, "ddp_plain") == [{"same": True}] * 2


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_right_is_refused_and_the_way_that_works_is_named(case: str, reports: Results) -> None:
    for report in of_both_ranks(reports, case):
        assert REFUSED[case] in report["refused"]


@pytest.mark.parametrize("case", FAILING)
def test_a_rank_that_fails_raises_on_the_others_which_are_as_before(case: str, reports: Results) -> None:
    survivor, other = reports[case]
    assert survivor.get("refused"), survivor
    assert survivor["restored"]
    if case == "rank_that_dies":
        assert "did not finish" in other["failed"]
    else:
        assert "the batch of rank 1 is broken" in other["refused"]
        assert other["restored"]
