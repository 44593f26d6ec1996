from dataclasses import replace

from wtawp.experiments.execution.training import train
from wtawp.experiments.measures.shared.flips import flips_from_result
from wtawp.experiments.plans.robustness import evading, poisoning
from wtawp.experiments.spec import Run, Setting

BASE = Setting(dataset="wine", epochs=20)


def test_records_hold_what_was_measured_and_a_poisoned_run_needs_its_flips() -> None:
    setting = replace(BASE, measures=(evading("dice", 0.05), evading("dice", 0.2)))
    (record,) = train((Run(setting, 0, 0),), device="cpu")
    assert record.measured is not None
    assert [dict(flips_from_result(m).provenance)["budget"] for m in record.measured] == ["0.05", "0.2"]
    told = dict(flips_from_result(record.measured[0]).provenance)
    assert (told["model"], told["awp"], told["split"]) == ("GCN", "None", "0")
    poisoned = replace(BASE, poison=poisoning("dice", 0.2))
    (failed,) = train((Run(poisoned, 0, 0),), device="cpu")
    assert failed.status == "failed"
    assert "the attack failed that should poison split 0" in str(failed.error)
    clean, changed = (
        train((Run(one, 0, 0),), flips, device="cpu")[0]
        for one, flips in ((BASE, None), (poisoned, flips_from_result(record.measured[1])))
    )
    assert clean.loss != changed.loss
    assert "flips" in changed.versions
    assert "flips" not in clean.versions
