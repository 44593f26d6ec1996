from collections import Counter

from wtawp.base import rng
from wtawp.experiments.plans.catalogue import plan
from wtawp.experiments.plans.graph_level import BASELINES, GRAPHS
from wtawp.models import PooledGCN


def test_graphs_are_classified_in_ten_splits_with_the_first_convolution_perturbed() -> None:
    table = {(c.row, c.column): c for c in plan("tab:graphclass").cells}
    assert len(table) == 6
    assert len(plan("tab:graphclass").runs()) == 600
    cell = table["GCN+WT-AWP", "imdb-multi"]
    assert cell.printed == (57.26, 0.63)
    assert str(cell.setting) == "PooledGCN on imdb-multi, rho=0.1, lam=0.05, layers='first'"
    assert cell.setting.select_on == "accuracy"
    assert str(table["GCN+WT-AWP", "proteins"].setting.awp) == "rho=0.5, lam=0.3, layers='first'"
    more = plan("extra:graphclass")
    assert {run.key for c in more.cells if "split 0" in c.row for run in c.runs()} < {
        run.key for run in plan("tab:graphclass").runs()
    }
    assert {c.setting.batch_size for c in more.cells} == {None, 32, 64}
    assert {(c.splits, c.inits) for c in more.cells if c.setting.batch_size is None} == {(1, 10), (20, 5), (20, 1)}


def test_the_search_for_the_baseline_changes_what_the_text_leaves_open_and_never_perturbs() -> None:
    search = plan("deviation:graphclass")
    assert {c.setting.awp for c in search.cells} == {None}
    assert {(c.setting.batch_size is None, c.splits, c.inits) for c in search.cells} == {(True, 20, 1), (False, 10, 1)}
    assert {(c.column, c.printed) for c in search.cells} == {
        ("proteins", (75.05, 1.4)), ("imdb-binary", (72.4, 2.73)), ("imdb-multi", (55.53, 1.33))
    }  # fmt: skip
    rows = Counter(c.row for c in search.cells)
    assert set(rows) == set(BASELINES)
    assert {row: n for row, n in rows.items() if n != len(GRAPHS)} == {"node labels alone": 1, "degrees": 1}
    assert len({c.setting for c in search.cells}) == len(search.cells)
    assert search.cells[0].setting == plan("tab:graphclass").cells[0].setting
    for cell in search.cells:
        PooledGCN(4, 2, **dict(cell.setting.options), generator=rng("init"))
