"""The committed records say what the documents say of them, and the committed report is made of them."""

import json
import math
import re
from collections import Counter
from datetime import datetime
from pathlib import Path
from statistics import mean

import numpy as np
import pytest
from scipy import stats

from wtawp.experiments.plans.catalogue import plans
from wtawp.experiments.plans.graph_level import NEAREST
from wtawp.experiments.report.figures import figures_of
from wtawp.experiments.report.markdown import render_markdown
from wtawp.experiments.report.verification import MARK, verify
from wtawp.experiments.results.claims import check
from wtawp.experiments.results.drops import compare_drops
from wtawp.experiments.results.facts import facts
from wtawp.experiments.results.geometry import (
    bounds_of,
    find_modes,
    geometry_comparisons,
    ratios_at_matched_loss,
    smoothness_comparisons,
)
from wtawp.experiments.results.league import make_league
from wtawp.experiments.results.main_claims import check_claims
from wtawp.experiments.results.statistics import holm
from wtawp.experiments.results.summary import PlanReport, summarise
from wtawp.experiments.spec import Record
from wtawp.experiments.store import load_all

RESULTS = Path(__file__).parents[1] / "results"
DOCS = Path(__file__).parents[1] / "docs"
OFF = {("GAT", "citeseer"), ("PPNP", "citeseer")}  # explained in docs/deviations.md
WAITING = {  # plans that nobody has run yet
    "extra:league-gat", "extra:league-sage", "extra:league-ppnp", "extra:league-strong",
}  # fmt: skip
READY = [plan for name, plan in plans().items() if name not in WAITING]
AGREE = {"tab:poison": (45, 75), "tab:dicepoison": (42, 50), "tab:evasion": (13, 24)}  # likewise, cell by cell
HOLD = {
    "fig:lipcora": "does not hold",
    "fig:lcagg": "holds",
    "fig:ngrad": "does not hold",
    "fig:certcora": "holds",
    "fig:certcite": "holds",
    "fig:lossland": "does not hold",
    "tab:graphclass": "does not hold",
    "extra:flatness": "does not hold",
    "claim:second-layer": "does not hold",
    "claim:left-out-layer": "does not hold",
    "claim:exact-gradient": "does not hold",
    "claim:adaptive-radius": "holds",
    "claim:vanishing-gradient": "does not hold",
}
MAIN_CLAIMS_THAT_HOLD = ["clean accuracy", "robust accuracy", "certificates", "vanishing gradients"]


@pytest.fixture(scope="module")
def records() -> list[Record]:
    return load_all([RESULTS])


@pytest.fixture(scope="module")
def reports(records: list[Record]) -> dict[str, PlanReport]:
    assert len({(r.key, r.device) for r in records}) == len(records)
    assert {r.status for r in records} == {"done"}
    return {plan.name: summarise(plan, records) for plan in READY}


def test_every_plan_that_has_been_run_is_complete(reports: dict[str, PlanReport]) -> None:
    assert not {name for name, r in reports.items() if r.count("incomplete")}
    assert set(plans()) - set(reports) == WAITING
    assert len(reports["tab:natacc"].records) == 3600


def test_every_judged_cell_agrees_but_the_two_that_are_explained(reports: dict[str, PlanReport]) -> None:
    differ = {
        (name, c.cell.row, c.cell.column)
        for name, r in reports.items()
        for c in r.cells
        if c.verdict == "differs" and name not in {*AGREE, "released:evasion", "released:poison"}
    }
    assert differ == {("tab:natacc", *place) for place in OFF}
    explained = {(c.cell.row, c.cell.column): c.verdict for c in reports["deviation:selection"].cells}
    assert {explained[place] for place in OFF} == {"agrees"}


def test_by_the_released_protocol_every_clean_cell_agrees_and_most_under_attack(
    reports: dict[str, PlanReport],
) -> None:
    released = {name: (r.count("agrees"), r.count("differs")) for name, r in reports.items() if r.plan.repeats}
    assert released == {
        "released:natacc": (18, 0),
        "released:ablation": (33, 0),
        "released:ablation2": (26, 0),
        "released:ablationlast": (15, 0),
        "released:poison": (58, 17),
        "released:evasion": (18, 6),
    }
    on_cora = [c for c in reports["released:evasion"].cells if c.cell.column.endswith("cora")]
    assert len(on_cora) == 8
    assert max(abs(c.difference or 9) for c in on_cora) < 0.21
    assert all(r.versions.get("source") for name in released for r in reports[name].records)


