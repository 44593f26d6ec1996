from dataclasses import replace

import pytest

from wtawp.core import AwpConfig
from wtawp.experiments.execution.checks import check_plan
from wtawp.experiments.plans.robustness import certifying, noise_of
from wtawp.experiments.spec import Cell, Measure, Plan, PlanError, Setting

SETTING = Setting(dataset="wine", epochs=5, awp=AwpConfig(rho=0.5, lam=0.5))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dataset": "coral"}, "there is no graph called 'coral'"),
        ({"dataset": "karate"}, "leave none of some classes"),
        ({"dataset": "missing.npz"}, "missing.npz"),
        ({"options": (("widht", 3),)}, "unexpected keyword argument 'widht'"),
        ({"awp": AwpConfig(rho=1.0, lam=0.5, layers="conv9.*")}, "match none of"),
        ({"model": "RGCN"}, "are distributions and cannot be perturbed"),
        ({"noise": Measure("nose")}, "must be a measure named noise, got 'nose'"),
        ({"noise": noise_of(certifying("features", 1))}, "for binary ones"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused_first(change: dict[str, object], words: str) -> None:
    plan = Plan("mine", "Mine", (Cell("GCN", "wine", replace(SETTING, **change)),))
    with pytest.raises(PlanError, match=rf"^[^\[]*{words}.* \[mine: .* on "):
        check_plan(plan)
