from itertools import pairwise

from wtawp.experiments.plans import plans
from wtawp.experiments.plans.released import ABLATIONS, METATTACKS, SPLITS


def test_every_run_is_on_the_released_splits() -> None:
    released = [plan for name, plan in plans().items() if name.startswith("released:")]
    assert len(released) == len(ABLATIONS) + 3
    assert {cell.setting.split_rule for plan in released for cell in plan.cells} == {SPLITS}


def test_clean_tables_have_the_cells_of_the_paper_s_and_the_two_baselines_are_selected_on_the_loss() -> None:
    for name in ("tab:natacc", *ABLATIONS):
        ours, theirs = plans()[name], plans()[name.replace("tab:", "released:")]
        assert [(c.row, c.column, c.printed) for c in ours.cells] == [
            (c.row, c.column, c.printed) for c in theirs.cells
        ]
    on_loss = {cell.row for cell in plans()["released:natacc"].cells if cell.setting.select_on == "loss"}
    assert on_loss == {"GAT", "PPNP"}


def test_metattack_has_its_degree_test_and_a_linear_surrogate_and_pgd_three_draws() -> None:
    for cell in plans()["released:poison"].cells:
        if cell.setting.poison is None:
            continue
        options = dict(cell.setting.poison.options)
        if options["attack"] == "metattack":
            assert (options["likelihood_cutoff"], options["surrogate"]) == (0.004, "LinearGCN")
            assert cell.setting.poison_draws == 1
        else:
            assert (cell.setting.poison_draws, cell.inits) == (3, 3)


def test_an_rgcn_stands_there_with_sampled_logits_and_with_means() -> None:
    sampled = {
        (cell.row, dict(cell.setting.options).get("sample", False), cell.judged)
        for cell in plans()["released:poison"].cells
        if cell.setting.model == "RGCN"
    }
    assert sampled == {("RGCN", True, True), ("RGCN, means", False, False)}


def test_all_robustness_runs_have_16_hidden_units() -> None:
    for name in ("released:poison", "released:evasion", "deviation:metattack"):
        for cell in plans()[name].cells:
            assert dict(cell.setting.options)["hidden"] in (16, (16,))


def test_options_of_metattack_are_added_one_after_another() -> None:
    steps = list(METATTACKS.values())
    assert [len(step) for step in steps] == [0, 1, 2, 3]
    assert all(a.items() <= b.items() for a, b in pairwise(steps))