def test_it_makes_no_difference_whether_an_rgcn_draws_its_logits_in_evaluation(
    reports: dict[str, PlanReport],
) -> None:
    means = {(c.cell.row, c.cell.column): c.mean or 0.0 for c in reports["released:poison"].cells}
    of_rgcn = [abs(means["RGCN", column] - means["RGCN, means", column]) for row, column in means if row == "RGCN"]
    assert len(of_rgcn) == 9
    assert 0 < max(of_rgcn) < 0.015


def test_every_pair_of_the_clean_table_gains(reports: dict[str, PlanReport]) -> None:
    gains = {(p.before, p.column): p.gain for p in reports["tab:natacc"].pairs}
    assert len(gains) == 9
    for place, gain in gains.items():
        assert gain is not None
        assert gain.num_pairs == 20
        assert gain.mean > 0
        assert (gain.low > 0) == (place != ("PPNP", "polblogs"))


def test_every_marked_number_of_the_pages_is_that_of_the_records(reports: dict[str, PlanReport]) -> None:
    count, wrong = verify([RESULTS.parent / "README.md", DOCS], reports.values())
    assert not wrong, "\n".join(map(str, wrong))
    assert count > 900


def test_a_single_wrong_digit_is_found(reports: dict[str, PlanReport], tmp_path: Path) -> None:
    text = (RESULTS.parent / "README.md").read_text(encoding="utf-8")
    marks = list(MARK.finditer(text))
    changed = []
    for i, mark in enumerate(marks):
        at = max(j for j in range(mark.start()) if text[j].isdigit())
        digit = str((int(text[at]) + 1) % 10)
        (tmp_path / f"{i}.md").write_text(text[:at] + digit + text[at + 1 :], encoding="utf-8")
        changed.append(tmp_path / f"{i}.md")
    count, wrong = verify(changed, reports.values())
    assert count == len(marks) ** 2
    assert [mismatch.path for mismatch in wrong] == changed


def test_the_best_methods_of_the_league_are_told_from_averages_but_not_from_plain_training(
    reports: dict[str, PlanReport],
) -> None:
    league = make_league(reports["extra:league"])
    assert league is not None
    best, rank = next(iter(league.mean_ranks.items()))
    assert best == "WT-AWP, every other step"
    apart = [method for method, other in league.mean_ranks.items() if other - rank > league.critical_difference]
    assert apart == ["EMA", "SWA"]


def test_without_tuning_no_pair_of_model_and_data_is_harmed(reports: dict[str, PlanReport]) -> None:
    pairs = [pair for name in ("extra:auto", "extra:auto-small") for pair in reports[name].pairs]
    gains = {(p.after, p.column): p.gain for p in pairs if p.after.endswith("auto") and p.gain is not None}
    assert len(gains) == 70
    harmed = [place for place, gain in gains.items() if gain.mean < -0.15 and gain.high is not None and gain.high < 0]
    assert harmed == []
    assert min(gain.mean for gain in gains.values()) > -0.65


def test_every_record_names_the_code_that_made_it(records: list[Record]) -> None:
    assert all(r.versions.get("source") for r in records)


def test_records_of_unfinished_plans_can_be_imported(records: list[Record]) -> None:
    unfinished = load_all([RESULTS / "unfinished"])
    assert len(unfinished) == 14_240
    assert not {(r.key, r.device) for r in records} & {(r.key, r.device) for r in unfinished}
    waiting = {key for name in WAITING for cell in summarise(plans()[name], []).cells for key in cell.keys}
    assert {r.key for r in unfinished} <= waiting


def test_the_committed_trainings_are_counted(records: list[Record]) -> None:
    readme = (RESULTS.parent / "README.md").read_text(encoding="utf-8")
    assert f"the committed records of {len(records):,} trainings" in readme


