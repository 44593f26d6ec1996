from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from wtawp.base import rng
from wtawp.core import AwpConfig
from wtawp.experiments.execution.engines import local
from wtawp.experiments.spec import PlanError, Setting, SplitRule
from wtawp.experiments.store import Store
from wtawp.experiments.tuning.dimensions import Range
from wtawp.experiments.tuning.methods import METHODS, Method
from wtawp.experiments.tuning.report import TuningReport
from wtawp.experiments.tuning.runner import num_processes, prepare_search, run_tuning
from wtawp.experiments.tuning.search import TimeBudget
from wtawp.experiments.tuning.study import Trial, open_study
from wtawp.graphs import load

AWP = AwpConfig(rho=1.0, lam=0.7)
ENDLESS = TimeBudget.of_minutes(None, start=0.0)


def tuned(setting: Setting, folder: Path, sentences: list[str]) -> TuningReport:
    search = prepare_search(setting, AWP, user_set=(), seed=0)
    folder.mkdir()
    with (
        Store(folder / "r.sqlite") as store,
        open_study(folder / "s.sqlite", search.identity, search.spaces, seed=0) as study,
    ):
        report, _ = run_tuning(
            search, study, store, max_trials=2, most_compared=2, budget=ENDLESS, workers=1, device="cpu",
            engine=local(), progress=lambda *_: None, announce=sentences.append,
        )  # fmt: skip
        return report


def masked_graph(path: Path, *, permute_test_labels: bool) -> Setting:
    """Wine with masks, in a file."""
    data = load("wine")
    assert isinstance(data, Data)
    part = torch.randint(3, (178,), generator=rng("parts"))
    masks = {name: part == i for i, name in enumerate(("train_mask", "val_mask", "test_mask"))}
    y = data.y.clone()
    if permute_test_labels:
        test = masks["test_mask"].nonzero()[:, 0]
        y[test] = y[test][torch.randperm(len(test), generator=rng("permuted"))]
    torch.save(Data(x=data.x, edge_index=data.edge_index, y=y, **masks), path)
    return Setting(dataset=str(path), epochs=3, split=SplitRule(kind="masks"))


def test_permuted_test_labels_change_nothing_in_the_study(tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="SEARCHES NOT CHECKED: pip install 'wtawp[tune]'")
    trials: list[list[Trial]] = []
    tested: list[float | None] = []
    for permute in (False, True):
        setting = masked_graph(tmp_path / f"{permute}.pt", permute_test_labels=permute)
        report = tuned(setting, tmp_path / f"{permute}", [])
        made = [trial for arm in ("plain", "WT-AWP") for trial in report.study.trials(arm)]
        trials.append([Trial(t.parameters, t.first_accuracy, t.accuracy, 0.0) for t in made])
        tested.append(report.comparison.cells[0].mean)
    assert len(trials[0]) == 4
    assert trials[0] == trials[1]
    assert tested[0] != tested[1], "the comparison sees the test labels"


def test_data_and_code_identify_a_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WTAWP_HOME", str(tmp_path / "home"))
    search = prepare_search(Setting(dataset="wine"), AWP, user_set=(), seed=0)
    assert search.identity["dataset"] == "wine"
    assert "lr" not in search.identity, "it is varied"
    others = [
        prepare_search(Setting(dataset="wine", epochs=3), AWP, user_set=(), seed=0),
        prepare_search(Setting(dataset="wine"), AWP, user_set={"lr"}, seed=0),
        prepare_search(Setting(dataset="wine"), AWP, user_set=(), seed=1),
        prepare_search(Setting(dataset="wine"), AwpConfig(rho=2.0, lam=0.7), user_set={"rho"}, seed=0),
    ]
    assert len({each.default_path for each in (search, *others)}) == 5
    first = prepare_search(masked_graph(tmp_path / "g.pt", permute_test_labels=False), AWP, user_set=(), seed=0)
    again = prepare_search(masked_graph(tmp_path / "g.pt", permute_test_labels=True), AWP, user_set=(), seed=0)
    assert first.identity != again.identity, "the file has another content"


def test_what_cannot_be_trained_is_refused_before_anything_is_searched() -> None:
    with pytest.raises(PlanError, match="this search"):
        prepare_search(Setting(dataset="wine", model="PooledGIN"), AWP, user_set=(), seed=0)


@pytest.mark.parametrize(
    ("fixed", "words"),
    [
        ({"rho": 1.0, "lam": 0.5, "layers": "conv9.*"}, r"match none of .* \[the search of mine: GCN on"),
        (
            {"rho": 1.0, "lam": 0.5, "start": 200},
            "GCN cannot be trained with mine: start=200 leaves no perturbed epoch",
        ),
        ({"rho": 1.0, "lam": 2.0}, "GCN cannot be trained with mine: lam must lie in"),
        ({"rho": 1.0, "lam": 0.5, "gamma": 1.0}, "GCN cannot be trained with mine: .*gamma"),
    ],
)
def test_a_method_that_cannot_be_used_is_refused_before_anything_is_searched(
    fixed: dict[str, float | str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "mine", Method("", fixed=fixed))
    with pytest.raises(PlanError, match=words):
        prepare_search(Setting(dataset="wine"), AWP, user_set=(), seed=0, methods=["mine"])


def test_an_arm_whose_untuned_setting_is_outside_of_its_ranges_is_checked_with_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    varied, untuned = {"rho": Range(0.1, 1.0)}, {"rho": 2.0}
    monkeypatch.setitem(METHODS, "mine", Method("", fixed={"lam": 0.5}, varied=varied, untuned=untuned))
    space = prepare_search(Setting(dataset="wine"), AWP, user_set=(), seed=0, methods=["mine"]).spaces["mine"]
    assert space.start is None
    assert space.example["rho"] == 0.1


def test_processes_are_started_only_for_long_searches() -> None:
    search = prepare_search(Setting(dataset="wine", epochs=3), AWP, user_set=(), seed=0)
    assert num_processes(search, max_trials=2, budget=ENDLESS) == 1
    assert num_processes(search, max_trials=None, budget=TimeBudget(0.0, 1.0)) == 1
