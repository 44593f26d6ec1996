import pytest

from wtawp.core import AwpConfig
from wtawp.experiments.results.methods import Method, method_of


@pytest.mark.parametrize(
    ("awp", "method"),
    [
        (None, Method.PLAIN),
        (AwpConfig(rho=1.0, lam="auto"), Method.WT_AWP),
        (AwpConfig(rho=0.0, lam=0.5), Method.PLAIN),
        (AwpConfig(rho=1.0, lam=0.0), Method.PLAIN),
        (AwpConfig(rho=1.0, lam=0.5), Method.WT_AWP),
        (AwpConfig(rho=1.0, lam=0.5, layers="first"), Method.WT_AWP),
        (AwpConfig(rho=1.0, lam=0.5, layers=("0.*",), radius="global"), Method.WT_AWP),
        (AwpConfig(rho=1.0, lam=1.0), Method.T_AWP),
        (AwpConfig(rho=1.0, lam=0.5, layers="all"), Method.W_AWP),
        (AwpConfig(rho=1.0, lam=1.0, layers="all"), Method.AWP),
        (AwpConfig(rho=1.0, lam=1.0, layers="all", balance=1.0), Method.AWP),
        (AwpConfig(rho=0.05, lam=1.0, layers="all", radius="global"), Method.SAM),
        (AwpConfig(rho=0.5, lam=1.0, layers="all", radius="adaptive"), Method.ASAM),
        (AwpConfig(rho=0.05, lam=1.0, layers="*", radius="global"), Method.SAM),
    ],
)
def test_weighted_and_truncated_name_the_method(awp: AwpConfig | None, method: Method) -> None:
    assert method_of(awp) is method