def test_the_robustness_tables_agree_as_far_as_documented_and_every_gain_has_the_paper_s_sign(
    reports: dict[str, PlanReport],
) -> None:
    assert {name: (reports[name].count("agrees"), len(reports[name].cells)) for name in AGREE} == AGREE
    gains = {name: [p.gain.mean for p in reports[name].pairs if p.gain is not None] for name in AGREE}
    assert {name: len(each) for name, each in gains.items()} == {
        "tab:poison": 33,
        "tab:dicepoison": 22,
        "tab:evasion": 12,
    }
    assert min(min(each) for each in gains.values()) > 0
    significant = {name: sum((p.holm_p_value or 0) < 0.05 for p in reports[name].pairs) for name in AGREE}
    assert significant == {"tab:poison": 27, "tab:dicepoison": 20, "tab:evasion": 12}


def test_the_documented_drops_are_those_of_the_records(reports: dict[str, PlanReport]) -> None:
    compared = {(d.before, d.column): d for name in AGREE for d in compare_drops(reports[name])}
    smaller = {place for place, d in compared.items() if d.is_smaller}
    larger = {place for place, d in compared.items() if d.is_larger}
    assert (len(compared), len(smaller), len(larger)) == (44, 6, 3)
    assert {place for place in smaller if not re.match(r"PGD \d+ %", place[1])} == {("SimPGCN", "PGD, cora")}
    assert larger == {("GCN", "Metattack, citeseer"), ("SimPGCN", "DICE, cora"), ("SimPGCN", "DICE, citeseer")}
    text = without_marks(RESULTS.parent / "README.md")
    assert "significantly less accuracy from WT-AWP in 6 of 44 pairs and significantly more in 3" in text
    text = without_marks(DOCS / "attacks.md")
    for d in (compared["GCN", "Metattack, citeseer"], compared["GCN", "PGD 10 %, polblogs"]):
        numbers = (
            f"{d.clean_gain:+.2f} | {d.gain:+.2f} | {d.drop_before:.2f} | {d.drop_after:.2f} | {d.change.mean:+.2f}"
        )
        assert f"| {numbers} ({d.change.low:+.2f} to {d.change.high:+.2f}) |" in text


def without_marks(path: Path) -> str:
    """The text of a page as a reader sees it."""
    return MARK.sub("", path.read_text(encoding="utf-8"))


def test_the_documented_time_of_the_robustness_tables_is_that_of_their_records() -> None:
    gpu = [r for r in load_all([RESULTS / "attacks.jsonl.gz"]) if r.device != "cpu"]
    times = [datetime.fromisoformat(r.created) for r in gpu]
    minutes = (max(times) - min(times)).total_seconds() / 60
    assert f"in {minutes:.1f} minutes (from the first record to the last)" in without_marks(DOCS / "experiments.md")


def test_the_flips_that_the_cpu_used_are_those_that_are_documented() -> None:
    flips: dict[tuple[str, bool], dict[int, str]] = {}
    for r in load_all([RESULTS / "attacks.jsonl.gz"]):
        if r.setting.get("poison") and (r.setting["dataset"], r.setting["model"]) == ("cora", "GCN"):
            attack = dict(r.setting["poison"]["options"])["attack"]
            flips.setdefault((attack, r.device == "cpu"), {})[r.split] = r.versions["flips"]
    assert flips["metattack", True] == flips["metattack", False]
    assert not set(flips["pgd", True].values()) & set(flips["pgd", False].values())


def test_a_drop_of_the_evasion_table_is_that_of_a_loop_over_the_records(reports: dict[str, PlanReport]) -> None:
    drops: dict[bool, dict[int, list[float]]] = {False: {}, True: {}}
    for r in load_all([RESULTS / "attacks.jsonl.gz"]):
        measures = r.setting.get("measures", [])
        if r.setting["dataset"] == "cora" and len(measures) == 2 and dict(measures[0]["options"])["attack"] == "pgd":
            assert r.accuracy is not None
            assert r.measured is not None
            drop = 100 * (r.accuracy["test"] - r.measured[0]["accuracy"])
            drops[r.setting["awp"] is not None].setdefault(r.split, []).append(drop)
    changes = [mean(drops[True][split]) - mean(drops[False][split]) for split in range(20)]
    (compared,) = (d for d in compare_drops(reports["tab:evasion"]) if d.column == "PGD 5 %, cora")
    honest = stats.ttest_1samp(changes, 0.0)
    assert compared.change.mean == pytest.approx(mean(changes))
    assert compared.change.p_value == pytest.approx(honest.pvalue)


