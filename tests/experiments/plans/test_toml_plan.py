from pathlib import Path

import pytest

from wtawp.base import DataError
from wtawp.core import AwpConfig
from wtawp.experiments.plans import toml_plan
from wtawp.experiments.plans.robustness import evading, poisoning
from wtawp.experiments.plans.toml_plan import read_plan
from wtawp.experiments.spec import PlanError
from wtawp.graphs import load

GOOD = """
name = "mine"
splits = 3
inits = 2
[base]
dataset = "wine"
epochs = 5
options = { hidden = [8], dropout = 0.2 }
[[cell]]
row = "GCN"
[[cell]]
row = "GCN + WT-AWP"
compare_with = "GCN"
awp = { rho = 1, lam = 0.7, layers = ["convs.0.weight"] }
lr = 0.02
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "plan.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_plan_is_read_with_its_base_and_pairs(tmp_path: Path) -> None:
    plan = read_plan(written(tmp_path, GOOD))
    plain, perturbed = (cell.setting for cell in plan.cells)
    assert (plan.name, plan.pairs, len(plan.runs())) == ("mine", (("GCN", "GCN + WT-AWP"),), 12)
    assert plain.options == (("dropout", 0.2), ("hidden", (8,)))
    assert plain.awp is None
    assert perturbed.awp == AwpConfig(rho=1, lam=0.7, layers=("convs.0.weight",))
    assert (plain.lr, perturbed.lr, perturbed.epochs) == (0.01, 0.02, 5)


def test_lam_may_follow_the_training(tmp_path: Path) -> None:
    plan = read_plan(written(tmp_path, GOOD.replace("lam = 0.7", 'lam = "auto", every = 2')))
    assert plan.cells[1].setting.awp == AwpConfig(rho=1, lam="auto", layers=("convs.0.weight",), every=2)


def test_the_example_of_the_module_is_a_plan(tmp_path: Path) -> None:
    text = (toml_plan.__doc__ or "").split("\n\n", 1)[1]
    assert len(read_plan(written(tmp_path, text)).runs()) == 50


def test_row_2_a_split_is_a_word_or_a_table(tmp_path: Path) -> None:
    head = 'splits = 2\n[base]\ndataset = "wine"\n'
    splits = ['"masks"', '"random"', "{ train = 0.5 }", '{ kind = "k-fold", folds = 4 }']
    cells = [f'[[cell]]\nrow = "{i}"\nsplit = {split}\n' for i, split in enumerate(splits)]
    plan = read_plan(written(tmp_path, head + "".join(cells)))
    assert [str(cell.setting.split) for cell in plan.cells] == ["masks", "random", "random (train 0.5)", "4-fold"]
    for split, words in (
        ('"halves"', "a split is one of"),
        ("{ share = 1 }", r"cell\[0\].split.share: expected one of"),
    ):
        with pytest.raises(PlanError, match=words):
            read_plan(written(tmp_path, f'{head}[[cell]]\nrow = "a"\nsplit = {split}\n'))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('name = "mine"', 'nmae = "mine"', r"plan.toml: nmae: expected one of the keys .* got an unknown one"),
        ("splits = 3", 'splits = "3"', "plan.toml: splits: expected int, got '3'"),
        ("splits = 3", "splits = 0", "plan.toml: splits: expected a whole number from 1 to 100000, got 0"),
        ("epochs = 5", "epochs = true", "plan.toml: base.epochs: expected int, got True"),
        ("epochs = 5", "epochs = 0", r"plan.toml: cell\[0\]: epochs must be a whole number >= 1, got 0"),
        ("rho = 1", "rho = -1", r"plan.toml: cell\[1\]: rho must be a finite number >= 0, got -1"),
        ("rho = 1, ", "", r"plan.toml: cell\[1\].awp.rho: expected a number, got nothing"),
        ("lam = 0.7", 'lam = "big"', r"plan.toml: cell\[1\]: lam must lie in \[0, 1\] or be .auto., got 'big'"),
        ("lam = 0.7", "lamb = 0.7", r"plan.toml: cell\[1\].awp.lamb: expected one of the keys \['balance'"),
        ('dataset = "wine"', "", r"plan.toml: cell\[0\].dataset: expected the name or file of a graph, got nothing"),
        ('compare_with = "GCN"', 'compare_with = "GAT"', r"cell\[1\].compare_with: expected one of the other rows"),
        ('row = "GCN + WT-AWP"', 'row = "GCN"', "cell: expected every row and column once"),
        ("[[cell]]", "[[cel]]", r"plan.toml: cel: expected one of the keys"),
        ('"wine"', '"wien"', r"plan.toml: base.dataset: there is no graph called 'wien'.*did you mean wine\?"),
        ("hidden = [8]", "hiden = [8]",
         r"plan.toml: base.options.hiden: expected one of the options of GCN, hidden, .*; did you mean hidden\?"),
        ('row = "GCN + WT-AWP"', 'row = "mine"\nmodel = "no_such_models:Net"',
         r"plan.toml: cell\[1\].model: expected package.module:Class, got 'no_such_models:Net'; there is no such"),
        ('[base]\n', "[base\n", "plan.toml is not TOML: "),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_file_and_key(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in GOOD
    with pytest.raises(PlanError, match=words):
        read_plan(written(tmp_path, GOOD.replace(old, new)))


def test_a_missing_file_or_no_cells_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="cannot be read: No such file"):
        read_plan(tmp_path / "none.toml")
    with pytest.raises(PlanError, match=r"cell: expected at least one \[\[cell\]\], got none"):
        read_plan(written(tmp_path, 'name = "empty"'))


ATTACKED = """
[base]
dataset = "wine"
[[cell]]
row = "after"
evasion = { attack = "pgd", budget = 0.05, steps = 7 }
[[cell]]
row = "before"
poison = { attack = "dice", budget = 12 }
"""


def test_attacks_before_and_after_training_can_be_asked_for(tmp_path: Path) -> None:
    after, before = read_plan(written(tmp_path, ATTACKED)).cells
    assert after.measure == 0
    assert after.setting.measures == (evading("pgd", 0.05, steps=7),)
    assert (before.measure, before.setting.poison) == (None, poisoning("dice", 12))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('attack = "dice", ', "", r"cell\[1\].poison.attack: expected one of random, dice, .* got nothing"),
        (
            'attack = "pgd"',
            'attack = "pdg"',
            r"cell\[0\].evasion.attack: expected one of random, .* got 'pdg'; did you mean pgd",
        ),
        (", budget = 12", "", r"cell\[1\].poison.budget: expected a share or a number of edges, got nothing"),
        (
            "budget = 12",
            "budget = 5.0",
            r"cell\[1\].poison.budget: expected a share in \(0, 1\] or a whole number of edges, got 5.0",
        ),
        (
            '"pgd"',
            '"no_such_attacks:find"',
            r"cell\[0\].evasion.attack: expected package.module:function, got 'no_such",
        ),
        ("budget = 12", "budget = nan", r"cell\[1\]: option budget must be a finite number"),
    ],
)
def test_a_mistake_in_an_attack_is_named(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in ATTACKED
    with pytest.raises(PlanError, match=words):
        read_plan(written(tmp_path, ATTACKED.replace(old, new)))


def test_graphs_may_come_in_batches_and_with_other_features(tmp_path: Path) -> None:
    text = '[[cell]]\ndataset = "proteins"\nmodel = "PooledGCN"\nbatch_size = 32\nfeatures = "degree"\n'
    (cell,) = read_plan(written(tmp_path, text)).cells
    assert (cell.setting.batch_size, cell.setting.features) == (32, "degree")


@pytest.mark.parametrize(("text", "average"), [("0.95", 0.95), ('"swa"', "swa")])
def test_weights_are_averaged_as_the_plan_says(tmp_path: Path, text: str, average: object) -> None:
    (cell,) = read_plan(written(tmp_path, f'[[cell]]\ndataset = "wine"\naverage = {text}\n')).cells
    assert cell.setting.average == average
    with pytest.raises(PlanError, match="average must be the decay of a moving average"):
        read_plan(written(tmp_path, '[[cell]]\ndataset = "wine"\naverage = "ema"\n'))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a = " + "[" * 100_000, "is not TOML"),
        ("splits = " + "1" * 5000, "is not TOML"),
        ("#" * 2**20 + "\n", "has more than 1,048,576 bytes"),
        ('inits = 1001\ncell = [{dataset = "wine"}]', "inits: expected a whole number from 1 to 1000, got 1001"),
        (
            'splits = 9223372036854775807\ncell = [{dataset = "wine"}]',
            "splits: expected a whole number from 1 to 100000",
        ),
    ],
)
def test_a_plan_beyond_all_bounds_is_refused(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=words):
        read_plan(written(tmp_path, text))


@pytest.mark.parametrize("dataset", ["a" * 5000 + ".npz", "~nobody-here/x.npz", "\\u0000.npz"])
def test_a_name_that_no_file_can_have_is_refused_when_the_data_are_loaded(dataset: str, tmp_path: Path) -> None:
    plan = read_plan(written(tmp_path, f'cell = [{{dataset = "{dataset}"}}]'))
    with pytest.raises(DataError):
        load(plan.cells[0].setting.dataset)


def test_substitutes_for_gradients_are_options_of_a_plan(tmp_path: Path) -> None:
    text = GOOD.replace("lam = 0.7", 'lam = 0.7, direction = "momentum", perturbed_gradient = "functional"')
    awp = read_plan(written(tmp_path, text)).cells[1].setting.awp
    assert awp is not None
    assert (awp.direction, awp.perturbed_gradient) == ("momentum", "functional")


def test_an_attack_of_the_user_is_one_request_as_a_measure_and_as_an_evasion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tpattack.py").write_text("def star(data, *, budget, seed): ...", encoding="utf-8")
    table = '{ attack = "tpattack:star", budget = 3 }'
    measure = table.replace("{", '{ name = "evasion",')
    cells = f"[[cell]]\nrow = 'a'\nevasion = {table}\n[[cell]]\nrow = 'b'\nmeasures = [{measure}]\n"
    text = f"[base]\ndataset = 'wine'\n{cells}"
    first, second = (cell.setting for cell in read_plan(written(tmp_path, text)).cells)
    assert first == second
    assert isinstance(dict(first.measures[0].options)["code"], str)
    for wrong, words in (("tpnone:star", "no such module"), ("tpattack:moon", "no attribute 'moon'")):
        with pytest.raises(PlanError, match=words):
            read_plan(written(tmp_path, text.replace("tpattack:star", wrong)))
