import pytest

from wtawp.experiments.audit.comparisons import (
    Lead,
    accuracy_lead,
    certified_at,
    geometry_values,
    lead_of,
    two_rows,
    values_leads,
)
from wtawp.experiments.audit.findings import Audit
from wtawp.experiments.results.statistics import paired_difference
from wtawp.experiments.results.summary import PlanReport


def report_of(audit: Audit, key: str) -> PlanReport:
    (section,) = [each for each in audit.sections if each.section.key == key]
    return section.report


def test_a_lead_says_how_sure_it_is() -> None:
    assert Lead(1.5, 1.0, 2.0, 0.01, 5).describe() == "+1.50 points (95 % interval +1.00 to +2.00)"
    assert Lead(1.5, -1.0, 4.0, 0.3, 5).describe().endswith("which cannot be distinguished from chance")
    assert Lead(1.5, 0.1, 4.0, 0.09, 5).describe().endswith("not clear once corrected for the number of comparisons")
    assert Lead(0.5, None, None, 1.0, 3).describe() == "+0.50 points in all of 3 pairs, so chance cannot be estimated"
    assert Lead(0.0, None, None, 1.0, 3).describe() == "equal in all of 3 pairs"
    assert Lead(-0.001, -1.0, 1.0, 1.0, 3).describe().startswith("+0 points")


def test_the_lead_of_the_other_row_is_the_negative() -> None:
    difference = paired_difference([1.0, 2.0, 3.0], [2.0, 2.5, 3.2])
    one, other = lead_of(difference, 0.5), lead_of(difference, 0.5, reverse=True)
    assert one is not None
    assert other is not None
    assert (other.mean, other.low, other.high) == (-one.mean, -(one.high or 0), -(one.low or 0))
    assert lead_of(None, None) is None


def test_accuracies_are_paired_by_split(small_audit: tuple[Audit, object]) -> None:
    report = report_of(small_audit[0], "accuracy")
    plain, other = small_audit[0].rows[:2]
    cells = {c.cell.row: c.accuracies for c in report.cells}
    differences = [cells[other][run] - cells[plain][run] for run in cells[plain]]
    lead = accuracy_lead(report, "clean", other, plain)
    assert lead is not None
    assert lead.mean == pytest.approx(sum(differences) / 2)
    assert accuracy_lead(report, "clean", plain, "another row") is None


def test_certified_accuracy_is_read_from_the_grid_and_0_beyond_it(small_audit: tuple[Audit, object]) -> None:
    cell = report_of(small_audit[0], "certificate-edges").column("smoothed")[0]
    for run, record in zip(cell.accuracies, cell.records, strict=True):
        grid = (record.measured or [])[0]["certified"]
        assert certified_at(cell, 0, 0)[run] == 100 * grid[0][0]
    assert set(certified_at(cell, 999, 0).values()) == {0.0}


def test_two_rows_of_a_plan_have_the_same_records(small_audit: tuple[Audit, object]) -> None:
    report = report_of(small_audit[0], "flatness")
    plain, _, other = small_audit[0].rows
    part = two_rows(report, plain, other)
    assert [c.records for c in part.cells] == [report.cells[0].records, report.cells[2].records]
    values = [geometry_values(c) for c in part.cells]
    assert {"sharpness, layer, rho=0.1", "largest eigenvalue"} <= set(values[0])
    name = "sharpness, layer, rho=0.1"
    lead = values_leads({name: ((part.cells[0], part.cells[1]), (values[0][name], values[1][name]))})[name]
    assert lead.mean == pytest.approx(sum(values[1][name].values()) / 2 - sum(values[0][name].values()) / 2)


def test_p_values_are_corrected_over_the_comparisons_that_are_made_together(small_audit: tuple[Audit, object]) -> None:
    one, other, _ = report_of(small_audit[0], "accuracy").cells
    first = {(split, 0): float(split) for split in range(4)}
    close, far = ({run: v + gain * (1 + v / 10) for run, v in first.items()} for gain in (0.01, -3.0))
    noisy = {run: v + (-1) ** int(v) * 2.0 + 1.0 for run, v in first.items()}
    compared = {name: ((one, other), (first, v)) for name, v in (("close", close), ("far", far), ("noisy", noisy))}
    leads = values_leads({**compared, "too few": ((one, other), (first, {(0, 0): 1.0}))})
    alone = {name: values_leads({name: each})[name].p_value for name, each in compared.items()}
    assert leads.keys() == alone.keys()
    reached = 0.0
    for rank, name in enumerate(sorted(alone, key=lambda each: alone[each])):  # Holm's method by hand
        reached = max(reached, min(1.0, (len(alone) - rank) * alone[name]))
        assert leads[name].p_value == pytest.approx(reached)