def test_attacks_are_as_strong_as_the_paper_s_on_cora(reports: dict[str, PlanReport]) -> None:
    evaded = {c.cell.column: c for c in reports["tab:evasion"].cells if c.cell.row == "GCN"}
    for column in ("PGD 5 %, cora", "PGD 10 %, cora"):
        assert abs(evaded[column].difference or 9) < 1
    (poisoned,) = (c for c in reports["tab:poison"].cells if (c.cell.row, c.cell.column) == ("GCN", "Metattack, cora"))
    assert abs(poisoned.difference or 9) < 2


def test_attacks_hurt_more_than_random_flips_over_twenty_splits(reports: dict[str, PlanReport]) -> None:
    pairs = {(p.after, p.column): p for p in reports["extra:attacks"].pairs}
    assert all(p.gain is not None and p.gain.num_pairs == 20 for p in pairs.values())
    strong = [("PGD", "evasion, cora"), ("PRBCD", "evasion, cora"), ("GRBCD", "evasion, cora"),
              ("PGD", "poisoning, cora"), ("Min-Max", "poisoning, cora"), ("Metattack", "poisoning, cora")]  # fmt: skip
    for place in strong:
        gain = pairs[place].gain
        assert gain is not None
        assert gain.high < 0, place


def test_the_documented_cost_of_attacks_is_that_of_the_records() -> None:
    spent: Counter[tuple[str, str]] = Counter()
    for record in load_all([RESULTS / "attacks.jsonl.gz"]):
        for measure in record.setting.get("measures", [])[:1]:
            if record.device != "cpu":
                spent[measure["name"], dict(measure["options"])["attack"]] += record.seconds
    text = (DOCS / "attacks.md").read_text(encoding="utf-8")
    documented = dict(re.findall(r"^\| [\d,]+ (\w+ by \w+).* \| (\d+) \|$", text, re.MULTILINE))
    assert {what: float(seconds) for what, seconds in documented.items()} == {
        "poisonings by PGD": pytest.approx(spent["poison", "pgd"], rel=0.05),
        "poisonings by Metattack": pytest.approx(spent["poison", "metattack"], rel=0.05),
        "evasions by PGD": pytest.approx(spent["evasion", "pgd"], rel=0.05),
    }


@pytest.mark.parametrize("name", ["fig:certcora", "fig:certcite"])
def test_wt_awp_certifies_more_against_feature_flips_at_every_radius(reports: dict[str, PlanReport], name: str) -> None:
    def certified(row: str) -> np.ndarray:
        (cell,) = (c for c in reports[name].cells if (c.cell.row, c.cell.measure) == (row, 0))
        return np.mean([(r.measured or [])[0]["certified"] for r in cell.records], axis=0)

    plain, perturbed = certified("GCN"), certified("GCN+WT-AWP")
    somewhere = (plain > 0) | (perturbed > 0)
    assert somewhere.sum() == 70
    assert (perturbed > plain)[somewhere].all()


def test_the_documented_soundness_of_certificates_is_that_of_the_recorded_attempts() -> None:
    recorded = json.loads((RESULTS / "certificate_soundness.json").read_text(encoding="utf-8"))
    tried, closest = {}, 1.0
    for result in recorded["results"]:
        attempts = result["attempts"]
        broken = [node for attempt in attempts for node in attempt["broken"]]
        tried[result["on"]] = sum(len(attempt["nodes"]) for attempt in attempts)
        closest = min(closest, *(attempt["margin"] for attempt in attempts))
        assert (result["pairs"], result["broken"]) == (tried[result["on"]], len(broken))
        # An attempt that flips nothing breaks nothing.
        assert all(sum(attempt["radius"]) > 0 and attempt["nodes"] for attempt in attempts)
        assert len({attempt["attack"] for attempt in attempts}) == 2
        assert not broken
    text = " ".join((DOCS / "certificates.md").read_text(encoding="utf-8").split())
    assert f"of {tried['features']} guarantees on features and {tried['edges']} on edges none was broken" in text
    assert f"was never closer to the next than {math.floor(100 * closest)} % of the votes" in text


