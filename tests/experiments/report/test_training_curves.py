import xml.etree.ElementTree as ET
from collections.abc import Callable

from wtawp.analysis import SharpnessMonitor
from wtawp.experiments.plans.geometry import sharpness_plan, vanishing_plan
from wtawp.experiments.report.training_curves import SHARPNESS_EVERY, saturation_curves, sharpness_curves
from wtawp.experiments.results.summary import summarise
from wtawp.experiments.spec import Record

MakeRecord = Callable[..., Record]


def texts(svg: str) -> str:
    return " ".join("".join(e.itertext()) for e in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"))


def test_sharpness_is_drawn_over_every_tenth_epoch(make_record: MakeRecord) -> None:
    plan = sharpness_plan()
    columns = {f"sharpness_{radius}": [1.0, 0.5, 0.1] for radius in ("layer", "adaptive")}
    records = [make_record(key=run.key, setting=run.setting.content, split=run.split, init=run.init, history=columns)
               for run in plan.runs()]  # fmt: skip
    drawn = texts(sharpness_curves(summarise(plan, records)))
    for words in ("layer radius", "adaptive radius", "20", "GCN+WT-AWP", "rise of the training loss in the ball"):
        assert words in drawn
    assert SharpnessMonitor.EVERY == SHARPNESS_EVERY


def test_logits_and_gradients_are_drawn_over_epochs(make_record: MakeRecord) -> None:
    plan = vanishing_plan()
    names = ("logit_scale", "perturbed_logit_scale", "perturbed_saturation", "perturbed_norm", "gradient_norm")
    records = [
        make_record(key=run.key, setting=run.setting.content, split=run.split, init=run.init,
                    history={name: [1.0, 0.5, 0.1] for name in names})
        for run in plan.runs()
    ]  # fmt: skip
    drawn = texts(saturation_curves(summarise(plan, records)))
    assert "p of the likeliest, perturbed" in drawn
    assert "cora, GCN, rho=2.5, balance=1" in drawn
    assert "plain" in drawn
