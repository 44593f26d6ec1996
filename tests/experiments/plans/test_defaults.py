import pytest

from wtawp.core import AwpConfig
from wtawp.experiments.plans.defaults import default_awp
from wtawp.experiments.plans.graph_level import GRAPHS


@pytest.mark.parametrize("dataset", ["cora", "proteins", "my/graph.npz"])
def test_a_model_of_nodes_gets_the_pair_of_the_paper_for_cora_on_every_data_set(dataset: str) -> None:
    assert default_awp("GCN", dataset) == AwpConfig(lam=0.7, rho=1.0, layers="all-but-last")


@pytest.mark.parametrize(("dataset", "pair"), GRAPHS.items())
def test_a_model_of_graphs_gets_the_pair_of_its_data_set_on_the_first_layer(
    dataset: str, pair: tuple[float, float]
) -> None:
    lam, rho = pair
    assert default_awp("PooledGCN", dataset) == AwpConfig(lam=lam, rho=rho, layers="first")
    assert default_awp("PooledGCN", "my/graphs.zip") == AwpConfig(lam=0.7, rho=1.0, layers="first")


def test_weights_that_are_distributions_are_not_perturbed() -> None:
    assert default_awp("RGCN", "cora") is None
    assert default_awp("RGCN", "cora", rho=1.0, lam=0.5, layers="all") is None


def test_values_that_are_given_take_precedence() -> None:
    assert default_awp("GCN", "cora", rho=2.5, lam=0.1, layers="last") == AwpConfig(lam=0.1, rho=2.5, layers="last")
    assert default_awp("GCN", "cora", lam=0.0) == AwpConfig(lam=0.0, rho=1.0)
    assert default_awp("GCN", "cora", default_lam=0.5) == AwpConfig(lam=0.5, rho=1.0)
    assert default_awp("GCN", "cora", lam=0.3, default_lam=0.5) == AwpConfig(lam=0.3, rho=1.0)


def test_one_given_value_replaces_the_pair_of_the_paper_as_a_whole() -> None:
    assert default_awp("PooledGCN", "proteins", rho=2.0) == AwpConfig(lam=0.7, rho=2.0, layers="first")
    assert default_awp("PooledGCN", "proteins", lam=0.9) == AwpConfig(lam=0.9, rho=1.0, layers="first")
    only_layers = default_awp("PooledGCN", "proteins", layers="all")
    assert only_layers == AwpConfig(lam=GRAPHS["proteins"][0], rho=GRAPHS["proteins"][1], layers="all")