def test_the_claims_stand_as_documented(reports: dict[str, PlanReport]) -> None:
    found = {name: {check(claim, r).verdict for claim in r.plan.claims} for name, r in reports.items() if r.plan.claims}
    assert found == {name: {verdict} for name, verdict in HOLD.items()}


def test_the_main_claims_stand_as_documented(reports: dict[str, PlanReport]) -> None:
    claims = check_claims(reports)
    mains = {claim.subject: claim.outcome.verdict for claim in claims if claim.is_main}
    assert [subject for subject, verdict in mains.items() if verdict == "holds"] == MAIN_CLAIMS_THAT_HOLD
    assert Counter(mains.values()) == {"holds": 4, "does not hold": 7}
    assert Counter(claim.outcome.verdict for claim in claims) == {"holds": 10, "does not hold": 14}


def test_cells_agree_beyond_what_the_plain_model_would_give(reports: dict[str, PlanReport]) -> None:
    """The same counts by a loop over the tables: our plain model in the place of WT-AWP agrees in fewer cells."""
    plain = {c.cell.column: c.mean for c in reports["tab:natacc"].cells if c.cell.row == "GCN"}
    agree, places = 0, set()
    for name in ("tab:natacc", "tab:ablation", "tab:ablation2", "tab:ablationlast"):
        for c in reports[name].cells:
            if c.cell.setting.content_json in places or c.verdict not in ("agrees", "differs"):
                continue
            places.add(c.cell.setting.content_json)
            row = "GCN" if name != "tab:natacc" else c.cell.row.removesuffix("+WT-AWP")
            means = {d.cell.row: d.mean for d in reports["tab:natacc"].column(c.cell.column)}
            agree += abs((plain["cora"] if name != "tab:natacc" else means[row]) - c.cell.printed[0]) <= 0.5
    assert (agree, len(places)) == (73, 91)
    assert facts(reports)["clean cells that agree without the method"]() == agree


def test_the_smoothness_of_the_paper_is_that_of_the_released_code_in_the_last_epoch(
    reports: dict[str, PlanReport],
) -> None:
    better: Counter[tuple[str, bool]] = Counter()
    for compared in smoothness_comparisons(reports["fig:lipcora"]):
        better[compared.definition, compared.is_last_epoch] += compared.num_better
    assert better == {("paper", False): 31, ("released", False): 57, ("paper", True): 1, ("released", True): 77}


def test_by_most_measures_wt_awp_is_sharper(reports: dict[str, PlanReport]) -> None:
    compared = [c for c in geometry_comparisons(reports["extra:flatness"]) if c.is_flatness]
    corrected = holm([float(stats.ttest_1samp(np.log(c.ratio), 0.0).pvalue) for c in compared])
    verdicts = {(c.column, c.quantity.label): c.verdict(p) for c, p in zip(compared, corrected, strict=True)}
    assert Counter(verdicts.values()) == {"flatter": 1, "sharper": 32, "undecided": 7}
    flatter = {place for place, verdict in verdicts.items() if verdict == "flatter"}
    assert flatter == {("cora", "sharpness, layer, rho=0.1")}


def test_the_selected_weights_are_of_two_kinds_on_both_data_sets(reports: dict[str, PlanReport]) -> None:
    modes = find_modes(geometry_comparisons(reports["extra:flatness"]))
    assert {column: (len(m.lower), len(m.upper)) for column, m in modes.items()} == {
        "cora": (10, 10),
        "citeseer": (9, 11),
    }


def test_at_like_losses_wt_awp_is_flatter_by_the_measure_it_trains_with(reports: dict[str, PlanReport]) -> None:
    found = {
        (c.column, c.quantity.label): (c.num_below, c.num_splits)
        for c in ratios_at_matched_loss(reports["extra:flatness"])
    }
    for column, splits in (("cora", 10), ("citeseer", 3)):
        for measure in ("sharpness, layer, rho=0.05", "sharpness, layer, rho=0.1", "rise along random lines, unit"):
            assert found[column, measure] == (splits, splits)
        for measure in ("sharpness, adaptive, rho=2", "largest eigenvalue"):
            assert found[column, measure] == (0, splits)


