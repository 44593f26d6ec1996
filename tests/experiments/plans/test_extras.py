from wtawp.attacks.registry import attack_names
from wtawp.experiments.plans.extras import every_k_steps_plan, midsize_plan, strength_plan


def test_every_attack_is_compared_with_as_many_random_flips() -> None:
    plan = strength_plan()
    assert {row for row, _ in plan.pairs} == {"random"}
    budgets = {dict(measure.options)["budget"] for cell in plan.cells for measure in cell.setting.measures}
    budgets |= {dict(cell.setting.poison.options)["budget"] for cell in plan.cells if cell.setting.poison}
    assert budgets == {0.05}
    named = {str(dict(m.options)["attack"]) for cell in plan.cells for m in cell.setting.measures}
    assert named <= set(attack_names("evasion"))


def test_larger_graphs_are_trained_plainly_and_with_the_setting_of_cora() -> None:
    for cell in midsize_plan().cells:
        awp = cell.setting.awp
        assert (awp is None) == (cell.row == "GCN")
        assert awp is None or (awp.fixed_lam, awp.rho) == (0.7, 1.0)


def test_seldom_perturbations_come_at_every_k_th_step() -> None:
    every = {cell.row: cell.setting.awp.every for cell in every_k_steps_plan().cells if cell.setting.awp}
    assert every == {"every step": 1, "every 2 steps": 2, "every 5 steps": 5, "every 10 steps": 10}
