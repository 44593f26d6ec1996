from collections.abc import Callable
from dataclasses import replace

from wtawp.core import AwpConfig
from wtawp.experiments.plans.catalogue import plan
from wtawp.experiments.plans.own_runs import is_fragment, own_plans
from wtawp.experiments.plans.robustness import attack_plan
from wtawp.experiments.results.drops import compare_drops
from wtawp.experiments.results.summary import summarise
from wtawp.experiments.spec import Cell, Plan, Record, Run, Setting

MakeRecords = Callable[..., list[Record]]
PLAIN = Setting(dataset="wine", epochs=20)
PERTURBED = replace(PLAIN, awp=AwpConfig(rho=1.0, lam=0.7))


def test_a_comparison_becomes_a_plan_with_all_its_records(make_records: MakeRecords) -> None:
    compared = Plan("comparison", "", (Cell("a", "", PERTURBED, 3, 2), Cell("b", "", PLAIN, 3, 2)))
    records = make_records(compared)
    ((own,), num_unreadable) = own_plans(records)
    assert num_unreadable == 0
    assert (own.name, own.title) == ("GCN on wine", "your own runs, epochs=20")
    assert [(c.row, c.column, c.splits, c.inits) for c in own.cells] == [
        ("GCN", "wine", 3, 2),
        ("GCN, rho=1.0, lam=0.7", "wine", 3, 2),
    ]
    assert own.pairs == (("GCN", "GCN, rho=1.0, lam=0.7"),)
    report = summarise(own, records)
    assert len(report.records) == len(records) == 12
    assert report.pairs[0].is_complete


def test_settings_that_differ_in_more_than_the_perturbation_are_kept_apart(make_records: MakeRecords) -> None:
    longer = replace(PERTURBED, epochs=30)
    own, _ = own_plans(make_records(Plan("mine", "", tuple(Cell("", "", s, 2, 1) for s in (PLAIN, longer)))))
    assert [(p.title, len(p.cells), p.pairs) for p in own] == [
        ("your own runs, epochs=20", 1, ()),
        ("your own runs, epochs=30", 1, ()),
    ]


def test_runs_of_the_paper_and_surrogates_are_not_the_user_s(make_records: MakeRecords) -> None:
    table = plan("tab:natacc")
    smallest = replace(table, cells=(replace(table.cells[0], splits=1, inits=1),))
    poisoned = plan("tab:poison").cells[-1].setting
    assert poisoned.surrogate is not None
    surrogate = Plan("", "", (Cell("", "", poisoned.surrogate, 1, 1),))
    assert own_plans([*make_records(smallest), *make_records(surrogate)]) == ([], 0)


def test_some_runs_of_a_study_of_default_settings_are_the_user_s_and_all_of_them_are_not(
    make_records: MakeRecords,
) -> None:
    study = plan("extra:auto")
    study = replace(study, cells=tuple(replace(cell, splits=1) for cell in study.cells))
    some = replace(study, cells=tuple(cell for cell in study.cells if cell.column == "planetoid-pubmed"))
    (mine, _) = own_plans(make_records(some))
    assert len(mine) == len({cell.setting.model for cell in some.cells})
    assert all(len(each.pairs) == 2 for each in mine)
    assert is_fragment(study, make_records(some))
    whole = make_records(study)
    assert own_plans([r for r in whole if "GCN" not in r.setting["model"]])[0], "without the GCN it is no whole study"
    assert own_plans(whole) == ([], 0)
    assert not is_fragment(study, make_records(study))


def test_attacks_are_columns_beside_the_clean_runs_and_have_drops(
    poisoned_plan: Plan, poisoned_records: list[Record], make_records: MakeRecords
) -> None:
    surrogate = poisoned_plan.cells[1].setting.surrogate
    assert surrogate is not None
    records = [*poisoned_records, *make_records(Plan("", "", (Cell("", "", surrogate, 3, 1),)))]
    ((own,), _) = own_plans(records)
    assert [c.column for c in own.cells] == ["no attack", "poisoned by dice, 5 %"] * 2
    (compared,) = compare_drops(summarise(own, records))
    assert round(compared.change.mean, 9) == -1.0


def test_attacks_after_training_are_columns_too_and_full_names_tell_them_apart(make_records: MakeRecords) -> None:
    def evaded(steps: int) -> Setting:
        attacked = attack_plan(PLAIN, "pgd", [0.05], awp=None, poison=False, adaptive=True, splits=2, inits=1)
        setting = attacked.cells[0].setting
        return replace(setting, measures=tuple(m.with_options(steps=steps) for m in setting.measures))

    both = replace(evaded(5), measures=(*evaded(5).measures, *evaded(6).measures))
    ((own,), _) = own_plans(make_records(Plan("mine", "", (Cell("", "", both, 2, 1),))))
    columns = [c.column for c in own.cells]
    assert columns[0] == "no attack"
    assert [name.startswith("under pgd, 5 %: evasion (") for name in columns[1:]] == [True, True]
    assert len(set(columns)) == 3
    ((alone,), _) = own_plans(make_records(Plan("mine", "", (Cell("", "", evaded(5), 2, 1),))))
    assert [c.column for c in alone.cells] == ["no attack", "under pgd, 5 %"]


def test_a_record_whose_setting_cannot_be_read_is_counted(make_record: Callable[..., Record]) -> None:
    known = make_record(setting=PLAIN.content, key=Run(PLAIN, 0, 0).key)
    strange = replace(known, setting={**PLAIN.content, "model": "NobodyRegisteredThis"})
    own, num_unreadable = own_plans([known, strange])
    assert (len(own), num_unreadable) == (1, 1)


def test_versions_of_data_and_code_are_told_apart(make_records: MakeRecords) -> None:
    settings = [replace(PLAIN, dataset="mine.pt", digest=f"{digit}" * 16) for digit in (1, 2)]
    own, _ = own_plans(make_records(Plan("mine", "", tuple(Cell("", "", s, 2, 1) for s in settings))))
    assert [plan.title for plan in own] == [
        f"your own runs, epochs=20, data {8 * str(digit)}, newest record 2023-02-07T00:00" for digit in (1, 2)
    ]