def test_every_bound_is_vacuous(reports: dict[str, PlanReport]) -> None:
    found = [result for cell in reports["extra:bounds"].cells for result in bounds_of(cell).values()]
    assert len(found) == 200
    assert min(min(result["total"]) for result in found) > 1


def test_no_gain_on_graphs_is_told_from_chance(reports: dict[str, PlanReport]) -> None:
    told = {
        (name, p.before, p.column): p.gain.mean > 0
        for name in ("tab:graphclass", "extra:graphclass")
        for p in reports[name].pairs
        if p.gain is not None and p.holm_p_value is not None and p.holm_p_value < 0.05
    }
    assert told == {("extra:graphclass", "GCN, degrees", "proteins"): False}, "one loss, and no gain"
    gains = {p.column: round(p.gain.mean, 2) for p in reports["tab:graphclass"].pairs if p.gain is not None}
    assert gains == {"proteins": -0.53, "imdb-binary": -0.43, "imdb-multi": -0.15}
    assert [len(cell.records) for cell in reports["tab:graphclass"].column("proteins")] == [100, 100]


def test_no_setting_has_the_printed_baselines_of_graphs_and_the_nearest_was_chosen(
    reports: dict[str, PlanReport],
) -> None:
    distances: dict[str, list[float]] = {}
    validation: dict[str, dict[str, float]] = {}
    for c in reports["deviation:graphclass"].cells:
        distances.setdefault(c.cell.row, []).append(abs(c.difference or 0.0))
        accuracies = [(record.accuracy or {})["val"] for record in c.records]
        validation.setdefault(c.cell.column, {})[c.cell.row] = sum(accuracies) / len(accuracies)
    on_all = {row: sum(each) / 3 for row, each in distances.items() if len(each) == 3}
    assert min(max(distances[row]) for row in on_all) > 3
    assert min(on_all, key=lambda row: on_all[row]) == NEAREST
    assert {max(rows, key=lambda row: rows[row]) for rows in validation.values()} == {NEAREST}


def test_the_committed_report_is_made_from_the_committed_records(reports: dict[str, PlanReport]) -> None:
    text = render_markdown(list(reports.values()), figures="figures")
    assert text == (RESULTS / "README.md").read_text(encoding="utf-8")
    drawn = [line.split("](")[1].rstrip(")") for line in text.splitlines() if line.startswith("![")]
    assert len(drawn) == 51
    assert all((RESULTS / name).read_text(encoding="utf-8").startswith("<svg") for name in drawn)


def numbers_and_rest(svg: str) -> tuple[list[float], str]:
    """The decimal numbers of a drawing, and what is left of it without the ids that are hashes of such numbers."""
    rest = re.sub(r"(id=\"|url\(#|href=\"#)[mp][0-9a-f]{8,12}", r"\1", svg)
    return [float(n) for n in re.findall(r"-?\d+\.\d+", rest)], re.sub(r"-?\d+\.\d+", "0", rest)


@pytest.mark.parametrize(
    "name",
    ["tab:natacc", "tab:ablation", "fig:lipcora", "fig:lossland", "fig:certcora", "fig:gdnorm_all", "extra:flatness",
     "extra:sharpness", "extra:vanishing", "extra:bounds"],
)  # fmt: skip
def test_the_committed_figures_are_drawn_from_the_committed_records(reports: dict[str, PlanReport], name: str) -> None:
    """Up to the last digit of coordinates, which other processors round otherwise."""
    for figure, svg, _ in figures_of(reports[name]):
        file = RESULTS / "figures" / f"{re.sub('[^A-Za-z0-9]+', '-', name)}-{figure}.svg"
        committed = file.read_text(encoding="utf-8")
        numbers, rest = numbers_and_rest(svg)
        committed_numbers, committed_rest = numbers_and_rest(committed)
        assert rest == committed_rest
        assert numbers == pytest.approx(committed_numbers, abs=1e-4)
